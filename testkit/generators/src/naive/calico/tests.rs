//! Each sentence of Calico's documentation that the reading rests on, at one pod (10.0.0.1) and its peers.

mod hosts;
mod order;
mod profiles;
mod rules;
mod selectors;

use crate::naive::{NaiveFlow, audit_verdicts, verdicts};
use serde_json::{Value, json};

fn pod(namespace: &str, name: &str, ips: &[&str], account: &str) -> Value {
    let ips: Vec<Value> = ips.iter().map(|ip| json!({ "ip": ip })).collect();
    json!({ "apiVersion": "v1", "kind": "Pod",
        "metadata": { "namespace": namespace, "name": name, "labels": { "app": name } },
        "spec": { "serviceAccountName": account, "containers": [{ "ports": [
            { "name": "web", "containerPort": 80 },
            { "name": "web", "containerPort": 81, "protocol": "UDP" }] }] },
        "status": { "podIPs": ips } })
}

/// An object of Calico.
fn calico(kind: &str, namespace: Option<&str>, name: &str, spec: Value) -> Value {
    let mut metadata = json!({ "name": name });
    if let Some(namespace) = namespace {
        metadata["namespace"] = namespace.into();
    }
    json!({ "apiVersion": "projectcalico.org/v3", "kind": kind, "metadata": metadata, "spec": spec })
}

/// A GlobalNetworkPolicy.
fn global(name: &str, spec: Value) -> Value {
    calico("GlobalNetworkPolicy", None, name, spec)
}

/// A NetworkPolicy of the pod's namespace.
fn local(name: &str, spec: Value) -> Value {
    calico("NetworkPolicy", Some("shop"), name, spec)
}

fn tier(name: &str, spec: Value) -> Value {
    calico("Tier", None, name, spec)
}

/// A set of networks, with its label `set`.
fn set(kind: &str, namespace: Option<&str>, label: &str, nets: Value) -> Value {
    let mut set = calico(kind, namespace, label, json!({ "nets": nets }));
    set["metadata"]["labels"] = json!({ "set": label });
    set
}

fn cluster(policies: &[Value]) -> Vec<Value> {
    let mut host = calico(
        "HostEndpoint",
        None,
        "host",
        json!({ "node": "n", "expectedIPs": ["192.0.2.9"] }),
    );
    host["metadata"]["labels"] = json!({ "role": "host" });
    let mut objects = vec![
        json!({ "apiVersion": "v1", "kind": "Namespace",
            "metadata": { "name": "shop", "labels": { "team": "a" } } }),
        json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "other" } }),
        json!({ "apiVersion": "v1", "kind": "ServiceAccount",
            "metadata": { "name": "robot", "namespace": "shop", "labels": { "level": "high" } } }),
        pod("shop", "web", &["10.0.0.1", "fd00::1"], "default"),
        pod("shop", "db", &["10.0.0.2", "fd00::2"], "robot"),
        pod("other", "guest", &["10.0.0.3", "fd00::3"], "default"),
        set("GlobalNetworkSet", None, "far", json!(["192.0.2.0/25"])),
        set(
            "NetworkSet",
            Some("shop"),
            "near",
            json!(["192.0.2.7", "192.0.2.16/28"]),
        ),
        host,
        json!({ "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
            "metadata": { "namespace": "shop", "name": "s-1",
                "labels": { "kubernetes.io/service-name": "s" } },
            "endpoints": [{ "addresses": ["10.0.0.2"], "conditions": { "ready": false } },
                          { "addresses": ["203.0.113.1"] }],
            "ports": [{ "name": "a", "port": 80, "protocol": "TCP" },
                      { "name": "b", "port": 53, "protocol": "UDP" }] }),
    ];
    objects.extend(policies.iter().cloned());
    objects
}

fn flow(from: &str, to: &str, protocol: u8, port: u16) -> NaiveFlow {
    NaiveFlow {
        source: from.parse().unwrap(),
        destination: to.parse().unwrap(),
        protocol,
        ports: [6, 17, 132].contains(&protocol).then_some((4000, port)),
        icmp: [1, 58].contains(&protocol).then_some((8, 0)),
        path: Default::default(),
        query: Default::default(),
    }
}

const WEB: &str = "10.0.0.1";
const DB: &str = "10.0.0.2";
const GUEST: &str = "10.0.0.3";
const FAR: &str = "192.0.2.1";
const NOWHERE: &str = "203.0.113.9";

/// Whether the pod may send TCP to port 80 of an address.
fn may_send(policies: &[Value], to: &str) -> bool {
    verdicts(&cluster(policies), &flow(WEB, to, 6, 80)).0
}

/// The same if nothing were in audit.
fn might_send(policies: &[Value], to: &str) -> bool {
    audit_verdicts(&cluster(policies), &flow(WEB, to, 6, 80)).0
}

/// Whether the pod may have TCP to its port 80 from an address.
fn may_have(policies: &[Value], from: &str) -> bool {
    verdicts(&cluster(policies), &flow(from, WEB, 6, 80)).1
}

/// Egress rules of one action each, without conditions.
fn egress(actions: &[&str]) -> Value {
    let rules: Vec<Value> = actions.iter().map(|a| json!({ "action": a })).collect();
    json!({ "egress": rules })
}

/// A spec with these fields besides.
fn with(mut spec: Value, more: Value) -> Value {
    for (key, value) in more.as_object().unwrap() {
        spec[key] = value.clone();
    }
    spec
}
