//! Namespaces, nodes and service accounts.

use super::{Parts, Source, metadata};
use crate::report::Report;
use palisade_model::{Namespace, Node, Object, ServiceAccount};
use std::collections::BTreeSet;

/// Reads a Namespace. The label that carries its name is there whatever is written.
pub(super) fn namespace(source: &Source<'_>, report: &mut Report) -> Option<Parts> {
    let name = source.id.name.clone();
    let mut labels = metadata::labels_of(&source.root, report);
    let forced = labels.insert(Namespace::NAME_LABEL.into(), name.clone());
    if let Some(written) = forced.filter(|written| *written != name) {
        report.warn(
            &source.root,
            format!(
                "the label {} is {name}, as it is for every namespace; {written:?} is ignored",
                Namespace::NAME_LABEL
            ),
        );
    }
    Some(Object::Namespace(Namespace { name, labels }).into())
}

/// Reads a Node: its labels and its own addresses.
pub(super) fn node(source: &Source<'_>, report: &mut Report) -> Option<Parts> {
    let labels = metadata::labels_of(&source.root, report);
    let (mut addresses, mut seen) = (Vec::new(), BTreeSet::new());
    if let Some(status) = report.object(&source.root, "status") {
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
        name: source.id.name.clone(),
        labels,
        addresses,
    };
    Some(Object::Node(node).into())
}

/// Reads a ServiceAccount: its labels.
pub(super) fn service_account(source: &Source<'_>, report: &mut Report) -> Option<Parts> {
    let account = ServiceAccount {
        namespace: source.namespace(),
        name: source.id.name.clone(),
        labels: metadata::labels_of(&source.root, report),
    };
    Some(Object::ServiceAccount(account).into())
}
