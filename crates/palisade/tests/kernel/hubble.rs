//! Hubble's own command against an agent: real flows and a denied packet, with their policies; and what an agent without
//! flows answers to the parameter.

use crate::agent::Agent;
use crate::agent::shop::{ADDRESSES, FROM_WEB_8080, Shop, address, policy};
use palisade_testkit::lab::ProbeFlow;
use palisade_testkit::need_root;
use palisade_testkit::runtimes::RuntimePrograms;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Timeout for flows.
const PATIENCE: Duration = Duration::from_secs(20);

fn hubble(program: &Path, socket: &Path, arguments: &[&str]) -> Output {
    let server = format!("unix://{}", socket.display());
    Command::new(program)
        .args(["--server", &server])
        .args(arguments)
        .output()
        .unwrap()
}

/// The flows that `hubble observe` prints with these filters.
fn observe(program: &Path, socket: &Path, filters: &[&str]) -> Vec<Value> {
    let arguments = [&["observe", "--all", "-o", "jsonpb"][..], filters].concat();
    let output = hubble(program, socket, &arguments);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let text = String::from_utf8(output.stdout).unwrap();
    let lines = text
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    lines
        .filter_map(|mut line| line.get_mut("flow").map(Value::take))
        .collect()
}

/// A shop with a policy whose agent serves Hubble's API, and Hubble's command.
struct HubbleShop {
    program: PathBuf,
    dir: TempDir,
    socket: PathBuf,
    shop: Shop,
}

impl HubbleShop {
    /// Nothing without the command.
    fn open(lab: &str) -> Option<Self> {
        let program = RuntimePrograms::hubble()?;
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("hubble.sock");
        let path = socket.to_str().unwrap();
        let agent = Agent::new().with(&["--flows", "on", "--hubble-socket", path]);
        let shop = Shop::under(agent, lab);
        shop.agent
            .apply("db.yaml", &policy("db", "db", FROM_WEB_8080));
        Some(HubbleShop {
            program,
            dir,
            socket,
            shop,
        })
    }
}

