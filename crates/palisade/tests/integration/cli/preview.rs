//! `palisade preview` and `palisade suggest` on the command line: a small shop, what nodes recorded of it, and changes of
//! its policy.

use super::{Ran, World, run, run_with};
use serde_json::{Value, json};

const SHOP: &str = r#"
{apiVersion: v1, kind: Namespace, metadata: {name: shop, labels: {kubernetes.io/metadata.name: shop}}}
---
apiVersion: v1
kind: Pod
metadata:
  name: web-7c5-x1
  namespace: shop
  labels: {app: web, pod-template-hash: 7c5}
  ownerReferences: [{apiVersion: apps/v1, kind: ReplicaSet, name: web-7c5, uid: "1", controller: true}]
spec: {nodeName: node-1, containers: [{name: c, image: i}]}
status: {podIPs: [{ip: 10.0.0.1}, {ip: "fd00::1"}]}
---
apiVersion: v1
kind: Pod
metadata: {name: db, namespace: shop, labels: {app: db}}
spec: {nodeName: node-1, containers: [{name: c, image: i}]}
status: {podIPs: [{ip: 10.0.0.2}, {ip: "fd00::2"}]}
---
{apiVersion: v1, kind: Node, metadata: {name: node-1}, status: {addresses: [{type: InternalIP, address: 192.0.2.1}]}}
---
{apiVersion: v1, kind: Node, metadata: {name: node-2}, status: {addresses: [{type: InternalIP, address: 192.0.2.2}]}}
"#;

/// The policy of db: web may connect to this port.
fn policy(port: u16) -> String {
    format!(
        "{{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {{name: db, namespace: shop}}, spec: \
         {{podSelector: {{matchLabels: {{app: db}}}}, ingress: [{{from: [{{podSelector: {{matchLabels: {{app: \
         web}}}}}}], ports: [{{port: {port}}}]}}]}}}}\n"
    )
}

fn web() -> Value {
    json!({
        "namespace": "shop",
        "controller": { "kind": "Deployment", "name": "web" },
        "labels": { "app": "web" },
    })
}

fn db() -> Value {
    json!({ "namespace": "shop", "name": "db", "labels": { "app": "db" } })
}

fn flow(source: &Value, destination: &Value, port: u16, verdict: &str) -> Value {
    json!({
        "source": source, "destination": destination, "protocol": "TCP", "port": port, "verdict": verdict,
        "first": "2026-11-20T00:00:00Z", "last": "2026-11-27T00:00:00Z", "count": 12,
        "ingress": { "reason": "Rule" },
    })
}

fn record(flows: &[Value]) -> String {
    let record = json!({
        "apiVersion": "palisade.io/v1", "node": "node-1", "since": "2026-11-20T00:00:00Z", "lost": 0,
        "truncated": false, "flows": flows,
    });
    record.to_string()
}

/// What was seen: web reaches db at 5432 and a server by its name; 5433 was denied.
fn seen() -> Vec<Value> {
    let outside = json!({ "address": "198.51.100.7", "names": ["api.example.com"] });
    vec![
        flow(&web(), &db(), 5432, "Allowed"),
        flow(&web(), &db(), 5433, "Denied"),
        flow(&web(), &outside, 443, "Allowed"),
        flow(&json!({ "address": "203.0.113.9" }), &web(), 80, "Allowed"),
    ]
}

fn shop(change: &str) -> World {
    World::of(&[
        ("base/shop.yaml", SHOP),
        ("base/policy.yaml", &policy(5432)),
        ("change.yaml", change),
        ("flows.json", &record(&seen())),
    ])
}

/// Runs a command on a world: what the command line names as files are those of the world.
fn run_in(world: &World, command: &str) -> Ran {
    let arguments: Vec<String> = command
        .split_whitespace()
        .map(|word| match word.strip_prefix('@') {
            Some(file) => world.file(file).display().to_string(),
            None => word.to_owned(),
        })
        .collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    run(&arguments)
}

