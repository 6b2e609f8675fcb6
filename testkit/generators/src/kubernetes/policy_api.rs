//! Cluster-wide policies with every field of ClusterNetworkPolicy, AdminNetworkPolicy and
//! BaselineAdminNetworkPolicy, and nodes for them to name.
//!
//! They are drawn from dice of their own, into worlds of their own kind: worlds of NetworkPolicies stay as they
//! are.

use super::policy::{NUMBERS, namespaces, pods};
use super::{Features, GeneratedObject, address, pod};
use crate::Dice;
use serde_json::{Map, Value, json};

/// The labels of nodes.
const POOLS: [&str; 2] = ["infra", "work"];

/// Three nodes: addresses inside and outside of the cluster, some without labels.
pub(super) fn nodes(dice: &mut Dice) -> Vec<GeneratedObject> {
    let mut all = Vec::new();
    for number in 1..=3_u8 {
        if dice.chance(15) {
            continue;
        }
        let mut labels = Map::new();
        if dice.chance(75) {
            labels.insert("pool".to_owned(), (*dice.pick(&POOLS)).into());
        }
        let [v4, v6] = match number {
            1 => address::NODE.map(str::to_owned),
            _ => [
                format!("198.51.100.{number}"),
                format!("2001:db8::{number}"),
            ],
        };
        let of_v6 = *dice.pick(&["InternalIP", "ExternalIP"]);
        all.push(GeneratedObject {
            object: json!({ "apiVersion": "v1", "kind": "Node",
                "metadata": { "name": format!("node-{number}"), "labels": labels },
                "status": { "addresses": [
                    { "type": "InternalIP", "address": v4 },
                    { "type": of_v6, "address": v6 },
                    { "type": "Hostname", "address": format!("node-{number}") }] } }),
            features: Features::new(),
        });
    }
    all
}

/// The kinds, as a policy is drawn.
#[derive(Clone, Copy, PartialEq, Eq)]
enum GeneratedKind {
    Cluster,
    Admin,
    BaselineAdmin,
}

/// Between two and six policies, one BaselineAdminNetworkPolicy at most. Few priorities and names, so that
/// there are ties.
pub(super) fn policies(dice: &mut Dice) -> Vec<GeneratedObject> {
    let mut all: Vec<GeneratedObject> = Vec::new();
    for _ in 0..dice.between(2, 6) {
        let kind = match dice.below(100) {
            0..52 => GeneratedKind::Cluster,
            52..80 => GeneratedKind::Admin,
            _ => GeneratedKind::BaselineAdmin,
        };
        let made = policy(dice, kind);
        let is_same = |other: &GeneratedObject| {
            other.object["kind"] == made.object["kind"]
                && other.object["metadata"]["name"] == made.object["metadata"]["name"]
        };
        if !all.iter().any(is_same) {
            all.push(made);
        }
    }
    all
}

fn policy(dice: &mut Dice, kind: GeneratedKind) -> GeneratedObject {
    let mut features = Features::new();
    let name = *dice.pick(&["a", "b", "c", "d"]);
    let (version, kind_name, name) = match kind {
        GeneratedKind::Cluster => ("v1alpha2", "ClusterNetworkPolicy", name),
        GeneratedKind::Admin => ("v1alpha1", "AdminNetworkPolicy", name),
        GeneratedKind::BaselineAdmin => ("v1alpha1", "BaselineAdminNetworkPolicy", "default"),
    };
    let mut spec = json!({});
    match kind {
        GeneratedKind::Cluster if dice.chance(50) => {
            features.insert("ClusterNetworkPolicy: Admin");
            spec["tier"] = "Admin".into();
        }
        GeneratedKind::Cluster => {
            features.insert("ClusterNetworkPolicy: Baseline");
            spec["tier"] = "Baseline".into();
        }
        GeneratedKind::Admin => drop(features.insert("AdminNetworkPolicy")),
        GeneratedKind::BaselineAdmin => drop(features.insert("BaselineAdminNetworkPolicy")),
    }
    if kind != GeneratedKind::BaselineAdmin {
        let priority = *dice.pick(&[0, 1, 1, 2, 1000]);
        features.insert(match priority {
            0 => "priority 0",
            1000 => "priority 1000",
            _ => "priority between",
        });
        spec["priority"] = priority.into();
    }
    spec["subject"] = match dice.below(100) {
        0..40 => {
            features.insert("subject: all namespaces");
            json!({ "namespaces": {} })
        }
        40..65 => {
            features.insert("subject: namespaces");
            json!({ "namespaces": namespaces(dice, &mut Features::new()) })
        }
        _ => {
            features.insert("subject: pods");
            json!({ "pods": namespaced_pods(dice, kind, "subject without namespaceSelector", &mut features) })
        }
    };
    for direction in ["ingress", "egress"] {
        if dice.chance(25) {
            if dice.chance(30) {
                spec[direction] = json!([]);
            }
            continue;
        }
        features.insert(match direction {
            "ingress" => "cluster-wide ingress rules",
            _ => "cluster-wide egress rules",
        });
        let count = dice.between(1, 3);
        if count > 1 {
            features.insert("several cluster-wide rules");
        }
        spec[direction] = (0..count)
            .map(|_| rule(dice, kind, direction, &mut features))
            .collect();
    }
    GeneratedObject {
        object: json!({ "apiVersion": format!("policy.networking.k8s.io/{version}"), "kind": kind_name,
            "metadata": { "name": name }, "spec": spec }),
        features,
    }
}

