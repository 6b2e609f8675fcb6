//! Lowers Namespaces, Nodes and ServiceAccounts.

use crate::cidr;
use crate::kind_reader::ManifestObject;
use crate::metadata;
use crate::mode;
use crate::report::ObjectReport;
use palisade_model::{Namespace, Node, Object, Prefix, ServiceAccount};
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
    Some(Object::Namespace(Namespace {
        name,
        labels,
        audit: mode::is_in_audit(&object.root, report),
    }))
}

/// Lowers a Node: its labels, its addresses, and the networks of its pods, which are a holder of their own.
pub(in crate::kubernetes) fn node(
    object: &ManifestObject<'_>,
    report: &mut ObjectReport,
) -> Vec<Object> {
    let labels = metadata::metadata_labels(&object.root, report);
    let (mut addresses, mut seen) = (Vec::new(), BTreeSet::new());
    let mut internal_addresses = Vec::new();
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
            if kind == Some("InternalIP") {
                internal_addresses.extend(address);
            }
            addresses.extend(address.filter(|address| seen.insert(*address)));
        }
    }
    let node = Node {
        name: object.id.name.clone(),
        labels,
        addresses,
        internal_addresses,
        pod_networks: pod_networks(object, report),
        audit: mode::is_in_audit(&object.root, report),
    };
    let networks = node.pod_network().map(Object::NetworkSet);
    [Object::Node(node)].into_iter().chain(networks).collect()
}

/// The networks in podCIDRs; without it, the one in podCIDR, which is the first of them.
fn pod_networks(object: &ManifestObject<'_>, report: &mut ObjectReport) -> Vec<Prefix> {
    let Some(spec) = report.object(&object.root, "spec") else {
        return Vec::new();
    };
    let single = report.child(&spec, "podCIDR");
    let mut written = report.items(&spec, "podCIDRs");
    if written.is_empty() {
        written.extend(single);
    }
    let mut networks: Vec<Prefix> = Vec::new();
    for field in written {
        let Some(text) = report.ok(field.as_str()).filter(|text| !text.is_empty()) else {
            continue;
        };
        let network = match cidr::parse_network(text) {
            Ok(literal) => {
                literal
                    .warnings
                    .into_iter()
                    .for_each(|doubt| report.warn(&field, doubt));
                literal.net
            }
            Err(reason) => {
                report.error(&field, reason);
                continue;
            }
        };
        let overlaps = |other: &&Prefix| other.covers(network) || network.covers(**other);
        if let Some(what) = cidr::unusable_reason(network.address()) {
            let reason = format!("{network} begins with {what}, so pods cannot have its addresses");
            report.error(&field, reason);
        } else if let Some(other) = networks.iter().find(overlaps) {
            report.error(
                &field,
                format!("{network} overlaps {other} of the same node"),
            );
        } else {
            networks.push(network);
        }
    }
    networks
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
