//! The isolation policy of a NetworkPolicy that was never valid: default deny for its pods.

use super::network_policy::{KNOWN, KNOWN_SPEC, build_policy, policy_types};
use crate::kind_reader::ManifestObject;
use crate::label_selector;
use crate::report::ObjectReport;
use crate::suggest::nearest;
use palisade_manifest::Field;
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
        None if may_be_misspelled(object, &spec, &["podSelector"]) => return None,
        None => Selector::all(),
    };
    if !report.errors.is_empty() {
        return None;
    }
    let written = policy_types(&spec, &mut report);
    let unreadable =
        !report.errors.is_empty() || may_be_misspelled(object, &spec, &["policyTypes", "egress"]);
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

/// Whether an unknown field may be a misspelling of one of these fields of the spec, or one of them outside
/// the spec.
fn may_be_misspelled(object: &ManifestObject<'_>, spec: &Field<'_>, fields: &[&str]) -> bool {
    let of_spec = spec.entries().unwrap_or_default();
    let of_root = object.root.entries().unwrap_or_default();
    let unknown = of_spec
        .iter()
        .filter(|(key, _)| !KNOWN_SPEC.contains(key))
        .chain(of_root.iter().filter(|(key, _)| !KNOWN.contains(key)));
    unknown
        .filter_map(|(key, _)| nearest(key, KNOWN_SPEC))
        .any(|meant| fields.contains(&meant))
}
