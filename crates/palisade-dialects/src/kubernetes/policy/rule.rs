//! The rules of a NetworkPolicy: peers and ports.

use super::ip_block;
use crate::hash::RuleFingerprints;
use crate::kind_reader::ManifestObject;
use crate::label_selector::{self, workload_selector};
use crate::names;
use crate::port::{port_number, protocol};
use crate::report::{ObjectReport, line_of};
use palisade_manifest::{Field, IntOrString, quote};
use palisade_model::{
    Action, Direction, LabelKey, Peer, PortMatch, PortRange, PortSpec, Protocol, Rule, RuleOrigin,
    Selector, TrafficMatch, reserved,
};

const KNOWN_INGRESS: &[&str] = &["from", "ports"];
const KNOWN_EGRESS: &[&str] = &["to", "ports"];
const MISPLACED_INGRESS: &[(&str, &str)] = &[
    ("to", "an ingress rule has `from`"),
    ("podSelector", IN_FROM),
    ("namespaceSelector", IN_FROM),
    ("ipBlock", IN_FROM),
    ("port", IN_PORTS),
    ("protocol", IN_PORTS),
];
const MISPLACED_EGRESS: &[(&str, &str)] = &[
    ("from", "an egress rule has `to`"),
    ("podSelector", IN_TO),
    ("namespaceSelector", IN_TO),
    ("ipBlock", IN_TO),
    ("port", IN_PORTS),
    ("protocol", IN_PORTS),
];
const IN_FROM: &str = "it belongs in an item of the list `from`";
const IN_TO: &str = "it belongs in an item of the list `to`";
const IN_PORTS: &str = "it belongs in an item of the list `ports`";
const MISPLACED_PEER: &[(&str, &str)] = &[
    ("matchLabels", IN_SELECTOR),
    ("matchExpressions", IN_SELECTOR),
    ("ports", "it belongs beside the list of peers, not inside"),
    ("cidr", IN_BLOCK),
    ("except", IN_BLOCK),
];
const IN_SELECTOR: &str = "it belongs inside `podSelector` or `namespaceSelector`";
const IN_BLOCK: &str = "it belongs inside `ipBlock`";
const KNOWN_PEER: &[&str] = &["podSelector", "namespaceSelector", "ipBlock"];
const KNOWN_PORT: &[&str] = &["protocol", "port", "endPort"];

/// The rules of one direction, one for each rule as written.
pub(super) fn rules(
    spec: &Field<'_>,
    direction: Direction,
    object: &ManifestObject<'_>,
    report: &mut ObjectReport,
) -> Vec<Rule> {
    let (key, peers, known, misplaced) = match direction {
        Direction::Ingress => ("ingress", "from", KNOWN_INGRESS, MISPLACED_INGRESS),
        Direction::Egress => ("egress", "to", KNOWN_EGRESS, MISPLACED_EGRESS),
    };
    let mut rules = Vec::new();
    let mut fingerprints = RuleFingerprints::default();
    for (index, field) in (0..).zip(report.items(spec, key)) {
        if !report.is_object(&field) {
            continue;
        }
        report.begin_rule();
        report.check_fields(&field, known, misplaced);
        if field.node.is_null() {
            report.warn(
                &field,
                "an empty rule allows everything: is something missing here?",
            );
        }
        let mut rule = Rule {
            origin: RuleOrigin {
                index,
                name: None,
                fingerprint: fingerprints.add(field.node),
                line: Some(line_of(&field)),
            },
            action: Action::Allow,
            peers: read_peers(&field, peers, object, report),
            local: None,
            traffic: read_ports(&field, report),
            dns_names: None,
        };
        if report.end_rule() {
            // What the rule allows cannot be read: it matches nothing.
            rule.peers.clear();
        }
        rules.push(rule);
    }
    rules
}

fn read_peers(
    rule: &Field<'_>,
    key: &str,
    object: &ManifestObject<'_>,
    report: &mut ObjectReport,
) -> Vec<Peer> {
    let written = report.items(rule, key);
    if written.is_empty() {
        return vec![Peer::any()];
    }
    let peers = written.iter();
    peers
        .filter_map(|field| read_peer(field, object, report))
        .collect()
}

