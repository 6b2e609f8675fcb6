//! Protocols, ports and messages of ICMP in Calico's rules.

use crate::faults::DialectFault;
use crate::names;
use crate::port::port_number;
use crate::report::ObjectReport;
use palisade_manifest::{Field, IntOrString, quote};
use palisade_model::{IcmpMatch, NamedPort, PortMatch, PortRange, PortSpec, Protocol};

/// The maximum number of ports in a list.
const MAX_PORTS: usize = 50;
const UDP_LITE: Protocol = Protocol(136);
/// The protocols that have a name.
const NAMED: [(&str, Protocol); 6] = [
    ("TCP", Protocol::TCP),
    ("UDP", Protocol::UDP),
    ("ICMP", Protocol::ICMP),
    ("ICMPv6", Protocol::ICMPV6),
    ("SCTP", Protocol::SCTP),
    ("UDPLite", UDP_LITE),
];

/// A protocol by name or number.
pub(super) fn read(rule: &Field<'_>, key: &str, report: &mut ObjectReport) -> Option<Protocol> {
    let field = report.child(rule, key)?;
    let number = match report.ok(field.as_int_or_string())? {
        IntOrString::Int(number) => u8::try_from(number).ok(),
        IntOrString::String(text) => {
            let is_named = |(name, _): &&(&str, Protocol)| name.eq_ignore_ascii_case(text);
            if let Some((_, protocol)) = NAMED.iter().find(is_named) {
                return Some(*protocol);
            }
            let is_plain = !text.starts_with(['0', '+']);
            text.parse().ok().filter(|_| is_plain)
        }
    };
    let protocol = number.filter(|number| *number > 0).map(Protocol);
    if protocol.is_none() {
        let shown = field.node.as_str().map_or_else(|| field.describe(), quote);
        report.error(
            &field,
            format!(
                "{shown} is not a protocol: use TCP, UDP, SCTP, ICMP, ICMPv6, UDPLite or a number from 1 to 255"
            ),
        );
    }
    protocol
}

/// The ports of an entity: `ports` and `notPorts`.
pub(super) fn ports(entity: &Field<'_>, report: &mut ObjectReport) -> PortMatch {
    let listed = list(entity, "ports", report);
    let mut excluded = list(entity, "notPorts", report);
    if DialectFault::NotPortsIgnored.is_injected() {
        excluded.clear();
    }
    PortMatch {
        any_of: (!listed.is_empty()).then_some(listed),
        not: excluded,
    }
}

fn list(entity: &Field<'_>, key: &str, report: &mut ObjectReport) -> Vec<PortSpec> {
    let items = report.items(entity, key);
    if items.len() > MAX_PORTS
        && let Some(at) = report.child(entity, key)
    {
        report.error(
            &at,
            format!(
                "too many ports: {}, the maximum is {MAX_PORTS}",
                items.len()
            ),
        );
    }
    let ports = items.iter().filter_map(|item| port(item, report));
    ports.collect()
}

/// A port number, a range `first:last`, or a name.
fn port(field: &Field<'_>, report: &mut ObjectReport) -> Option<PortSpec> {
    let single = |number: u16| PortSpec::Range(PortRange::single(number));
    let text = match report.ok(field.as_int_or_string())? {
        IntOrString::Int(number) => {
            return port_number(field, number, report).map(single);
        }
        IntOrString::String(text) => text,
    };
    let number = |text: &str| {
        let digits = text.bytes().all(|b| b.is_ascii_digit());
        let number = text.parse::<u16>().ok().filter(|number| *number > 0);
        number.filter(|_| digits)
    };
    if text.bytes().all(|b| b.is_ascii_digit()) && !text.is_empty() {
        let port = number(text);
        if port.is_none() {
            report.error(field, format!("{} is not a port: 1 to 65535", quote(text)));
        }
        return port.map(single);
    }
    if let Some((first, last)) = text.split_once(':') {
        let range = number(first).zip(number(last));
        let range = range.and_then(|(first, last)| PortRange::new(first, last));
        if range.is_none() {
            report.error(
                field,
                format!(
                    "{} is not a range of ports: first:last, each 1 to 65535, the first not above the last",
                    quote(text)
                ),
            );
        }
        return range.map(PortSpec::Range);
    }
    let errors = names::calico_port_name_errors(text);
    let is_name = errors.is_empty();
    if is_name && text.bytes().all(|b| b.is_ascii_digit() || b == b'-') {
        report.warn(
            field,
            format!(
                "{} is the name of a port: a range is written first:last",
                quote(text)
            ),
        );
    }
    report.errors(field, errors);
    is_name.then(|| PortSpec::Named(text.into()))
}

/// A message of ICMP; `None` if the field is absent or names no type.
pub(super) fn icmp(rule: &Field<'_>, key: &str, report: &mut ObjectReport) -> Option<IcmpMatch> {
    let field = report.object(rule, key)?;
    report.check_fields(&field, &["type", "code"], &[]);
    let kind = number(&field, "type", 254, report);
    let code = number(&field, "code", 255, report);
    if kind.is_none()
        && report.child(&field, "type").is_none()
        && let Some(at) = report.child(&field, "code")
    {
        report.error(&at, "a code needs a type beside it");
    }
    Some(IcmpMatch { kind: kind?, code })
}

fn number(parent: &Field<'_>, key: &str, most: u8, report: &mut ObjectReport) -> Option<u8> {
    let field = report.child(parent, key)?;
    let number = report.ok(field.as_i64())?;
    let value = u8::try_from(number).ok().filter(|value| *value <= most);
    if value.is_none() {
        report.error(&field, format!("{number} is out of range: 0 to {most}"));
    }
    value
}

/// The named ports of an endpoint. One without a name is only for the host.
pub(super) fn endpoint_ports(spec: &Field<'_>, report: &mut ObjectReport) -> Vec<NamedPort> {
    let mut ports = Vec::new();
    for field in report.items(spec, "ports") {
        if !report.is_object(&field) {
            continue;
        }
        let name = report.text(&field, "name");
        let name = name.filter(|(name, _)| !name.is_empty());
        if name.is_none() && report.child(&field, "hostPort").is_none() {
            report.error(&field, "`name` is required, but missing");
        }
        let protocol = read(&field, "protocol", report);
        for key in ["protocol", "port"] {
            if report.child(&field, key).is_none() {
                report.error(&field, format!("`{key}` is required, but missing"));
            }
        }
        if let (Some(protocol), Some(at)) = (protocol, report.child(&field, "protocol"))
            && !protocol.has_ports()
        {
            report.error(
                &at,
                format!("{protocol} has no ports: use TCP, UDP or SCTP"),
            );
        }
        let number = report.child(&field, "port");
        let number = number.and_then(|at| {
            let value = report.ok(at.as_i64())?;
            port_number(&at, value, report)
        });
        if let Some((name, at)) = name {
            report.errors(&at, names::port_name_errors(name));
            if let (Some(protocol), Some(port)) = (protocol, number) {
                ports.push(NamedPort {
                    name: name.into(),
                    protocol,
                    port,
                });
            }
        }
    }
    ports
}
