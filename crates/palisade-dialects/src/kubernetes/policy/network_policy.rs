//! NetworkPolicy: its subject, directions and rules.
//!
//! Defaulting and validation follow the API server. What it accepts with a warning is accepted here with a
//! warning.

use super::rule::{self, own_namespace_selector};
use crate::faults::DialectFault;
use crate::kind_reader::ManifestObject;
use crate::label_selector::{self, workload_selector};
use crate::metadata;
use crate::report::{ObjectReport, line_of};
use palisade_manifest::{Field, quote};
use palisade_model::{
    Direction, DirectionRules, LabelKey, Object, Order, Policy, PolicyId, PolicyMode, Precedence,
    Rule, Selector, TrafficScope, tier_name,
};

pub(super) const KNOWN: &[&str] = &["apiVersion", "kind", "metadata", "spec", "status"];
const MISPLACED_FIELDS: &[(&str, &str)] = &[
    ("podSelector", IN_SPEC),
    ("policyTypes", IN_SPEC),
    ("ingress", IN_SPEC),
    ("egress", IN_SPEC),
];
const IN_SPEC: &str = "it belongs inside `spec`";
pub(crate) const KNOWN_SPEC: &[&str] = &["podSelector", "policyTypes", "ingress", "egress"];

/// Lowers a NetworkPolicy.
pub(in crate::kubernetes) fn read(
    object: &ManifestObject<'_>,
    report: &mut ObjectReport,
) -> Option<Object> {
    let root = &object.root;
    report.check_descriptive_fields(root, KNOWN, MISPLACED_FIELDS);
    metadata::check(root, report);
    let Some(spec) = report.child(root, "spec") else {
        report.warn(
            root,
            "there is no `spec`: this isolates every pod of the namespace from ingress",
        );
        let policy = build_policy(object, Selector::all(), (Some(Vec::new()), None));
        return Some(Object::Policy(policy));
    };
    report.ok(spec.as_map())?;
    report.check_fields(&spec, KNOWN_SPEC, &[]);
    Some(Object::Policy(read_spec(object, &spec, report)))
}

/// Lowers the spec of a NetworkPolicy, or of what has the same fields; these have been checked.
pub(crate) fn read_spec(
    object: &ManifestObject<'_>,
    spec: &Field<'_>,
    report: &mut ObjectReport,
) -> Policy {
    let subject = subject(spec, report);
    let ingress = rule::rules(spec, Direction::Ingress, object, report);
    let egress = rule::rules(spec, Direction::Egress, object, report);
    let written_types = policy_types(spec, report);
    let (isolates_ingress, isolates_egress) = directions(&written_types, &egress);
    for (isolates, rules, direction, name) in [
        (isolates_ingress, &ingress, "ingress", "Ingress"),
        (isolates_egress, &egress, "egress", "Egress"),
    ] {
        if let (false, false, Some(field)) =
            (isolates, rules.is_empty(), report.child(spec, direction))
        {
            report.warn(
                &field,
                format!("these rules have no effect: policyTypes does not name {name}"),
            );
        }
    }
    let rules = (
        isolates_ingress.then_some(ingress),
        isolates_egress.then_some(egress),
    );
    build_policy(object, subject, rules)
}

/// The selector of the policy's pods, over their own labels; without a podSelector it matches all.
fn subject(spec: &Field<'_>, report: &mut ObjectReport) -> Selector {
    match report.child(spec, "podSelector") {
        Some(field) => label_selector::read(&field, LabelKey::own, report),
        None => Selector::all(),
    }
}

/// The directions in policyTypes.
pub(super) fn policy_types(spec: &Field<'_>, report: &mut ObjectReport) -> Vec<Direction> {
    let items = report.items(spec, "policyTypes");
    if items.len() > 2
        && let Some(field) = report.child(spec, "policyTypes")
    {
        report.error(&field, "at most two policyTypes: Ingress and Egress");
    }
    let mut directions = Vec::new();
    for item in items {
        let text = if item.node.is_null() {
            Some("")
        } else {
            report.ok(item.as_str())
        };
        match text {
            Some("Ingress") => directions.push(Direction::Ingress),
            Some("Egress") => directions.push(Direction::Egress),
            Some(other) => report.error(
                &item,
                format!(
                    "{} is not a policy type: use Ingress or Egress",
                    quote(other)
                ),
            ),
            None => {}
        }
    }
    directions
}

/// Whether the policy applies to ingress and to egress. Without policyTypes: always to ingress, and to egress
/// if there are egress rules.
fn directions(written: &[Direction], egress: &[Rule]) -> (bool, bool) {
    if !written.is_empty() {
        return (
            written.contains(&Direction::Ingress),
            written.contains(&Direction::Egress),
        );
    }
    (
        true,
        !DialectFault::PolicyTypesEgressDefaultLost.is_injected() && !egress.is_empty(),
    )
}

/// The model policy of a NetworkPolicy, with the rules of the directions that it applies to.
pub(super) fn build_policy(
    source: &ManifestObject<'_>,
    pods: Selector,
    (ingress, egress): (Option<Vec<Rule>>, Option<Vec<Rule>>),
) -> Policy {
    let rules = |rules: Option<Vec<Rule>>| {
        rules.map(|rules| DirectionRules {
            default_deny: true,
            rules,
        })
    };
    Policy {
        id: PolicyId {
            object: source.id.clone(),
            part: 0,
        },
        tier: tier_name::DEFAULT.into(),
        precedence: Precedence {
            order: Order::At(1000.0),
            rank: 2,
        },
        mode: PolicyMode::Enforce,
        subject: Selector::and([workload_selector(), own_namespace_selector(source), pods]),
        scope: TrafficScope::Endpoints,
        observes_dns: false,
        ingress: rules(ingress),
        egress: rules(egress),
        line: Some(line_of(&source.root)),
    }
}