#[test]
fn a_change_cuts_what_was_seen_and_opens_what_was_denied() {
    let world = shop(&policy(5433));
    let command = "preview --base @base -f @change.yaml --flows @flows.json";
    let ran = run_in(&world, &format!("{command} -o json"));
    assert_eq!(ran.code, 6, "{ran:?}");
    let report = ran.json();
    assert_eq!(report["judged"], 4);
    for (list, port, file) in [
        ("cut", 5432, "change.yaml"),
        ("opened", 5433, "policy.yaml"),
    ] {
        let flows = report[list].as_array().unwrap();
        assert_eq!(flows.len(), 1, "{report:#}");
        assert_eq!(flows[0]["port"], port);
        assert_eq!(flows[0]["count"], 12);
        let reason = flows[0]["deniedBy"][0].to_string();
        assert!(reason.contains(file), "{reason}");
    }
    assert_eq!(report["record"]["nodesMissing"], json!(["node-2"]));

    let text = run_in(&world, command);
    assert_eq!(text.code, 6);
    for part in [
        "Would be cut:",
        "Would be opened:",
        "5432/TCP",
        "No record of 1 node: node-2",
        "isolated by NetworkPolicy shop/db",
    ] {
        assert!(text.out.contains(part), "{part}: {}", text.out);
    }
}

#[test]
fn a_difference_says_how_often_each_connection_was_used() {
    let world = World::of(&[
        ("old/shop.yaml", SHOP),
        ("old/policy.yaml", &policy(5432)),
        ("new/shop.yaml", SHOP),
        ("new/policy.yaml", &policy(5433)),
        ("closed/shop.yaml", SHOP),
        ("closed/policy.yaml", &policy(1)),
        ("flows.json", &record(&seen())),
    ]);
    let command = "diff -f @old -f @new --flows @flows.json";
    let ran = run_in(&world, &format!("{command} -o json"));
    assert_eq!(ran.code, 1, "{ran:?}");
    let report = ran.json();
    let last = "2026-11-27T00:00:00Z";
    for (list, allowed, denied) in [("closed", 12, 0), ("opened", 0, 12)] {
        let rows = report[list].as_array().unwrap();
        let of_web: Vec<&Value> = rows
            .iter()
            .filter(|row| row["src"]["name"] == "web-7c5")
            .collect();
        assert_eq!(of_web.len(), 1, "{report:#}");
        let expected = json!({ "allowed": allowed, "denied": denied, "last": last });
        assert_eq!(of_web[0]["recorded"], expected, "{report:#}");
    }
    assert_eq!(report["record"]["nodesMissing"], json!(["node-2"]));

    let text = run_in(&world, command);
    for part in [
        "RECORDED",
        "12 allowed, last 2026",
        "12 denied, last 2026",
        "No record of 1 node",
    ] {
        assert!(text.out.contains(part), "{part}: {}", text.out);
    }
    // What is opened was never tried, and nothing is said without a record.
    let text = run_in(&world, "diff -f @old -f @closed --flows @flows.json");
    assert!(text.out.contains("never"), "{}", text.out);
    let plain = run_in(&world, "diff -f @old -f @new");
    assert!(!plain.out.contains("RECORDED"), "{}", plain.out);
    let later = run_in(&world, &format!("{command} --since 2026-11-28T00:00:00Z"));
    assert!(
        later.out.contains("never") && !later.out.contains("12 allowed"),
        "{}",
        later.out
    );
}

#[test]
fn what_changes_nothing_cuts_nothing() {
    let world = shop(&policy(5432));
    let ran = run_in(
        &world,
        "preview --base @base -f @change.yaml --flows @flows.json",
    );
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(
        ran.out.contains("no recorded flow would be cut or opened"),
        "{}",
        ran.out
    );
}

#[test]
fn a_policy_that_is_deleted_opens_what_it_denied() {
    let world = shop("");
    let ran = run_in(
        &world,
        "preview --base @base --delete networkpolicy/shop/db --flows @flows.json -o json",
    );
    assert_eq!(ran.code, 0, "{ran:?}");
    let report = ran.json();
    assert_eq!(report["opened"][0]["port"], 5433);
    assert_eq!(report["cut"], json!([]));

    let ran = run_in(
        &world,
        "preview --base @base --delete networkpolicy/shop/other --flows @flows.json",
    );
    assert_eq!(ran.code, 2, "{ran:?}");
    assert!(ran.err.contains("shop/other"), "{}", ran.err);
}

