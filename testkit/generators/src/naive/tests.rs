//! Each sentence of the documentation that the reading rests on, on a cluster of four pods.

use super::*;
use serde_json::json;

fn pod(namespace: &str, name: &str, ip: &str, label: &str) -> Value {
    json!({ "apiVersion": "v1", "kind": "Pod",
        "metadata": { "namespace": namespace, "name": name, "labels": { "app": label } },
        "spec": { "containers": [{ "name": "c", "ports": [
            { "name": "web", "containerPort": 80 },
            { "name": "web", "containerPort": 81, "protocol": "UDP" }] }] },
        "status": { "podIP": ip } })
}

fn cluster(spec: Value) -> Vec<Value> {
    vec![
        json!({ "apiVersion": "v1", "kind": "Namespace",
            "metadata": { "name": "shop", "labels": { "team": "a" } } }),
        pod("shop", "web", "10.0.0.1", "web"),
        pod("shop", "db", "10.0.0.2", "db"),
        pod("other", "web", "10.0.0.3", "web"),
        pod("default", "lone", "fd00::4", "web"),
        json!({ "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
            "metadata": { "namespace": "shop", "name": "p" }, "spec": spec }),
    ]
}

fn flow(from: &str, to: &str, protocol: u8, port: u16) -> NaiveFlow {
    NaiveFlow {
        source: from.parse().unwrap(),
        destination: to.parse().unwrap(),
        protocol,
        ports: [6, 17, 132].contains(&protocol).then_some((4000, port)),
        icmp: (protocol == 1).then_some((8, 0)),
        path: Default::default(),
        query: NaiveQuery::default(),
    }
}

#[test]
fn policies_isolate_and_allow() {
    const SHOP: &str = "10.0.0.1";
    const DB: &str = "10.0.0.2";
    const OTHER: &str = "10.0.0.3";
    const FAR: &str = "192.0.2.1";
    type Row<'a> = (Value, &'a str, &'a str, u8, u16, (bool, bool));
    let rows: &[Row<'_>] = &[
        (json!({ "podSelector": {} }), DB, SHOP, 6, 80, (true, false)),
        (json!({ "podSelector": {} }), SHOP, FAR, 6, 80, (true, true)),
        (
            json!({ "podSelector": {}, "egress": [{}] }),
            SHOP,
            DB,
            6,
            80,
            (true, false),
        ),
        (
            json!({ "podSelector": {}, "policyTypes": ["Egress"] }),
            SHOP,
            DB,
            6,
            80,
            (false, true),
        ),
        (
            json!({ "podSelector": { "matchLabels": { "app": "db" } } }),
            DB,
            SHOP,
            6,
            80,
            (true, true),
        ),
        (
            json!({ "podSelector": {}, "ingress": [{}] }),
            FAR,
            SHOP,
            1,
            0,
            (true, true),
        ),
        // Ports never hold for ICMP, and TCP is what is meant where no protocol is named.
        (
            json!({ "podSelector": {}, "ingress": [{ "ports": [{}] }] }),
            FAR,
            SHOP,
            1,
            0,
            (true, false),
        ),
        (
            json!({ "podSelector": {}, "ingress": [{ "ports": [{}] }] }),
            FAR,
            SHOP,
            6,
            9,
            (true, true),
        ),
        (
            json!({ "podSelector": {}, "ingress": [{ "ports": [{}] }] }),
            FAR,
            SHOP,
            17,
            9,
            (true, false),
        ),
        (
            json!({ "podSelector": {}, "ingress": [{ "ports": [{ "port": "web", "protocol": "UDP" }] }] }),
            FAR,
            SHOP,
            17,
            81,
            (true, true),
        ),
        (
            json!({ "podSelector": {}, "ingress": [{ "ports": [{ "port": "web" }] }] }),
            FAR,
            SHOP,
            6,
            81,
            (true, false),
        ),
        (
            json!({ "podSelector": {}, "ingress": [{ "ports": [{ "port": 80, "endPort": 82 }] }] }),
            FAR,
            SHOP,
            6,
            82,
            (true, true),
        ),
        (
            json!({ "podSelector": {}, "ingress": [{ "ports": [{ "port": 80, "endPort": 82 }] }] }),
            FAR,
            SHOP,
            6,
            83,
            (true, false),
        ),
        // A pod selector alone means the policy's own namespace.
        (
            json!({ "podSelector": {}, "ingress": [{ "from": [{ "podSelector": {} }] }] }),
            DB,
            SHOP,
            6,
            80,
            (true, true),
        ),
        (
            json!({ "podSelector": {}, "ingress": [{ "from": [{ "podSelector": {} }] }] }),
            OTHER,
            SHOP,
            6,
            80,
            (true, false),
        ),
        (
            json!({ "podSelector": {}, "ingress": [{ "from": [{ "namespaceSelector": {} }] }] }),
            OTHER,
            SHOP,
            6,
            80,
            (true, true),
        ),
        (
            json!({ "podSelector": {}, "ingress": [{ "from": [{ "namespaceSelector": {} }] }] }),
            FAR,
            SHOP,
            6,
            80,
            (true, false),
        ),
        (
            json!({ "podSelector": {}, "ingress": [{ "from": [{ "namespaceSelector":
            { "matchLabels": { "kubernetes.io/metadata.name": "other" } } }] }] }),
            OTHER,
            SHOP,
            6,
            80,
            (true, true),
        ),
        (
            json!({ "podSelector": {}, "ingress": [{ "from": [{ "ipBlock":
            { "cidr": "192.0.2.0/24", "except": ["192.0.2.0/30"] } }] }] }),
            FAR,
            SHOP,
            6,
            80,
            (true, false),
        ),
        (
            json!({ "podSelector": {}, "ingress": [{ "from": [
            { "ipBlock": { "cidr": "192.0.2.0/24", "except": ["192.0.2.0/30"] } },
            { "ipBlock": { "cidr": "192.0.2.1/32" } }] }] }),
            FAR,
            SHOP,
            6,
            80,
            (true, true),
        ),
        (
            json!({ "podSelector": {}, "ingress": [{ "from": [{ "ipBlock": { "cidr": "10.0.0.0/8" } }] }] }),
            OTHER,
            SHOP,
            6,
            80,
            (true, true),
        ),
        (
            json!({ "podSelector": {}, "policyTypes": ["Egress"], "egress": [{ "ports": [{ "port": "web" }] }] }),
            SHOP,
            OTHER,
            6,
            80,
            (true, true),
        ),
        (
            json!({ "podSelector": {}, "policyTypes": ["Egress"], "egress": [{ "ports": [{ "port": "web" }] }] }),
            SHOP,
            FAR,
            6,
            80,
            (false, true),
        ),
    ];
    for (spec, from, to, protocol, port, verdict) in rows {
        let objects = cluster(spec.clone());
        let flow = flow(from, to, *protocol, *port);
        assert_eq!(verdicts(&objects, &flow), *verdict, "{spec} {flow:?}");
    }
}

