//! Writes suggested policies in each dialect.
//!
//! They are written and not converted: names and nodes have other forms in each dialect, and some have none. Promises:
//! what a dialect cannot say is refused by [`Sayable`] before it is written; what is written is read back by the caller.

use crate::suggested_policy::{SuggestedPeer, SuggestedPolicy, SuggestedRule, SuggestedTraffic};
use crate::workload_labels::LabelMap;
use palisade_convert::TargetDialect;
use palisade_model::{Direction, Namespace, Prefix, Protocol};
use serde_json::{Map, Value, json};

/// Whether a dialect can say traffic in a rule.
pub(crate) fn can_say(dialect: TargetDialect, traffic: SuggestedTraffic) -> bool {
    match (dialect, traffic) {
        (_, SuggestedTraffic::Port(_, port)) => port != 0,
        (TargetDialect::Calico, _) => true,
        (TargetDialect::Cilium, SuggestedTraffic::Icmp(_, _, code)) => code == 0,
        (
            TargetDialect::Cilium | TargetDialect::Kubernetes | TargetDialect::ClusterNetworkPolicy,
            _,
        ) => false,
    }
}

/// The object of a policy.
pub(crate) fn write(policy: &SuggestedPolicy, dialect: TargetDialect) -> Value {
    match dialect {
        TargetDialect::Kubernetes => kubernetes(policy),
        TargetDialect::Calico => calico(policy),
        TargetDialect::Cilium => cilium(policy),
        TargetDialect::ClusterNetworkPolicy => cluster(policy),
    }
}

fn namespace_labels(namespace: &str) -> Value {
    json!({ "matchLabels": { Namespace::NAME_LABEL: namespace } })
}

fn pod_labels(labels: &LabelMap) -> Value {
    if labels.is_empty() {
        json!({})
    } else {
        json!({ "matchLabels": labels })
    }
}

/// Items of rules that have the same peers, by what distinguishes the writers.
fn ports_of(rule: &SuggestedRule) -> impl Iterator<Item = (Protocol, u16)> {
    rule.traffic.iter().filter_map(|traffic| match traffic {
        SuggestedTraffic::Port(protocol, port) => Some((*protocol, *port)),
        _ => None,
    })
}

fn kubernetes(policy: &SuggestedPolicy) -> Value {
    let peer = |peer: &SuggestedPeer| match peer {
        SuggestedPeer::Pods { namespace, labels } if *namespace == policy.namespace => {
            Some(json!({ "podSelector": pod_labels(labels) }))
        }
        SuggestedPeer::Pods { namespace, labels } => Some(json!({
            "namespaceSelector": namespace_labels(namespace),
            "podSelector": pod_labels(labels),
        })),
        SuggestedPeer::Network(network) => {
            Some(json!({ "ipBlock": { "cidr": network.to_string() } }))
        }
        SuggestedPeer::Name(_) | SuggestedPeer::Nodes => None,
    };
    let rules = |direction: Direction, field: &str| -> Vec<Value> {
        let rules = policy.rules(direction).iter().map(|rule| {
            let ports = ports_of(rule)
                .map(|(protocol, port)| json!({ "port": port, "protocol": protocol.to_string() }));
            let peers: Vec<Value> = rule.peers.iter().filter_map(peer).collect();
            let mut written = Map::new();
            written.insert(field.to_owned(), Value::Array(peers));
            written.insert("ports".to_owned(), Value::Array(ports.collect()));
            Value::Object(written)
        });
        rules.collect()
    };
    json!({
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": { "name": policy.name, "namespace": policy.namespace },
        "spec": {
            "podSelector": pod_labels(&policy.labels),
            "policyTypes": ["Ingress", "Egress"],
            "ingress": rules(Direction::Ingress, "from"),
            "egress": rules(Direction::Egress, "to"),
        },
    })
}

/// A test of labels as Calico writes it.
fn calico_selector(labels: &LabelMap) -> String {
    let tests = labels
        .iter()
        .map(|(key, value)| format!("{key} == '{value}'"));
    if labels.is_empty() {
        "all()".to_owned()
    } else {
        tests.collect::<Vec<_>>().join(" && ")
    }
}

/// The peers of a rule as Calico's rules have them: one entity for networks, one for names, one for each of the others.
fn calico_entities(rule: &SuggestedRule) -> Vec<Map<String, Value>> {
    let mut entities = Vec::new();
    let (mut networks, mut names) = (Vec::new(), Vec::new());
    for peer in &rule.peers {
        match peer {
            SuggestedPeer::Pods { namespace, labels } => {
                let mut entity = Map::new();
                let namespace = format!("projectcalico.org/name == '{namespace}'");
                entity.insert("namespaceSelector".to_owned(), json!(namespace));
                entity.insert("selector".to_owned(), json!(calico_selector(labels)));
                entities.push(entity);
            }
            SuggestedPeer::Network(network) => networks.push(network.to_string()),
            SuggestedPeer::Name(name) => names.push(name.clone()),
            SuggestedPeer::Nodes => {}
        }
    }
    let of_family = |v6: bool| -> Vec<&String> {
        networks
            .iter()
            .filter(|net| net.contains(':') == v6)
            .collect()
    };
    for family in [of_family(false), of_family(true)] {
        if !family.is_empty() {
            entities.push(Map::from_iter([("nets".to_owned(), json!(family))]));
        }
    }
    if !names.is_empty() {
        entities.push(Map::from_iter([("domains".to_owned(), json!(names))]));
    }
    entities
}

