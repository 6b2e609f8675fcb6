//! Policies of an API server, enforced by the real program: they are in the kernel, follow the server, and
//! outlive it; a local directory adds to them.

use crate::agent::shop::{ADDRESSES, FROM_WEB_8080, Shop, address, policy};
use crate::agent::{Agent, nft};
use crate::plugin::{Container, Runtime};
use palisade_testkit::lab::{Lab, NodeId, ProbeFlow, probe};
use palisade_testkit::{FakeApiServer, need_root};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

const PODS: &str = "/api/v1/pods";
const POLICIES: &str = "/apis/networking.k8s.io/v1/networkpolicies";
const NODES: &str = "/api/v1/nodes";
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

/// The Node of the agent's host.
fn node() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"},
        "spec": {"podCIDR": "10.92.0.0/24", "podCIDRs": ["10.92.0.0/24", "fd92::/64"]},
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
    server.put(NODES, node());
    let mut agent = Agent::new().with(&["--node-name", "n1"]);
    let kubeconfig = agent.policy().with_file_name("kubeconfig");
    std::fs::write(&kubeconfig, server.kubeconfig()).unwrap();
    let kubeconfig = kubeconfig.display().to_string();
    agent.more(&["--kubernetes", &kubeconfig]);
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
    let (shop, server) = shop("kubegone");
    server.put(POLICIES, network_policy("api", "api", from("web")));
    wait(&shop, 1);
    server.set_down(true);
    let status = shop.agent.wait("the outage is reported", |s| {
        s["source"]["sources"][0]["stale"]["since"].is_string() && s["health"] == "Degraded"
    });
    let metrics = shop.agent.metrics();
    for line in [
        "palisade_source_followed{source=\"kubernetes\"} 0\n",
        "palisade_source_followed{source=\"directory\"} 1\n",
        "palisade_source_stale_since_seconds{source=\"directory\"} 0\n",
    ] {
        assert!(metrics.contains(line), "{line} in {metrics}");
    }
    let reasons = status["reasons"].to_string();
    assert!(
        reasons.contains("the source kubernetes is not followed since"),
        "{reasons}"
    );
    assert!(shop.tcp(WEB, API, 8080) && !shop.tcp(DB, API, 8080));
    server.delete(POLICIES, "shop/api");
    server.compact();
    assert!(shop.tcp(WEB, API, 8080) && !shop.tcp(DB, API, 8080));
    server.set_down(false);
    wait(&shop, 0);
    assert!(shop.tcp(DB, API, 8080));
}

/// A Pod of namespace shop that does not run yet.
fn pod(name: &str, app: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "shop", "labels": {"app": app}},
        "spec": {"nodeName": "n1", "containers": []}, "status": {"phase": "Pending"},
    })
}

/// A namespace in which a runtime starts the pod of this name, and what the plugin said.
fn add_pod(shop: &mut Shop, name: &str) -> (NodeId, Vec<String>) {
    let node = shop.lab.add_namespace(name, Vec::new()).unwrap();
    let container = Container::of_pod(&shop.lab, node, &format!("c-{name}"), name);
    (node, Runtime::new(&shop.agent).add(&container))
}

/// Whether TCP from a pod arrives at a workload.
fn reaches(shop: &Shop, (node, addresses): &(NodeId, Vec<String>), to: usize) -> bool {
    let flow = |i: usize| {
        ProbeFlow::tcp(*node, address(ADDRESSES[to][i]), 8080, shop.pods[to])
            .with_source(address(&addresses[i]))
    };
    shop.lab.flush_conntrack().unwrap();
    let arrived = probe(&shop.lab, &[flow(0)]).unwrap();
    arrived[0]
}

/// The kernel's tables, without the values of counters.
fn ruleset(shop: &Shop) -> String {
    let text = nft(&shop.lab, "list table inet palisade");
    let mut words = Vec::new();
    for word in text.split_whitespace() {
        match words.last() {
            Some(&"packets" | &"bytes") => {}
            _ => words.push(word),
        }
        if let (Some(&last), true) = (words.last(), word.starts_with(|c: char| c.is_ascii_digit()))
            && matches!(last, "packets" | "bytes")
        {
            words.pop();
        }
    }
    words.join(" ")
}

