//! The rules of Calico's policies and profiles.

use super::entity::{self, EntityContext, EntityMatch, Families};
use super::protocol;
use crate::closed_part::ClosedReason;
use crate::faults::DialectFault;
use crate::hash::RuleFingerprints;
use crate::report::{ObjectReport, line_of};
use crate::suggest::nearest;
use palisade_manifest::{Field, quote};
use palisade_model::{
    Action, Direction, Family, IcmpMatch, Peer, PortMatch, PortSpec, Protocol, Rule, RuleOrigin,
    Str, TrafficMatch,
};
use std::collections::BTreeSet;

pub(super) const KNOWN: &[&str] = &[
    "action",
    "ipVersion",
    "protocol",
    "icmp",
    "notProtocol",
    "notICMP",
    "source",
    "destination",
    "http",
    "metadata",
];
const MISPLACED: &[(&str, &str)] = &[
    ("from", "the ends of a rule are `source` and `destination`"),
    ("to", "the ends of a rule are `source` and `destination`"),
    ("ports", "ports belong into `destination`, or into `source`"),
];
const KNOWN_HTTP: &[&str] = &["methods", "paths"];
const ACTIONS: [(&str, Action); 4] = [
    ("Allow", Action::Allow),
    ("Deny", Action::Deny),
    ("Log", Action::Log),
    ("Pass", Action::Pass),
];
/// The maximum number of rules of a direction.
const MAX_RULES: usize = 1024;

/// The name of the list of a direction.
pub(super) const fn list_of(direction: Direction) -> &'static str {
    match direction {
        Direction::Ingress => "ingress",
        Direction::Egress => "egress",
    }
}

/// The action of a word.
pub(super) fn parse_action(word: &str) -> Option<Action> {
    let row = ACTIONS.iter().find(|(spelling, _)| *spelling == word);
    row.map(|(_, action)| *action)
}

/// Where a rule is written.
#[derive(Clone, Copy)]
pub(super) struct CalicoRuleContext<'a> {
    /// The direction of its list.
    pub(super) direction: Direction,
    /// The namespace of the policy; `None` for what is cluster-wide.
    pub(super) namespace: Option<&'a Str>,
    /// Whether it is in a profile.
    pub(super) is_of_profile: bool,
}

/// Reads the rules of a direction.
pub(super) fn read_list(
    spec: &Field<'_>,
    context: CalicoRuleContext<'_>,
    report: &mut ObjectReport,
) -> Vec<Rule> {
    let key = list_of(context.direction);
    let items = report.items(spec, key);
    if items.len() > MAX_RULES
        && let Some(at) = report.child(spec, key)
    {
        report.error(
            &at,
            format!(
                "too many rules: {}, the maximum is {MAX_RULES}",
                items.len()
            ),
        );
        return Vec::new();
    }
    let mut rules = Vec::new();
    let mut fingerprints = RuleFingerprints::default();
    for (index, field) in (0..).zip(&items) {
        let origin = RuleOrigin {
            index,
            name: None,
            fingerprint: fingerprints.add(field.node),
            line: Some(line_of(field)),
        };
        rules.extend(read(field, context, origin, report));
    }
    rules
}

fn read(
    field: &Field<'_>,
    context: CalicoRuleContext<'_>,
    origin: RuleOrigin,
    report: &mut ObjectReport,
) -> Option<Rule> {
    if !report.is_object(field) {
        return None;
    }
    report.begin_rule();
    report.check_fields(field, KNOWN, MISPLACED);
    let action = action(field, report);
    let family = ip_version(field, report);
    let CalicoRuleContext {
        direction,
        namespace,
        ..
    } = context;
    let entity = |key, is_own, report: &mut ObjectReport| {
        let of_entity = EntityContext {
            namespace,
            is_own,
            has_domains: key == "destination"
                && !is_own
                && !context.is_of_profile
                && action == Some(Action::Allow),
        };
        entity::read(field, key, of_entity, report)
    };
    let is_egress = direction == Direction::Egress;
    let source = entity("source", is_egress, report);
    let destination = entity("destination", !is_egress, report);
    let families = families(family, &source, &destination);
    let traffic = traffic(field, (&source, &destination), families, report);
    check_metadata(field, report);
    let is_http = check_http(field, action, context, report);
    let is_unread = report.end_rule();
    let is_closed = source.is_closed || destination.is_closed;
    let (local, other) = match direction {
        Direction::Ingress => (destination, source),
        Direction::Egress => (source, destination),
    };
    let mut rule = Rule {
        origin,
        action: action?,
        peers: vec![other.peer],
        local: Some(local.peer).filter(|local| !local.is_any()),
        traffic,
        dns_names: None,
    };
    if is_unread {
        // Nothing that it says may be what it means.
        rule.local = None;
        rule.traffic = vec![TrafficMatch::any()];
    }
    if is_unread || is_closed || is_http {
        fail_closed(&mut rule);
    }
    Some(rule)
}

