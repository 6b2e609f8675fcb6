//! Tests of the namespace in the subject of a namespaced policy.
//!
//! Promises: a test that the policy's own namespace does not replace stays a condition of the subject. Never: makes a
//! subject wider.

use super::label_key::LabelSource;
use super::selector::LabelRequirement;
use crate::label_selector::LabelTest;
use crate::report::ObjectReport;
use palisade_manifest::Field;
use palisade_model::Str;

/// Whether a requirement on the subject of a namespaced policy is replaced by the policy's own namespace: a label of
/// the source `k8s`, and not an expression. Source: Cilium, translation of a CiliumNetworkPolicy.
pub(super) fn is_replaced(requirement: &LabelRequirement) -> bool {
    let names_namespace = requirement.key.is_namespace_name();
    let is_of_kubernetes = requirement.key.source == LabelSource::Kubernetes;
    names_namespace && requirement.is_match_label && is_of_kubernetes
}

/// Warns of tests of the namespace in the subject of a namespaced policy that do not say what they seem to.
pub(super) fn check_namespace(
    field: &Field<'_>,
    requirements: &[LabelRequirement],
    namespace: &Str,
    report: &mut ObjectReport,
) {
    let tests = requirements.iter();
    for requirement in tests.filter(|requirement| requirement.key.is_namespace_name()) {
        let holds = match &requirement.test {
            LabelTest::In(values) => values.contains(namespace),
            LabelTest::NotIn(values) => !values.contains(namespace),
            LabelTest::Exists => true,
            LabelTest::DoesNotExist => false,
        };
        if holds {
            continue;
        }
        let text = if is_replaced(requirement) {
            format!(
                "a CiliumNetworkPolicy selects pods of its own namespace: the label of the namespace stands for {namespace}"
            )
        } else {
            format!(
                "a CiliumNetworkPolicy selects pods of its own namespace {namespace}, where this test of the namespace does not hold: it selects no pod"
            )
        };
        report.warn(field, text);
    }
}
