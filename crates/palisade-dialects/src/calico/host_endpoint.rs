//! HostEndpoint: an interface of a node.
//!
//! Promises: it is an endpoint that policies of the cluster select, and what nothing allows there is denied;
//! selectors of peers match its addresses by its labels. Never: finds the interface by an address: that is known
//! to the host alone.

use super::entity::network;
use super::profile;
use super::protocol::endpoint_ports;
use crate::kind_reader::ManifestObject;
use crate::metadata;
use crate::names;
use crate::report::ObjectReport;
use palisade_manifest::Field;
use palisade_model::{Endpoint, NetworkSet, NetworkSetKind, Object, PolicyMode, Prefix, Str};

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

/// Lowers a host endpoint to an endpoint without addresses, and to a holder of the addresses that it expects.
pub(super) fn read(object: &ManifestObject<'_>, report: &mut ObjectReport) -> Vec<Object> {
    let root = &object.root;
    report.check_descriptive_fields(root, KNOWN, MISPLACED);
    metadata::check(root, report);
    let labels = metadata::checked_labels(root);
    let Some(spec) = report.object(root, "spec") else {
        report.error(root, "`spec` is required, but missing");
        return Vec::new();
    };
    report.check_fields(&spec, KNOWN_SPEC, &[]);
    let node = node(&spec, report);
    let interface = interface(&spec, report);
    let expected = report.child(&spec, "expectedIPs");
    let nets = expected_addresses(&spec, report);
    let has_expected = expected.is_some_and(|at| at.node.as_list() != Some(&[]));
    if interface.is_none() && !has_expected {
        report.error(
            &spec,
            "one of `interfaceName` and `expectedIPs` is required",
        );
    }
    let profiles = report.items(&spec, "profiles");
    let profiles: Vec<&str> = profiles
        .iter()
        .filter_map(|profile| report.ok(profile.as_str()))
        .collect();
    let endpoint = Endpoint {
        labels: labels.clone(),
        node,
        interface,
        ports: endpoint_ports(&spec, report),
        profiles: profile::of_endpoint(profiles.into_iter()),
        audit: crate::mode::annotated_mode(root) == PolicyMode::Audit,
        ..Endpoint::host_interface(object.id.clone())
    };
    let holder = NetworkSet {
        id: object.id.clone(),
        kind: NetworkSetKind::HostEndpoint,
        labels,
        nets,
    };
    vec![Object::Endpoint(endpoint), Object::NetworkSet(holder)]
}

fn node(spec: &Field<'_>, report: &mut ObjectReport) -> Option<Str> {
    match report.text(spec, "node") {
        Some((name, at)) if !name.is_empty() => {
            report.errors(&at, names::dns_subdomain_errors(name));
            Some(name.into())
        }
        _ => {
            report.error(spec, "`node` is required, but missing");
            None
        }
    }
}

/// The name of its interface, or `*`.
fn interface(spec: &Field<'_>, report: &mut ObjectReport) -> Option<Str> {
    let (name, at) = report.text(spec, "interfaceName")?;
    if name.len() > MAX_INTERFACE || name.contains(['/', ' ', '\t']) {
        report.error(
            &at,
            format!("not the name of an interface: at most {MAX_INTERFACE} bytes, without slash and space; or `*`"),
        );
    }
    (!name.is_empty()).then(|| name.into())
}

fn expected_addresses(spec: &Field<'_>, report: &mut ObjectReport) -> Vec<Prefix> {
    let mut nets = Vec::new();
    for item in report.items(spec, "expectedIPs") {
        if let Some(net) = network(&item, report) {
            if net.is_host() {
                nets.push(net)
            } else {
                report.error(&item, format!("{net} is a network: an address is expected"))
            }
        }
    }
    nets
}