#[test]
fn the_command_of_hubble_shows_real_flows_and_their_policies() {
    if !need_root() {
        return;
    }
    let Some(HubbleShop {
        program,
        dir,
        socket,
        shop,
    }) = HubbleShop::open("hubble")
    else {
        return;
    };
    let (web, api, db) = (shop.pods[0], shop.pods[1], shop.pods[2]);
    let to = |family: usize| address(ADDRESSES[2][family]);
    let probes = [
        ProbeFlow::tcp(web, to(0), 8080, db),
        ProbeFlow::tcp(web, to(1), 8080, db),
        ProbeFlow::tcp(api, to(0), 8080, db),
    ];
    let began = Instant::now();
    let denied = loop {
        assert_eq!(shop.arrives(&probes), [true, true, false]);
        let denied = observe(
            &program,
            &socket,
            &["--verdict", "DROPPED", "--to-pod", "shop/db"],
        );
        if !denied.is_empty() {
            break denied;
        }
        assert!(began.elapsed() < PATIENCE, "{}", shop.agent.log());
    };
    let packet = &denied[0];
    assert_eq!(packet["source"]["pod_name"], "api", "{packet:#}");
    assert_eq!(packet["ingress_denied_by"][0]["name"], "db", "{packet:#}");
    assert_eq!(packet["drop_reason_desc"], "POLICY_DENIED", "{packet:#}");

    for version in ["4", "6"] {
        let filters = [
            "--from-pod",
            "shop/web",
            "--verdict",
            "FORWARDED",
            "--ip-version",
            version,
        ];
        let filters = [
            &filters[..],
            &["--type", "policy-verdict", "--to-label", "app=db"],
        ]
        .concat();
        // Flows that the fast path delivers are told within a second.
        let ingress = loop {
            let flows = observe(&program, &socket, &filters);
            let mut flows = flows.into_iter();
            let ingress = flows.find(|flow| flow["traffic_direction"] == "INGRESS");
            if let Some(ingress) = ingress {
                break ingress;
            }
            assert!(began.elapsed() < PATIENCE, "IPv{version}");
            std::thread::sleep(Duration::from_millis(100));
        };
        assert_eq!(
            ingress["ingress_allowed_by"][0]["name"], "db",
            "{ingress:#}"
        );
        assert_eq!(
            ingress["l4"]["TCP"]["destination_port"], 8080,
            "{ingress:#}"
        );
        let labels = ingress["destination"]["labels"].as_array().unwrap();
        assert!(
            labels.iter().any(|label| label == "k8s:app=db"),
            "{ingress:#}"
        );
    }
    let status = hubble(&program, &socket, &["status", "-o", "json"]);
    assert!(status.status.success(), "{status:?}");
    let status: Value = serde_json::from_slice(&status.stdout).unwrap();
    assert!(status["seen_flows"].as_str() > Some("0"), "{status:#}");

    // What was recorded is shown as well, summed up.
    let output = shop.agent.run(&["flows", "--to", "shop/db", "-o", "json"]);
    assert!(output.status.success(), "{output:?}");
    let recorded: Value = serde_json::from_slice(&output.stdout).unwrap();
    let flows = recorded["flows"].as_array().unwrap();
    let verdicts = |verdict: &str| {
        flows
            .iter()
            .filter(|flow| flow["verdict"] == verdict)
            .count()
    };
    assert!(
        verdicts("Allowed") > 0 && verdicts("Denied") > 0,
        "{recorded:#}"
    );
    assert!(
        flows.iter().all(|flow| flow["port"] == 8080),
        "{recorded:#}"
    );

    let file = dir.path().join("flows.json");
    let file = file.to_str().unwrap();
    let exported = shop
        .agent
        .run(&["flows", "--to", "shop/db", "--export", file]);
    assert!(exported.status.success(), "{exported:?}");
    let output = Command::new(&program)
        .args([
            "observe",
            "--input-file",
            file,
            "--last",
            "1000",
            "-o",
            "jsonpb",
        ])
        .args(["--verdict", "DROPPED", "--to-label", "app=db"])
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    let lines = text.lines().map(|line| serde_json::from_str(line).unwrap());
    let read: Vec<Value> = lines.collect();
    assert_eq!(read.len(), verdicts("Denied"), "{read:#?} of {recorded:#}");
    let flow = &read[0]["flow"];
    assert_eq!(flow["ingress_denied_by"][0]["name"], "db", "{flow:#}");
}

#[test]
fn the_command_of_hubble_shows_events_of_the_agent() {
    if !need_root() {
        return;
    }
    let Some(HubbleShop {
        program,
        dir: _dir,
        socket,
        shop,
    }) = HubbleShop::open("hubble-events")
    else {
        return;
    };
    shop.agent.delete("db.yaml");
    let arguments = ["observe", "agent-events", "--last", "1000", "-o", "jsonpb"];
    let output = hubble(&program, &socket, &arguments);
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    let events: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["agent_event"].take())
        .collect();
    let of = |kind: &str| -> Vec<&Value> {
        events
            .iter()
            .filter(|event| event["type"] == kind)
            .collect()
    };
    assert_eq!(events[0]["type"], "AGENT_STARTED", "{events:#?}");
    let mut created: Vec<&Value> = of("ENDPOINT_CREATED")
        .into_iter()
        .map(|event| &event["endpoint_update"]["pod_name"])
        .collect();
    created.sort_by_key(ToString::to_string);
    assert_eq!(created, ["api", "db", "web"], "{events:#?}");
    for (kind, rules) in [
        ("POLICY_UPDATED", Value::from("1")),
        ("POLICY_DELETED", Value::Null),
    ] {
        let found = of(kind);
        assert_eq!(found.len(), 1, "{events:#?}");
        let update = &found[0]["policy_update"];
        let labels = update["labels"].as_array().unwrap();
        let name = "k8s:io.cilium.k8s.policy.name=db";
        assert!(labels.iter().any(|label| label == name), "{update:#}");
        assert_eq!(update["rule_count"], rules, "{update:#}");
    }
}

