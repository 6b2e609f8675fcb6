//! NetworkSet and GlobalNetworkSet: networks, with labels that selectors test.

use super::entity::networks;
use super::selector_scope::NAMESPACE;
use crate::kind_reader::ManifestObject;
use crate::metadata;
use crate::report::ObjectReport;
use palisade_model::{NetworkSet, NetworkSetKind, Object};

const KNOWN: &[&str] = &["apiVersion", "kind", "metadata", "spec", "status"];
const KNOWN_SPEC: &[&str] = &["nets", "allowedEgressDomains"];
const MISPLACED: &[(&str, &str)] = &[("nets", "it belongs inside `spec`")];

/// Lowers a network set.
pub(super) fn read(object: &ManifestObject<'_>, report: &mut ObjectReport) -> Option<Object> {
    let root = &object.root;
    report.check_descriptive_fields(root, KNOWN, MISPLACED);
    metadata::check(root, report);
    let mut nets = Vec::new();
    if let Some(spec) = report.object(root, "spec") {
        report.check_fields(&spec, KNOWN_SPEC, &[]);
        nets = networks(&spec, "nets", report);
        if let (Some(_), Some(at)) = (
            report.items(&spec, "allowedEgressDomains").first(),
            report.child(&spec, "allowedEgressDomains"),
        ) {
            report.warn(
                &at,
                "domain names are not served: no address is in the set for them",
            );
        }
    }
    let labels = metadata::checked_labels(root);
    if labels.get(NAMESPACE).is_some()
        && let Some(at) = report.object(root, "metadata")
        && let Some(at) = report.object(&at, "labels")
    {
        report.key_errors(
            &at,
            NAMESPACE,
            vec!["this label is that of the namespace, and cannot be given".to_owned()],
        );
    }
    Some(Object::NetworkSet(NetworkSet {
        id: object.id.clone(),
        kind: NetworkSetKind::NetworkSet,
        labels,
        nets,
    }))
}
