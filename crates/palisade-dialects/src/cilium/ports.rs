//! The ports of rules: `toPorts`, with what can be asked of the connections to them.

use super::crd_schema::{self, LISTENER, TLS_CONTEXT};
use super::fqdn;
use super::l7::{self, L7Kind, PortFacts};
use super::missing_feature::{MissingFeature, hold_closed};
use super::rule_context::{RuleAction, RuleContext};
use crate::faults::DialectFault;
use crate::names;
use crate::report::ObjectReport;
use palisade_manifest::{Field, quote};
use palisade_model::{
    Direction, DomainPattern, PortMatch, PortRange, PortSpec, Protocol, TrafficMatch,
};
use std::collections::BTreeSet;

const KNOWN: &[&str] = &[
    "ports",
    "rules",
    "terminatingTLS",
    "originatingTLS",
    "serverNames",
    "listener",
];
const KNOWN_OF_DENY: &[&str] = &["ports"];
const NOT_OF_DENY: &[(&str, &str)] = &[
    ("rules", ONLY_PORTS),
    ("terminatingTLS", ONLY_PORTS),
    ("originatingTLS", ONLY_PORTS),
    ("serverNames", ONLY_PORTS),
    ("listener", ONLY_PORTS),
];
const ONLY_PORTS: &str = "rules that deny have only `ports` here";
const KNOWN_PORT: &[&str] = &["port", "endPort", "protocol"];
/// The maximum number of ports in an item.
const MAX_PORTS: usize = 40;

/// Protocols without ports that can be named; of these, every packet is meant.
const VRRP: Protocol = Protocol(112);
const IGMP: Protocol = Protocol(2);

/// What an item of `toPorts` matches.
#[derive(Clone, Debug, Default)]
pub(super) struct PortsItem {
    /// The packets; none if the item is held closed.
    pub(super) traffic: Vec<TrafficMatch>,
    /// The names that DNS queries on these ports may ask for; `None` where it is not about names.
    pub(super) dns_names: Option<BTreeSet<DomainPattern>>,
}

/// Reads an item of `toPorts`.
pub(super) fn read(
    item: &Field<'_>,
    context: &RuleContext<'_>,
    report: &mut ObjectReport,
) -> PortsItem {
    let mut read = PortsItem::default();
    if !report.is_object(item) {
        return read;
    }
    let traffic = &mut read.traffic;
    match context.action {
        RuleAction::Allow => report.check_fields(item, KNOWN, &[]),
        RuleAction::Deny => report.check_fields(item, KNOWN_OF_DENY, NOT_OF_DENY),
    }
    let fields = report.items(item, "ports");
    if fields.len() > MAX_PORTS {
        report.error(
            item,
            format!(
                "too many ports: {}, the maximum is {MAX_PORTS}",
                fields.len()
            ),
        );
    }
    if fields.is_empty() {
        report.warn(item, "no ports: it matches nothing");
    }
    let mut facts = Vec::new();
    for field in &fields {
        if let Some((port, matched)) = port(field, report) {
            facts.push(port);
            traffic.extend(matched);
        }
    }
    if context.action == RuleAction::Deny {
        return read;
    }
    let contents = read_contents(item, context, &facts, report);
    if contents.is_closed {
        traffic.clear();
    }
    if let Some((names, at)) = contents.dns_names {
        // Nobody reads queries over other protocols.
        let is_read = |matched: &TrafficMatch| {
            [Some(Protocol::TCP), Some(Protocol::UDP)].contains(&matched.protocol)
        };
        let had_ports = !traffic.is_empty();
        traffic.retain(is_read);
        if had_ports && traffic.is_empty() {
            report.warn(&at, "DNS queries are over UDP and TCP: it matches nothing");
        }
        read.dns_names = (!DialectFault::DnsRuleAllowsAll.is_injected()).then_some(names);
    }
    read
}

/// What is asked of the connections to ports.
#[derive(Default)]
struct PortContents<'a> {
    /// Whether the item is held closed for it.
    is_closed: bool,
    /// The names that DNS queries may ask for, and where they are.
    dns_names: Option<(BTreeSet<DomainPattern>, Field<'a>)>,
}

