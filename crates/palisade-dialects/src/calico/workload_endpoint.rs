//! WorkloadEndpoint: a workload that is not necessarily a pod.
//!
//! Promises: what no profile of it allows is denied. Never: attaches an interface.

use super::entity::network;
use super::profile;
use super::protocol::endpoint_ports;
use super::selector_scope::ORCHESTRATOR;
use crate::cidr;
use crate::kind_reader::ManifestObject;
use crate::metadata;
use crate::report::ObjectReport;
use palisade_manifest::Field;
use palisade_model::{Endpoint, EndpointMetadata, Object, Str};
use std::net::IpAddr;

/// Lowers a workload endpoint.
pub(super) fn read(object: &ManifestObject<'_>, report: &mut ObjectReport) -> Option<Object> {
    let root = &object.root;
    let Some(spec) = report.object(root, "spec") else {
        report.error(root, "`spec` is required, but missing");
        return None;
    };
    let mut text = |key: &str| -> Option<Str> {
        let (text, _) = report.text(&spec, key)?;
        (!text.is_empty()).then(|| text.into())
    };
    let node = text("node");
    let account = text("serviceAccountName");
    let orchestrator = text("orchestrator");
    let mut labels = metadata::metadata_labels(root, report);
    if let Some(orchestrator) = orchestrator {
        labels.insert(ORCHESTRATOR.into(), orchestrator);
    }
    let ports = endpoint_ports(&spec, report);
    Some(Object::Endpoint(Endpoint {
        labels,
        service_account: account,
        node,
        addresses: addresses(&spec, report),
        ports,
        profiles: profiles(object, &spec, report),
        created: metadata::created(root, report),
        metadata: EndpointMetadata {
            owner: metadata::owner(root, report),
            uid: None,
        },
        audit: crate::mode::is_in_audit(root, report),
        ..Endpoint::pod(object.id.clone())
    }))
}

/// The addresses in `ipNetworks`, each a network of one address.
fn addresses(spec: &Field<'_>, report: &mut ObjectReport) -> Vec<IpAddr> {
    let mut addresses = Vec::new();
    for item in report.items(spec, "ipNetworks") {
        let Some(net) = network(&item, report) else {
            continue;
        };
        let address = net.address();
        if !net.is_host() {
            report.error(&item, format!("{net} is not one address"));
        } else if let Some(what) = cidr::unusable_reason(address) {
            report.warn(
                &item,
                format!("{address} is {what}, which is not valid for a workload; ignored"),
            );
        } else if !addresses.contains(&address) {
            addresses.push(address);
        }
    }
    addresses
}

/// Its profiles. That of its own namespace is meant by `kns.`: no other namespace is.
fn profiles(object: &ManifestObject<'_>, spec: &Field<'_>, report: &mut ObjectReport) -> Vec<Str> {
    let own = object.namespace();
    let mut names = Vec::new();
    for item in report.items(spec, "profiles") {
        let Some(name) = report.ok(item.as_str()) else {
            continue;
        };
        if profile::namespace_of(name).is_some_and(|owner| *owner != *own) {
            report.warn(
                &item,
                format!("the profile of another namespace: its rules hold, but the labels are those of {own}"),
            );
        }
        names.push(name);
    }
    profile::of_endpoint(names.into_iter())
}