#[test]
fn who_holds_an_address() {
    let mut objects = vec![
        pod("shop", "a", "10.0.0.1", "web"),
        pod("shop", "b", "10.0.0.1", "web"),
    ];
    let at = |objects: &[Value]| pod_at(objects, "10.0.0.1".parse().unwrap());
    assert_eq!(at(&objects), Some(1));
    objects[0]["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z".into();
    assert_eq!(at(&objects), Some(0));
    objects[0]["status"]["phase"] = "Failed".into();
    assert_eq!(at(&objects), Some(1));
    objects[1]["spec"]["hostNetwork"] = true.into();
    assert_eq!(at(&objects), None);
}

#[test]
fn networks_as_the_api_server_reads_them() {
    for (cidr, address, inside) in [
        ("010.0.0.0/08", "10.1.2.3", true),
        ("010.0.0.0/08", "8.1.2.3", false),
        ("10.9.9.9/8", "10.1.2.3", true),
        ("::ffff:10.0.0.0/104", "10.1.2.3", true),
        ("::ffff:10.0.0.0/104", "11.1.2.3", false),
        ("::ffff:0:0/96", "11.1.2.3", true),
        ("::ffff:0:0/90", "11.1.2.3", false),
        ("::ffff:0:0/90", "::ffc0:0:1", true),
    ] {
        assert_eq!(
            in_cidr(cidr, address.parse().unwrap()),
            inside,
            "{cidr} {address}"
        );
    }
}

#[test]
fn label_expressions() {
    let labels = json!({ "app": "web" });
    let labels = labels.as_object().unwrap();
    for (key, operator, values, holds) in [
        ("app", "In", json!(["web"]), true),
        ("app", "In", json!(["db"]), false),
        ("tier", "In", json!(["db"]), false),
        ("app", "NotIn", json!(["web"]), false),
        ("tier", "NotIn", json!(["db"]), true),
        ("app", "Exists", json!(null), true),
        ("tier", "Exists", json!(null), false),
        ("app", "DoesNotExist", json!(null), false),
        ("tier", "DoesNotExist", json!(null), true),
    ] {
        let selector = json!({ "matchExpressions": [
            { "key": key, "operator": operator, "values": values }] });
        assert_eq!(selects(Some(&selector), labels), holds, "{selector}");
    }
}
