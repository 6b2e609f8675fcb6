//! Cilium's own relay before two agents, each on a host of its own: it learns of both from one of them, which has them
//! from Node objects, and shows what really passes and is denied on both, to Hubble's command and to our page, all over
//! mutual TLS; and what happens when one is gone.

use crate::agent::shop::{ADDRESSES, FROM_WEB_8080, Shop, address, policy};
use crate::agent::{Agent, ip};
use crate::page::{PageCommand, get};
use palisade_testkit::cluster::{Authority, Identity};
use palisade_testkit::lab::{Lab, ProbeFlow};
use palisade_testkit::need_root;
use palisade_testkit::runtimes::RuntimePrograms;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Timeout for flows and nodes.
const PATIENCE: Duration = Duration::from_secs(60);
/// The nodes, and the addresses of their hosts; each serves Hubble's API at one of another family.
const NODES: [&str; 2] = ["n1", "n2"];
const HOSTS: [[&str; 2]; 2] = [["10.78.0.1", "fd78::1"], ["10.78.0.2", "fd78::2"]];
const SERVED: [&str; 2] = ["10.78.0.1:4244", "[fd78::2]:4244"];
/// Where db can be reached on each node, so that nobody takes the flows of one for those of the other.
const PORTS: [u16; 2] = [8080, 9090];
/// Where the relay serves, on the first host, and the name in its certificate.
const RELAY: &str = "127.0.0.1:4245";
const RELAY_NAME: &str = "relay.example";

/// Two agents that know each other.
struct Pair {
    shops: [Shop; 2],
    programs: [PathBuf; 2],
    dir: TempDir,
}

/// Writes a certificate, its key and the authority as a Secret of Kubernetes is mounted.
fn write_identity(dir: &Path, authority: &Authority, identity: &Identity) {
    std::fs::create_dir(dir).unwrap();
    let files = [
        ("tls.crt", &identity.certificate),
        ("tls.key", &identity.key),
        ("ca.crt", &authority.certificate()),
    ];
    for (name, text) in files {
        std::fs::write(dir.join(name), text).unwrap();
    }
}

/// Joins two hosts by a link of their own.
fn join_hosts(labs: &[Lab; 2]) {
    let far = labs[1].namespace_name(labs[1].host());
    let link = [
        "link", "add", "peer0", "type", "veth", "peer", "name", "peer0",
    ];
    ip(
        &labs[0],
        labs[0].host(),
        &[&link[..], &["netns", far]].concat(),
    );
    for (lab, addresses) in labs.iter().zip(HOSTS) {
        let [v4, v6] = addresses;
        let host = lab.host();
        ip(
            lab,
            host,
            &["address", "add", &format!("{v4}/24"), "dev", "peer0"],
        );
        let v6 = format!("{v6}/64");
        ip(lab, host, &["address", "add", &v6, "dev", "peer0", "nodad"]);
        ip(lab, host, &["link", "set", "peer0", "up"]);
    }
}