/// A rule that is not understood as a whole: to allow or to log, it matches nothing; otherwise it denies whatever
/// the rest of it matches.
fn fail_closed(rule: &mut Rule) {
    match rule.action {
        Action::Allow if DialectFault::ClosedRuleOpens.is_injected() => {
            rule.peers = vec![Peer::any()];
        }
        Action::Allow | Action::Log => rule.peers.clear(),
        Action::Deny | Action::Pass => {
            rule.action = Action::Deny;
            rule.peers = vec![Peer::any()];
        }
    }
}

fn action(rule: &Field<'_>, report: &mut ObjectReport) -> Option<Action> {
    let Some(field) = report.child(rule, "action") else {
        report.error(rule, "`action` is required, but missing");
        return None;
    };
    let text = report.ok(field.as_str())?;
    let action = parse_action(text);
    if action.is_none() {
        let words = ACTIONS.map(|(word, _)| word);
        let hint = match nearest(text, &words) {
            Some(near) => format!("did you mean {near}?"),
            None => "use Allow, Deny, Log or Pass".to_owned(),
        };
        report.error(&field, format!("{} is not an action: {hint}", quote(text)));
    }
    action
}

fn ip_version(rule: &Field<'_>, report: &mut ObjectReport) -> Option<Family> {
    let field = report.child(rule, "ipVersion")?;
    match report.ok(field.as_i64())? {
        4 => Some(Family::V4),
        6 => Some(Family::V6),
        other => {
            report.error(&field, format!("{other} is not a version of IP: 4 or 6"));
            None
        }
    }
}

/// The families that a rule matches.
fn families(only: Option<Family>, source: &EntityMatch, destination: &EntityMatch) -> Families {
    let only = only.map_or(Families::default(), Families::only);
    only.and(source.families).and(destination.families)
}

/// What a rule tests of packets beside their addresses; empty if it matches no family.
fn traffic(
    rule: &Field<'_>,
    (source, destination): (&EntityMatch, &EntityMatch),
    families: Families,
    report: &mut ObjectReport,
) -> Vec<TrafficMatch> {
    let protocol = protocol::read(rule, "protocol", report);
    let not_protocol = protocol::read(rule, "notProtocol", report);
    check_protocol_of_ports(rule, protocol, [source, destination], report);
    let icmp = message(rule, "icmp", protocol, report);
    let not_icmp = message(rule, "notICMP", protocol, report);
    check_ip_version(rule, (protocol, not_protocol), report);
    let Some(family) = only_family(families) else {
        report.warn(
            rule,
            "the rule matches no packet: its networks, or these and `ipVersion`, are of different families",
        );
        return Vec::new();
    };
    let source_ports = source.ports.clone();
    let destination_ports = match &destination.service_port {
        Some(service) => PortMatch::one_of([service.clone()]),
        None => destination.ports.clone(),
    };
    let ports = [&source_ports, &destination_ports];
    let without_ports = matches_packets_without_ports(protocol, ports).then(|| TrafficMatch {
        family,
        not_protocols: Protocol::WITH_PORTS
            .into_iter()
            .chain(not_protocol)
            .collect(),
        ..TrafficMatch::any()
    });
    let with_ports = TrafficMatch {
        family,
        protocol,
        not_protocols: not_protocol.into_iter().collect(),
        destination: destination_ports,
        source: source_ports,
        icmp,
        not_icmp,
    };
    [with_ports].into_iter().chain(without_ports).collect()
}

/// Checks that ports are those of a protocol that has some. A name alone stands for the port and the protocol of each
/// endpoint.
fn check_protocol_of_ports(
    rule: &Field<'_>,
    protocol: Option<Protocol>,
    [source, destination]: [&EntityMatch; 2],
    report: &mut ObjectReport,
) {
    for (key, entity) in [("source", source), ("destination", destination)] {
        let has_ports = protocol.is_some_and(Protocol::has_ports);
        let is_by_name = protocol.is_none() && has_names_only(&entity.ports);
        if !entity.ports.is_any()
            && !has_ports
            && !is_by_name
            && let Some(at) = report.child(rule, key)
        {
            report.error(
                &at,
                "rules with ports must name a `protocol` that has ports: TCP, UDP or SCTP",
            );
        }
    }
}

/// The message that a rule names, which needs a protocol that has messages.
fn message(
    rule: &Field<'_>,
    key: &str,
    protocol: Option<Protocol>,
    report: &mut ObjectReport,
) -> Option<IcmpMatch> {
    let message = protocol::icmp(rule, key, report);
    if let Some(at) = report.child(rule, key)
        && !protocol.is_some_and(Protocol::is_icmp)
    {
        report.error(
            &at,
            format!("rules with `{key}` must name the `protocol` ICMP or ICMPv6"),
        );
    }
    message
}

