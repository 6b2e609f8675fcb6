//! EndpointSlices: the addresses and the ports of the endpoints of a Service.
//!
//! Promises: an endpoint counts while it is ready, and while it ends, since connections to it go on then.

use crate::kind_reader::ManifestObject;
use crate::metadata;
use crate::network_set_kind::unready_endpoints_id;
use crate::port::{optional_protocol, port_number};
use crate::report::ObjectReport;
use crate::service_ports;
use palisade_manifest::Field;
use palisade_model::{NetworkSet, NetworkSetKind, Object, Prefix, Protocol};
use std::collections::BTreeSet;

/// Lowers an EndpointSlice: the addresses that serve, and as another set those that do not, if there are any. One of
/// names has no addresses.
pub(in crate::kubernetes) fn read(
    object: &ManifestObject<'_>,
    report: &mut ObjectReport,
) -> Vec<Object> {
    let root = &object.root;
    let kind = report.text(root, "addressType").map(|(text, _)| text);
    let (mut serving, mut others) = (BTreeSet::new(), BTreeSet::new());
    if kind != Some("FQDN") {
        for endpoint in report.items(root, "endpoints") {
            let nets = if is_served(&endpoint, report) {
                &mut serving
            } else {
                &mut others
            };
            for field in report.items(&endpoint, "addresses") {
                let text = report.ok(field.as_str());
                let address = text.and_then(|text| report.address(&field, text));
                nets.extend(address.map(Prefix::host));
            }
        }
    }
    let labels = metadata::metadata_labels(root, report);
    let ports = ports(root, report);
    let set = |id, kind, nets: BTreeSet<Prefix>| {
        let mut set = NetworkSet {
            id,
            kind,
            labels: labels.clone(),
            nets: nets.into_iter().collect(),
        };
        service_ports::add_label(&mut set, &ports);
        Object::NetworkSet(set)
    };
    let unready = (!others.is_empty()).then(|| {
        let id = unready_endpoints_id(&object.id);
        set(id, NetworkSetKind::UnreadyEndpoints, others)
    });
    let serving = set(object.id.clone(), NetworkSetKind::EndpointSlice, serving);
    [serving].into_iter().chain(unready).collect()
}

/// The ports of the endpoints; one without a number stands for none.
fn ports(root: &Field<'_>, report: &mut ObjectReport) -> BTreeSet<(Protocol, u16)> {
    let mut ports = BTreeSet::new();
    for field in report.items(root, "ports") {
        let Some(at) = report.child(&field, "port") else {
            continue;
        };
        let number = report.ok(at.as_i64());
        let number = number.and_then(|number| port_number(&at, number, report));
        ports.extend(optional_protocol(&field, report).zip(number));
    }
    ports
}

/// Whether there are connections to an endpoint: it is ready, which is also meant where nothing is said, or it ends.
fn is_served(endpoint: &Field<'_>, report: &mut ObjectReport) -> bool {
    let Some(conditions) = report.object(endpoint, "conditions") else {
        return true;
    };
    let mut condition = |key| {
        let field = report.child(&conditions, key)?;
        report.ok(field.as_bool())
    };
    let is_ready = condition("ready") != Some(false);
    let is_ending = condition("terminating") == Some(true);
    is_ready || is_ending
}
