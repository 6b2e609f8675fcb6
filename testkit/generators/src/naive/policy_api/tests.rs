//! Each sentence of the API that the reading rests on, at one pod (10.0.0.1) and its peers.

use crate::naive::{NaiveFlow, verdicts};
use serde_json::{Value, json};

fn pod(namespace: &str, name: &str, ip: &str) -> Value {
    json!({ "apiVersion": "v1", "kind": "Pod",
        "metadata": { "namespace": namespace, "name": name, "labels": { "app": name } },
        "spec": { "containers": [{ "ports": [
            { "name": "web", "containerPort": 80 },
            { "name": "web", "containerPort": 81, "protocol": "UDP" }] }] },
        "status": { "podIP": ip } })
}

fn cluster(policies: &[Value]) -> Vec<Value> {
    let node = |name: &str, pool: &str, ip: &str| {
        json!({ "apiVersion": "v1", "kind": "Node",
            "metadata": { "name": name, "labels": { "pool": pool } },
            "status": { "addresses": [{ "type": "InternalIP", "address": ip },
                                      { "type": "Hostname", "address": "192.0.2.99" }] } })
    };
    let mut objects = vec![
        json!({ "apiVersion": "v1", "kind": "Namespace",
            "metadata": { "name": "shop", "labels": { "team": "a" } } }),
        pod("shop", "web", "10.0.0.1"),
        pod("shop", "db", "10.0.0.2"),
        pod("other", "guest", "10.0.0.3"),
        node("n1", "infra", "192.0.2.1"),
        node("n2", "work", "192.0.2.2"),
    ];
    objects.extend(policies.iter().cloned());
    objects
}

fn policy(kind: &str, name: &str, place: Value, rules: Value) -> Value {
    let version = match kind {
        "ClusterNetworkPolicy" => "v1alpha2",
        _ => "v1alpha1",
    };
    let mut spec = json!({ "subject": { "namespaces": {} } });
    for (key, value) in [place, rules].iter().flat_map(|of| of.as_object().unwrap()) {
        spec[key] = value.clone();
    }
    json!({ "apiVersion": format!("policy.networking.k8s.io/{version}"), "kind": kind,
        "metadata": { "name": name }, "spec": spec })
}

/// A ClusterNetworkPolicy of the admin tier with these egress rules.
fn egress(rules: Value) -> Value {
    let place = json!({ "tier": "Admin", "priority": 5 });
    policy(
        "ClusterNetworkPolicy",
        "e",
        place,
        json!({ "egress": rules }),
    )
}

/// One rule for traffic from all pods.
fn from_pods(action: &str) -> Value {
    json!({ "ingress": [{ "action": action, "from": [{ "namespaces": {} }] }] })
}

fn flow(from: &str, to: &str, protocol: u8, port: u16) -> NaiveFlow {
    NaiveFlow {
        source: from.parse().unwrap(),
        destination: to.parse().unwrap(),
        protocol,
        ports: [6, 17, 132].contains(&protocol).then_some((4000, port)),
        icmp: (protocol == 1).then_some((8, 0)),
        path: Default::default(),
        query: Default::default(),
    }
}

/// Whether the pod may send a flow.
fn may_send(policies: &[Value], to: &str, protocol: u8, port: u16) -> bool {
    verdicts(&cluster(policies), &flow("10.0.0.1", to, protocol, port)).0
}

/// Whether the pod may have a flow from its neighbour.
fn may_have(policies: &[Value]) -> bool {
    verdicts(&cluster(policies), &flow("10.0.0.2", "10.0.0.1", 6, 80)).1
}

