//! Services: the addresses and ports, and the pods that they forward to.

use crate::kind_reader::ManifestObject;
use crate::metadata;
use crate::names;
use crate::port;
use crate::report::ObjectReport;
use palisade_manifest::{Field, IntOrString};
use palisade_model::{Labels, Object, PortRange, PortSpec, Service, ServicePort};
use std::collections::BTreeSet;
use std::net::IpAddr;

/// Lowers a Service.
pub(in crate::kubernetes) fn read(
    object: &ManifestObject<'_>,
    report: &mut ObjectReport,
) -> Option<Object> {
    let mut service = Service {
        namespace: object.namespace(),
        name: object.id.name.clone(),
        selector: Labels::new(),
        addresses: Vec::new(),
        ports: Vec::new(),
        headless: false,
    };
    if let Some(spec) = report.object(&object.root, "spec") {
        service.selector = metadata::labels(&spec, "selector", report);
        service.addresses = addresses(&spec, report);
        let address = report.text(&spec, "clusterIP");
        service.headless = address.is_some_and(|(text, _)| text == "None");
        for field in report.items(&spec, "ports") {
            service.ports.extend(port(&field, report));
        }
    }
    Some(Object::Service(service))
}

/// The cluster IPs: clusterIPs, and clusterIP, which is the first of them. A headless service has `None`.
fn addresses(spec: &Field<'_>, report: &mut ObjectReport) -> Vec<IpAddr> {
    let mut fields = report.items(spec, "clusterIPs");
    fields.extend(report.child(spec, "clusterIP"));
    let (mut addresses, mut seen) = (Vec::new(), BTreeSet::new());
    for field in fields {
        match report.ok(field.as_str()) {
            None | Some("" | "None") => {}
            Some(text) => {
                let address = report.address(&field, text);
                addresses.extend(address.filter(|address| seen.insert(*address)));
            }
        }
    }
    addresses
}

fn port(field: &Field<'_>, report: &mut ObjectReport) -> Option<ServicePort> {
    report.ok(field.as_map())?;
    let name = report.text(field, "name").map(|(text, _)| text);
    let protocol = port::optional_protocol(field, report);
    let at = report.ok(field.require("port"))?;
    let number = report.ok(at.as_i64())?;
    let port = port::port_number(&at, number, report)?;
    let target = match report.child(field, "targetPort") {
        None => PortSpec::Range(PortRange::single(port)),
        Some(at) => match report.ok(at.as_int_or_string())? {
            IntOrString::Int(0) | IntOrString::String("") => {
                PortSpec::Range(PortRange::single(port))
            }
            IntOrString::Int(number) => {
                PortSpec::Range(PortRange::single(port::port_number(&at, number, report)?))
            }
            IntOrString::String(name) => {
                report.errors(&at, names::port_name_errors(name));
                PortSpec::Named(name.into())
            }
        },
    };
    Some(ServicePort {
        name: name.filter(|name| !name.is_empty()).map(Into::into),
        protocol: protocol?,
        port,
        target,
    })
}