/// Namespaces and the pods in them; v1alpha2 may leave the namespaces out.
fn namespaced_pods(
    dice: &mut Dice,
    kind: GeneratedKind,
    left_out: &'static str,
    features: &mut Features,
) -> Value {
    let mut selected = json!({ "podSelector": pods(dice, &mut Features::new()) });
    if kind == GeneratedKind::Cluster && dice.chance(35) {
        features.insert(left_out);
    } else {
        selected["namespaceSelector"] = namespaces(dice, &mut Features::new());
    }
    selected
}

fn rule(dice: &mut Dice, kind: GeneratedKind, direction: &str, features: &mut Features) -> Value {
    let is_egress = direction == "egress";
    let allow = match kind {
        GeneratedKind::Cluster => "Accept",
        _ => "Allow",
    };
    let action = match dice.below(100) {
        0..42 => allow,
        42..75 => "Deny",
        _ if kind == GeneratedKind::BaselineAdmin => "Deny",
        _ => "Pass",
    };
    features.insert(match (action, kind) {
        ("Accept", _) => "action Accept",
        ("Allow", GeneratedKind::BaselineAdmin) => "action Allow of the baseline",
        ("Allow", _) => "action Allow",
        ("Deny", GeneratedKind::BaselineAdmin) => "action Deny of the baseline",
        ("Deny", _) => "action Deny",
        (_, GeneratedKind::Cluster) => "action Pass of ClusterNetworkPolicy",
        _ => "action Pass of AdminNetworkPolicy",
    });
    let count = dice.between(1, 3);
    if count > 1 {
        features.insert("several cluster-wide peers");
    }
    let peers: Vec<Value> = (0..count)
        .map(|_| peer(dice, kind, (is_egress, action), features))
        .collect();
    let lacks_names = |peer: &Value| {
        ["networks", "nodes", "domainNames"]
            .into_iter()
            .any(|key| peer.get(key).is_some())
    };
    let has_names = !peers.iter().any(lacks_names);
    let mut rule = json!({ "action": action });
    rule[if is_egress { "to" } else { "from" }] = json!(peers);
    if dice.chance(20) {
        features.insert("rule with a name");
        rule["name"] = format!("rule {}", dice.below(9)).into();
    }
    if dice.chance(50) {
        features.insert("cluster-wide rule without ports");
        return rule;
    }
    let ports: Vec<Value> = (0..dice.between(1, 3))
        .map(|_| match kind {
            GeneratedKind::Cluster => protocol(dice, has_names, features),
            _ => port(dice, has_names, features),
        })
        .collect();
    rule[match kind {
        GeneratedKind::Cluster => "protocols",
        _ => "ports",
    }] = json!(ports);
    rule
}

fn peer(
    dice: &mut Dice,
    kind: GeneratedKind,
    (is_egress, action): (bool, &str),
    features: &mut Features,
) -> Value {
    let allows = action == "Accept" || action == "Allow";
    match dice.below(100) {
        0..5 => {
            features.insert(match action {
                "Pass" => "peer not understood: Pass",
                "Deny" => "peer not understood: Deny",
                _ => "peer not understood: Accept",
            });
            dice.pick(&[json!({}), json!({ "serviceAccounts": { "all": true } })])
                .clone()
        }
        5..26 => {
            features.insert("peer: namespaces");
            json!({ "namespaces": namespaces(dice, &mut Features::new()) })
        }
        26..50 => {
            features.insert("peer: pods");
            json!({ "pods": namespaced_pods(dice, kind, "peer without namespaceSelector", features) })
        }
        50..74 if is_egress => {
            let count = dice.between(1, 3);
            let mut networks: Vec<String> = (0..count)
                .map(|_| {
                    let v6 = dice.chance(42);
                    features.insert(if v6 { "networks IPv6" } else { "networks IPv4" });
                    address::network(dice, v6).0
                })
                .collect();
            networks.sort();
            networks.dedup();
            if networks.len() > 1 {
                features.insert("several networks");
            }
            if dice.chance(15)
                && let Some(loose) = address::with_host_bits(dice, &networks[0])
                && !networks.contains(&loose)
            {
                features.insert("networks with host bits");
                networks[0] = loose;
            }
            json!({ "networks": networks })
        }
        74..90 if is_egress => {
            features.insert("peer: nodes");
            let nodes = match dice.below(3) {
                0 => json!({}),
                1 => json!({ "matchLabels": { "pool": *dice.pick(&POOLS) } }),
                _ => json!({ "matchExpressions": [{ "key": "pool", "operator": "NotIn",
                    "values": [*dice.pick(&POOLS)] }] }),
            };
            json!({ "nodes": nodes })
        }
        90.. if is_egress && allows && kind != GeneratedKind::BaselineAdmin => {
            features.insert("peer: domainNames");
            json!({ "domainNames": [*dice.pick(&["*.example.com", "example.org", "a.b.example.com."])] })
        }
        _ => {
            features.insert("peer: all namespaces");
            json!({ "namespaces": {} })
        }
    }
}

