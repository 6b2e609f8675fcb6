//! Policies of an API server, enforced by the real program: they are in the kernel, follow the server, and
//! outlive it; a local directory adds to them.

#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "a test: it runs other programs, and fails by panicking"
)]

mod agent;

use agent::Agent;
use agent::shop::{FROM_WEB_8080, Shop, policy};
use palisade_testkit::lab::Lab;
use palisade_testkit::{FakeApiServer, need_root};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

const POLICIES: &str = "/apis/networking.k8s.io/v1/networkpolicies";
const WEB: usize = 0;
const API: usize = 1;
const DB: usize = 2;

/// A policy for the pods with the label `app` in namespace shop: what its rules allow, nothing else.
fn network_policy(name: &str, app: &str, ingress: Value) -> Value {
    json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
        "metadata": {"name": name, "namespace": "shop"},
        "spec": {"podSelector": {"matchLabels": {"app": app}}, "ingress": ingress},
    })
}

/// Rules that allow pods with the label `app` on port 8080.
fn from(app: &str) -> Value {
    json!([{"from": [{"podSelector": {"matchLabels": {"app": app}}}], "ports": [{"port": 8080}]}])
}

/// A shop whose agent follows a server.
fn shop(name: &str) -> (Shop, FakeApiServer) {
    let lab = Lab::new(name).unwrap();
    let server = lab.run_in(lab.host(), || FakeApiServer::start().unwrap());
    let server = server.unwrap();
    server.put("/api/v1/namespaces", json!({"metadata": {"name": "shop"}}));
    let mut agent = Agent::new();
    let kubeconfig = agent.policy().with_file_name("kubeconfig");
    std::fs::write(&kubeconfig, server.kubeconfig()).unwrap();
    let kubeconfig = kubeconfig.display().to_string();
    agent.more(&["--kubernetes", "kubeconfig", "--kubeconfig", &kubeconfig]);
    (Shop::inside(agent, lab), server)
}

/// Waits until the kernel has so many policies.
fn wait(shop: &Shop, policies: u64) -> Value {
    shop.agent.wait("the policies are in the kernel", |s| {
        s["policies"].as_u64() == Some(policies) && s["revision"] == s["realised"]
    })
}

#[test]
fn policies_of_an_api_server_are_enforced_and_follow_it() {
    if !need_root() {
        return;
    }
    let (shop, server) = shop("kube");
    shop.agent
        .wait("in sync", |s| s["source"]["inSync"] == true);
    assert!(shop.tcp(WEB, API, 8080) && shop.tcp(DB, API, 8080));
    server.put(POLICIES, network_policy("api", "api", from("web")));
    let status = wait(&shop, 1);
    assert_eq!(status["source"]["sources"][0]["name"], "kubernetes");
    assert_eq!(status["source"]["sources"][1]["name"], "directory");
    assert!(shop.tcp(WEB, API, 8080) && !shop.tcp(DB, API, 8080));
    server.put(POLICIES, network_policy("api", "api", from("db")));
    shop.agent.wait("the change is in the kernel", |s| {
        s["revision"] == s["realised"] && s["revision"].as_u64() > status["revision"].as_u64()
    });
    assert!(!shop.tcp(WEB, API, 8080) && shop.tcp(DB, API, 8080));
    // The directory adds to what the server has.
    shop.agent
        .write("db.yaml", &policy("db", "db", FROM_WEB_8080));
    wait(&shop, 2);
    assert!(shop.tcp(WEB, DB, 8080) && !shop.tcp(API, DB, 8080));
    server.delete(POLICIES, "shop/api");
    wait(&shop, 1);
    assert!(shop.tcp(WEB, API, 8080) && shop.tcp(DB, API, 8080));
    assert!(!shop.tcp(API, DB, 8080));
}

#[test]
fn one_object_in_both_sources_is_reported_and_the_server_has_precedence() {
    if !need_root() {
        return;
    }
    let (shop, server) = shop("kubetwo");
    server.put(POLICIES, network_policy("api", "api", from("db")));
    wait(&shop, 1);
    shop.agent
        .write("api.yaml", &policy("api", "api", FROM_WEB_8080));
    let status = shop.agent.wait("the second definition is reported", |s| {
        s["source"]["problems"]
            .as_array()
            .is_some_and(|all| !all.is_empty())
    });
    let problem = status["source"]["problems"][0]["reason"].as_str().unwrap();
    assert!(problem.contains("defined"), "{status:#}");
    assert!(!shop.tcp(WEB, API, 8080) && shop.tcp(DB, API, 8080));
}

#[test]
fn enforcement_goes_on_while_the_server_is_gone() {
    if !need_root() {
        return;
    }
    let (mut shop, server) = shop("kubegone");
    server.put(POLICIES, network_policy("api", "api", from("web")));
    wait(&shop, 1);
    server.set_down(true);
    let status = shop.agent.wait("the outage is reported", |s| {
        s["source"]["sources"][0]["stale"]["since"].is_string() && s["health"] == "Degraded"
    });
    let reasons = status["reasons"].to_string();
    assert!(
        reasons.contains("the source kubernetes is not followed since"),
        "{reasons}"
    );
    assert!(shop.tcp(WEB, API, 8080) && !shop.tcp(DB, API, 8080));
    // A restart meanwhile.
    shop.agent.kill();
    shop.agent.spawn(&shop.lab);
    assert!(shop.tcp(WEB, API, 8080) && !shop.tcp(DB, API, 8080));
    server.delete(POLICIES, "shop/api");
    server.compact();
    assert!(shop.tcp(WEB, API, 8080) && !shop.tcp(DB, API, 8080));
    server.set_down(false);
    let began = Instant::now();
    while !shop.agent.run(&["status"]).status.success() {
        let log = || shop.agent.log();
        assert!(began.elapsed() < Duration::from_secs(60), "{}", log());
        std::thread::sleep(Duration::from_millis(50));
    }
    wait(&shop, 0);
    assert!(shop.tcp(DB, API, 8080));
}
