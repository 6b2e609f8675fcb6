//! Services as peers: the addresses of their EndpointSlices.

use super::label_key::LabelSource;
use super::peer_kind::{endpoint_slices, service_named};
use super::selector;
use crate::names;
use crate::report::ObjectReport;
use palisade_manifest::Field;
use palisade_model::{LabelKey, Peer, Selector};

const KNOWN: &[&str] = &["k8sService", "k8sServiceSelector"];
const KNOWN_SERVICE: &[&str] = &["serviceName", "namespace"];
const KNOWN_SELECTOR: &[&str] = &["selector", "namespace"];

/// An item of `toServices`.
pub(super) fn read(field: &Field<'_>, report: &mut ObjectReport) -> Option<Peer> {
    if !report.is_object(field) {
        return None;
    }
    report.check_fields(field, KNOWN, &[]);
    let named = report.child(field, "k8sService");
    let selected = report.child(field, "k8sServiceSelector");
    let slices = match (named, selected) {
        (Some(named), None) => service(&named, report)?,
        (None, Some(selected)) => services(&selected, report)?,
        (None, None) => {
            report.error(
                field,
                "one of k8sService and k8sServiceSelector is required; none is there",
            );
            return None;
        }
        (Some(_), Some(_)) => {
            report.error(
                field,
                "one of k8sService and k8sServiceSelector is required, not both",
            );
            return None;
        }
    };
    Some(Peer::from_selector(slices))
}

/// The namespace of Services; without one, all of them.
fn namespace<'a>(parent: &Field<'a>, report: &mut ObjectReport) -> Option<&'a str> {
    let (name, at) = report.text(parent, "namespace")?;
    if name.is_empty() {
        return None;
    }
    report.errors(&at, names::dns_label_errors(name));
    Some(name)
}

/// A Service by its name.
fn service(field: &Field<'_>, report: &mut ObjectReport) -> Option<Selector> {
    report.ok(field.as_map())?;
    report.check_fields(field, KNOWN_SERVICE, &[]);
    let namespace = namespace(field, report);
    let Some((name, at)) = report.text(field, "serviceName") else {
        report.error(field, "`serviceName` is required, but missing");
        return None;
    };
    report.errors(&at, names::dns_label_errors(name));
    Some(service_named(name, namespace))
}

/// Services by their labels, which Kubernetes copies to their EndpointSlices.
fn services(field: &Field<'_>, report: &mut ObjectReport) -> Option<Selector> {
    report.ok(field.as_map())?;
    report.check_fields(field, KNOWN_SELECTOR, &[]);
    let namespace = namespace(field, report);
    let Some(at) = report.child(field, "selector") else {
        report.error(field, "`selector` is required, but missing");
        return None;
    };
    let mut tests = Vec::new();
    for requirement in selector::read(&at, report) {
        let test = match requirement.key.source {
            LabelSource::Any | LabelSource::Kubernetes => {
                let key = LabelKey::own(requirement.key.name);
                requirement.test.to_selector(key)
            }
            _ if requirement.test.holds_if_absent() => Selector::all(),
            _ => Selector::none(),
        };
        tests.push(test);
    }
    Some(endpoint_slices(namespace, Selector::and(tests)))
}