#[test]
fn an_agent_that_starts_without_the_server_goes_on_from_its_snapshot() {
    if !need_root() {
        return;
    }
    let (mut shop, server) = shop("kubesnap");
    server.put(POLICIES, network_policy("api", "api", from("web")));
    server.put(POLICIES, network_policy("db", "db", from("web")));
    server.put(PODS, pod("known", "web"));
    shop.agent.wait("all objects are in the kernel", |s| {
        s["source"]["objects"] == 5 && s["policies"] == 2 && s["revision"] == s["realised"]
    });
    let matrix = |shop: &Shop| {
        let pairs = [(WEB, API), (DB, API), (WEB, DB), (API, DB)];
        pairs.map(|(from, to)| shop.tcp(from, to, 8080))
    };
    assert_eq!(matrix(&shop), [true, false, true, false]);
    server.set_down(true);
    let before = ruleset(&shop);
    shop.agent.kill();
    let began = Instant::now();
    shop.agent.spawn(&shop.lab);
    let status = shop
        .agent
        .wait("the socket opens", |s| s["source"]["inSync"] == true);
    assert!(
        began.elapsed() < Duration::from_secs(10),
        "{:?}",
        began.elapsed()
    );
    assert_eq!(ruleset(&shop), before);
    assert_eq!(status["dataplane"]["start"]["writes"], 0, "{status:#}");
    let stale = &status["source"]["sources"][0]["stale"];
    assert!(stale["since"].is_string(), "{status:#}");
    assert_eq!(status["health"], "Degraded");
    assert_eq!(matrix(&shop), [true, false, true, false]);
    // A pod of the snapshot has its policy, and one that it does not have is closed.
    let known = add_pod(&mut shop, "known");
    assert!(reaches(&shop, &known, API));
    let unknown = add_pod(&mut shop, "unknown");
    assert!(!reaches(&shop, &unknown, API) && !reaches(&shop, &unknown, WEB));
    let list = shop.agent.json(&["endpoint", "list"]);
    let endpoints = list["endpoints"].as_array().unwrap();
    let state = |name: &str| endpoints.iter().find(|e| e["name"] == name).unwrap()["state"].clone();
    assert_eq!(
        (state("known"), state("unknown")),
        ("Ready".into(), "Closed".into())
    );
    // The server comes back: one policy is gone and one pod has changed, nothing else.
    server.delete(POLICIES, "shop/db");
    server.put(PODS, pod("known", "db"));
    server.compact();
    let status = shop.agent.status();
    assert_eq!(
        (&status["policies"], &status["source"]["objects"]),
        (&json!(2), &json!(5))
    );
    server.set_down(false);
    wait(&shop, 1);
    shop.agent.wait("the server is followed", |s| {
        s["source"]["sources"][0].get("stale").is_none() && s["source"]["objects"] == 4
    });
    assert_eq!(matrix(&shop), [true, false, true, true]);
    assert!(!reaches(&shop, &known, API) && reaches(&shop, &known, DB));
    assert!(!reaches(&shop, &unknown, WEB));
}

const STATUSES: &str = "/apis/palisade.dev/v1alpha1/nodepolicystatuses";
const LEASES: &str = "/apis/coordination.k8s.io/v1/leases";
const EVENTS: &str = "/api/v1/events";

#[test]
fn what_is_enforced_and_what_is_not_is_written_back() {
    if !need_root() {
        return;
    }
    let (shop, server) = shop("kubeback");
    // Without the resource everything else goes on, and status says so.
    let status = shop.agent.wait("the missing resource is reported", |s| {
        s["nodeStatusError"].is_string()
    });
    let error = status["nodeStatusError"].as_str().unwrap();
    assert!(
        error.contains("404") && status["health"] == "Ready",
        "{status:#}"
    );
    let mut agent = shop.agent;
    agent.kill();
    for path in [STATUSES, LEASES, EVENTS] {
        server.set_writable(path, true);
    }
    server.put(POLICIES, network_policy("good", "api", from("web")));
    let mut wrong = network_policy("wrong", "db", json!(5));
    wrong["metadata"]["uid"] = "u1".into();
    server.put(POLICIES, wrong);
    agent.spawn(&shop.lab);
    let began = Instant::now();
    let (object, event) = loop {
        let objects = server.objects(STATUSES).pop();
        if let Some(found) = objects.zip(server.objects(EVENTS).pop()) {
            break found;
        }
        assert!(began.elapsed() < Duration::from_secs(60), "{}", agent.log());
        std::thread::sleep(Duration::from_millis(100));
    };
    let status = &object["status"];
    assert_eq!(
        (&status["notEnforcedCount"], &status["policies"]),
        (&json!(1), &json!(2))
    );
    let refused = &status["notEnforced"][0];
    assert_eq!(
        (&refused["name"], &refused["field"]),
        (&json!("shop/wrong"), &json!("spec.ingress"))
    );
    assert_eq!(refused["enforced"], "Isolating");
    let conditions = status["conditions"].as_array().unwrap().iter();
    let conditions: Vec<String> = conditions
        .map(|condition| format!("{} {}", condition["type"], condition["status"]).replace('"', ""))
        .collect();
    assert_eq!(conditions, ["Ready True", "Stale False", "Accepted False"]);
    assert_eq!(event["involvedObject"]["name"], "wrong");
    let message = event["message"].as_str().unwrap();
    assert!(
        message.starts_with("spec.ingress: expected a list"),
        "{message}"
    );
    assert_eq!(agent.status().get("nodeStatusError"), None);
}

#[test]
fn the_pools_are_those_of_the_node_unless_configured() {
    if !need_root() {
        return;
    }
    let (shop, server) = shop("kubepool");
    let pools = |pools: Value| {
        shop.agent.wait("the pools are in use", |s| {
            s["node"]["name"] == "n1" && s["node"]["pools"] == pools
        });
    };
    pools(json!(["10.92.0.0/24", "fd92::/64"]));
    let mut changed = node();
    changed["spec"] = json!({"podCIDR": "10.92.7.0/24"});
    server.put(NODES, changed);
    pools(json!(["10.92.7.0/24"]));
    server.delete(NODES, "n1");
    let status = shop.agent.wait("the lost Node is reported", |s| {
        s["reasons"]
            .to_string()
            .contains("the Node n1, which is not known")
    });
    assert_eq!(
        status["node"]["pools"],
        json!(["10.92.7.0/24"]),
        "{status:#}"
    );
}
