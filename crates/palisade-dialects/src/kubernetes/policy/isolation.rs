//! The isolation policy of a NetworkPolicy that was never valid: default deny for its pods.

use super::network_policy::{KNOWN, KNOWN_SPEC, build_policy, policy_types};
use crate::kind_reader::ManifestObject;
use crate::label_selector;
use crate::report::ObjectReport;
use palisade_model::{LabelKey, Policy, Selector};

/// The policy without rules; [`crate::isolate`] documents which fields of the invalid object are used.
pub(in crate::kubernetes) fn isolation_policy(object: &ManifestObject<'_>) -> Option<Policy> {
    let mut report = ObjectReport::new(String::new());
    let Ok(Some(spec)) = object.root.get("spec") else {
        return None;
    };
    spec.as_map().ok()?;
    let pods = match report.child(&spec, "podSelector") {
        Some(field) => label_selector::read(&field, LabelKey::own, &mut report),
        None if object.may_misspell(&spec, (KNOWN, KNOWN_SPEC), &["podSelector"]) => return None,
        None => Selector::all(),
    };
    if !report.errors.is_empty() {
        return None;
    }
    let written = policy_types(&spec, &mut report);
    let unreadable = !report.errors.is_empty()
        || object.may_misspell(&spec, (KNOWN, KNOWN_SPEC), &["policyTypes", "egress"]);
    let has_egress_rules = report
        .child(&spec, "egress")
        .is_some_and(|field| field.node.as_list() != Some(&[]));
    let (ingress, egress) = if unreadable {
        (true, true)
    } else if written.is_empty() {
        (true, has_egress_rules)
    } else {
        (
            written.contains(&palisade_model::Direction::Ingress),
            written.contains(&palisade_model::Direction::Egress),
        )
    };
    let rules = (ingress.then(Vec::new), egress.then(Vec::new));
    Some(build_policy(object, pods, rules))
}
