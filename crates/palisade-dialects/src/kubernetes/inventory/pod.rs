//! Pods: labels, addresses and named ports.

use crate::cidr;
use crate::faults::DialectFault;
use crate::kind_reader::ManifestObject;
use crate::metadata;
use crate::mode;
use crate::names;
use crate::port;
use crate::report::ObjectReport;
use palisade_manifest::Field;
use palisade_model::{Endpoint, EndpointKind, EndpointMetadata, NamedPort, Object, PodState};
use std::collections::BTreeSet;
use std::net::IpAddr;

/// Lowers a Pod.
pub(in crate::kubernetes) fn read(
    object: &ManifestObject<'_>,
    report: &mut ObjectReport,
) -> Option<Object> {
    let root = &object.root;
    let mut endpoint = endpoint(object, root, report);
    let status = report.object(root, "status");
    let phase = status
        .as_ref()
        .and_then(|status| report.text(status, "phase"))
        .map(|(text, _)| text);
    endpoint.kind = EndpointKind::Pod(PodState {
        completed: matches!(phase, Some("Succeeded" | "Failed"))
            && !DialectFault::CompletedPodHoldsAddress.is_injected(),
        host_network: endpoint.uses_host_network(),
    });
    if let Some(status) = &status {
        endpoint.addresses = addresses(status, report);
    }
    endpoint.metadata.uid = metadata::pod_uid(root);
    Some(Object::Endpoint(endpoint))
}

/// The endpoint, without addresses, of a pod or of a template whose metadata and spec are under `pod`.
pub(super) fn endpoint(
    object: &ManifestObject<'_>,
    pod: &Field<'_>,
    report: &mut ObjectReport,
) -> Endpoint {
    let spec = report.object(pod, "spec");
    let mut text = |key: &str| {
        let spec = spec.as_ref()?;
        let (text, _) = report.text(spec, key)?;
        (!text.is_empty()).then_some(text)
    };
    let node = text("nodeName");
    let account = text("serviceAccountName").or_else(|| text("serviceAccount"));
    Endpoint {
        kind: EndpointKind::Pod(PodState {
            completed: false,
            host_network: uses_host_network(pod, report),
        }),
        labels: metadata::metadata_labels(pod, report),
        service_account: Some(account.unwrap_or("default").into()),
        node: node.map(Into::into),
        ports: spec.map_or_else(Vec::new, |spec| named_ports(&spec, report)),
        created: metadata::created(&object.root, report),
        metadata: EndpointMetadata {
            owner: metadata::owner(&object.root, report),
            uid: None,
        },
        audit: mode::is_in_audit(pod, report),
        ..Endpoint::pod(object.id.clone())
    }
}

fn uses_host_network(pod: &Field<'_>, report: &mut ObjectReport) -> bool {
    let field = report
        .object(pod, "spec")
        .and_then(|spec| report.child(&spec, "hostNetwork"));
    field.is_some_and(|field| report.ok(field.as_bool()) == Some(true))
}

/// The addresses in podIPs and in podIP, which is the first of them.
fn addresses(status: &Field<'_>, report: &mut ObjectReport) -> Vec<IpAddr> {
    let mut written = Vec::new();
    for entry in report.items(status, "podIPs") {
        written.extend(report.text(&entry, "ip"));
    }
    written.extend(report.text(status, "podIP"));
    let (mut addresses, mut seen) = (Vec::new(), BTreeSet::new());
    for (text, field) in written {
        if text.is_empty() {
            continue;
        }
        let Some(address) = report.address(&field, text) else {
            continue;
        };
        if !seen.insert(address) {
            continue;
        }
        match cidr::unusable_reason(address) {
            None => addresses.push(address),
            Some(description) => report.warn(
                &field,
                format!("{address} is {description}, which is not valid for a pod; ignored"),
            ),
        }
    }
    addresses
}

/// The containers of a pod while it serves: its containers, then its sidecars (init containers with restartPolicy
/// Always). Other init containers have ended before.
pub(super) fn serving_containers<'a>(
    spec: &Field<'a>,
    report: &mut ObjectReport,
) -> Vec<Field<'a>> {
    let mut containers = report.items(spec, "containers");
    for container in report.items(spec, "initContainers") {
        let policy = report.text(&container, "restartPolicy");
        let stays = policy.is_some_and(|(text, _)| text == "Always");
        if stays {
            containers.push(container);
        }
    }
    containers
}

fn named_ports(spec: &Field<'_>, report: &mut ObjectReport) -> Vec<NamedPort> {
    let mut ports = Vec::new();
    for container in &serving_containers(spec, report) {
        for field in report.items(container, "ports") {
            ports.extend(named_port(&field, report));
        }
    }
    ports
}

fn named_port(field: &Field<'_>, report: &mut ObjectReport) -> Option<NamedPort> {
    let (name, at) = report.text(field, "name")?;
    if name.is_empty() {
        return None;
    }
    report.errors(&at, names::port_name_errors(name));
    let number = report.ok(field.require("containerPort"))?;
    let value = report.ok(number.as_i64())?;
    let port = port::port_number(&number, value, report);
    let protocol = port::optional_protocol(field, report);
    Some(NamedPort {
        name: name.into(),
        protocol: protocol?,
        port: port?,
    })
}
