//! Services: which pods stand behind which addresses and ports.

use super::{Parts, Source, metadata, rule};
use crate::names;
use crate::report::Report;
use palisade_manifest::{Field, IntOrString};
use palisade_model::{Labels, Object, PortRange, PortSpec, Service, ServicePort};
use std::collections::BTreeSet;
use std::net::IpAddr;

/// Reads a Service.
pub(super) fn read(source: &Source<'_>, report: &mut Report) -> Option<Parts> {
    let mut service = Service {
        namespace: source.namespace(),
        name: source.id.name.clone(),
        selector: Labels::new(),
        addresses: Vec::new(),
        ports: Vec::new(),
    };
    if let Some(spec) = report.object(&source.root, "spec") {
        service.selector = metadata::labels(&spec, "selector", report);
        service.addresses = addresses(&spec, report);
        for field in report.items(&spec, "ports") {
            service.ports.extend(port(&field, report));
        }
    }
    Some(Object::Service(service).into())
}

/// The virtual addresses: clusterIPs, and clusterIP, which is the first of them. A headless service
/// says `None`.
fn addresses(spec: &Field<'_>, report: &mut Report) -> Vec<IpAddr> {
    let mut fields = report.items(spec, "clusterIPs");
    fields.extend(report.child(spec, "clusterIP"));
    let (mut addresses, mut seen) = (Vec::new(), BTreeSet::new());
    for field in fields {
        match report.keep(field.as_str()) {
            None | Some("" | "None") => {}
            Some(text) => {
                let address = report.address(&field, text);
                addresses.extend(address.filter(|address| seen.insert(*address)));
            }
        }
    }
    addresses
}

fn port(field: &Field<'_>, report: &mut Report) -> Option<ServicePort> {
    report.keep(field.as_map())?;
    let name = report.text(field, "name").map(|(text, _)| text);
    let protocol = rule::protocol_or_empty(field, report);
    let at = report.keep(field.require("port"))?;
    let number = report.keep(at.as_i64())?;
    let port = rule::number(&at, number, report)?;
    let target = match report.child(field, "targetPort") {
        None => PortSpec::Range(PortRange::single(port)),
        Some(at) => match report.keep(at.as_int_or_string())? {
            IntOrString::Int(0) | IntOrString::String("") => {
                PortSpec::Range(PortRange::single(port))
            }
            IntOrString::Int(number) => {
                PortSpec::Range(PortRange::single(rule::number(&at, number, report)?))
            }
            IntOrString::String(name) => {
                report.errors(&at, names::port_name(name));
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