#[test]
fn tiers_and_their_order() {
    let admin = |kind: &str, name: &str, priority: u32, action: &str| {
        let mut place = json!({ "priority": priority });
        if kind == "ClusterNetworkPolicy" {
            place["tier"] = "Admin".into();
        }
        policy(kind, name, place, from_pods(action))
    };
    let baseline = |priority: u32, action: &str| {
        let place = json!({ "tier": "Baseline", "priority": priority });
        policy("ClusterNetworkPolicy", "b", place, from_pods(action))
    };
    let last = |action: &str| {
        policy(
            "BaselineAdminNetworkPolicy",
            "default",
            json!({}),
            from_pods(action),
        )
    };
    let (new, old) = ("ClusterNetworkPolicy", "AdminNetworkPolicy");
    let isolated = |rules: Value| {
        json!({ "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
            "metadata": { "namespace": "shop", "name": "n" },
            "spec": { "podSelector": {}, "ingress": rules } })
    };
    for (policies, allowed) in [
        // No rule decides: everything is allowed.
        (vec![], true),
        (vec![admin(new, "a", 1, "Deny")], false),
        (
            vec![admin(new, "a", 2, "Deny"), admin(new, "b", 1, "Accept")],
            true,
        ),
        (
            vec![admin(new, "a", 1, "Deny"), admin(old, "b", 1, "Allow")],
            false,
        ),
        (
            vec![admin(new, "b", 1, "Deny"), admin(old, "a", 1, "Allow")],
            false,
        ),
        (
            vec![admin(new, "b", 1, "Accept"), admin(new, "a", 1, "Deny")],
            false,
        ),
        (
            vec![admin(new, "a", 1, "Pass"), admin(old, "b", 2, "Deny")],
            true,
        ),
        // The admin tier overrides NetworkPolicy, which overrides the baseline.
        (vec![isolated(json!([])), admin(old, "a", 1, "Allow")], true),
        (vec![isolated(json!([])), admin(old, "a", 1, "Pass")], false),
        (vec![isolated(json!([])), baseline(1, "Accept")], false),
        (vec![isolated(json!([{}])), baseline(1, "Deny")], true),
        (
            vec![isolated(json!([{}])), admin(new, "a", 1, "Deny")],
            false,
        ),
        (vec![baseline(1000, "Deny"), last("Allow")], false),
        (vec![baseline(0, "Pass"), last("Deny")], true),
        (vec![last("Deny"), admin(new, "a", 9, "Pass")], false),
        (vec![last("Deny"), admin(new, "a", 9, "Accept")], true),
    ] {
        assert_eq!(may_have(&policies), allowed, "{policies:?}");
    }
}

#[test]
fn peers() {
    for (peer, to, matches) in [
        (json!({ "namespaces": {} }), "10.0.0.3", true),
        (json!({ "namespaces": {} }), "192.0.2.1", false),
        (
            json!({ "namespaces": { "matchLabels": { "team": "a" } } }),
            "10.0.0.2",
            true,
        ),
        (
            json!({ "namespaces": { "matchLabels": { "team": "a" } } }),
            "10.0.0.3",
            false,
        ),
        (
            json!({ "pods": { "podSelector": { "matchLabels": { "app": "db" } } } }),
            "10.0.0.2",
            true,
        ),
        (
            json!({ "pods": { "podSelector": {}, "namespaceSelector": { "matchLabels": { "team": "a" } } } }),
            "10.0.0.3",
            false,
        ),
        (json!({ "networks": ["10.0.0.0/8"] }), "10.0.0.3", true),
        (json!({ "networks": ["192.0.2.0/24"] }), "10.0.0.3", false),
        (json!({ "nodes": {} }), "192.0.2.2", true),
        (json!({ "nodes": {} }), "192.0.2.99", false),
        (json!({ "nodes": {} }), "10.0.0.3", false),
        (
            json!({ "nodes": { "matchLabels": { "pool": "infra" } } }),
            "192.0.2.1",
            true,
        ),
        (
            json!({ "nodes": { "matchLabels": { "pool": "infra" } } }),
            "192.0.2.2",
            false,
        ),
    ] {
        let deny = egress(json!([{ "action": "Deny", "to": [peer] }]));
        for protocol in [6, 1] {
            assert_eq!(
                may_send(std::slice::from_ref(&deny), to, protocol, 80),
                !matches,
                "{peer} {to}"
            );
        }
    }
}

