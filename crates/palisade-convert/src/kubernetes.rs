//! Writes NetworkPolicies of Kubernetes.
//!
//! A NetworkPolicy isolates the pods that it selects in each direction that it governs, and only allows. Its peers are
//! pods, or networks whoever has their addresses.

use crate::inexpressible::InexpressibleReason;
use crate::label_selector::label_selector;
use crate::peer_form::{NetworkExcept, NodeChoice, PeerForm};
use crate::pods::{PodSelection, inexpressible_test};
use crate::ports::{DestinationPort, PlainTraffic, port_protocol_name};
use crate::position::{Standing, order_text};
use crate::refusals::{Refusals, RulePart};
use crate::target::TargetDialect;
use palisade_model::{Action, Direction, DirectionRules, Peer, Policy, Rule, Str, tier_name};
use serde_json::{Map, Value, json};

const TARGET: TargetDialect = TargetDialect::Kubernetes;

/// Writes the NetworkPolicy of one policy of the model: its namespace and its spec.
pub(crate) fn write(policy: &Policy, refusals: &mut Refusals) -> Option<(Str, Value)> {
    check_position(policy, refusals);
    let subject = match PodSelection::read(&policy.subject) {
        Ok(pods) => Some(pods),
        Err(reason) => {
            refusals.of_policy(policy, reason.inexpressible(TARGET));
            None
        }
    };
    let namespace = subject
        .as_ref()
        .and_then(PodSelection::only_namespace)
        .cloned();
    let Some((subject, namespace)) = subject.zip(namespace.clone()) else {
        if refusals.is_empty() {
            refusals.of_policy(policy, InexpressibleReason::SeveralNamespaces);
        }
        return None;
    };
    let subject = subject.inside_namespace(&namespace);
    if !subject.service_accounts.is_empty() {
        refusals.of_policy(policy, InexpressibleReason::ServiceAccount(TARGET));
    }
    if !subject.namespaces.is_empty() || !subject.namespace_names.is_empty() {
        refusals.of_policy(policy, InexpressibleReason::SeveralNamespaces);
    }
    let mut types = Vec::new();
    let mut spec = Map::new();
    spec.insert("podSelector".to_owned(), label_selector(&subject.pods));
    spec.insert("policyTypes".to_owned(), Value::Null);
    for (direction, name) in [
        (Direction::Ingress, "Ingress"),
        (Direction::Egress, "Egress"),
    ] {
        let Some(list) = policy.rules(direction) else {
            continue;
        };
        types.push(json!(name));
        // Of a part that only denies, each rule is refused.
        if !list.default_deny && Standing::of(policy) != Standing::First {
            let reason = InexpressibleReason::AlwaysIsolates {
                target: TARGET,
                direction,
            };
            refusals.of_policy(policy, reason);
        }
        let rules = rules((policy, direction), list, &namespace, refusals);
        spec.insert(direction.to_string(), Value::Array(rules));
    }
    spec.insert("policyTypes".to_owned(), Value::Array(types));
    Some((namespace, Value::Object(spec)))
}

fn check_position(policy: &Policy, refusals: &mut Refusals) {
    if policy.tier != tier_name::DEFAULT {
        let reason = InexpressibleReason::Tier {
            target: TARGET,
            tier: policy.tier.clone(),
        };
        refusals.of_policy(policy, reason);
    } else if Standing::of(policy) != Standing::Allows
        && crate::position::only_does(policy, Action::Allow)
    {
        let reason = InexpressibleReason::Order {
            target: TARGET,
            order: order_text(policy.precedence.order),
        };
        refusals.of_policy(policy, reason);
    }
}