#[test]
fn flows_are_counted_in_metrics_and_written_to_logs() {
    if !need_root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let [definitions, log] = ["logs.yaml", "drops.log"].map(|name| dir.path().join(name));
    let text = format!(
        "flowLogs:\n- name: drops\n  filePath: {}\n  includeFilters: [{{verdict: [DROPPED]}}]\n",
        log.display()
    );
    std::fs::write(&definitions, &text).unwrap();
    let path = definitions.to_str().unwrap();
    let metrics = "drop:sourceContext=pod;destinationContext=workload|pod flow tcp";
    let agent = Agent::new().with(&[
        "--flows",
        "on",
        "--hubble-metrics",
        metrics,
        "--hubble-flow-logs",
        path,
    ]);
    let shop = Shop::under(agent, "outputs");
    shop.agent
        .apply("db.yaml", &policy("db", "db", FROM_WEB_8080));
    let (web, api, db) = (shop.pods[0], shop.pods[1], shop.pods[2]);
    let probes = [0, 1]
        .map(|family| address(ADDRESSES[2][family]))
        .map(|to| {
            [
                ProbeFlow::tcp(web, to, 8080, db),
                ProbeFlow::tcp(api, to, 8080, db),
            ]
        });
    assert_eq!(shop.arrives(&probes.concat()), [true, false, true, false]);
    let wanted = [
        r#"hubble_drop_total{reason="POLICY_DENIED",protocol="TCP",source="shop/api",destination="shop/db"} "#,
        r#"hubble_flows_processed_total{protocol="TCP",type="PolicyVerdict",subtype="",verdict="FORWARDED"} "#,
        r#"hubble_tcp_flags_total{flag="SYN",family="IPv4"} "#,
        r#"hubble_tcp_flags_total{flag="SYN",family="IPv6"} "#,
        "# TYPE hubble_lost_events_total counter\n",
        r#"palisade_flow_log_lines_total{log="drops",result="written"} "#,
    ];
    let lines = || std::fs::read_to_string(&log).unwrap_or_default();
    let began = Instant::now();
    loop {
        let text = shop.agent.metrics();
        let missing: Vec<_> = wanted
            .iter()
            .filter(|line| !text.contains(**line))
            .collect();
        if missing.is_empty() && lines().lines().count() >= 2 {
            break;
        }
        assert!(began.elapsed() < PATIENCE, "{missing:?}: {text}");
        std::thread::sleep(Duration::from_millis(200));
    }
    let mut families = Vec::new();
    for line in lines().lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        let flow = &line["flow"];
        assert_eq!(flow["verdict"], "DROPPED", "{flow:#}");
        assert_eq!(flow["source"]["pod_name"], "api", "{flow:#}");
        families.push(flow["IP"]["ipVersion"].to_string());
    }
    assert!(families.contains(&"\"IPv4\"".to_owned()) && families.contains(&"\"IPv6\"".to_owned()));

    // A fault of the definitions is told, and the former ones stay in force.
    let has_fault = |status: &Value| {
        let conditions = status["dataplane"]["conditions"].as_array();
        let mut conditions = conditions.into_iter().flatten();
        conditions.any(|condition| {
            let message = condition["message"].as_str().unwrap();
            condition["kind"] == "FlowLog" && message.contains("verdicts")
        })
    };
    std::fs::write(&definitions, text.replace("verdict:", "verdicts:")).unwrap();
    shop.agent.wait("the fault to be told", has_fault);
    let before = lines().lines().count();
    let began = Instant::now();
    while lines().lines().count() == before {
        assert_eq!(shop.arrives(&probes[0]), [true, false]);
        assert!(began.elapsed() < PATIENCE, "{}", shop.agent.log());
    }
    std::fs::write(&definitions, &text).unwrap();
    shop.agent
        .wait("the fault to go", |status| !has_fault(status));
}
