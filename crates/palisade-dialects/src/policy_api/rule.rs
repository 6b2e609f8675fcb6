//! The rules of a cluster-wide policy.

use super::peer::{self, PeerReading};
use super::variant::{MAX_RULE_NAME, PolicyVariant};
use super::{action, ports, protocols, schema};
use crate::faults::DialectFault;
use crate::hash::RuleFingerprints;
use crate::report::{ObjectReport, line_of};
use palisade_manifest::Field;
use palisade_model::{
    Action, Direction, DirectionRules, Peer, Rule, RuleOrigin, Str, TrafficMatch,
};

const HAS_PROTOCOLS: &str = "a rule of ClusterNetworkPolicy has `protocols`";
const HAS_PORTS: &str = "a rule of this kind has `ports`; `protocols` are of ClusterNetworkPolicy";

/// The name of the list of a direction.
pub(super) const fn list_of(direction: Direction) -> &'static str {
    match direction {
        Direction::Ingress => "ingress",
        Direction::Egress => "egress",
    }
}

/// The rules of one direction; `None` if there are none: such a policy does not affect the direction.
pub(super) fn rules(
    spec: &Field<'_>,
    direction: Direction,
    variant: PolicyVariant,
    report: &mut ObjectReport,
) -> Option<DirectionRules> {
    let list = report.child(spec, list_of(direction))?;
    let written = schema::items(&list, ("rules", 0, variant.max_items()), report);
    let mut rules = Vec::new();
    let mut fingerprints = RuleFingerprints::default();
    for (index, field) in (0..).zip(&written) {
        let fingerprint = fingerprints.add(field.node);
        rules.extend(read(
            field,
            (direction, variant),
            (index, fingerprint),
            report,
        ));
    }
    if written.is_empty() {
        return None;
    }
    if DialectFault::ImplicitIsolation.is_injected() {
        rules.extend(DirectionRules::deny_all(Some(line_of(&list))).rules);
    }
    Some(DirectionRules {
        default_deny: false,
        rules,
    })
}

fn read(
    field: &Field<'_>,
    (direction, variant): (Direction, PolicyVariant),
    (index, fingerprint): (u32, u64),
    report: &mut ObjectReport,
) -> Option<Rule> {
    if !report.is_object(field) {
        return None;
    }
    let (peers_key, other_key, ports_key) = match direction {
        Direction::Ingress => ("from", ("to", "an ingress rule has `from`"), "ports"),
        Direction::Egress => ("to", ("from", "an egress rule has `to`"), "ports"),
    };
    let (ports_key, other_ports) = match variant {
        PolicyVariant::Cluster => ("protocols", (ports_key, HAS_PROTOCOLS)),
        _ => (ports_key, ("protocols", HAS_PORTS)),
    };
    report.begin_rule();
    report.check_fields(
        field,
        variant.rule_fields(direction),
        &[other_key, other_ports],
    );
    let name = name(field, report);
    let action = action::read(field, variant, report);
    let most = variant.max_items();
    let peer_fields = schema::required_items(field, peers_key, ("peers", most), report);
    let (mut peers, mut is_unknown) = (Vec::new(), false);
    for peer in &peer_fields {
        match peer::read(peer, (variant, direction), action, report) {
            PeerReading::Known(peer) => peers.push(peer),
            PeerReading::Unknown => is_unknown = true,
            PeerReading::Invalid => {}
        }
    }
    let has_named_ports = !peer_fields.iter().any(peer::lacks_named_ports);
    let what = match variant {
        PolicyVariant::Cluster => "protocols",
        _ => "ports",
    };
    let port_fields = schema::optional_items(field, ports_key, (what, most), report);
    let mut traffic = Vec::new();
    for port in &port_fields {
        traffic.extend(match variant {
            PolicyVariant::Cluster => protocols::read(port, has_named_ports, report),
            _ => ports::read(port, variant, has_named_ports, report),
        });
    }
    let is_unread = report.end_rule();
    if report.child(field, ports_key).is_none() {
        traffic.push(TrafficMatch::any());
    }
    let mut rule = Rule {
        origin: RuleOrigin {
            index,
            name,
            fingerprint,
            line: Some(line_of(field)),
        },
        action: action?,
        peers,
        local: None,
        traffic,
        dns_names: None,
    };
    if is_unread {
        // Nor may be what it says of ports.
        rule.traffic = vec![TrafficMatch::any()];
    }
    if is_unknown || is_unread {
        fail_closed(&mut rule);
    }
    Some(rule)
}

/// A rule with a peer that is not understood: to allow, it matches nothing; otherwise it denies all peers, on
/// the ports that it names.
fn fail_closed(rule: &mut Rule) {
    match rule.action {
        Action::Allow if DialectFault::UnknownPeerOpen.is_injected() => {
            rule.peers = vec![Peer::any()];
        }
        Action::Allow => rule.peers.clear(),
        _ => {
            rule.action = Action::Deny;
            rule.peers = vec![Peer::any()];
        }
    }
}

/// The name of a rule; an empty one counts as missing.
fn name(rule: &Field<'_>, report: &mut ObjectReport) -> Option<Str> {
    let (name, at) = report.text(rule, "name")?;
    let length = name.chars().count();
    if length > MAX_RULE_NAME {
        report.error(
            &at,
            format!("{length} characters are too long: at most {MAX_RULE_NAME}"),
        );
        return None;
    }
    (!name.is_empty()).then(|| name.into())
}