fn calico(policy: &SuggestedPolicy) -> Value {
    let rules = |direction: Direction| -> Vec<Value> {
        let mut written = Vec::new();
        for rule in policy.rules(direction) {
            for entity in calico_entities(rule) {
                for traffic in calico_traffic(rule) {
                    written.push(calico_rule(direction, &entity, traffic));
                }
            }
        }
        written
    };
    json!({
        "apiVersion": "projectcalico.org/v3",
        "kind": "NetworkPolicy",
        "metadata": { "name": policy.name, "namespace": policy.namespace },
        "spec": {
            "selector": calico_selector(&policy.labels),
            "types": ["Ingress", "Egress"],
            "ingress": rules(Direction::Ingress),
            "egress": rules(Direction::Egress),
        },
    })
}

/// The fields of traffic of Calico's rules: protocol with all of its ports, and each ICMP message.
fn calico_traffic(rule: &SuggestedRule) -> Vec<(Map<String, Value>, Option<Value>)> {
    let mut all = Vec::new();
    let protocol = |protocol: Protocol| match protocol {
        Protocol::TCP | Protocol::UDP | Protocol::SCTP | Protocol::ICMP | Protocol::ICMPV6 => {
            json!(protocol.to_string())
        }
        Protocol(number) => json!(number),
    };
    for each in Protocol::WITH_PORTS {
        let ports: Vec<u16> = ports_of(rule)
            .filter(|(protocol, _)| *protocol == each)
            .map(|(_, port)| port)
            .collect();
        if !ports.is_empty() {
            let fields = Map::from_iter([("protocol".to_owned(), protocol(each))]);
            all.push((fields, Some(json!(ports))));
        }
    }
    for traffic in &rule.traffic {
        let mut fields = Map::from_iter([("protocol".to_owned(), protocol(traffic.protocol()))]);
        match traffic {
            SuggestedTraffic::Port(..) => continue,
            SuggestedTraffic::Icmp(_, kind, code) => {
                fields.insert("icmp".to_owned(), json!({ "type": kind, "code": code }));
            }
            SuggestedTraffic::Protocol(_) => {}
        }
        all.push((fields, None));
    }
    all
}

fn calico_rule(
    direction: Direction,
    entity: &Map<String, Value>,
    (fields, ports): (Map<String, Value>, Option<Value>),
) -> Value {
    let mut rule = Map::from_iter([("action".to_owned(), json!("Allow"))]);
    rule.extend(fields);
    let mut destination = Map::new();
    match direction {
        Direction::Ingress => {
            rule.insert("source".to_owned(), Value::Object(entity.clone()));
        }
        Direction::Egress => destination = entity.clone(),
    }
    if let Some(ports) = ports {
        destination.insert("ports".to_owned(), ports);
    }
    if !destination.is_empty() {
        rule.insert("destination".to_owned(), Value::Object(destination));
    }
    Value::Object(rule)
}

/// The peers of a rule as Cilium has them, each kind with its field.
fn cilium_peers(rule: &SuggestedRule, direction: Direction) -> Vec<(String, Vec<Value>)> {
    let word = match direction {
        Direction::Ingress => "from",
        Direction::Egress => "to",
    };
    let kinds: [(&str, Vec<Value>); 4] = [
        (
            "Endpoints",
            cilium_items(rule, &|peer| match peer {
                SuggestedPeer::Pods { namespace, labels } => {
                    let mut tests = Map::new();
                    tests.insert(
                        "k8s:io.kubernetes.pod.namespace".to_owned(),
                        json!(namespace),
                    );
                    for (key, value) in labels {
                        tests.insert(format!("k8s:{key}"), json!(value));
                    }
                    vec![json!({ "matchLabels": tests })]
                }
                _ => Vec::new(),
            }),
        ),
        (
            "CIDR",
            cilium_items(rule, &|peer| match peer {
                SuggestedPeer::Network(network) => vec![json!(network.to_string())],
                _ => Vec::new(),
            }),
        ),
        (
            "FQDNs",
            cilium_items(rule, &|peer| match peer {
                SuggestedPeer::Name(name) => vec![json!({ "matchName": name })],
                _ => Vec::new(),
            }),
        ),
        (
            "Entities",
            cilium_items(rule, &|peer| match peer {
                SuggestedPeer::Nodes => vec![json!("host"), json!("remote-node")],
                _ => Vec::new(),
            }),
        ),
    ];
    let with_field = kinds.into_iter().filter(|(_, items)| !items.is_empty());
    with_field
        .map(|(kind, items)| (format!("{word}{kind}"), items))
        .collect()
}

