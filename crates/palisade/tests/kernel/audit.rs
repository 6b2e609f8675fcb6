//! Policies, pods, namespaces and the whole agent in audit, with real packets: nothing is denied by what is in
//! audit, and what would be denied or allowed is counted, reported and explained.

use crate::agent::Agent;
use crate::agent::shop::{FROM_WEB_8080, Shop, policy};
use palisade_testkit::need_root;
use serde_json::Value;
use std::time::{Duration, Instant};

/// Timeout for what the agent reports.
const PATIENCE: Duration = Duration::from_secs(20);
const WEB: usize = 0;
const API: usize = 1;
const DB: usize = 2;

/// A policy for pods of namespace shop, in audit.
fn audited(name: &str, app: &str, spec: &str) -> String {
    let named = format!("{{name: {name}, namespace: shop}}");
    let annotated =
        format!("{{name: {name}, namespace: shop, annotations: {{palisade.dev/mode: audit}}}}");
    policy(name, app, spec).replace(&named, &annotated)
}

/// The counters of one rule of a policy: packets, and those that it would allow and deny.
fn counts(shop: &Shop, name: &str, action: &str) -> [u64; 3] {
    let detail = shop.agent.json(&["policy", "get", name]);
    let rules = detail["ruleCounters"].as_array().unwrap();
    let rule = rules.iter().find(|rule| rule["action"] == action);
    let packets = |count: &Value| count["packets"].as_u64().unwrap_or_default();
    let rule = rule.unwrap();
    ["count", "wouldAllow", "wouldDeny"].map(|key| packets(&rule[key]))
}

/// What the status and the metrics say of audit: the objects in audit by kind, whether the agent is, and the
/// packets that would be allowed, those that would be denied, and those of which nothing would change. Counts
/// that are not yet there are waited for.
fn summary(shop: &Shop, objects: [u64; 3], agent: bool, packets: [u64; 3]) {
    let began = Instant::now();
    let wanted = (
        objects.map(Value::from),
        Value::from(agent),
        packets.map(Value::from),
    );
    loop {
        let audit = &shop.agent.json(&["status"])["audit"];
        let told = (
            ["policies", "namespaces", "endpoints"].map(|kind| audit[kind].clone()),
            audit["agent"].clone(),
            ["wouldAllow", "wouldDeny", "unchanged"].map(|key| audit[key]["packets"].clone()),
        );
        if told == wanted {
            break;
        }
        assert!(began.elapsed() < PATIENCE, "{audit:#}, wanted {wanted:?}");
        std::thread::sleep(Duration::from_millis(100));
    }
    let text = String::from_utf8(shop.agent.run(&["status"]).stdout).unwrap();
    let [policies, namespaces, endpoints] = objects;
    let counted = format!("{policies} policies, {namespaces} namespaces, {endpoints} endpoints");
    let denied = format!("allowed, and would be denied: {} packets", packets[1]);
    let line = text.lines().find(|line| line.starts_with("Audit "));
    assert!(line.is_some_and(|line| line.contains(&counted)), "{text}");
    assert!(text.contains(&denied), "{text}");
}

#[test]
fn a_policy_in_audit_denies_nothing_and_counts_what_it_would() {
    if !need_root() {
        return;
    }
    let shop = Shop::open("audit");
    shop.agent
        .apply("api.yaml", &audited("api", "api", FROM_WEB_8080));
    assert!(shop.tcp(WEB, API, 8080) && shop.tcp(DB, API, 8080) && shop.tcp(WEB, API, 9090));
    // Each of both families is one packet.
    assert_eq!(counts(&shop, "shop/api", "Allow"), [0, 2, 0]);
    assert_eq!(counts(&shop, "shop/api", "DefaultDeny"), [0, 0, 4]);
    summary(&shop, [1, 0, 0], false, [0, 4, 2]);
    let told = shop.agent.audited_packets(4);
    assert_eq!(told.len(), 4, "{told:#?}");
    for line in &told {
        assert_eq!(line["verdict"], "Allowed", "{line:#}");
        assert_eq!(line["reason"], "Profile", "{line:#}");
        assert_eq!(line["direction"], "Ingress", "{line:#}");
        assert_eq!(line["audit"]["verdict"], "Denied", "{line:#}");
        assert_eq!(line["audit"]["reason"], "DefaultDeny", "{line:#}");
        assert_eq!(line["audit"]["policies"][0]["name"], "api", "{line:#}");
    }
    let explained = shop.agent.json(&[
        "explain", "--from", "shop/db", "--to", "shop/api", "--port", "8080",
    ]);
    assert_eq!(explained["verdict"], "Allow", "{explained:#}");
    assert_eq!(explained["auditVerdict"], "Deny", "{explained:#}");
    // It has no part in what is denied beside it, and that has none in its counts.
    shop.agent
        .apply("db.yaml", &policy("db", "db", FROM_WEB_8080));
    assert!(shop.tcp(WEB, DB, 8080) && !shop.tcp(API, DB, 8080));
    assert_eq!(counts(&shop, "shop/api", "DefaultDeny"), [0, 0, 4]);
    assert_eq!(counts(&shop, "shop/db", "DefaultDeny"), [2, 0, 0]);

    // Enforced, it is as any policy, and counts from what it enforces on.
    shop.agent
        .apply("api.yaml", &policy("api", "api", FROM_WEB_8080));
    assert!(shop.tcp(WEB, API, 8080) && !shop.tcp(DB, API, 8080));
    assert_eq!(counts(&shop, "shop/api", "DefaultDeny"), [2, 0, 4]);
    // And back.
    shop.agent
        .apply("api.yaml", &audited("api", "api", FROM_WEB_8080));
    assert!(shop.tcp(DB, API, 8080));
    assert_eq!(counts(&shop, "shop/api", "DefaultDeny"), [2, 0, 6]);
    summary(&shop, [1, 0, 0], false, [0, 6, 2]);
}

