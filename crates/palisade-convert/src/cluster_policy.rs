//! Writes ClusterNetworkPolicies, which decide before and after all others: in the tiers Admin and Baseline.
//!
//! Never: writes what isolates. A ClusterNetworkPolicy leaves what no rule decides to later tiers.

use crate::domain_text;
use crate::inexpressible::InexpressibleReason;
use crate::kubernetes::inexpressible_peer;
use crate::label_selector::label_selector;
use crate::peer_form::{NodeChoice, PeerForm};
use crate::pods::PodSelection;
use crate::ports::{DestinationPort, PlainTraffic};
use crate::position::{MAX_PRIORITY, Standing, order_text};
use crate::refusals::{Refusals, RulePart};
use crate::target::TargetDialect;
use palisade_model::{Action, Direction, Order, Policy, Protocol, Rule, tier_name};
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;

const TARGET: TargetDialect = TargetDialect::ClusterNetworkPolicy;
/// The maximum number of rules in a direction, of peers and of protocols in a rule, and of networks in a peer.
const MAX_ITEMS: usize = 25;

/// The spec of one policy of the model.
pub(crate) fn write(policy: &Policy, refusals: &mut Refusals) -> Option<Value> {
    let tier_place = place(policy, refusals);
    let subject = match PodSelection::read(&policy.subject) {
        Ok(pods) => pod_selector(&pods),
        Err(reason) => Err(reason.inexpressible(TARGET)),
    };
    let subject = subject.map_err(|reason| refusals.of_policy(policy, reason));
    let mut spec = Map::new();
    let ((tier, priority), subject) = (tier_place?, subject.ok()?);
    spec.insert("tier".to_owned(), json!(tier));
    spec.insert("priority".to_owned(), json!(priority));
    spec.insert("subject".to_owned(), subject);
    for direction in Direction::BOTH {
        let Some(list) = policy.rules(direction) else {
            continue;
        };
        let rules: Vec<Value> = list
            .rules
            .iter()
            .filter_map(|rule| write_rule((policy, direction), rule, refusals))
            .collect();
        if rules.len() > MAX_ITEMS {
            refusals.of_policy(policy, too_many("rules in a direction", rules.len()));
        }
        if !rules.is_empty() {
            spec.insert(direction.to_string(), Value::Array(rules));
        }
    }
    Some(Value::Object(spec))
}

fn too_many(what: &'static str, count: usize) -> InexpressibleReason {
    InexpressibleReason::TooMany {
        target: TARGET,
        what,
        count,
        most: MAX_ITEMS,
    }
}

/// The tier and the priority.
fn place(policy: &Policy, refusals: &mut Refusals) -> Option<(&'static str, u16)> {
    let tier = match &*policy.tier {
        tier_name::KUBE_ADMIN => "Admin",
        tier_name::KUBE_BASELINE => "Baseline",
        _ => {
            let reason = InexpressibleReason::Tier {
                target: TARGET,
                tier: policy.tier.clone(),
            };
            refusals.of_policy(policy, reason);
            return None;
        }
    };
    let is_calico = TargetDialect::Calico.has_kind(&policy.id.object.kind);
    let order = match Standing::of(policy) {
        // After all numbers, whatever they are.
        _ if is_calico => policy.precedence.order,
        Standing::At { order, .. } => order,
        Standing::First | Standing::Allows => policy.precedence.order,
    };
    let priority = match order {
        Order::At(number) if (0.0..=MAX_PRIORITY).contains(&number) && number.fract() == 0.0 => {
            (0..=1000_u16).find(|priority| f64::from(*priority) == number)
        }
        Order::At(_) | Order::Last => None,
    };
    if priority.is_none() {
        let reason = InexpressibleReason::Priority {
            target: TARGET,
            order: order_text(order),
        };
        refusals.of_policy(policy, reason);
    }
    Some((tier, priority?))
}

/// Pods as a subject or a peer.
fn pod_selector(pods: &PodSelection) -> Result<Value, InexpressibleReason> {
    if !pods.service_accounts.is_empty() {
        return Err(InexpressibleReason::ServiceAccount(TARGET));
    }
    let namespaces = label_selector(&pods.namespace_tests());
    Ok(if pods.pods.is_empty() {
        json!({ "namespaces": namespaces })
    } else {
        json!({
            "pods": { "namespaceSelector": namespaces, "podSelector": label_selector(&pods.pods) }
        })
    })
}

