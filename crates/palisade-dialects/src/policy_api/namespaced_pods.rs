//! Selections of pods, by subjects and by peers: `namespaces`, or `pods` in namespaces.
//!
//! Both select attached workloads only: a pod on the host network is its node.

use super::variant::PolicyVariant;
use crate::faults::DialectFault;
use crate::label_selector::{self, workload_selector};
use crate::report::ObjectReport;
use palisade_manifest::Field;
use palisade_model::{LabelKey, Selector};

const KNOWN: &[&str] = &["namespaceSelector", "podSelector"];
const MISPLACED: &[(&str, &str)] = &[
    ("matchLabels", IN_SELECTOR),
    ("matchExpressions", IN_SELECTOR),
];
const IN_SELECTOR: &str = "it belongs inside `podSelector` or `namespaceSelector`";

/// All pods of the namespaces that a label selector selects.
pub(super) fn of_namespaces(field: &Field<'_>, report: &mut ObjectReport) -> Selector {
    let namespaces = label_selector::read(field, LabelKey::namespace, report);
    Selector::and([workload_selector(), namespaces])
}

/// The pods that `podSelector` selects in the namespaces that `namespaceSelector` selects.
pub(super) fn of_pods(
    field: &Field<'_>,
    variant: PolicyVariant,
    report: &mut ObjectReport,
) -> Selector {
    report.check_fields(field, KNOWN, MISPLACED);
    let namespaces = match report.child(field, "namespaceSelector") {
        Some(field) => label_selector::read(&field, LabelKey::namespace, report),
        None => {
            // Optional in v1alpha2, where a missing one selects every namespace.
            if variant != PolicyVariant::Cluster {
                report.error(field, "`namespaceSelector` is required, but missing");
            }
            Selector::all()
        }
    };
    let pods = match report.child(field, "podSelector") {
        Some(field) => label_selector::read(&field, LabelKey::own, report),
        None => {
            report.error(field, "`podSelector` is required, but missing");
            Selector::none()
        }
    };
    if DialectFault::NamespaceOfPodsIgnored.is_injected() {
        return Selector::and([workload_selector(), pods]);
    }
    Selector::and([workload_selector(), namespaces, pods])
}
