//! Lowers Namespaces, Nodes and ServiceAccounts.

use crate::kubernetes::{ManifestObject, metadata};
use crate::report::ObjectReport;
use palisade_model::{Namespace, Node, Object, ServiceAccount};
use std::collections::BTreeSet;

/// Lowers a Namespace. The label with its name always has the right value, whatever the file says.
pub(in crate::kubernetes) fn namespace(
    object: &ManifestObject<'_>,
    report: &mut ObjectReport,
) -> Option<Object> {
    let name = object.id.name.clone();
    let mut labels = metadata::metadata_labels(&object.root, report);
    let replaced = labels.insert(Namespace::NAME_LABEL.into(), name.clone());
    if let Some(written) = replaced.filter(|written| *written != name) {
        report.warn(
            &object.root,
            format!(
                "the label {} is always the name of the namespace, {name}; {written:?} is ignored",
                Namespace::NAME_LABEL
            ),
        );
    }
    Some(Object::Namespace(Namespace { name, labels }))
}

/// Lowers a Node: its labels and addresses.
pub(in crate::kubernetes) fn node(
    object: &ManifestObject<'_>,
    report: &mut ObjectReport,
) -> Option<Object> {
    let labels = metadata::metadata_labels(&object.root, report);
    let (mut addresses, mut seen) = (Vec::new(), BTreeSet::new());
    if let Some(status) = report.object(&object.root, "status") {
        for entry in report.items(&status, "addresses") {
            let kind = report.text(&entry, "type").map(|(text, _)| text);
            if !matches!(kind, Some("InternalIP" | "ExternalIP")) {
                continue;
            }
            let Some((text, field)) = report.text(&entry, "address") else {
                continue;
            };
            let address = report.address(&field, text);
            addresses.extend(address.filter(|address| seen.insert(*address)));
        }
    }
    let node = Node {
        name: object.id.name.clone(),
        labels,
        addresses,
    };
    Some(Object::Node(node))
}

/// Lowers a ServiceAccount: its labels.
pub(in crate::kubernetes) fn service_account(
    object: &ManifestObject<'_>,
    report: &mut ObjectReport,
) -> Option<Object> {
    let account = ServiceAccount {
        namespace: object.namespace(),
        name: object.id.name.clone(),
        labels: metadata::metadata_labels(&object.root, report),
    };
    Some(Object::ServiceAccount(account))
}