/// Checks `ipVersion` against the protocols of one version. As Calico's API server, only where the protocol is named.
fn check_ip_version(
    rule: &Field<'_>,
    (protocol, not_protocol): (Option<Protocol>, Option<Protocol>),
    report: &mut ObjectReport,
) {
    let Some(at) = report.child(rule, "ipVersion") else {
        return;
    };
    for (key, named) in [("protocol", protocol), ("notProtocol", not_protocol)] {
        let field = report.child(rule, key);
        let Some(named) = named.filter(|_| field.is_some_and(|at| at.node.as_str().is_some()))
        else {
            continue;
        };
        let version = match named {
            Protocol::ICMP => 4,
            Protocol::ICMPV6 => 6,
            _ => continue,
        };
        if at.node.as_i64() != Some(version) {
            report.error(
                &at,
                format!("the rule names {named}, which is of version {version}"),
            );
        }
    }
}

/// The one family that is matched, if not both are; `None` if there is none.
fn only_family(families: Families) -> Option<Option<Family>> {
    match (families.v4, families.v6) {
        (true, true) => Some(None),
        (true, false) => Some(Some(Family::V4)),
        (false, true) => Some(Some(Family::V6)),
        (false, false) => None,
    }
}

/// Whether a test lists or excludes names of ports only.
fn has_names_only(ports: &PortMatch) -> bool {
    let is_name = |port: &PortSpec| matches!(port, PortSpec::Named(_));
    ports.any_of.iter().flatten().chain(&ports.not).all(is_name)
}

/// Whether tests of ports match packets that have none as well: those that only exclude names, without a protocol. In
/// the model a test of ports never matches such packets.
fn matches_packets_without_ports(protocol: Option<Protocol>, ends: [&PortMatch; 2]) -> bool {
    protocol.is_none()
        && ends.iter().all(|ports| ports.any_of.is_none())
        && ends.iter().any(|ports| !ports.not.is_empty())
}

/// Checks the annotations of a rule, which have no effect.
fn check_metadata(rule: &Field<'_>, report: &mut ObjectReport) {
    let Some(metadata) = report.object(rule, "metadata") else {
        return;
    };
    report.check_descriptive_fields(&metadata, &["annotations"], &[]);
    let Some(annotations) = report.object(&metadata, "annotations") else {
        return;
    };
    for (_, value) in annotations.entries().unwrap_or_default() {
        report.ok(value.as_str());
    }
}

/// Checks what is asked of requests of HTTP; returns whether the rule is held closed for it.
fn check_http(
    rule: &Field<'_>,
    action: Option<Action>,
    context: CalicoRuleContext<'_>,
    report: &mut ObjectReport,
) -> bool {
    let Some(field) = report.object(rule, "http") else {
        return false;
    };
    report.check_fields(&field, KNOWN_HTTP, &[]);
    let mut methods = BTreeSet::new();
    for item in report.items(&field, "methods") {
        if let Some(method) = report.ok(item.as_str())
            && !methods.insert(method)
        {
            report.error(&item, format!("{} is there twice", quote(method)));
        }
    }
    for path in report.items(&field, "paths") {
        if !report.is_object(&path) {
            continue;
        }
        report.check_fields(&path, &["exact", "prefix"], &[]);
        let given = ["exact", "prefix"].map(|key| report.text(&path, key));
        let given: Vec<_> = given.into_iter().flatten().collect();
        let [(text, at)] = &given[..] else {
            report.error(&path, "exactly one of `exact` and `prefix` is required");
            continue;
        };
        if !text.starts_with('/') || text.contains(['?', '#', ' ']) {
            report.error(
                at,
                format!(
                    "{} is not a path: it begins with `/`, and has no `?`, `#` and space",
                    quote(text)
                ),
            );
        }
    }
    if context.direction == Direction::Egress && !context.is_of_profile {
        report.error(&field, "requests of HTTP are only for ingress rules");
    }
    if action.is_some_and(|action| action != Action::Allow) {
        report.error(&field, "requests of HTTP are only for rules that allow");
    }
    let is_tcp = |field: Field<'_>| {
        let name = field.node.as_str();
        name.is_some_and(|name| name.eq_ignore_ascii_case("TCP"))
    };
    if report
        .child(rule, "protocol")
        .is_some_and(|field| !is_tcp(field))
    {
        report.error(&field, "requests of HTTP are only for the protocol TCP");
    }
    report.close(
        &field,
        ClosedReason::NotServed,
        "rules about requests of HTTP are not served yet: the rule is held closed, it allows nothing",
    );
    true
}