impl Pair {
    fn open(programs: [PathBuf; 2]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let authority = Authority::new().unwrap();
        let identity = |name: &str, hosts: &[&str]| {
            let identity = authority.issue(name, None, &[], hosts).unwrap();
            write_identity(&dir.path().join(name), &authority, &identity);
        };
        // As Cilium's own certificates for the servers of a cluster.
        identity("server", &["*.default.hubble-grpc.cilium.io"]);
        identity("relay", &[]);
        identity("relay-server", &[RELAY_NAME]);
        identity("viewer", &[]);
        let labs = ["relay1", "relay2"].map(|name| Lab::new(name).unwrap());
        join_hosts(&labs);
        let certificates = dir.path().join("server");
        let mut numbers = 0..;
        let shops = labs.map(|lab| {
            let number: usize = numbers.next().unwrap();
            let agent = Agent::new().with(&["--flows", "on", "--node-name", NODES[number]]);
            let agent = agent.with(&["--hubble-address", SERVED[number]]);
            let agent = agent.with(&["--hubble-tls-dir", certificates.to_str().unwrap()]);
            Shop::inside(agent, lab)
        });
        for (shop, port) in shops.iter().zip(PORTS) {
            for (name, served) in NODES.iter().zip(SERVED) {
                let (address, _) = served.rsplit_once(':').unwrap();
                let address = address.trim_matches(['[', ']']);
                let node = format!(
                    "{{apiVersion: v1, kind: Node, metadata: {{name: {name}}}, \
                     status: {{addresses: [{{type: InternalIP, address: '{address}'}}]}}}}\n"
                );
                shop.agent.apply(&format!("{name}.yaml"), &node);
            }
            let rules = FROM_WEB_8080.replace("8080", &port.to_string());
            shop.agent.apply("db.yaml", &policy("db", "db", &rules));
        }
        Pair {
            shops,
            programs,
            dir,
        }
    }

    /// Starts the relay on the first host; all that it is told is where one agent serves.
    fn start_relay(&self) -> Relay {
        let mut command = Command::new(&self.programs[1]);
        let file = |name: &str| self.file("relay", name);
        let own = |name: &str| self.file("relay-server", name);
        command
            .args(["serve", "--gops=false"])
            .arg(format!("--tls-relay-server-cert-file={}", own("tls.crt")))
            .arg(format!("--tls-relay-server-key-file={}", own("tls.key")))
            .arg(format!("--tls-relay-client-ca-files={}", own("ca.crt")))
            .args([
                "--listen-address",
                RELAY,
                "--health-listen-address",
                "127.0.0.1:4222",
            ])
            .args(["--peer-service", SERVED[0], "--retry-timeout", "1s"])
            .arg(format!("--tls-hubble-server-ca-files={}", file("ca.crt")))
            .arg(format!("--tls-hubble-client-cert-file={}", file("tls.crt")))
            .arg(format!("--tls-hubble-client-key-file={}", file("tls.key")))
            .env("HOME", "/nonexistent")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(std::fs::File::create(self.relay_log()).unwrap());
        let lab = &self.shops[0].lab;
        let started = lab.run_in(lab.host(), move || command.spawn().unwrap());
        Relay(started.unwrap())
    }

    /// A file of an identity.
    fn file(&self, identity: &str, name: &str) -> String {
        let file = self.dir.path().join(identity).join(name);
        file.display().to_string()
    }

    fn relay_log(&self) -> PathBuf {
        self.dir.path().join("relay.log")
    }

    /// What Hubble's command says at the relay.
    fn hubble(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(&self.programs[0]);
        command
            .args(arguments)
            .args(["--server", RELAY, "--tls", "--tls-server-name", RELAY_NAME])
            .args(["--tls-ca-cert-files", &self.file("viewer", "ca.crt")])
            .args(["--tls-client-cert-file", &self.file("viewer", "tls.crt")])
            .args(["--tls-client-key-file", &self.file("viewer", "tls.key")])
            .env("HOME", "/nonexistent")
            .stdin(Stdio::null());
        let lab = &self.shops[0].lab;
        let ended = lab.run_in(lab.host(), move || command.output().unwrap());
        ended.unwrap()
    }

    /// What the command prints, once it is as wanted.
    fn wait_for(&self, arguments: &[&str], is_wanted: impl Fn(&str) -> bool) -> String {
        let began = Instant::now();
        loop {
            let output = self.hubble(arguments);
            let printed = String::from_utf8_lossy(&output.stdout).into_owned();
            if is_wanted(&printed) {
                return printed;
            }
            let said = String::from_utf8_lossy(&output.stderr);
            let log = std::fs::read_to_string(self.relay_log()).unwrap();
            assert!(began.elapsed() < PATIENCE, "{printed}{said}\n{log}");
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    /// The flows of TCP that the relay has.
    fn flows(&self) -> Vec<RelayedFlow> {
        let output = self.hubble(&["observe", "--all", "-o", "jsonpb", "--protocol", "TCP"]);
        let text = String::from_utf8_lossy(&output.stdout);
        let lines = text
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).unwrap());
        lines
            .filter_map(|mut line| Some(RelayedFlow::new(&line.get_mut("flow")?.take())))
            .collect()
    }

