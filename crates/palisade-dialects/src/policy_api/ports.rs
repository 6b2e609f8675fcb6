//! The list `ports` of AdminNetworkPolicy and BaselineAdminNetworkPolicy, and ports of all kinds.

use super::schema;
use super::variant::PolicyVariant;
use crate::names;
use crate::port;
use crate::report::ObjectReport;
use palisade_manifest::Field;
use palisade_model::{PortMatch, PortRange, PortSpec, Protocol, TrafficMatch};

const KNOWN: &[&str] = &["portNumber", "portRange", "namedPort"];
const KNOWN_NUMBER: &[&str] = &["protocol", "port"];
const KNOWN_RANGE: &[&str] = &["protocol", "start", "end"];
const MISPLACED: &[(&str, &str)] = &[
    ("port", "it belongs inside `portNumber`"),
    ("protocol", "it belongs inside `portNumber` or `portRange`"),
    ("start", "it belongs inside `portRange`"),
    ("end", "it belongs inside `portRange`"),
];

/// Reads one item of `ports`. `has_named_ports` is false if a peer of the rule has no named ports.
pub(super) fn read(
    field: &Field<'_>,
    variant: PolicyVariant,
    has_named_ports: bool,
    report: &mut ObjectReport,
) -> Option<TrafficMatch> {
    let (key, value) = schema::only_field(field, KNOWN, MISPLACED, report)?;
    match key {
        "portNumber" => {
            report.ok(value.as_map())?;
            report.check_fields(&value, KNOWN_NUMBER, &[]);
            let protocol = port::protocol(&value, Protocol::TCP, report);
            let (number, at) = schema::required_number(&value, "port", report)?;
            let number = port::port_number(&at, number, report)?;
            Some(to_range(protocol?, PortRange::single(number)))
        }
        "portRange" => {
            report.ok(value.as_map())?;
            report.check_fields(&value, KNOWN_RANGE, &[]);
            let protocol = port::protocol(&value, Protocol::TCP, report);
            let range = range(&value, variant, report)?;
            Some(to_range(protocol?, range))
        }
        _ => named_port(&value, variant, has_named_ports, report),
    }
}

/// Destination ports of one protocol.
pub(super) fn to_range(protocol: Protocol, range: PortRange) -> TrafficMatch {
    TrafficMatch::to_port(protocol, PortMatch::one_of([PortSpec::Range(range)]))
}

/// A range of ports, with `start` and `end`.
pub(super) fn range(
    field: &Field<'_>,
    variant: PolicyVariant,
    report: &mut ObjectReport,
) -> Option<PortRange> {
    let start = schema::required_number(field, "start", report);
    let end = schema::required_number(field, "end", report);
    let ((start, start_at), (end, end_at)) = (start?, end?);
    let first = port::port_number(&start_at, start, report);
    let last = port::port_number(&end_at, end, report);
    let (first, last) = (first?, last?);
    // The schema of v1alpha2 refuses a range of one port; that of v1alpha1 only says that there is none.
    match (first.cmp(&last), variant) {
        (std::cmp::Ordering::Less, _) => {}
        (std::cmp::Ordering::Equal, PolicyVariant::Admin)
        | (std::cmp::Ordering::Equal, PolicyVariant::BaselineAdmin) => {
            report.warn(
                field,
                format!("start and end are both {first}: use `portNumber` for one port"),
            );
        }
        _ => {
            report.error(field, format!("start {first} is not below end {last}"));
            return None;
        }
    }
    PortRange::new(first, last)
}

/// A port name, which stands for the port of that name of whatever protocol.
pub(super) fn named_port(
    field: &Field<'_>,
    variant: PolicyVariant,
    has_named_ports: bool,
    report: &mut ObjectReport,
) -> Option<TrafficMatch> {
    let name = report.ok(field.as_str())?;
    if !has_named_ports {
        let peers = match variant {
            PolicyVariant::BaselineAdmin => "networks and nodes",
            _ => "networks, nodes and domain names",
        };
        report.error(
            field,
            format!(
                "{peers} have no named ports: use port numbers, or another rule for these peers"
            ),
        );
        return None;
    }
    if name.is_empty() {
        report.error(field, "a port name must not be empty");
        return None;
    }
    // The API server accepts any text here, but not in the ports of a pod.
    for reason in names::port_name_errors(name) {
        report.warn(field, format!("no pod can have such a port: {reason}"));
    }
    Some(TrafficMatch {
        destination: PortMatch::one_of([PortSpec::Named(name.into())]),
        ..TrafficMatch::any()
    })
}