#[test]
fn a_policy_in_audit_is_judged_beside_those_that_are_enforced() {
    if !need_root() {
        return;
    }
    let shop = Shop::open("auditmix");
    shop.agent
        .apply("api.yaml", &policy("api", "api", FROM_WEB_8080));
    let from_db = FROM_WEB_8080.replace("app: web", "app: db");
    shop.agent
        .apply("more.yaml", &audited("more", "api", &from_db));
    assert!(shop.tcp(WEB, API, 8080) && !shop.tcp(DB, API, 8080));
    assert_eq!(counts(&shop, "shop/more", "Allow"), [0, 2, 0]);
    assert_eq!(counts(&shop, "shop/api", "DefaultDeny"), [2, 0, 0]);
    let told = shop.agent.audited_packets(2);
    assert!(
        told.iter().all(|line| line["verdict"] == "Denied"),
        "{told:#?}"
    );
    assert!(
        told.iter()
            .all(|line| line["audit"]["verdict"] == "Allowed")
    );
    // The agent that follows counts on.
    let mut shop = shop;
    shop.agent.kill();
    shop.agent.start(&shop.lab);
    assert!(!shop.tcp(DB, API, 8080));
    assert_eq!(counts(&shop, "shop/more", "Allow"), [0, 4, 0]);
    summary(&shop, [1, 0, 0], false, [4, 0, 2]);
}

/// What a pod, a namespace or the agent in audit must come to: everything passes, and is counted.
fn everything_passes(shop: &Shop, before: u64) {
    assert!(shop.tcp(WEB, API, 8080) && shop.tcp(DB, API, 8080));
    assert_eq!(
        counts(shop, "shop/api", "DefaultDeny"),
        [before, 0, 2],
        "would deny"
    );
    let endpoint = shop.agent.json(&["endpoint", "get", "shop/api"]);
    assert_eq!(endpoint["audit"], true, "{endpoint:#}");
    assert_eq!(endpoint["ingressIsolated"], false, "{endpoint:#}");
    let told = shop.agent.audited_packets(2);
    let reason = |line: &Value| line["reason"] == "EndpointInAudit";
    assert!(told.iter().all(reason), "{told:#?}");
}

#[test]
fn a_namespace_in_audit() {
    if !need_root() {
        return;
    }
    let shop = Shop::open("auditns");
    shop.agent
        .apply("api.yaml", &policy("api", "api", FROM_WEB_8080));
    assert!(!shop.tcp(DB, API, 8080));
    let namespace = |mode: &str| {
        format!(
            "apiVersion: v1\nkind: Namespace\nmetadata: {{name: shop, annotations: {{palisade.dev/mode: {mode}}}}}\n"
        )
    };
    shop.agent.apply("shop.yaml", &namespace("audit"));
    everything_passes(&shop, 2);
    // Every end of every connection is in audit.
    summary(&shop, [0, 1, 3], false, [0, 2, 6]);
    // A mistyped mode is told, and enforced.
    shop.agent.apply("shop.yaml", &namespace("audti"));
    assert!(!shop.tcp(DB, API, 8080));
    let status = shop.agent.status().to_string();
    assert!(status.contains("audti"), "{status}");
}

#[test]
fn a_pod_in_audit() {
    if !need_root() {
        return;
    }
    let mut shop = Shop::open("auditpod");
    shop.agent
        .apply("api.yaml", &policy("api", "api", FROM_WEB_8080));
    shop.agent.apply(
        "pod.yaml",
        "apiVersion: v1\nkind: Pod\nmetadata: {name: api, namespace: shop, labels: {app: api}, \
         annotations: {palisade.dev/mode: audit}}\nspec: {containers: []}\n",
    );
    everything_passes(&shop, 0);
    summary(&shop, [0, 0, 1], false, [0, 2, 2]);
    // Where pods must not exempt themselves.
    shop.agent.terminate();
    shop.agent.more(&["--pod-mode-annotation", "ignore"]);
    shop.agent.start(&shop.lab);
    assert!(shop.tcp(WEB, API, 8080) && !shop.tcp(DB, API, 8080));
    summary(&shop, [0, 0, 0], false, [0, 2, 2]);
}

#[test]
fn an_agent_in_audit() {
    if !need_root() {
        return;
    }
    let agent = Agent::new().with(&["--policy-audit-mode=true"]);
    let shop = Shop::under(agent, "auditall");
    shop.agent
        .apply("api.yaml", &policy("api", "api", FROM_WEB_8080));
    everything_passes(&shop, 0);
    summary(&shop, [0, 0, 3], true, [0, 2, 6]);
}
