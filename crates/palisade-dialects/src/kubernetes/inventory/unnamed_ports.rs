//! The ports without a name that the containers of a pod, or of the pods of a workload, declare.
//!
//! Policy needs the named ones only, which [`super::pod`] reads: a declaration opens and closes nothing. Never: an
//! error, since what is malformed was reported when the object was read.

use super::{pod, workload};
use crate::port;
use crate::report::ObjectReport;
use palisade_manifest::{Field, RawObject};
use palisade_model::Protocol;

/// The ports without a name that a pod or workload declares; none for an object of another kind.
#[must_use]
pub fn unnamed_ports(object: &RawObject) -> Vec<(Protocol, u16)> {
    let mut unused = ObjectReport::new(String::new());
    let root = object.field();
    let pod = match object.kind.as_str() {
        "Pod" => Some(root),
        _ => workload::template_of(&root),
    };
    let spec = pod.and_then(|pod| unused.object(&pod, "spec"));
    let Some(spec) = spec else {
        return Vec::new();
    };
    let containers = pod::serving_containers(&spec, &mut unused);
    let written = containers
        .iter()
        .flat_map(|container| unused.items(container, "ports"));
    let written: Vec<Field<'_>> = written.collect();
    let ports = written
        .iter()
        .filter_map(|port| unnamed_port(port, &mut unused));
    ports.collect()
}

fn unnamed_port(field: &Field<'_>, unused: &mut ObjectReport) -> Option<(Protocol, u16)> {
    if unused
        .text(field, "name")
        .is_some_and(|(name, _)| !name.is_empty())
    {
        return None;
    }
    let number = field.get("containerPort").ok()??;
    let number = port::port_number(&number, number.as_i64().ok()?, unused)?;
    Some((port::optional_protocol(field, unused)?, number))
}
