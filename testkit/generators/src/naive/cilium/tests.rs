//! Policies of nodes: whom they select, what they judge, how they stand beside host endpoints of Calico.

use crate::naive::{NaiveFlow, NaivePath, audit_read, read};
use serde_json::{Value, json};

const HOST: &str = "192.0.2.9";
const OTHER_NODE: &str = "192.0.2.10";
const OUTSIDE: &str = "203.0.113.7";
const POD: &str = "10.0.0.1";

fn node(name: &str, address: &str, labels: Value) -> Value {
    json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": name, "labels": labels },
        "status": { "addresses": [{ "type": "InternalIP", "address": address }] } })
}

/// Two nodes, a pod, and these objects.
fn cluster(objects: &[Value]) -> Vec<Value> {
    let mut all = vec![
        node("node-1", HOST, json!({ "pool": "infra" })),
        node("node-2", OTHER_NODE, json!({ "pool": "work" })),
        json!({ "apiVersion": "v1", "kind": "Pod",
            "metadata": { "namespace": "shop", "name": "web", "labels": { "pool": "infra" } },
            "spec": { "nodeName": "node-1", "containers": [] }, "status": { "podIP": POD } }),
    ];
    all.extend(objects.iter().cloned());
    all
}

fn policy(spec: Value) -> Value {
    json!({ "apiVersion": "cilium.io/v2", "kind": "CiliumClusterwideNetworkPolicy",
        "metadata": { "name": "hosts" }, "spec": spec })
}

fn host_endpoint(name: &str, interface: &str) -> Value {
    json!({ "apiVersion": "projectcalico.org/v3", "kind": "HostEndpoint", "metadata": { "name": name },
        "spec": { "node": "node-1", "interfaceName": interface } })
}

fn flow(
    from: &str,
    to: &str,
    port: u16,
    path: (Option<&'static str>, Option<&'static str>, bool),
) -> NaiveFlow {
    let (input, output, is_forwarded) = path;
    NaiveFlow {
        source: from.parse().unwrap(),
        destination: to.parse().unwrap(),
        protocol: 6,
        ports: Some((4000, port)),
        icmp: None,
        path: NaivePath {
            input,
            output,
            is_forwarded,
            sent_to: None,
        },
        query: Default::default(),
    }
}

/// Whether the host lets TCP in from there.
fn lets_in(objects: &[Value], from: &str, port: u16) -> bool {
    let flow = flow(from, HOST, port, (Some("eth0"), None, false));
    read(&cluster(objects), &flow).host
}

/// Whether it lets TCP of its own out.
fn lets_out(objects: &[Value], to: &str, port: u16) -> bool {
    let flow = flow(HOST, to, port, (None, Some("eth0"), false));
    read(&cluster(objects), &flow).host
}

#[test]
fn a_node_is_selected_by_its_labels() {
    let closed = |selector: Value| {
        let deny = policy(json!({ "nodeSelector": selector, "ingress": [{}] }));
        !lets_in(&[deny], OUTSIDE, 80)
    };
    assert!(closed(json!({})));
    assert!(closed(json!({ "matchLabels": { "pool": "infra" } })));
    assert!(closed(json!({ "matchLabels": { "k8s:pool": "infra" } })));
    assert!(closed(json!({ "matchLabels": { "reserved:host": "" } })));
    assert!(!closed(json!({ "matchLabels": { "pool": "work" } })));
    assert!(!closed(json!({ "matchLabels": { "node:pool": "infra" } })));
    let expression = json!([{ "key": "pool", "operator": "NotIn", "values": ["infra"] }]);
    assert!(!closed(json!({ "matchExpressions": expression })));
    // Pods are selected by none of these, and hosts by no selector of endpoints.
    let deny = policy(json!({ "nodeSelector": {}, "ingress": [{}], "egress": [{}] }));
    let to_pod = flow(OUTSIDE, POD, 80, (Some("eth0"), None, true));
    let reading = read(&cluster(&[deny]), &to_pod);
    assert!(reading.ingress && reading.host, "{reading:?}");
    let pods = policy(json!({ "endpointSelector": {}, "ingress": [{}] }));
    assert!(lets_in(&[pods], OUTSIDE, 80));
    // Without its Node a host is selected by nothing.
    let deny = policy(json!({ "nodeSelector": {}, "ingress": [{}] }));
    let mut unknown = cluster(&[deny]);
    unknown.remove(0);
    let to_host = flow(OUTSIDE, HOST, 80, (Some("eth0"), None, false));
    assert!(read(&unknown, &to_host).host);
}

