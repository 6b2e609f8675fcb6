//! What is enforced in the place of a NetworkPolicy that was never valid: its pods are isolated.

use super::network_policy::{KNOWN_SPEC, lowered, types};
use super::{Source, selector};
use crate::report::Report;
use crate::suggest::nearest;
use palisade_manifest::Field;
use palisade_model::{LabelKey, Policy, Selector};

/// The policy without rules; see [`crate::isolate`] for what is read of the broken one.
pub(super) fn of(source: &Source<'_>) -> Option<Policy> {
    let mut report = Report::new(String::new());
    let Ok(Some(spec)) = source.root.get("spec") else {
        return None;
    };
    spec.as_map().ok()?;
    let pods = match report.child(&spec, "podSelector") {
        Some(field) => selector::read(&field, LabelKey::own, &mut report),
        None if may_mean(&spec, &["podSelector"]) => return None,
        None => Selector::all(),
    };
    if !report.errors.is_empty() {
        return None;
    }
    let named = types(&spec, &mut report);
    let unreadable = !report.errors.is_empty() || may_mean(&spec, &["policyTypes", "egress"]);
    let has_egress_rules = report
        .child(&spec, "egress")
        .is_some_and(|field| field.node.as_list() != Some(&[]));
    let (ingress, egress) = if unreadable {
        (true, true)
    } else if named.is_empty() {
        (true, has_egress_rules)
    } else {
        (
            named.contains(&palisade_model::Direction::Ingress),
            named.contains(&palisade_model::Direction::Egress),
        )
    };
    let rules = (ingress.then(Vec::new), egress.then(Vec::new));
    Some(lowered(source, pods, rules))
}

/// Whether an unknown field of the spec may be a misspelling of one of these.
fn may_mean(spec: &Field<'_>, fields: &[&str]) -> bool {
    let entries = spec.entries().unwrap_or_default();
    entries
        .iter()
        .filter(|(key, _)| !KNOWN_SPEC.contains(key))
        .any(|(key, _)| nearest(key, KNOWN_SPEC).is_some_and(|meant| fields.contains(&meant)))
}