fn rules(
    place: (&Policy, Direction),
    list: &DirectionRules,
    namespace: &Str,
    refusals: &mut Refusals,
) -> Vec<Value> {
    let mut written = Vec::new();
    for rule in &list.rules {
        if rule.action != Action::Allow {
            let reason = InexpressibleReason::Action {
                target: TARGET,
                action: rule.action,
            };
            refusals.of_rule(place, (rule, RulePart::Whole), reason);
            continue;
        }
        if rule.local.is_some() {
            let reason = InexpressibleReason::OwnAddress(TARGET);
            refusals.of_rule(place, (rule, RulePart::Whole), reason);
        }
        let peers = peers(place, rule, namespace, refusals);
        let ports = ports(place, rule, refusals);
        for peers in &peers {
            for ports in &ports {
                let mut object = Map::new();
                let field = match place.1 {
                    Direction::Ingress => "from",
                    Direction::Egress => "to",
                };
                if !peers.is_empty() {
                    object.insert(field.to_owned(), json!(peers));
                }
                if !ports.is_empty() {
                    object.insert("ports".to_owned(), json!(ports));
                }
                written.push(Value::Object(object));
            }
        }
    }
    written
}

/// The lists of peers of a rule: an empty one stands for every address.
fn peers(
    place: (&Policy, Direction),
    rule: &Rule,
    namespace: &Str,
    refusals: &mut Refusals,
) -> Vec<Vec<Value>> {
    let mut listed = Vec::new();
    let mut has_any = false;
    for (index, peer) in rule.peers.iter().enumerate() {
        match write_peer(peer, namespace) {
            Ok(None) => has_any = true,
            Ok(Some(peers)) => listed.extend(peers),
            Err(reason) => refusals.of_rule(place, (rule, RulePart::Peer(index)), reason),
        }
    }
    let mut lists = Vec::new();
    if has_any {
        lists.push(Vec::new());
    }
    if !listed.is_empty() {
        lists.push(listed);
    }
    lists
}

/// The items of a peer; `None` for every address.
fn write_peer(peer: &Peer, namespace: &Str) -> Result<Option<Vec<Value>>, InexpressibleReason> {
    Ok(Some(match PeerForm::of(peer) {
        PeerForm::Any => return Ok(None),
        PeerForm::Nothing => Vec::new(),
        PeerForm::Pods(pods) => vec![pod_peer(pods, namespace)?],
        PeerForm::Networks(nets) => nets.iter().map(ip_block).collect(),
        other => return Err(inexpressible_peer(other, TARGET)),
    }))
}

/// Why a target that only has pods and networks cannot say a form.
pub(crate) fn inexpressible_peer(form: PeerForm, target: TargetDialect) -> InexpressibleReason {
    match form {
        PeerForm::Outside | PeerForm::OutsideNetworks(_) => {
            InexpressibleReason::OutsideOnly(target)
        }
        PeerForm::OutsideGroups => InexpressibleReason::NetworkGroups(target),
        PeerForm::Names(_) => InexpressibleReason::Names(target),
        PeerForm::Inside => InexpressibleReason::Peer {
            target,
            peer: "everything inside of the cluster".to_owned(),
        },
        PeerForm::Unmanaged => InexpressibleReason::Peer {
            target,
            peer: "what is in the networks of pods and no pod".to_owned(),
        },
        PeerForm::Nodes(NodeChoice::Own | NodeChoice::Remote, tests) if !tests.is_empty() => {
            InexpressibleReason::NodesToo(tests[0].key.clone())
        }
        PeerForm::Nodes(..) => InexpressibleReason::Nodes(target),
        PeerForm::Services => InexpressibleReason::Services(target),
        PeerForm::Holders => InexpressibleReason::HoldersToo(target),
        PeerForm::NotSelector => InexpressibleReason::NotSelector(target),
        PeerForm::SelectorAndNetworks => InexpressibleReason::SelectorAndNetworks(target),
        PeerForm::NotNetworks => InexpressibleReason::OnlyLeftOut(target),
        PeerForm::Untestable(test) => inexpressible_test(&test, target),
        PeerForm::Other(peer) => InexpressibleReason::Peer { target, peer },
        PeerForm::Any | PeerForm::Nothing | PeerForm::Pods(_) | PeerForm::Networks(_) => {
            InexpressibleReason::Peer {
                target,
                peer: "pods or networks".to_owned(),
            }
        }
    }
}