/// Matches the objects of the policy's own namespace.
pub(super) fn own_namespace_selector(object: &ManifestObject<'_>) -> Selector {
    Selector::equals(LabelKey::reserved(reserved::NAMESPACE), object.namespace())
}

/// One peer as written; none if it is invalid.
fn read_peer(
    field: &Field<'_>,
    object: &ManifestObject<'_>,
    report: &mut ObjectReport,
) -> Option<Peer> {
    if !report.is_object(field) {
        return None;
    }
    report.check_fields(field, KNOWN_PEER, MISPLACED_PEER);
    let pods = report.child(field, "podSelector");
    let namespaces = report.child(field, "namespaceSelector");
    let block = report.child(field, "ipBlock");
    let pod_selector = pods
        .as_ref()
        .map(|field| label_selector::read(field, LabelKey::own, report));
    let namespace_selector = namespaces
        .as_ref()
        .map(|field| label_selector::read(field, LabelKey::namespace, report));
    let net = block
        .as_ref()
        .and_then(|field| ip_block::read(field, report));
    let selects = pod_selector.is_some() || namespace_selector.is_some();
    if block.is_some() && selects {
        report.error(
            field,
            "ipBlock must not be combined with podSelector or namespaceSelector",
        );
        return None;
    }
    if block.is_some() {
        return net;
    }
    if !selects {
        report.error(
            field,
            "a peer must have podSelector, namespaceSelector or ipBlock (omit the list to match \
             all peers)",
        );
        return None;
    }
    let scope = match namespace_selector {
        Some(namespaces) => namespaces,
        None => own_namespace_selector(object),
    };
    Some(workload_peer([
        scope,
        pod_selector.unwrap_or_else(Selector::all),
    ]))
}

fn workload_peer(tests: impl IntoIterator<Item = Selector>) -> Peer {
    Peer::from_selector(Selector::and(
        std::iter::once(workload_selector()).chain(tests),
    ))
}

fn read_ports(rule: &Field<'_>, report: &mut ObjectReport) -> Vec<TrafficMatch> {
    let written = report.items(rule, "ports");
    if written.is_empty() {
        return vec![TrafficMatch::any()];
    }
    let mut traffic = Vec::new();
    for field in &written {
        if let Some(port) = read_port(field, report) {
            traffic.push(port);
        }
    }
    traffic
}

fn read_port(field: &Field<'_>, report: &mut ObjectReport) -> Option<TrafficMatch> {
    if !report.is_object(field) {
        return None;
    }
    report.check_fields(field, KNOWN_PORT, &[]);
    if field.node.is_null() {
        report.warn(
            field,
            "an empty port matches every TCP port: is something missing here?",
        );
    }
    let protocol = protocol(field, Protocol::TCP, report);
    let end = report.child(field, "endPort");
    let Some(port) = report.child(field, "port") else {
        if let Some(end) = end {
            report.error(&end, "endPort requires a numeric port: port is missing");
        }
        return protocol.map(TrafficMatch::protocol);
    };
    let spec = match report.ok(port.as_int_or_string())? {
        IntOrString::String(name) => {
            if let Some(end) = end {
                report.error(
                    &end,
                    format!(
                        "endPort requires a numeric port: port is the name {}",
                        quote(name)
                    ),
                );
            }
            report.errors(&port, names::port_name_errors(name));
            PortSpec::Named(name.into())
        }
        IntOrString::Int(first) => {
            let valid = port_number(&port, first, report);
            let last = match end {
                None => first,
                Some(end) => {
                    let last = report.ok(end.as_i64())?;
                    let inside = port_number(&end, last, report).is_some();
                    if inside && last < first {
                        report.error(&end, format!("endPort {last} is below port {first}"));
                    }
                    last
                }
            };
            PortSpec::Range(PortRange::new(valid?, u16::try_from(last).ok()?)?)
        }
    };
    Some(TrafficMatch::to_port(protocol?, PortMatch::one_of([spec])))
}
