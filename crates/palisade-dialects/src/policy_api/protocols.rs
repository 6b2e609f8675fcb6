//! The list `protocols` of ClusterNetworkPolicy.

use super::variant::PolicyVariant;
use super::{ports, schema};
use crate::port;
use crate::report::ObjectReport;
use palisade_manifest::Field;
use palisade_model::{PortRange, Protocol, TrafficMatch};

const KNOWN: &[&str] = &["tcp", "udp", "sctp", "destinationNamedPort"];
const KNOWN_PROTOCOL: &[&str] = &["destinationPort"];
const KNOWN_PORT: &[&str] = &["number", "range"];
const KNOWN_RANGE: &[&str] = &["start", "end"];
const MISPLACED: &[(&str, &str)] = &[
    (
        "destinationPort",
        "it belongs inside `tcp`, `udp` or `sctp`",
    ),
    ("portNumber", IN_PROTOCOL),
    ("portRange", IN_PROTOCOL),
    (
        "namedPort",
        "ClusterNetworkPolicy has `destinationNamedPort`",
    ),
];
const IN_PROTOCOL: &str = "ClusterNetworkPolicy has `tcp`, `udp` and `sctp` with `destinationPort`";
const MISPLACED_PROTOCOL: &[(&str, &str)] = &[
    ("number", "it belongs inside `destinationPort`"),
    ("range", "it belongs inside `destinationPort`"),
    (
        "destinationNamedPort",
        "it belongs beside `tcp`, `udp` and `sctp`",
    ),
];
const MISPLACED_PORT: &[(&str, &str)] = &[
    ("start", "it belongs inside `range`"),
    ("end", "it belongs inside `range`"),
];

/// Reads one item of `protocols`. `has_named_ports` is false if a peer of the rule has no named ports.
pub(super) fn read(
    field: &Field<'_>,
    has_named_ports: bool,
    report: &mut ObjectReport,
) -> Option<TrafficMatch> {
    let variant = PolicyVariant::Cluster;
    let (key, value) = schema::only_field(field, KNOWN, MISPLACED, report)?;
    let protocol = match key {
        "tcp" => Protocol::TCP,
        "udp" => Protocol::UDP,
        "sctp" => Protocol::SCTP,
        _ => return ports::named_port(&value, variant, has_named_ports, report),
    };
    let (_, port) = schema::only_field(&value, KNOWN_PROTOCOL, MISPLACED_PROTOCOL, report)?;
    let (key, value) = schema::only_field(&port, KNOWN_PORT, MISPLACED_PORT, report)?;
    let range = match key {
        "number" => {
            let number = report.ok(value.as_i64())?;
            PortRange::single(port::port_number(&value, number, report)?)
        }
        _ => {
            report.ok(value.as_map())?;
            report.check_fields(&value, KNOWN_RANGE, &[]);
            ports::range(&value, variant, report)?
        }
    };
    Some(ports::to_range(protocol, range))
}
