//! CiliumCIDRGroup: a set of networks, with labels.

use super::cidr_peer::network;
use crate::kind_reader::ManifestObject;
use crate::metadata;
use crate::report::ObjectReport;
use palisade_model::{NetworkSet, NetworkSetKind, Object};

const KNOWN: &[&str] = &["apiVersion", "kind", "metadata", "spec", "status"];
const KNOWN_SPEC: &[&str] = &["externalCIDRs"];
const MISPLACED: &[(&str, &str)] = &[("externalCIDRs", "it belongs inside `spec`")];

/// Lowers a group.
pub(super) fn read(object: &ManifestObject<'_>, report: &mut ObjectReport) -> Option<Object> {
    let root = &object.root;
    report.check_descriptive_fields(root, KNOWN, MISPLACED);
    metadata::check(root, report);
    let Some(spec) = report.child(root, "spec") else {
        report.error(root, "`spec` is required, but missing");
        return None;
    };
    report.ok(spec.as_map())?;
    report.check_fields(&spec, KNOWN_SPEC, &[]);
    if report.child(&spec, "externalCIDRs").is_none() {
        report.error(&spec, "`externalCIDRs` is required, but missing");
    }
    let items = report.items(&spec, "externalCIDRs");
    let nets = items.iter().filter_map(|field| network(field, report));
    let nets = nets.collect();
    Some(Object::NetworkSet(NetworkSet {
        id: object.id.clone(),
        kind: NetworkSetKind::CidrGroup,
        labels: metadata::metadata_labels(root, report),
        nets,
    }))
}