fn cilium_items(rule: &SuggestedRule, item: &dyn Fn(&SuggestedPeer) -> Vec<Value>) -> Vec<Value> {
    rule.peers.iter().flat_map(item).collect()
}

fn cilium(policy: &SuggestedPolicy) -> Value {
    let has_names = policy.has_names();
    let rules = |direction: Direction| -> Vec<Value> {
        let mut written = Vec::new();
        for rule in policy.rules(direction) {
            for (field, peers) in cilium_peers(rule, direction) {
                let reads_dns =
                    has_names && direction == Direction::Egress && field.ends_with("Endpoints");
                for (kind, traffic) in cilium_traffic(rule, reads_dns) {
                    written.push(json!({ field.as_str(): peers, kind: traffic }));
                }
            }
        }
        if written.is_empty() {
            // A rule without a peer: nothing is allowed.
            written.push(json!({}));
        }
        written
    };
    json!({
        "apiVersion": "cilium.io/v2",
        "kind": "CiliumNetworkPolicy",
        "metadata": { "name": policy.name, "namespace": policy.namespace },
        "spec": {
            "endpointSelector": pod_labels(&policy.labels),
            "ingress": rules(Direction::Ingress),
            "egress": rules(Direction::Egress),
        },
    })
}

/// The fields of traffic of Cilium's rules. Where names are peers, DNS is read: else they have no addresses.
fn cilium_traffic(rule: &SuggestedRule, reads_dns: bool) -> Vec<(&'static str, Value)> {
    let port = |(protocol, port): (Protocol, u16)| json!({ "port": port.to_string(), "protocol": protocol.to_string() });
    let is_read = |(protocol, port): &(Protocol, u16)| {
        reads_dns && SuggestedTraffic::Port(*protocol, *port).is_dns()
    };
    let dns: Vec<Value> = ports_of(rule).filter(is_read).map(port).collect();
    let other: Vec<Value> = ports_of(rule)
        .filter(|item| !is_read(item))
        .map(port)
        .collect();
    let messages = rule.traffic.iter().filter_map(|traffic| match traffic {
        SuggestedTraffic::Icmp(protocol, kind, _) => {
            let family = if *protocol == Protocol::ICMPV6 {
                "IPv6"
            } else {
                "IPv4"
            };
            Some(json!({ "type": kind, "family": family }))
        }
        _ => None,
    });
    let messages: Vec<Value> = messages.collect();
    let mut all = Vec::new();
    if !dns.is_empty() {
        let rules = json!({ "dns": [{ "matchPattern": "*" }] });
        all.push(("toPorts", json!([{ "ports": dns, "rules": rules }])));
    }
    if !other.is_empty() {
        all.push(("toPorts", json!([{ "ports": other }])));
    }
    if !messages.is_empty() {
        all.push(("icmps", json!([{ "fields": messages }])));
    }
    all
}

fn cluster(policy: &SuggestedPolicy) -> Value {
    let pods = |namespace: &str, labels: &LabelMap| {
        json!({ "pods": {
            "namespaceSelector": namespace_labels(namespace),
            "podSelector": pod_labels(labels),
        }})
    };
    let peer = |peer: &SuggestedPeer, direction: Direction| match (peer, direction) {
        (SuggestedPeer::Pods { namespace, labels }, _) => Some(pods(namespace, labels)),
        // What comes from outside of the pods is not denied.
        (_, Direction::Ingress) => None,
        (SuggestedPeer::Network(network), _) => Some(json!({ "networks": [network.to_string()] })),
        (SuggestedPeer::Name(name), _) => Some(json!({ "domainNames": [name] })),
        (SuggestedPeer::Nodes, _) => Some(json!({ "nodes": {} })),
    };
    let everything = [Prefix::ALL_V4, Prefix::ALL_V6].map(|network| network.to_string());
    let rules = |direction: Direction, field: &str| -> Vec<Value> {
        let mut written = Vec::new();
        for rule in policy.rules(direction) {
            let peers: Vec<Value> = rule
                .peers
                .iter()
                .filter_map(|one| peer(one, direction))
                .collect();
            if peers.is_empty() {
                continue;
            }
            let protocols = ports_of(rule).map(|(protocol, port)| {
                let name = protocol.to_string().to_lowercase();
                json!({ name: { "destinationPort": { "number": port } } })
            });
            let protocols: Vec<Value> = protocols.collect();
            written.push(json!({ "action": "Accept", field: peers, "protocols": protocols }));
        }
        let mut rest = vec![json!({ "namespaces": {} })];
        if direction == Direction::Egress {
            rest.push(json!({ "networks": everything }));
        }
        written.push(json!({ "action": "Deny", field: rest }));
        written
    };
    json!({
        "apiVersion": "policy.networking.k8s.io/v1alpha2",
        "kind": "ClusterNetworkPolicy",
        "metadata": { "name": format!("{}-{}", policy.namespace, policy.name) },
        "spec": {
            "tier": "Baseline",
            "priority": 100,
            "subject": pods(&policy.namespace, &policy.labels),
            "ingress": rules(Direction::Ingress, "from"),
            "egress": rules(Direction::Egress, "to"),
        },
    })
}
