//! The rules of a policy: four lists, of two directions and two actions.
//!
//! A rule with DNS rules on some of its ports becomes several of the model, one for each set of names.

use super::missing_feature::{MissingFeature, closed_peers, hold_closed};
use super::rule_context::{RuleAction, RuleContext, list_of};
use super::{icmp, peers, ports};
use crate::hash::RuleFingerprints;
use crate::report::{ObjectReport, line_of};
use palisade_manifest::{Field, quote};
use palisade_model::{Direction, DomainPattern, Rule, RuleOrigin, TrafficMatch};
use std::collections::{BTreeMap, BTreeSet};

const AUTHENTICATION_MODES: [&str; 3] = ["disabled", "required", "test-always-fail"];

/// Reads the rules of a list.
pub(super) fn read_list(
    spec: &Field<'_>,
    context: &RuleContext<'_>,
    report: &mut ObjectReport,
) -> Vec<Rule> {
    let key = list_of(context.direction, context.action);
    let mut rules = Vec::new();
    let mut fingerprints = RuleFingerprints::default();
    for (index, field) in (0..).zip(&report.items(spec, key)) {
        let fingerprint = fingerprints.add(field.node);
        rules.extend(read(field, context, (index, fingerprint), report));
    }
    rules
}

fn read(
    field: &Field<'_>,
    context: &RuleContext<'_>,
    (index, fingerprint): (u32, u64),
    report: &mut ObjectReport,
) -> Vec<Rule> {
    if !report.is_object(field) {
        return Vec::new();
    }
    report.begin_rule();
    check_fields(field, context, report);
    let mut peers = peers::read(field, context, report);
    let PacketTests {
        mut traffic,
        mut dns,
    } = traffic(field, context, report);
    if context.action == RuleAction::Allow && !authentication_is_off(field, report) {
        peers.clear();
    }
    if is_empty(field, context, report) {
        peers.clear();
    }
    if report.end_rule() {
        // What the rule says cannot be read, of peers or of ports.
        peers = closed_peers(context.action);
        traffic = vec![TrafficMatch::any()];
        dns.clear();
    }
    let rule = |position: u64, (names, traffic)| Rule {
        origin: RuleOrigin {
            index,
            name: context.log.cloned(),
            // Those of one rule as written are counted apart.
            fingerprint: fingerprint.wrapping_add(position),
            line: Some(line_of(field)),
        },
        action: context.action.to_model(),
        peers: peers.clone(),
        local: None,
        traffic,
        dns_names: names,
    };
    let mut rules = Vec::new();
    if dns.is_empty() || !traffic.is_empty() {
        rules.push(rule(0, (None, traffic)));
    }
    let names = dns
        .into_iter()
        .map(|(names, traffic)| (Some(names), traffic));
    rules.extend(
        (0..)
            .zip(names)
            .map(|(position, part)| rule(position, part)),
    );
    rules
}

/// What a rule tests of packets.
#[derive(Debug, Default)]
struct PacketTests {
    /// What it allows or denies whole.
    traffic: Vec<TrafficMatch>,
    /// The names that DNS queries may ask for, with the ports on which they are read.
    dns: BTreeMap<BTreeSet<DomainPattern>, Vec<TrafficMatch>>,
}

/// Whether a rule names neither peers nor ports nor messages: such a rule matches nothing. Source: Cilium's examples,
/// `egress-default-deny`.
fn is_empty(field: &Field<'_>, context: &RuleContext<'_>, report: &mut ObjectReport) -> bool {
    let mut lists = peers::fields(context.direction, context.action);
    !lists.any(|list| report.child(field, list).is_some())
        && report.items(field, "toPorts").is_empty()
        && report.items(field, "icmps").is_empty()
}

fn check_fields(field: &Field<'_>, context: &RuleContext<'_>, report: &mut ObjectReport) {
    let (direction, action) = (context.direction, context.action);
    let mut fields: Vec<&str> = peers::fields(direction, action).collect();
    fields.extend(["toPorts", "icmps"]);
    if action == RuleAction::Allow {
        fields.push("authentication");
    }
    let requires = match direction {
        Direction::Ingress => ("fromRequires", "fromEndpoints"),
        Direction::Egress => ("toRequires", "toEndpoints"),
    };
    let gone = format!(
        "Cilium 1.19 removed it: write its labels into the selectors of `{}`",
        requires.1
    );
    let other = match direction {
        Direction::Ingress => Direction::Egress,
        Direction::Egress => Direction::Ingress,
    };
    let elsewhere = format!("it belongs into `{}`", list_of(other, action));
    let mut misplaced = vec![(requires.0, &*gone)];
    misplaced.extend(peers::fields(other, RuleAction::Allow).map(|key| (key, &*elsewhere)));
    if action == RuleAction::Deny {
        misplaced.extend([
            ("toFQDNs", "rules that deny have no names"),
            ("authentication", "rules that deny have no authentication"),
        ]);
    }
    report.check_fields(field, &fields, &misplaced);
}

/// What a rule tests of packets: its ports, or its messages of ICMP.
fn traffic(field: &Field<'_>, context: &RuleContext<'_>, report: &mut ObjectReport) -> PacketTests {
    let (ports, messages) = (report.items(field, "toPorts"), report.items(field, "icmps"));
    if !messages.is_empty()
        && !ports.is_empty()
        && let Some(at) = report.child(field, "icmps")
    {
        report.error(
            &at,
            "`icmps` are only allowed without `toPorts`: write a rule for each",
        );
    }
    let mut read = PacketTests::default();
    if ports.is_empty() && messages.is_empty() {
        read.traffic.push(TrafficMatch::any());
    }
    for item in &ports {
        let item = ports::read(item, context, report);
        match item.dns_names {
            None => read.traffic.extend(item.traffic),
            Some(_) if item.traffic.is_empty() => {}
            Some(names) => {
                if names.contains(&DomainPattern::Any) {
                    // What may ask for every name is read to learn from it, and passes where nobody reads.
                    read.traffic.extend(item.traffic.iter().cloned());
                }
                read.dns.entry(names).or_default().extend(item.traffic);
            }
        }
    }
    for item in &messages {
        read.traffic.extend(icmp::read(item, report));
    }
    read
}

/// Whether a rule asks for no authentication; if it does, it is held closed.
fn authentication_is_off(rule: &Field<'_>, report: &mut ObjectReport) -> bool {
    let Some(field) = report.object(rule, "authentication") else {
        return true;
    };
    report.check_fields(&field, &["mode"], &[]);
    let Some((mode, at)) = report.text(&field, "mode") else {
        if report.child(&field, "mode").is_none() {
            report.error(&field, "`mode` is required, but missing");
        }
        return false;
    };
    if !AUTHENTICATION_MODES.contains(&mode) {
        report.error(
            &at,
            format!(
                "{} is not a mode of authentication: use {}",
                quote(mode),
                AUTHENTICATION_MODES.join(", ")
            ),
        );
    } else if mode != "disabled" {
        hold_closed(
            &at,
            MissingFeature::MutualAuthentication,
            RuleAction::Allow,
            report,
        );
        return false;
    }
    true
}
