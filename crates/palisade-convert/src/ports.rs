//! Tests of protocols and ports as dialects have them: a protocol, and a destination port, range or name.
//!
//! Promises: what a dialect has no word for is a reason, never left out.

use crate::inexpressible::InexpressibleReason;
use crate::target::TargetDialect;
use palisade_model::{IcmpMatch, PortMatch, PortRange, PortSpec, Protocol, Str, TrafficMatch};

/// A destination port.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum DestinationPort {
    /// Any.
    Any,
    /// One of a range.
    Range(PortRange),
    /// The port of this name.
    Named(Str),
}

/// A test of protocol and destination port.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PlainTraffic {
    /// The protocol; `None` for any. With a port, any of those that have ports.
    pub(crate) protocol: Option<Protocol>,
    /// The port.
    pub(crate) port: DestinationPort,
    /// The message, of ICMP.
    pub(crate) icmp: Option<IcmpMatch>,
}

impl PlainTraffic {
    /// Whether it is all traffic.
    pub(crate) fn is_any(&self) -> bool {
        self.protocol.is_none() && self.port == DestinationPort::Any && self.icmp.is_none()
    }

    /// The tests that a test of the model is; none if it matches nothing.
    pub(crate) fn read(
        traffic: &TrafficMatch,
        target: TargetDialect,
    ) -> Result<Vec<Self>, InexpressibleReason> {
        if !traffic.source.is_any() {
            return Err(InexpressibleReason::SourcePorts(target));
        }
        let negates_ports = !traffic.destination.not.is_empty();
        if negates_ports || !traffic.not_protocols.is_empty() || traffic.not_icmp.is_some() {
            return Err(InexpressibleReason::Negation(target));
        }
        if traffic.family.is_some() {
            return Err(InexpressibleReason::IpVersion(target));
        }
        let ports = destination_ports(&traffic.destination, traffic.protocol.is_some());
        Ok(ports
            .into_iter()
            .map(|port| PlainTraffic {
                protocol: traffic.protocol,
                port,
                icmp: traffic.icmp,
            })
            .collect())
    }
}

/// The ports of a test; every port of a protocol is no test.
fn destination_ports(ports: &PortMatch, has_protocol: bool) -> Vec<DestinationPort> {
    let Some(specs) = &ports.any_of else {
        return vec![DestinationPort::Any];
    };
    specs
        .iter()
        .map(|spec| match spec {
            PortSpec::Range(range) if *range == PortRange::ALL && has_protocol => {
                DestinationPort::Any
            }
            PortSpec::Range(range) => DestinationPort::Range(*range),
            PortSpec::Named(name) => DestinationPort::Named(name.clone()),
        })
        .collect()
}

/// The name of a protocol that has ports.
pub(crate) fn port_protocol_name(protocol: Protocol) -> Option<&'static str> {
    match protocol {
        Protocol::TCP => Some("TCP"),
        Protocol::UDP => Some("UDP"),
        Protocol::SCTP => Some("SCTP"),
        _ => None,
    }
}
