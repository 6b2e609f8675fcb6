//! HostEndpoint: an interface of a node.
//!
//! Promises: selectors of peers match its addresses by its labels. Never: enforces a policy for it.

use super::entity::network;
use super::protocol::endpoint_ports;
use crate::kind_reader::ManifestObject;
use crate::metadata;
use crate::names;
use crate::report::ObjectReport;
use palisade_model::{NetworkSet, Object};

const KNOWN: &[&str] = &["apiVersion", "kind", "metadata", "spec", "status"];
const KNOWN_SPEC: &[&str] = &["node", "interfaceName", "expectedIPs", "profiles", "ports"];
const IN_SPEC: &str = "it belongs inside `spec`";
const MISPLACED: &[(&str, &str)] = &[
    ("node", IN_SPEC),
    ("interfaceName", IN_SPEC),
    ("expectedIPs", IN_SPEC),
];
/// The longest name of an interface, in bytes. Source: Linux, IFNAMSIZ.
const MAX_INTERFACE: usize = 15;

/// Lowers a host endpoint to a holder of its addresses.
pub(super) fn read(object: &ManifestObject<'_>, report: &mut ObjectReport) -> Option<Object> {
    let root = &object.root;
    report.check_descriptive_fields(root, KNOWN, MISPLACED);
    metadata::check(root, report);
    let Some(spec) = report.object(root, "spec") else {
        report.error(root, "`spec` is required, but missing");
        return None;
    };
    report.check_fields(&spec, KNOWN_SPEC, &[]);
    match report.text(&spec, "node") {
        Some((name, at)) if !name.is_empty() => {
            report.errors(&at, names::dns_subdomain_errors(name));
        }
        _ => report.error(&spec, "`node` is required, but missing"),
    }
    let interface = report.text(&spec, "interfaceName");
    if let Some((name, at)) = &interface
        && (name.len() > MAX_INTERFACE || name.contains(['/', ' ', '\t']))
    {
        report.error(
            at,
            format!("not the name of an interface: at most {MAX_INTERFACE} bytes, without slash and space; or `*`"),
        );
    }
    let mut nets = Vec::new();
    let expected = report.items(&spec, "expectedIPs");
    for item in &expected {
        if let Some(net) = network(item, report) {
            match net.is_host() {
                true => nets.push(net),
                false => report.error(item, format!("{net} is a network: an address is expected")),
            }
        }
    }
    let has_interface = interface.is_some_and(|(name, _)| !name.is_empty());
    if !has_interface && expected.is_empty() {
        report.error(
            &spec,
            "one of `interfaceName` and `expectedIPs` is required",
        );
    }
    for profile in report.items(&spec, "profiles") {
        report.ok(profile.as_str());
    }
    endpoint_ports(&spec, report);
    report.warn(
        &spec,
        "host endpoints are not enforced yet: it is a peer by its `expectedIPs`, and no policy protects it",
    );
    Some(Object::NetworkSet(NetworkSet {
        id: object.id.clone(),
        labels: metadata::checked_labels(root),
        nets,
    }))
}