    /// Sends what passes and what is denied on a node, of both families.
    fn send(&self, node: usize, port: u16) {
        let shop = &self.shops[node];
        let [web, api, db] = shop.pods;
        for to in ADDRESSES[2].map(address) {
            let probes = [web, api].map(|from| ProbeFlow::tcp(from, to, port, db));
            let passes = port == PORTS[node];
            assert_eq!(shop.arrives(&probes), [passes, false]);
        }
    }
}

/// The relay, until dropped.
struct Relay(Child);

impl Drop for Relay {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What is compared of a flow that the relay has.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct RelayedFlow {
    node: String,
    version: String,
    verdict: String,
    source: String,
    port: u64,
    /// The policy that allowed or denied it at its destination, if this says so.
    policy: Option<String>,
}

impl RelayedFlow {
    fn new(flow: &Value) -> Self {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let policies = ["ingress_allowed_by", "ingress_denied_by"];
        let mut policies = policies
            .iter()
            .filter_map(|key| flow[*key][0]["name"].as_str());
        RelayedFlow {
            node: text(&flow["node_name"]),
            version: text(&flow["IP"]["ipVersion"]),
            verdict: text(&flow["verdict"]),
            source: text(&flow["source"]["pod_name"]),
            port: flow["l4"]["TCP"]["destination_port"]
                .as_u64()
                .unwrap_or_default(),
            policy: policies.next().map(str::to_owned),
        }
    }