/// Reads what is asked of the connections.
fn read_contents<'a>(
    item: &Field<'a>,
    context: &RuleContext<'_>,
    ports: &[PortFacts],
    report: &mut ObjectReport,
) -> PortContents<'a> {
    let mut contents = PortContents::default();
    let mut close = |at: &Field<'_>, feature: MissingFeature, report: &mut ObjectReport| {
        hold_closed(at, feature, RuleAction::Allow, report);
        contents.is_closed = true;
    };
    let mut kinds = Vec::new();
    if let Some(rules) = report.child(item, "rules") {
        let read = l7::read(&rules, context.direction, ports, report);
        kinds = read.kinds;
        let is_egress_dns = context.direction == Direction::Egress && kinds == [L7Kind::Dns];
        if context.is_of_nodes && !kinds.is_empty() && !is_egress_dns {
            report.error(
                &rules,
                "policies of nodes do not support L7 rules, except DNS rules on egress",
            );
        }
        let has_every_name = read.dns_names.contains(&DomainPattern::Any);
        for kind in &kinds {
            let feature = match kind {
                L7Kind::Http => MissingFeature::HttpRules,
                L7Kind::Kafka => MissingFeature::KafkaRules,
                L7Kind::Dns if read.has_empty_dns => MissingFeature::EmptyDnsRules,
                // Nobody has to read queries to allow every name.
                L7Kind::Dns if context.is_of_nodes && has_every_name => continue,
                L7Kind::Dns if context.is_of_nodes => MissingFeature::NodeDnsRules,
                L7Kind::Dns => {
                    contents.dns_names = Some((read.dns_names.clone(), rules.clone()));
                    continue;
                }
                L7Kind::Other => MissingFeature::OtherL7Rules,
            };
            close(&rules, feature, report);
        }
    }
    for (key, feature) in [
        ("terminatingTLS", MissingFeature::TerminatingTls),
        ("originatingTLS", MissingFeature::OriginatingTls),
    ] {
        if let Some(at) = report.child(item, key) {
            crd_schema::check(&at, &TLS_CONTEXT, report);
            close(&at, feature, report);
        }
    }
    if let Some(at) = report.child(item, "serverNames") {
        let listed = check_server_names(&at, report);
        let has_tls = report.child(item, "terminatingTLS").is_some();
        if listed > 0 && !kinds.is_empty() && !has_tls {
            report.error(
                &at,
                "server names are not allowed with L7 rules without `terminatingTLS`",
            );
        }
        if listed > 0 {
            close(&at, MissingFeature::ServerNames, report);
        }
    }
    if let Some(at) = report.child(item, "listener") {
        crd_schema::check(&at, &LISTENER, report);
        if context.direction == Direction::Ingress {
            report.error(&at, "a listener is not allowed on ingress");
        }
        if !kinds.is_empty() {
            report.error(&at, "a listener is not allowed with L7 rules");
        }
        close(&at, MissingFeature::Listeners, report);
    }
    contents
}

/// Adds errors for names of servers that are none, for a name twice and for an empty list; returns how many there are.
fn check_server_names(list: &Field<'_>, report: &mut ObjectReport) -> usize {
    let Some(listed) = report.ok(list.items()) else {
        return 0;
    };
    if listed.is_empty() {
        report.error(list, "an empty list: at least one name is required");
    }
    let mut seen = Vec::new();
    for at in &listed {
        let Some(name) = report.ok(at.as_str()) else {
            continue;
        };
        if name.is_empty() {
            report.error(at, "an empty server name is not allowed");
        } else if let Some(reason) = fqdn::server_name_rejection(name) {
            report.error(
                at,
                format!("{} is not a name of servers: {reason}", quote(name)),
            );
        }
        if seen.contains(&name) {
            report.error(at, format!("{} is there twice", quote(name)));
        }
        seen.push(name);
    }
    listed.len()
}

