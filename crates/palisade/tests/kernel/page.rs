//! The page of an agent and of `palisade ui`, and previews over what the agent recorded of real packets.

use crate::agent::Agent;
use crate::agent::shop::{ADDRESSES, FROM_WEB_8080, Shop, address, policy};
use palisade_testkit::lab::ProbeFlow;
use palisade_testkit::need_root;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Timeout for what is recorded.
const PATIENCE: Duration = Duration::from_secs(20);
/// The page of the agent.
const AGENT: &str = "127.0.0.1:8088";
/// The page of the command.
const COMMAND: &str = "[::1]:8089";

/// The response to a request, with its head.
fn request(shop: &Shop, address: &'static str, request: &str) -> (String, String) {
    let request = request.to_owned();
    let text = shop.lab.run_in(shop.lab.host(), move || {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    });
    let text = text.unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    (head.to_owned(), body.to_owned())
}

pub(crate) fn get(shop: &Shop, address: &'static str, path: &str) -> (String, String) {
    let asked = format!("GET {path} HTTP/1.0\r\nhost: {address}\r\nconnection: close\r\n\r\n");
    request(shop, address, &asked)
}

/// The preview of a change, as the page asks for it.
fn preview(shop: &Shop, address: &'static str, manifests: &str) -> (String, Value) {
    let body = json!({ "manifests": manifests }).to_string();
    let asked = format!(
        "POST /v1/preview HTTP/1.0\r\nhost: {address}\r\norigin: http://{address}\r\nsec-fetch-site: same-origin\r\n\
         content-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    );
    let (head, body) = request(shop, address, &asked);
    (head, serde_json::from_str(&body).unwrap())
}

/// `palisade ui`, until this is dropped.
pub(crate) struct PageCommand(Child);

impl PageCommand {
    /// Starts it on the host of a shop; the beginning of the URL is in what it prints.
    pub(crate) fn start(shop: &Shop, address: &str, more: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_palisade"));
        command.arg("--socket").arg(shop.agent.socket());
        command
            .args(["ui", "--address", address])
            .args(more)
            .stdout(Stdio::piped());
        let started = shop
            .lab
            .run_in(shop.lab.host(), move || command.spawn().unwrap());
        let mut child = started.unwrap();
        let mut line = String::new();
        let output = child.stdout.as_mut().unwrap();
        BufReader::new(output).read_line(&mut line).unwrap();
        assert!(line.contains(&format!("http://{address}/")), "{line}");
        PageCommand(child)
    }
}

impl Drop for PageCommand {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn the_page_shows_what_was_recorded_and_judges_a_change() {
    if !need_root() {
        return;
    }
    let agent = Agent::new().with(&["--flows", "on", "--page-address", AGENT]);
    let shop = Shop::under(agent, "page");
    shop.agent
        .apply("db.yaml", &policy("db", "db", FROM_WEB_8080));
    let (web, api, db) = (shop.pods[0], shop.pods[1], shop.pods[2]);
    let to = |family: usize| address(ADDRESSES[2][family]);
    let probes = [
        ProbeFlow::tcp(web, to(0), 8080, db),
        ProbeFlow::tcp(web, to(1), 8080, db),
        ProbeFlow::tcp(api, to(0), 8080, db),
    ];
    let began = Instant::now();
    let recorded = loop {
        assert_eq!(shop.arrives(&probes), [true, true, false]);
        let list = shop.agent.json(&["flows"]);
        let flows = list["flows"].as_array().unwrap();
        let has = |verdict: &str| flows.iter().any(|flow| flow["verdict"] == verdict);
        if has("Allowed") && has("Denied") {
            break list["flows"].clone();
        }
        assert!(began.elapsed() < PATIENCE, "{}", shop.agent.log());
    };
    let command = PageCommand::start(&shop, COMMAND, &[]);
    for page in [AGENT, COMMAND] {
        let (head, body) = get(&shop, page, "/");
        assert!(
            head.contains(" 200 ") && head.contains("default-src 'none'"),
            "{head}"
        );
        assert!(body.contains("<title>"), "{body}");
        let (_, body) = get(&shop, page, "/v1/flows");
        let shown: Value = serde_json::from_str(&body).unwrap();
        let ends = |flows: &Value| -> Vec<(Value, Value, Value)> {
            let flows = flows.as_array().unwrap().iter();
            let mut ends: Vec<_> = flows
                .map(|f| {
                    (
                        f["source"].clone(),
                        f["destination"].clone(),
                        f["verdict"].clone(),
                    )
                })
                .collect();
            ends.sort_by_key(|end| format!("{end:?}"));
            ends
        };
        assert_eq!(ends(&shown["flows"]), ends(&recorded));

        // The policies in force cut nothing that passed; another port does.
        let same = policy("db", "db", FROM_WEB_8080);
        let (_, body) = get(&shop, page, "/v1/manifest?policy=shop/db");
        let manifest: Value = serde_json::from_str(&body).unwrap();
        assert_eq!(manifest["inForce"], true, "{manifest:#}");
        let text = manifest["text"].as_str().unwrap();
        assert!(
            text.ends_with(FROM_WEB_8080) && same.contains(text),
            "{text}"
        );
        let line = manifest["firstLine"].as_u64().unwrap();
        let lines = u64::try_from(text.lines().count()).unwrap();
        let rule = json!({"direction": "Ingress", "index": 0, "first": line + lines - 2, "last": line + lines - 1});
        assert_eq!(manifest["rules"], json!([rule]), "{text}");
        let (head, report) = preview(&shop, page, &same);
        assert!(head.contains(" 200 "), "{head}: {report:#}");
        assert_eq!(report["cut"], json!([]), "{report:#}");
        assert!(report["judged"].as_u64() >= Some(2), "{report:#}");
        let other = same.replace("8080", "9090");
        let (_, report) = preview(&shop, page, &other);
        let cut = report["cut"].as_array().unwrap();
        assert_eq!(cut.len(), 1, "{report:#}");
        assert_eq!(cut[0]["source"]["name"], "web");
        assert_eq!(cut[0]["port"], 8080);
        let open = same
            .replace("ports: [{port: 8080}]", "")
            .replace("app: web", "app: api");
        let (_, report) = preview(&shop, page, &open);
        let opened = report["opened"].as_array().unwrap();
        assert_eq!(opened.len(), 1, "{report:#}");
        assert_eq!(opened[0]["source"]["name"], "api");
        let (head, report) = preview(
            &shop,
            page,
            "{apiVersion: v1, kind: Pod, metadata: {name: p}}",
        );
        assert!(head.contains(" 422 "), "{head}: {report:#}");
        assert!(
            report["error"].as_str().unwrap().contains("is no policy"),
            "{report:#}"
        );

        // Nothing that changes anything is reached, and no other name of this address.
        let (head, _) = request(
            &shop,
            page,
            &format!("DELETE /v1/workloads HTTP/1.0\r\nhost: {page}\r\nconnection: close\r\n\r\n"),
        );
        assert!(!head.contains(" 200 "), "{head}");
        let (head, _) = request(
            &shop,
            page,
            "GET /v1/flows HTTP/1.0\r\nhost: example.com\r\nconnection: close\r\n\r\n",
        );
        assert!(head.contains(" 403 ") || head.contains(" 421 "), "{head}");
    }
    drop(command);
    // What was judged is still in force.
    assert_eq!(shop.arrives(&probes), [true, true, false]);

    // The command judges the same record with manifests.
    let dir = tempfile::tempdir().unwrap();
    let change = dir.path().join("change.yaml");
    std::fs::write(
        &change,
        policy("db", "db", FROM_WEB_8080).replace("8080", "9090"),
    )
    .unwrap();
    let base = shop.agent.policy();
    let output = shop.agent.run(&[
        "preview",
        "--base",
        base.to_str().unwrap(),
        "-f",
        change.to_str().unwrap(),
    ]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(6), "{output:?}");
    assert!(
        text.contains("shop/web") && text.contains("8080/TCP"),
        "{text}"
    );
}