#[test]
fn what_is_not_understood_fails_closed() {
    let rest = json!({ "action": "Deny", "to": [{ "namespaces": {} }] });
    let ports = json!([{ "tcp": { "destinationPort": { "number": 80 } } }]);
    for (rule, to, port, allowed) in [
        // To allow is to match nothing, whatever other peers the rule has.
        (
            json!({ "action": "Accept", "to": [{}, { "namespaces": {} }] }),
            "10.0.0.2",
            80,
            false,
        ),
        (
            json!({ "action": "Accept", "to": [{ "domainNames": ["a.b"] }] }),
            "10.0.0.2",
            80,
            false,
        ),
        (
            json!({ "action": "Accept", "to": [{ "domainNames": ["a.b"] }, { "namespaces": {} }] }),
            "10.0.0.2",
            80,
            true,
        ),
        // Anything else denies all peers, on the ports of the rule.
        (
            json!({ "action": "Pass", "to": [{ "later": {} }] }),
            "198.51.100.1",
            80,
            false,
        ),
        (
            json!({ "action": "Deny", "to": [{}], "protocols": ports }),
            "198.51.100.1",
            80,
            false,
        ),
        (
            json!({ "action": "Deny", "to": [{}], "protocols": ports }),
            "198.51.100.1",
            81,
            true,
        ),
    ] {
        let policy = egress(json!([rule, rest]));
        assert_eq!(
            may_send(&[policy], to, 6, port),
            allowed,
            "{rule} {to} {port}"
        );
    }
}

#[test]
fn ports() {
    for (of, port, protocol, number, matches) in [
        (
            "ports",
            json!({ "portNumber": { "port": 80 } }),
            6,
            80,
            true,
        ),
        (
            "ports",
            json!({ "portNumber": { "port": 80 } }),
            17,
            80,
            false,
        ),
        (
            "ports",
            json!({ "portNumber": { "port": 80, "protocol": "UDP" } }),
            17,
            80,
            true,
        ),
        (
            "ports",
            json!({ "portRange": { "start": 80, "end": 82 } }),
            6,
            82,
            true,
        ),
        (
            "ports",
            json!({ "portRange": { "start": 80, "end": 82 } }),
            6,
            83,
            false,
        ),
        ("ports", json!({ "namedPort": "web" }), 6, 80, true),
        ("ports", json!({ "namedPort": "web" }), 17, 81, true),
        ("ports", json!({ "namedPort": "web" }), 17, 80, false),
        ("ports", json!({ "namedPort": "web" }), 1, 0, false),
        (
            "protocols",
            json!({ "tcp": { "destinationPort": { "number": 80 } } }),
            6,
            80,
            true,
        ),
        (
            "protocols",
            json!({ "tcp": { "destinationPort": { "number": 80 } } }),
            17,
            80,
            false,
        ),
        (
            "protocols",
            json!({ "sctp": { "destinationPort": { "range": { "start": 1, "end": 9 } } } }),
            132,
            9,
            true,
        ),
        (
            "protocols",
            json!({ "udp": { "destinationPort": { "range": { "start": 1, "end": 9 } } } }),
            17,
            10,
            false,
        ),
        (
            "protocols",
            json!({ "destinationNamedPort": "web" }),
            17,
            81,
            true,
        ),
    ] {
        let mut rule = json!({ "action": "Deny", "to": [{ "namespaces": {} }] });
        rule[of] = json!([port]);
        let policy = egress(json!([rule]));
        let allowed = may_send(&[policy], "10.0.0.2", protocol, number);
        assert_eq!(allowed, !matches, "{port} {protocol}/{number}");
    }
}