/// Reads a port.
fn port(field: &Field<'_>, report: &mut ObjectReport) -> Option<(PortFacts, Vec<TrafficMatch>)> {
    if !report.is_object(field) {
        return None;
    }
    report.check_fields(field, KNOWN_PORT, &[]);
    let protocols = protocols(field, report);
    let written = report.text(field, "port");
    let has_mistyped = written.is_none() && report.child(field, "port").is_some();
    let end = end_port(field, report);
    let protocols = protocols?;
    if matches!(*protocols, [VRRP | IGMP]) {
        if let Some((_, at)) = written.filter(|(text, _)| !matches!(*text, "" | "0")) {
            report.error(&at, "the port must be empty or 0 with this protocol");
            return None;
        }
        let matched = protocols.iter().copied().map(TrafficMatch::protocol);
        let matched = matched.collect();
        return Some((facts(&protocols, true, false), matched));
    }
    let Some((text, at)) = written.filter(|(text, _)| !text.is_empty()) else {
        if !has_mistyped {
            report.error(field, "`port` must be specified");
        }
        return None;
    };
    let digits = text.bytes().all(|b| b.is_ascii_digit());
    let spec = if digits {
        let number = text.parse::<u16>().ok();
        let plain = text == "0" || !text.starts_with('0');
        let Some(number) = number.filter(|_| plain) else {
            report.error(
                &at,
                format!("{} is not a port: 0 to 65535, or a name", quote(text)),
            );
            return None;
        };
        if number == 0 {
            if let Some((_, at)) = end {
                report.error(
                    &at,
                    "`endPort` must not be given with port 0, which is all ports",
                );
            }
            let matched = protocols.iter().copied();
            let matched = matched.map(TrafficMatch::protocol).collect();
            return Some((facts(&protocols, true, false), matched));
        }
        let last = match end {
            Some((last, at)) if last < number => {
                report.error(&at, format!("{last} is below port {number}"));
                return None;
            }
            Some((last, _)) => last,
            _ => number,
        };
        PortSpec::Range(PortRange::new(number, last)?)
    } else {
        // Cilium compares names without case; those of pods are in lower case.
        let name = text.to_ascii_lowercase();
        report.errors(&at, names::port_name_errors(&name));
        if let Some((_, at)) = end {
            report.error(&at, "`endPort` needs a port number, not a name");
        }
        PortSpec::Named(name.into())
    };
    let is_range = matches!(&spec, PortSpec::Range(range) if range.first < range.last);
    let matched = protocols
        .iter()
        .map(|protocol| TrafficMatch::to_port(*protocol, PortMatch::one_of([spec.clone()])));
    let matched = matched.collect();
    Some((facts(&protocols, false, is_range), matched))
}

fn facts(protocols: &[Protocol], is_every_port: bool, is_range: bool) -> PortFacts {
    PortFacts {
        protocols: protocols.to_vec(),
        is_every_port,
        is_range,
    }
}

/// The last port of a range; 0 means that there is none.
fn end_port<'a>(field: &Field<'a>, report: &mut ObjectReport) -> Option<(u16, Field<'a>)> {
    let at = report.child(field, "endPort")?;
    let number = report.ok(at.as_i64())?;
    match u16::try_from(number) {
        Ok(0) => None,
        Ok(port) => Some((port, at)),
        Err(_) => {
            report.error(&at, format!("{number} is not a port: 0 to 65535"));
            None
        }
    }
}

/// The protocols of a port. Without one, those that have ports.
fn protocols(field: &Field<'_>, report: &mut ObjectReport) -> Option<Vec<Protocol>> {
    let any = || Protocol::WITH_PORTS.to_vec();
    let Some(at) = report.child(field, "protocol") else {
        return Some(any());
    };
    let text = report.ok(at.as_str())?;
    match &*text.to_ascii_uppercase() {
        "" | "ANY" => Some(any()),
        "TCP" => Some(vec![Protocol::TCP]),
        "UDP" => Some(vec![Protocol::UDP]),
        "SCTP" => Some(vec![Protocol::SCTP]),
        "VRRP" => Some(vec![VRRP]),
        "IGMP" => Some(vec![IGMP]),
        "ICMP" | "ICMPV6" => {
            report.error(
                &at,
                "messages of ICMP are named by `icmps`, not by `toPorts`",
            );
            None
        }
        _ => {
            report.error(
                &at,
                format!(
                    "{} is not a supported protocol: use TCP, UDP, SCTP, VRRP, IGMP or ANY",
                    quote(text)
                ),
            );
            None
        }
    }
}