/// An item of `ports`.
fn port(dice: &mut Dice, has_names: bool, features: &mut Features) -> Value {
    if has_names && dice.chance(45) {
        features.insert("namedPort");
        return json!({ "namedPort": port_name(dice) });
    }
    let protocol = *dice.pick(&[None, Some("TCP"), Some("UDP"), Some("SCTP")]);
    let mut port = if dice.chance(55) {
        features.insert("portNumber");
        json!({ "portNumber": { "port": *dice.pick(&NUMBERS) } })
    } else {
        features.insert("portRange");
        let (start, end) = range(dice);
        json!({ "portRange": { "start": start, "end": end } })
    };
    match protocol {
        Some(protocol) => {
            features.insert("port with a protocol");
            for value in port.as_object_mut().into_iter().flat_map(Map::values_mut) {
                value["protocol"] = protocol.into();
            }
        }
        None => drop(features.insert("port without protocol")),
    }
    port
}

/// An item of `protocols`.
fn protocol(dice: &mut Dice, has_names: bool, features: &mut Features) -> Value {
    if has_names && dice.chance(45) {
        features.insert("destinationNamedPort");
        return json!({ "destinationNamedPort": port_name(dice) });
    }
    let port = if dice.chance(55) {
        features.insert("destinationPort: number");
        json!({ "number": *dice.pick(&NUMBERS) })
    } else {
        features.insert("destinationPort: range");
        let (start, end) = range(dice);
        json!({ "range": { "start": start, "end": end } })
    };
    let (key, feature) = *dice.pick(&[
        ("tcp", "protocols: tcp"),
        ("udp", "protocols: udp"),
        ("sctp", "protocols: sctp"),
    ]);
    features.insert(feature);
    let mut protocol = json!({});
    protocol[key] = json!({ "destinationPort": port });
    protocol
}

fn port_name(dice: &mut Dice) -> &'static str {
    let (name, _) = *dice.pick(&pod::PORT_NAMES);
    if dice.chance(30) {
        pod::INIT_PORT
    } else {
        name
    }
}

/// A range of at least two ports.
fn range(dice: &mut Dice) -> (u16, u16) {
    let start = (*dice.pick(&NUMBERS)).min(65_534);
    let end = match dice.below(3) {
        0 => start + 1,
        1 => start.saturating_add(dice.between(2, 400) as u16),
        _ => (*dice.pick(&NUMBERS)).max(start + 1),
    };
    (start, end)
}

/// The features that a run over these worlds must have tried.
pub const POLICY_API_FEATURES: &[&str] = &[
    "AdminNetworkPolicy",
    "BaselineAdminNetworkPolicy",
    "ClusterNetworkPolicy: Admin",
    "ClusterNetworkPolicy: Baseline",
    "action Accept",
    "action Allow",
    "action Allow of the baseline",
    "action Deny",
    "action Deny of the baseline",
    "action Pass of AdminNetworkPolicy",
    "action Pass of ClusterNetworkPolicy",
    "cluster-wide egress rules",
    "cluster-wide ingress rules",
    "cluster-wide rule without ports",
    "destinationNamedPort",
    "destinationPort: number",
    "destinationPort: range",
    "endpoint in audit",
    "flow: ICMP",
    "flow: ICMPv6",
    "flow: SCTP",
    "flow: TCP",
    "flow: UDP",
    "flow: another protocol",
    "flow: encapsulation",
    "flow: outside to pod",
    "flow: pod to itself",
    "flow: pod to outside",
    "flow: pod to pod",
    "flow: to a node",
    "host-network pod at its node's address",
    "isolated by NetworkPolicy",
    "namedPort",
    "namespace in audit",
    "networks IPv4",
    "networks IPv6",
    "networks with host bits",
    "peer not understood: Accept",
    "peer not understood: Deny",
    "peer not understood: Pass",
    "peer without namespaceSelector",
    "peer: all namespaces",
    "peer: domainNames",
    "peer: namespaces",
    "peer: nodes",
    "peer: pods",
    "pod completed, its address free",
    "pod on the host's network",
    "policy in audit",
    "port with a protocol",
    "port without protocol",
    "portNumber",
    "portRange",
    "priority 0",
    "priority 1000",
    "priority between",
    "protocols: sctp",
    "protocols: tcp",
    "protocols: udp",
    "rule with a name",
    "several cluster-wide peers",
    "several cluster-wide rules",
    "several networks",
    "subject without namespaceSelector",
    "subject: all namespaces",
    "subject: namespaces",
    "subject: pods",
];
