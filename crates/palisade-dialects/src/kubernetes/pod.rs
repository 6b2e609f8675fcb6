//! Pods: their labels, addresses and named ports.

use super::{Parts, Source, metadata, rule};
use crate::cidr;
use crate::faults::{self, Fault};
use crate::names;
use crate::report::Report;
use palisade_manifest::Field;
use palisade_model::{Endpoint, NamedPort, Object, Profile, Protocol};
use std::collections::BTreeSet;
use std::net::IpAddr;

/// Reads a Pod. One that uses its node's network is the node: it is no endpoint.
pub(super) fn read(source: &Source<'_>, report: &mut Report) -> Option<Parts> {
    let root = &source.root;
    let mut endpoint = endpoint(source, root, report);
    let status = report.object(root, "status");
    let phase = status
        .as_ref()
        .and_then(|status| report.text(status, "phase"))
        .map(|(text, _)| text);
    let completed = matches!(phase, Some("Succeeded" | "Failed"));
    if let Some(status) = &status {
        let addresses = addresses(status, report);
        if !completed || faults::on(Fault::CompletedPodHoldsAddress) {
            endpoint.addresses = addresses;
        }
    }
    let mut parts = of(endpoint, root, report);
    parts.completed = completed;
    Some(parts)
}

/// The endpoint of a pod, or of a template whose metadata and spec are under `pod`; without
/// addresses.
pub(super) fn endpoint(source: &Source<'_>, pod: &Field<'_>, report: &mut Report) -> Endpoint {
    let spec = report.object(pod, "spec");
    let mut text = |key: &str| {
        let spec = spec.as_ref()?;
        let (text, _) = report.text(spec, key)?;
        (!text.is_empty()).then_some(text)
    };
    let node = text("nodeName");
    let account = text("serviceAccountName").or_else(|| text("serviceAccount"));
    Endpoint {
        id: source.id.clone(),
        host: false,
        labels: metadata::labels_of(pod, report),
        service_account: Some(account.unwrap_or("default").into()),
        node: node.map(Into::into),
        interface: None,
        addresses: Vec::new(),
        ports: spec.map_or_else(Vec::new, |spec| named_ports(&spec, report)),
        profiles: vec![Profile::ALLOW_ALL.into()],
        created: metadata::created(&source.root, report),
        owner: metadata::owner(&source.root, report),
        template: false,
    }
}

/// The endpoint as an object, or apart where the pod uses its node's network.
pub(super) fn of(endpoint: Endpoint, pod: &Field<'_>, report: &mut Report) -> Parts {
    if uses_host_network(pod, report) && !faults::on(Fault::HostNetworkPodHoldsAddress) {
        return Parts {
            on_host_network: Some(endpoint),
            ..Parts::default()
        };
    }
    Object::Endpoint(endpoint).into()
}

fn uses_host_network(pod: &Field<'_>, report: &mut Report) -> bool {
    let field = report
        .object(pod, "spec")
        .and_then(|spec| report.child(&spec, "hostNetwork"));
    field.is_some_and(|field| report.keep(field.as_bool()) == Some(true))
}

/// podIPs, and podIP, which is the first of them.
fn addresses(status: &Field<'_>, report: &mut Report) -> Vec<IpAddr> {
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
        match cidr::unreachable(address) {
            None => addresses.push(address),
            Some(what) => report.warn(
                &field,
                format!("{address} is {what}, which no pod can have: it is ignored"),
            ),
        }
    }
    addresses
}

/// The named ports of containers, then those of init containers that run beside them (restartPolicy
/// Always). Other init containers are gone before the pod serves.
fn named_ports(spec: &Field<'_>, report: &mut Report) -> Vec<NamedPort> {
    let mut containers = report.items(spec, "containers");
    for container in report.items(spec, "initContainers") {
        let policy = report.text(&container, "restartPolicy");
        let stays = policy.is_some_and(|(text, _)| text == "Always");
        if stays || faults::on(Fault::InitContainerPortsCounted) {
            containers.push(container);
        }
    }
    let mut ports = Vec::new();
    for container in &containers {
        for field in report.items(container, "ports") {
            let Some(port) = named_port(&field, report) else {
                continue;
            };
            if faults::on(Fault::NamedPortProtocolIgnored) {
                ports.extend(Protocol::WITH_PORTS.map(|protocol| NamedPort {
                    protocol,
                    ..port.clone()
                }));
            } else {
                ports.push(port);
            }
        }
    }
    ports
}

fn named_port(field: &Field<'_>, report: &mut Report) -> Option<NamedPort> {
    let (name, at) = report.text(field, "name")?;
    if name.is_empty() {
        return None;
    }
    report.errors(&at, names::port_name(name));
    let number = report.keep(field.require("containerPort"))?;
    let value = report.keep(number.as_i64())?;
    let port = rule::number(&number, value, report);
    let protocol = rule::protocol_or_empty(field, report);
    Some(NamedPort {
        name: name.into(),
        protocol: protocol?,
        port: port?,
    })
}
