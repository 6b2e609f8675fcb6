//! The peers of a rule.
//!
//! Promises: a peer that is not understood is reported as such, so that its rule can fail closed; it is never left
//! out. Domain names select what is outside of the cluster.

use super::variant::{MAX_NETWORKS, PolicyVariant};
use super::{action, domain_name, namespaced_pods, schema};
use crate::cidr;
use crate::closed_part::ClosedReason;
use crate::domain_peer::outside_names;
use crate::label_selector;
use crate::report::ObjectReport;
use crate::suggest::nearest;
use palisade_manifest::{Field, quote, shorten};
use palisade_model::{Action, Direction, LabelKey, Peer, Selector, reserved};

/// A peer as it is read.
#[derive(Debug)]
pub(super) enum PeerReading {
    /// A test of addresses.
    Known(Peer),
    /// It has no field that is known: its rule has to fail closed.
    Unknown,
    /// It has an error.
    Invalid,
}

/// Whether a peer is one without named ports.
pub(super) fn lacks_named_ports(peer: &Field<'_>) -> bool {
    let has = |key| peer.get(key).ok().flatten().is_some();
    ["networks", "nodes", "domainNames"].into_iter().any(has)
}

/// Reads one peer of a rule with this action.
pub(super) fn read(
    field: &Field<'_>,
    (variant, direction): (PolicyVariant, Direction),
    rule_action: Option<Action>,
    report: &mut ObjectReport,
) -> PeerReading {
    let peer_fields = variant.peer_fields(direction);
    if !report.is_object(field) {
        return PeerReading::Invalid;
    }
    let entries = field.entries().unwrap_or_default();
    let mut present = entries
        .into_iter()
        .filter(|(_, value)| !value.node.is_null());
    let (key, value) = match (present.next(), present.next()) {
        (Some(only), None) => only,
        (None, _) => {
            report.close(
                field,
                ClosedReason::EmptyPeer,
                format!(
                    "a peer without a field: {}",
                    closed_reason(variant, rule_action)
                ),
            );
            return PeerReading::Unknown;
        }
        (Some((first, _)), Some((second, _))) => {
            let all = [first, second].into_iter();
            let all = all.chain(present.map(|(key, _)| key));
            let names: Vec<String> = all.map(shorten).collect();
            let names = names.iter().map(String::as_str);
            report.error(field, schema::exactly_one(peer_fields, names));
            return PeerReading::Invalid;
        }
    };
    let peer = match key {
        "namespaces" => Some(Peer::from_selector(namespaced_pods::of_namespaces(
            &value, report,
        ))),
        "pods" => report
            .is_object(&value)
            .then(|| Peer::from_selector(namespaced_pods::of_pods(&value, variant, report))),
        "nodes" if peer_fields.contains(&key) => Some(nodes(&value, report)),
        "networks" if peer_fields.contains(&key) => Some(networks(&value, report)),
        "domainNames" if peer_fields.contains(&key) => {
            domain_names(&value, variant, rule_action, report)
        }
        _ => {
            let hint = match (direction, nearest(key, peer_fields)) {
                (Direction::Ingress, _) if PolicyVariant::is_egress_peer(key) => {
                    "only egress rules have it".to_owned()
                }
                (_, Some(near)) => format!("did you mean `{near}`?"),
                (_, None) => format!("known fields: {}", peer_fields.join(", ")),
            };
            report.close(
                &value,
                ClosedReason::UnknownPeer,
                format!(
                    "unknown peer `{}` ({hint}): {}",
                    shorten(key),
                    closed_reason(variant, rule_action)
                ),
            );
            return PeerReading::Unknown;
        }
    };
    peer.map_or(PeerReading::Invalid, PeerReading::Known)
}

/// What becomes of a rule with a peer that is not understood.
fn closed_reason(variant: PolicyVariant, rule_action: Option<Action>) -> String {
    match rule_action {
        Some(Action::Allow) => format!(
            "the rule fails closed, {} matches nothing",
            action::allow_word(variant)
        ),
        _ => "the rule fails closed, it denies all peers".to_owned(),
    }
}

/// The addresses of the nodes that a label selector selects.
fn nodes(field: &Field<'_>, report: &mut ObjectReport) -> Peer {
    let labels = label_selector::read(field, LabelKey::own, report);
    let kind = Selector::equals(LabelKey::reserved(reserved::KIND), reserved::KIND_NODE);
    Peer::from_selector(Selector::and([kind, labels]))
}

/// All addresses of some networks, those of pods and nodes included.
fn networks(field: &Field<'_>, report: &mut ObjectReport) -> Peer {
    let items = schema::items(field, ("networks", 1, MAX_NETWORKS), report);
    let mut nets = Vec::new();
    for (text, at) in schema::distinct_texts(&items, report) {
        match cidr::parse_unambiguous_network(text) {
            Ok(literal) => {
                for doubt in literal.warnings {
                    report.warn(&at, doubt);
                }
                nets.push(literal.net);
            }
            Err(reason) => report.error(&at, reason),
        }
    }
    Peer {
        nets: Some(nets),
        ..Peer::any()
    }
}

/// Domain names: only rules that allow may have them.
fn domain_names(
    field: &Field<'_>,
    variant: PolicyVariant,
    rule_action: Option<Action>,
    report: &mut ObjectReport,
) -> Option<Peer> {
    let items = schema::items(field, ("domain names", 1, MAX_NETWORKS), report);
    let mut patterns = Vec::new();
    for (text, at) in schema::distinct_texts(&items, report) {
        if let Some(reason) = domain_name::rejection(text) {
            report.error(
                &at,
                format!("{} is not a domain name: {reason}", quote(text)),
            );
            continue;
        }
        match domain_name::parse_patterns(text) {
            Ok(parsed) => patterns.extend(parsed),
            Err(reason) => report.warn(&at, format!("no name can match it: {reason}")),
        }
    }
    if matches!(rule_action, Some(Action::Deny | Action::Pass)) {
        let word = action::allow_word(variant);
        report.error(
            field,
            format!("only rules with action {word} can have domain names"),
        );
        return None;
    }
    Some(outside_names(patterns))
}