#[test]
fn records_that_are_none_are_refused() {
    let world = shop(&policy(5433));
    let base = world.file("base");
    let change = world.file("change.yaml");
    let arguments = [
        "preview",
        "--base",
        base.to_str().unwrap(),
        "-f",
        change.to_str().unwrap(),
        "--flows",
        "-",
    ];
    for (input, message) in [
        (
            "{",
            "has no recorded flows as `palisade flows -o json` prints them",
        ),
        (
            &record(&[]).replace("palisade.io/v1", "example.com/v9"),
            "is not palisade.io/v1",
        ),
    ] {
        let ran = run_with(&arguments, input);
        assert_eq!(ran.code, 2, "{ran:?}");
        assert!(ran.err.contains(message), "{}", ran.err);
    }
    // Two nodes in one file, and nothing recorded at all.
    let two = record(&seen()) + &record(&[]);
    assert_eq!(run_with(&arguments, &two).code, 6);
    assert_eq!(run_with(&arguments, "").code, 0);
    let since = run_with(&[&arguments[..], &["--since", "24x"]].concat(), "");
    assert_eq!(since.code, 2);
    assert!(since.err.contains("neither a time"), "{}", since.err);
    let since = [&arguments[..], &["--since", "2026-11-28T00:00:00Z"]].concat();
    assert_eq!(
        run_with(&since, &record(&seen())).code,
        0,
        "nothing was seen since"
    );
}

#[test]
fn what_is_suggested_allows_what_was_seen_and_no_more() {
    for (dialect, kind) in [
        ("kubernetes", "kind: NetworkPolicy"),
        ("cluster-network-policy", "kind: ClusterNetworkPolicy"),
        ("cilium", "kind: CiliumNetworkPolicy"),
        ("calico", "apiVersion: projectcalico.org/v3"),
    ] {
        let world = shop("");
        let suggested = run_in(
            &world,
            &format!("suggest --dialect {dialect} --base @base --flows @flows.json"),
        );
        assert_eq!(suggested.code, 0, "{dialect}: {suggested:?}");
        assert!(suggested.out.contains(kind), "{}", suggested.out);
        assert!(
            suggested.err.contains("5433/TCP: it was denied"),
            "{dialect}: {}",
            suggested.err
        );
        // In place of what there was, it cuts nothing that was seen, and opens nothing that was denied.
        std::fs::write(world.file("change.yaml"), &suggested.out).unwrap();
        let judged = run_in(
            &world,
            "preview --base @base -f @change.yaml --delete networkpolicy/shop/db --flows @flows.json -o json",
        );
        let report = judged.json();
        assert_eq!(report["cut"], json!([]), "{dialect}");
        assert_eq!(report["alreadyDenied"], json!([]), "{dialect}");
        assert_eq!(report["opened"], json!([]), "{dialect}");
        // A port that nobody saw is closed.
        std::fs::write(
            world.file("flows.json"),
            record(&[
                flow(&web(), &db(), 22, "Allowed"),
                flow(&db(), &web(), 80, "Allowed"),
            ]),
        )
        .unwrap();
        let judged = run_in(
            &world,
            "preview --base @base -f @change.yaml --delete networkpolicy/shop/db --flows @flows.json -o json",
        );
        assert_eq!(judged.code, 6, "{dialect}: {judged:?}");
        let denied = [&judged.json()["cut"], &judged.json()["alreadyDenied"]]
            .map(|list| list.as_array().unwrap().len());
        assert_eq!(denied.iter().sum::<usize>(), 2, "{dialect}: {judged:?}");
    }
}

#[test]
fn what_a_dialect_cannot_name_gets_no_policy() {
    let world = shop("");
    let mut ping = flow(&db(), &web(), 0, "Allowed");
    let fields = ping.as_object_mut().unwrap();
    fields.remove("port");
    fields.insert("protocol".into(), "ICMP".into());
    fields.insert("icmp".into(), json!({ "type": 8, "code": 0 }));
    std::fs::write(world.file("flows.json"), record(&[ping])).unwrap();
    let ran = run_in(
        &world,
        "suggest --dialect kubernetes --base @base --flows @flows.json",
    );
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(ran.err.contains("no policy for shop/db"), "{}", ran.err);
    assert!(ran.err.contains("ICMP type 8"), "{}", ran.err);
    let ran = run_in(
        &world,
        "suggest --dialect calico --base @base --flows @flows.json",
    );
    assert_eq!(ran.code, 0, "{ran:?}");
}

#[test]
fn ranges_of_what_is_open_beside_are_short() {
    let world = shop("");
    let ran = run_in(
        &world,
        "suggest --dialect cluster-network-policy --base @base --flows @flows.json -o json",
    );
    // The objects have keys of people.
    let report: Value = serde_json::from_str(&ran.out).unwrap();
    let widened = report["widened"].as_array().unwrap();
    assert_eq!(widened.len(), 2, "{widened:?}");
    assert!(
        widened
            .iter()
            .all(|row| row["from"] == "every address outside")
    );
}
