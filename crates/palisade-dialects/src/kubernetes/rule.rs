//! The rules of a NetworkPolicy: their peers and ports.

use super::network_policy::{of_namespace, workload};
use super::{Source, ip_block, selector};
use crate::faults::{self, Fault};
use crate::hash::ContentHash;
use crate::names;
use crate::report::{Report, line_of};
use palisade_manifest::{Field, IntOrString, quote};
use palisade_model::{
    Action, Direction, LabelKey, Peer, PortMatch, PortRange, PortSpec, Protocol, Rule, RuleOrigin,
    Selector, Traffic,
};
use std::collections::BTreeMap;

const KNOWN_INGRESS: &[&str] = &["from", "ports"];
const KNOWN_EGRESS: &[&str] = &["to", "ports"];
const STRAYS_INGRESS: &[(&str, &str)] = &[
    ("to", "an ingress rule has `from`"),
    ("podSelector", IN_FROM),
    ("namespaceSelector", IN_FROM),
    ("ipBlock", IN_FROM),
    ("port", IN_PORTS),
    ("protocol", IN_PORTS),
];
const STRAYS_EGRESS: &[(&str, &str)] = &[
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
const STRAYS_PEER: &[(&str, &str)] = &[
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

/// The rules of one direction, one for each that is written.
pub(super) fn list(
    spec: &Field<'_>,
    direction: Direction,
    source: &Source<'_>,
    report: &mut Report,
) -> Vec<Rule> {
    let (key, peers, known, strays) = match direction {
        Direction::Ingress => ("ingress", "from", KNOWN_INGRESS, STRAYS_INGRESS),
        Direction::Egress => ("egress", "to", KNOWN_EGRESS, STRAYS_EGRESS),
    };
    let mut rules = Vec::new();
    let mut alike: BTreeMap<ContentHash, u32> = BTreeMap::new();
    for (index, field) in (0..).zip(report.items(spec, key)) {
        if !report.is_object(&field) {
            continue;
        }
        report.only(&field, known, strays);
        if field.node.is_null() {
            report.warn(
                &field,
                "an empty rule allows everything: is something missing here?",
            );
        }
        rules.push(Rule {
            origin: RuleOrigin {
                index,
                name: None,
                fingerprint: fingerprint(&field, &mut alike),
                line: Some(line_of(&field)),
            },
            action: Action::Allow,
            peers: read_peers(&field, peers, source, report),
            own: None,
            traffic: read_ports(&field, report),
        });
    }
    rules
}

/// What a rule says as a number, which is never 0; `alike` counts those that said the same.
fn fingerprint(rule: &Field<'_>, alike: &mut BTreeMap<ContentHash, u32>) -> u64 {
    let content = ContentHash::of(rule.node);
    let before = alike.entry(content).or_default();
    let print = (content.0 as u64).wrapping_add(u64::from(*before)).max(1);
    *before += 1;
    print
}

fn read_peers(rule: &Field<'_>, key: &str, source: &Source<'_>, report: &mut Report) -> Vec<Peer> {
    let written = report.items(rule, key);
    if written.is_empty() {
        if faults::on(Fault::EmptyFromMatchesNothing) {
            return Vec::new();
        }
        return vec![Peer::any()];
    }
    let mut peers = Vec::new();
    for field in &written {
        peers.extend(read_peer(field, source, report));
        if faults::on(Fault::OnlyFirstPeerRead) {
            break;
        }
    }
    if faults::on(Fault::PeersAnded) {
        peers = anded(peers).into_iter().collect();
    }
    peers
}

/// One peer as written: several only under a fault, none where it is wrong.
fn read_peer(field: &Field<'_>, source: &Source<'_>, report: &mut Report) -> Vec<Peer> {
    if !report.is_object(field) {
        return Vec::new();
    }
    report.only(field, KNOWN_PEER, STRAYS_PEER);
    let pods = report.child(field, "podSelector");
    let namespaces = report.child(field, "namespaceSelector");
    let block = report.child(field, "ipBlock");
    let own = pods
        .as_ref()
        .map(|field| selector::read(field, LabelKey::own, report));
    let of_namespaces = namespaces
        .as_ref()
        .map(|field| selector::read(field, LabelKey::namespace, report));
    let net = block
        .as_ref()
        .and_then(|field| ip_block::read(field, report));
    let selects = own.is_some() || of_namespaces.is_some();
    if block.is_some() && selects {
        report.error(
            field,
            "ipBlock stands alone: it must not be beside podSelector or namespaceSelector",
        );
        return Vec::new();
    }
    if block.is_some() {
        return net.into_iter().collect();
    }
    if !selects {
        report.error(
            field,
            "a peer must have podSelector, namespaceSelector or ipBlock (a rule for everyone has no \
             peers)",
        );
        return Vec::new();
    }
    let scope = match of_namespaces {
        Some(namespaces) => namespaces,
        None if faults::on(Fault::NamespaceScopeLost) => Selector::all(),
        None => of_namespace(source),
    };
    if faults::on(Fault::PodAndNamespaceSelectorOred)
        && let (Some(own), Some(_)) = (&own, &namespaces)
    {
        return vec![
            selected([scope]),
            selected([of_namespace(source), own.clone()]),
        ];
    }
    vec![selected([scope, own.unwrap_or_else(Selector::all)])]
}

fn selected(tests: impl IntoIterator<Item = Selector>) -> Peer {
    Peer::selected(Selector::and(std::iter::once(workload()).chain(tests)))
}

/// The mistake of asking for every peer at once.
fn anded(peers: Vec<Peer>) -> Option<Peer> {
    peers.into_iter().reduce(|all, next| Peer {
        selector: match (all.selector, next.selector) {
            (Some(a), Some(b)) => Some(Selector::and([a, b])),
            (a, b) => a.or(b),
        },
        nets: match (all.nets, next.nets) {
            (Some(a), Some(b)) => Some(
                a.iter()
                    .flat_map(|a| b.iter().map(move |b| (*a, *b)))
                    .filter_map(|(a, b)| {
                        let inner = if a.covers(b) { b } else { a };
                        (a.covers(b) || b.covers(a)).then_some(inner)
                    })
                    .collect(),
            ),
            (a, b) => a.or(b),
        },
        not_nets: [all.not_nets, next.not_nets].concat(),
        not_selector: None,
    })
}

fn read_ports(rule: &Field<'_>, report: &mut Report) -> Vec<Traffic> {
    let written = report.items(rule, "ports");
    if written.is_empty() {
        if faults::on(Fault::EmptyPortsMeansNothing) {
            return Vec::new();
        }
        return vec![Traffic::any()];
    }
    let mut traffic = Vec::new();
    for field in &written {
        if let Some(port) = read_port(field, report) {
            if faults::on(Fault::UdpOpensTcp) && port.protocol == Some(Protocol::UDP) {
                traffic.push(Traffic {
                    protocol: Some(Protocol::TCP),
                    ..port.clone()
                });
            }
            traffic.push(port);
        }
        if faults::on(Fault::OnlyFirstPortRead) {
            break;
        }
    }
    traffic
}

fn read_port(field: &Field<'_>, report: &mut Report) -> Option<Traffic> {
    if !report.is_object(field) {
        return None;
    }
    report.only(field, KNOWN_PORT, &[]);
    if field.node.is_null() {
        report.warn(
            field,
            "an empty port is every TCP port: is something missing here?",
        );
    }
    let default = if faults::on(Fault::ProtocolDefaultUdp) {
        Protocol::UDP
    } else {
        Protocol::TCP
    };
    let protocol = protocol(field, default, report);
    let end = report.child(field, "endPort");
    let Some(port) = report.child(field, "port") else {
        if let Some(end) = end {
            report.error(
                &end,
                "endPort needs a numeric port beside it: there is no port",
            );
        }
        return protocol.map(Traffic::protocol);
    };
    let spec = match report.keep(port.as_int_or_string())? {
        IntOrString::String(name) => {
            if let Some(end) = end {
                report.error(
                    &end,
                    format!(
                        "endPort needs a numeric port beside it: port is the name {}",
                        quote(name)
                    ),
                );
            }
            report.errors(&port, names::port_name(name));
            PortSpec::Named(name.into())
        }
        IntOrString::Int(first) => {
            let valid = number(&port, first, report);
            let last = match end {
                None => first,
                Some(end) => {
                    let last = report.keep(end.as_i64())?;
                    let inside = number(&end, last, report).is_some();
                    if inside && last < first {
                        report.error(&end, format!("endPort {last} is below port {first}"));
                    }
                    last
                }
            };
            let last = if faults::on(Fault::EndPortIgnored) {
                first
            } else {
                last
            };
            PortSpec::Range(PortRange::new(valid?, u16::try_from(last).ok()?)?)
        }
    };
    Some(Traffic::to_port(protocol?, PortMatch::of([spec])))
}

/// A port's number.
pub(super) fn number(field: &Field<'_>, value: i64, report: &mut Report) -> Option<u16> {
    match u16::try_from(value) {
        Ok(port) if port > 0 => Some(port),
        _ => {
            report.error(field, format!("{value} is not a port: 1 to 65535"));
            None
        }
    }
}

/// The field `protocol` of a pod or Service, where an empty one is as good as missing.
pub(super) fn protocol_or_empty(of: &Field<'_>, report: &mut Report) -> Option<Protocol> {
    let written = of.get("protocol").ok().flatten();
    match written.is_some_and(|field| field.node.as_str() == Some("")) {
        true => Some(Protocol::TCP),
        false => protocol(of, Protocol::TCP, report),
    }
}

/// The field `protocol`, or the default where it is missing.
pub(super) fn protocol(of: &Field<'_>, default: Protocol, report: &mut Report) -> Option<Protocol> {
    let Some(field) = report.child(of, "protocol") else {
        return Some(default);
    };
    match report.keep(field.as_str())? {
        "TCP" => Some(Protocol::TCP),
        "UDP" => Some(Protocol::UDP),
        "SCTP" => Some(Protocol::SCTP),
        other => {
            report.error(
                &field,
                format!(
                    "{} is not a protocol of ports: TCP, UDP or SCTP",
                    quote(other)
                ),
            );
            None
        }
    }
}