    /// What policy db of a node says of a flow from web or api.
    fn judged(node: &str, version: &str, source: &str, port: u16) -> Self {
        RelayedFlow {
            node: format!("default/{node}"),
            version: version.to_owned(),
            verdict: if source == "web" {
                "FORWARDED"
            } else {
                "DROPPED"
            }
            .to_owned(),
            source: source.to_owned(),
            port: port.into(),
            policy: Some("db".to_owned()),
        }
    }
}

/// The page of the relay has the flows of both nodes, and says what it does not have.
fn assert_page_of_relay(pair: &Pair) {
    const PAGE: &str = "127.0.0.1:8089";
    let shop = &pair.shops[0];
    let identity = pair.dir.path().join("viewer");
    let identity = identity.to_str().unwrap();
    // Without a certificate, or with another name, the relay or the page refuses.
    let wrong = [
        &[][..],
        &[
            "--relay-tls-dir",
            identity,
            "--relay-tls-name",
            "other.example",
        ],
    ];
    for more in wrong {
        let _page = PageCommand::start(shop, PAGE, &[&["--relay", RELAY], more].concat());
        let (head, body) = get(shop, PAGE, "/v1/status");
        assert!(!head.contains(" 200 "), "{more:?}: {head}{body}");
    }
    let right = ["--relay-tls-dir", identity, "--relay-tls-name", RELAY_NAME];
    let _page = PageCommand::start(shop, PAGE, &[&["--relay", RELAY], &right[..]].concat());
    let ask = |path: &str| -> (String, Value) {
        let (head, body) = get(shop, PAGE, path);
        let body = serde_json::from_str(&body);
        (head, body.unwrap())
    };
    let (_, status) = ask("/v1/status");
    assert_eq!(status["relay"]["nodes"], 2, "{status:#}");
    let (_, list) = ask("/v1/flows?since=1h&limit=1000");
    for (port, node) in PORTS.into_iter().zip(NODES) {
        for (source, verdict) in [("web", "Allowed"), ("api", "Denied")] {
            let flows = list["flows"].as_array().unwrap();
            let mut found = flows.iter().filter(|flow| {
                flow["port"] == port
                    && flow["source"]["name"] == source
                    && flow["verdict"] == verdict
            });
            let flow = found
                .next()
                .unwrap_or_else(|| panic!("{node}, {source}: {list:#}"));
            let decided = &flow["ingress"];
            let policy = if verdict == "Allowed" {
                &decided["rule"]
            } else {
                &decided["policies"][0]
            };
            assert_eq!(policy["name"], "db", "{flow:#}");
        }
    }
    let (head, lines) = get(
        shop,
        PAGE,
        "/v1/monitor?flows=true&last=500&stop=true&verdict=Denied",
    );
    assert!(head.contains(" 200 "), "{head}");
    let lines: Vec<Value> = lines
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    for port in PORTS {
        let is_denied =
            |line: &Value| line["type"] == "Packet" && line["destination"]["port"] == port;
        assert!(lines.iter().any(is_denied), "{port}: {lines:#?}");
    }
    assert!(
        lines.iter().all(|line| line["verdict"] != "Allowed"),
        "{lines:#?}"
    );
    let (head, refused) = ask("/v1/policies");
    assert!(
        head.contains(" 404 ") && refused["hint"].is_string(),
        "{refused:#}"
    );
}

#[test]
fn the_relay_shows_the_flows_of_two_agents_and_that_one_is_gone() {
    if !need_root() {
        return;
    }
    let Some(hubble) = RuntimePrograms::hubble() else {
        return;
    };
    let relay = hubble.with_file_name("hubble-relay");
    let mut pair = Pair::open([hubble, relay]);
    let _relay = pair.start_relay();
    let nodes = pair.wait_for(&["list", "nodes"], |printed| {
        printed.matches("Connected").count() == 2
    });
    assert!(NODES.iter().all(|node| nodes.contains(node)), "{nodes}");

    let mut wanted = Vec::new();
    for (node, port) in NODES.iter().zip(PORTS) {
        for version in ["IPv4", "IPv6"] {
            let judged = |source| RelayedFlow::judged(node, version, source, port);
            wanted.extend([judged("web"), judged("api")]);
        }
    }
    let began = Instant::now();
    loop {
        for (node, port) in PORTS.into_iter().enumerate() {
            pair.send(node, port);
        }
        let flows = pair.flows();
        for flow in &flows {
            let node = NODES.iter().position(|node| flow.node.ends_with(node));
            let port = node.map(|node| u64::from(PORTS[node]));
            assert_eq!(Some(flow.port), port, "of the other node: {flow:?}");
        }
        if wanted.iter().all(|wanted| flows.contains(wanted)) {
            break;
        }
        assert!(began.elapsed() < PATIENCE, "{wanted:#?} in {flows:#?}");
    }
    pair.wait_for(&["status"], |printed| {
        printed.contains("Connected Nodes: 2/2")
    });

    assert_page_of_relay(&pair);

    // One is gone: the relay says which, and goes on with the other.
    pair.shops[1].agent.terminate();
    pair.wait_for(&["list", "nodes"], |printed| {
        let has_line = |node: &str, state: &str| {
            let mut lines = printed.lines();
            lines.any(|line| line.contains(node) && line.contains(state))
        };
        has_line(NODES[0], "Connected") && has_line(NODES[1], "Unavailable")
    });
    pair.wait_for(&["status"], |printed| {
        printed.contains("Connected Nodes: 1/2")
    });
    let later = RelayedFlow::judged(NODES[0], "IPv6", "api", 7070);
    let began = Instant::now();
    loop {
        pair.send(0, 7070);
        let flows = pair.flows();
        if flows.contains(&later) {
            break;
        }
        assert!(began.elapsed() < PATIENCE, "{later:#?} in {flows:#?}");
    }
}