fn write_rule(place: (&Policy, Direction), rule: &Rule, refusals: &mut Refusals) -> Option<Value> {
    let (_, direction) = place;
    let action = match rule.action {
        Action::Allow => "Accept",
        Action::Deny => "Deny",
        Action::Pass => "Pass",
        Action::Log => {
            let reason = InexpressibleReason::Action {
                target: TARGET,
                action: rule.action,
            };
            refusals.of_rule(place, (rule, RulePart::Whole), reason);
            return None;
        }
    };
    let mut of_rule = |part, reason| refusals.of_rule(place, (rule, part), reason);
    if rule.local.is_some() {
        of_rule(RulePart::Whole, InexpressibleReason::OwnAddress(TARGET));
    }
    let (mut peers, mut has_addresses) = (Vec::new(), false);
    for (index, peer) in rule.peers.iter().enumerate() {
        let form = PeerForm::of(peer);
        has_addresses |= matches!(
            form,
            PeerForm::Networks(_) | PeerForm::Nodes(..) | PeerForm::Names(_)
        );
        match write_peer(form, direction, rule.action) {
            Ok(items) => peers.extend(items),
            Err(reason) => of_rule(RulePart::Peer(index), reason),
        }
    }
    let (mut protocols, mut has_all) = (Vec::new(), false);
    for (index, traffic) in rule.traffic.iter().enumerate() {
        let tests = PlainTraffic::read(traffic, TARGET);
        for test in tests.as_ref().unwrap_or(&Vec::new()) {
            match protocol(test, has_addresses) {
                Ok(None) => has_all = true,
                Ok(Some(item)) => protocols.push(item),
                Err(reason) => of_rule(RulePart::Traffic(index), reason),
            }
        }
        if let Err(reason) = tests {
            of_rule(RulePart::Traffic(index), reason);
        }
    }
    for (what, count) in [
        ("peers in a rule", peers.len()),
        ("protocols in a rule", protocols.len()),
    ] {
        if count > MAX_ITEMS {
            of_rule(RulePart::Whole, too_many(what, count));
        }
    }
    if peers.is_empty() || protocols.is_empty() && !has_all {
        // It matches nothing.
        return None;
    }
    let mut written = Map::new();
    if let Some(name) = &rule.origin.name {
        written.insert("name".to_owned(), json!(name));
    }
    written.insert("action".to_owned(), json!(action));
    let field = match direction {
        Direction::Ingress => "from",
        Direction::Egress => "to",
    };
    written.insert(field.to_owned(), Value::Array(peers));
    if !has_all {
        written.insert("protocols".to_owned(), Value::Array(protocols));
    }
    Some(Value::Object(written))
}

fn write_peer(
    form: PeerForm,
    direction: Direction,
    action: Action,
) -> Result<Vec<Value>, InexpressibleReason> {
    Ok(match (form, direction) {
        (PeerForm::Nothing, _) => Vec::new(),
        (PeerForm::Pods(pods), _) => vec![pod_selector(&pods)?],
        (PeerForm::Any, Direction::Egress) => return Err(InexpressibleReason::NoPeerForAll),
        (PeerForm::Networks(nets), Direction::Egress) => {
            if nets.iter().any(|net| !net.except.is_empty()) {
                return Err(InexpressibleReason::NoExceptions);
            }
            let nets: Vec<String> = nets.iter().map(|net| net.net.to_string()).collect();
            let chunks = nets.chunks(MAX_ITEMS);
            chunks.map(|chunk| json!({ "networks": chunk })).collect()
        }
        (PeerForm::Names(patterns), Direction::Egress) if action == Action::Allow => {
            let texts = patterns
                .iter()
                .map(|pattern| domain_text::text(pattern, TARGET));
            let texts: BTreeSet<String> = texts.collect::<Result<_, _>>()?;
            let texts: Vec<String> = texts.into_iter().collect();
            let chunks = texts.chunks(MAX_ITEMS);
            chunks
                .map(|chunk| json!({ "domainNames": chunk }))
                .collect()
        }
        (PeerForm::Nodes(NodeChoice::All, tests), Direction::Egress) => {
            vec![json!({ "nodes": label_selector(&tests) })]
        }
        (PeerForm::Any | PeerForm::Networks(_) | PeerForm::Nodes(..), Direction::Ingress) => {
            return Err(InexpressibleReason::IngressPodsOnly);
        }
        (other, _) => return Err(inexpressible_peer(other, TARGET)),
    })
}

/// One item of `protocols`; `None` for all traffic.
fn protocol(
    test: &PlainTraffic,
    has_addresses: bool,
) -> Result<Option<Value>, InexpressibleReason> {
    if test.is_any() {
        return Ok(None);
    }
    let key = match test.protocol {
        None => None,
        Some(Protocol::TCP) => Some("tcp"),
        Some(Protocol::UDP) => Some("udp"),
        Some(Protocol::SCTP) => Some("sctp"),
        Some(protocol) if protocol.is_icmp() => return Err(InexpressibleReason::Icmp(TARGET)),
        Some(protocol) => {
            return Err(InexpressibleReason::Protocol {
                target: TARGET,
                protocol,
            });
        }
    };
    if test.icmp.is_some() {
        return Err(InexpressibleReason::Icmp(TARGET));
    }
    let port = match (&test.port, test.protocol) {
        (DestinationPort::Named(_), _) if has_addresses => {
            return Err(InexpressibleReason::NamedPortPeer);
        }
        (DestinationPort::Named(name), None) => {
            return Ok(Some(json!({ "destinationNamedPort": name })));
        }
        (DestinationPort::Named(_), Some(_)) => {
            return Err(InexpressibleReason::NamedPortProtocol(TARGET));
        }
        (DestinationPort::Any, Some(protocol)) => {
            return Err(InexpressibleReason::ProtocolWithoutPort {
                target: TARGET,
                protocol,
            });
        }
        (DestinationPort::Range(range), _) if range.first == 0 => {
            return Err(InexpressibleReason::PortZero(TARGET));
        }
        (DestinationPort::Range(range), _) if range.first == range.last => {
            json!({ "number": range.first })
        }
        (DestinationPort::Range(range), _) => {
            json!({ "range": { "start": range.first, "end": range.last } })
        }
        (DestinationPort::Any, None) => return Ok(None),
    };
    match key {
        Some(key) => Ok(Some(json!({ key: { "destinationPort": port } }))),
        None => Err(InexpressibleReason::PortWithoutProtocol(TARGET)),
    }
}