#[test]
fn directions_are_closed_by_their_rules() {
    let ingress = [policy(json!({ "nodeSelector": {}, "ingress": [{}] }))];
    assert!(!lets_in(&ingress, OUTSIDE, 80) && lets_out(&ingress, OUTSIDE, 80));
    assert!(lets_in(&ingress, OUTSIDE, 22), "a failsafe port");
    let deny = json!([{ "fromCIDR": ["203.0.113.0/24"] }]);
    let open = json!({ "nodeSelector": {}, "ingressDeny": deny,
        "enableDefaultDeny": { "ingress": false } });
    let open = [policy(open)];
    assert!(!lets_in(&open, OUTSIDE, 80) && lets_in(&open, "198.51.100.1", 80));
    let both = json!({ "nodeSelector": {}, "ingress": [{ "fromEntities": ["all"] }],
        "ingressDeny": deny });
    let both = [policy(both)];
    assert!(!lets_in(&both, OUTSIDE, 80) && lets_in(&both, "198.51.100.1", 80));
    let egress = json!({ "nodeSelector": {}, "egress": [{ "toEntities": ["world"],
        "toPorts": [{ "ports": [{ "port": "443", "protocol": "TCP" }] }] }] });
    let egress = [policy(egress)];
    assert!(lets_out(&egress, OUTSIDE, 443) && !lets_out(&egress, OUTSIDE, 80));
    assert!(!lets_out(&egress, OTHER_NODE, 443) && lets_in(&egress, OUTSIDE, 80));
}

#[test]
fn peers_are_seen_from_the_node() {
    let from = |rule: Value| [policy(json!({ "nodeSelector": {}, "ingress": [rule] }))];
    let remote = from(json!({ "fromEntities": ["remote-node"] }));
    assert!(lets_in(&remote, OTHER_NODE, 80) && !lets_in(&remote, OUTSIDE, 80));
    assert!(!lets_in(&remote, HOST, 80), "the node itself");
    let own = from(json!({ "fromEntities": ["host"] }));
    assert!(lets_in(&own, HOST, 80) && !lets_in(&own, OTHER_NODE, 80));
    let nodes = from(json!({ "fromNodes": [{ "matchLabels": { "pool": "work" } }] }));
    assert!(lets_in(&nodes, OTHER_NODE, 80) && !lets_in(&nodes, HOST, 80));
    let pods = from(json!({ "fromEndpoints": [{}] }));
    assert!(lets_in(&pods, POD, 80) && !lets_in(&pods, OTHER_NODE, 80));
    let cluster = from(json!({ "fromEntities": ["cluster"] }));
    assert!(lets_in(&cluster, POD, 80) && !lets_in(&cluster, OUTSIDE, 80));
}

#[test]
fn what_is_forwarded_is_not_judged() {
    let closed = policy(json!({ "nodeSelector": {}, "ingress": [{}], "egress": [{}] }));
    let through = flow(
        OUTSIDE,
        "198.51.100.1",
        80,
        (Some("eth0"), Some("eth1"), true),
    );
    assert!(read(&cluster(std::slice::from_ref(&closed)), &through).host);
    let governed = cluster(&[closed, host_endpoint("h", "*")]);
    assert!(read(&governed, &through).host);
}

#[test]
fn beside_host_endpoints() {
    let allow = policy(json!({ "nodeSelector": {}, "ingress": [{ "fromEntities": ["all"] }] }));
    let host = host_endpoint("h", "eth0");
    assert!(!lets_in(std::slice::from_ref(&host), OUTSIDE, 80));
    assert!(lets_in(&[host.clone(), allow.clone()], OUTSIDE, 80));
    assert!(
        !lets_out(&[host.clone(), allow.clone()], OUTSIDE, 80),
        "as ever"
    );
    // In the tier `default` a policy of Calico before order 1000 comes first, and what denies before that.
    let calico = |order: u32, action: &str| {
        json!({ "apiVersion": "projectcalico.org/v3", "kind": "GlobalNetworkPolicy",
            "metadata": { "name": "c" }, "spec": { "order": order, "types": ["Ingress"],
                "ingress": [{ "action": action }] } })
    };
    let first = [host.clone(), allow.clone(), calico(10, "Deny")];
    assert!(!lets_in(&first, OUTSIDE, 80));
    let second = [host.clone(), allow, calico(2000, "Deny")];
    assert!(lets_in(&second, OUTSIDE, 80));
    let deny = policy(json!({ "nodeSelector": {}, "ingressDeny": [{ "fromEntities": ["all"] }] }));
    assert!(!lets_in(&[host, deny, calico(10, "Allow")], OUTSIDE, 80));
    // Policies of Calico select no node.
    let own = policy(json!({ "nodeSelector": {}, "ingress": [{ "fromEntities": ["all"] }] }));
    assert!(lets_in(&[own, calico(10, "Deny")], OUTSIDE, 80));
}

#[test]
fn audit() {
    let to_host = flow(OUTSIDE, HOST, 80, (Some("eth0"), None, false));
    let closed = policy(json!({ "nodeSelector": {}, "ingress": [{}] }));
    let annotations = json!({ "palisade.dev/mode": "audit" });
    let mut audited = closed.clone();
    audited["metadata"]["annotations"] = annotations.clone();
    let mut node = cluster(&[closed]);
    node[0]["metadata"]["annotations"] = annotations;
    for objects in [cluster(&[audited]), node] {
        assert!(read(&objects, &to_host).host && !audit_read(&objects, &to_host).host);
    }
}