fn pod_peer(pods: PodSelection, namespace: &Str) -> Result<Value, InexpressibleReason> {
    if !pods.service_accounts.is_empty() {
        return Err(InexpressibleReason::ServiceAccount(TARGET));
    }
    let is_own = pods.only_namespace() == Some(namespace);
    let pods = if is_own {
        pods.inside_namespace(namespace)
    } else {
        pods
    };
    let namespaces = pods.namespace_tests();
    let mut peer = Map::new();
    if !is_own || !namespaces.is_empty() {
        let mut all = namespaces;
        if is_own {
            all.push(crate::pods::KeyTest {
                key: palisade_model::Namespace::NAME_LABEL.into(),
                test: crate::pods::ValueTest::In(vec![namespace.clone()]),
            });
        }
        peer.insert("namespaceSelector".to_owned(), label_selector(&all));
    }
    if !pods.pods.is_empty() || peer.is_empty() {
        peer.insert("podSelector".to_owned(), label_selector(&pods.pods));
    }
    Ok(Value::Object(peer))
}

fn ip_block(net: &NetworkExcept) -> Value {
    if net.except.is_empty() {
        json!({ "ipBlock": { "cidr": net.net.to_string() } })
    } else {
        let except: Vec<String> = net.except.iter().map(ToString::to_string).collect();
        json!({ "ipBlock": { "cidr": net.net.to_string(), "except": except } })
    }
}

/// The lists of ports of a rule: an empty one stands for all traffic.
fn ports(place: (&Policy, Direction), rule: &Rule, refusals: &mut Refusals) -> Vec<Vec<Value>> {
    let mut listed = Vec::new();
    let mut has_any = false;
    for (index, traffic) in rule.traffic.iter().enumerate() {
        let ports = PlainTraffic::read(traffic, TARGET).and_then(|tests| {
            let ports = tests.iter().map(port);
            ports.collect::<Result<Vec<_>, _>>()
        });
        match ports {
            Ok(ports) => {
                for port in ports {
                    match port {
                        None => has_any = true,
                        Some(ports) => listed.extend(ports),
                    }
                }
            }
            Err(reason) => refusals.of_rule(place, (rule, RulePart::Traffic(index)), reason),
        }
    }
    let mut lists = Vec::new();
    if has_any {
        lists.push(Vec::new());
    }
    if !listed.is_empty() {
        lists.push(listed);
    }
    lists
}

/// The items of a test; `None` for all traffic.
fn port(test: &PlainTraffic) -> Result<Option<Vec<Value>>, InexpressibleReason> {
    if test.is_any() {
        return Ok(None);
    }
    let Some(protocol) = test.protocol else {
        // A port of any protocol that has ports.
        let each = palisade_model::Protocol::WITH_PORTS.into_iter();
        let each = each.map(|protocol| PlainTraffic {
            protocol: Some(protocol),
            ..test.clone()
        });
        let lists = each
            .map(|test| port(&test))
            .collect::<Result<Vec<_>, _>>()?;
        return Ok(Some(lists.into_iter().flatten().flatten().collect()));
    };
    if protocol.is_icmp() || test.icmp.is_some() {
        return Err(InexpressibleReason::Icmp(TARGET));
    }
    let Some(name) = port_protocol_name(protocol) else {
        return Err(InexpressibleReason::Protocol {
            target: TARGET,
            protocol,
        });
    };
    Ok(Some(vec![match &test.port {
        DestinationPort::Any => json!({ "protocol": name }),
        DestinationPort::Named(port) => json!({ "protocol": name, "port": port }),
        DestinationPort::Range(range) if range.first == 0 => {
            return Err(InexpressibleReason::PortZero(TARGET));
        }
        DestinationPort::Range(range) if range.first == range.last => {
            json!({ "protocol": name, "port": range.first })
        }
        DestinationPort::Range(range) => {
            json!({ "protocol": name, "port": range.first, "endPort": range.last })
        }
    }]))
}
