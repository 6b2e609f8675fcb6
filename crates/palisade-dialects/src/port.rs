//! Port numbers and protocols, as policies and inventory write them.

use crate::report::ObjectReport;
use palisade_manifest::{Field, quote};
use palisade_model::Protocol;

/// A port number.
pub(crate) fn port_number(field: &Field<'_>, value: i64, report: &mut ObjectReport) -> Option<u16> {
    match u16::try_from(value) {
        Ok(port) if port > 0 => Some(port),
        _ => {
            report.error(field, format!("{value} is not a port: 1 to 65535"));
            None
        }
    }
}

/// The field `protocol` of a pod or Service, where an empty one counts as missing.
pub(crate) fn optional_protocol(parent: &Field<'_>, report: &mut ObjectReport) -> Option<Protocol> {
    let written = parent.get("protocol").ok().flatten();
    if written.is_some_and(|field| field.node.as_str() == Some("")) {
        Some(Protocol::TCP)
    } else {
        protocol(parent, Protocol::TCP, report)
    }
}

/// The field `protocol`, or the default where it is missing.
pub(crate) fn protocol(
    parent: &Field<'_>,
    default: Protocol,
    report: &mut ObjectReport,
) -> Option<Protocol> {
    let Some(field) = report.child(parent, "protocol") else {
        return Some(default);
    };
    match report.ok(field.as_str())? {
        "TCP" => Some(Protocol::TCP),
        "UDP" => Some(Protocol::UDP),
        "SCTP" => Some(Protocol::SCTP),
        other => {
            report.error(
                &field,
                format!(
                    "{} is not a supported protocol: use TCP, UDP or SCTP",
                    quote(other)
                ),
            );
            None
        }
    }
}
