//! The traffic of a query: protocol, ports, ICMP type and code.

use palisade_api::ExplainQuery;
use palisade_model::{Endpoint, Family, L4, PreDnat, Protocol};
use std::net::{IpAddr, SocketAddr};

/// The default source port of a query: the first dynamic port.
const DEFAULT_SOURCE_PORT: u16 = 49152;

/// Why the traffic of a query is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TrafficError {
    /// Neither a port nor a protocol is given.
    #[error("no traffic given: specify a port (80/TCP) or a protocol (ICMP)")]
    Unspecified,
    /// A port for a protocol without ports.
    #[error("port {port:?}: {protocol} has no ports that policy can test")]
    NoPorts {
        /// The port as written.
        port: String,
        /// The protocol.
        protocol: Protocol,
    },
    /// A protocol with ports, but no port is given.
    #[error("{protocol} needs a port: write it as PORT/{protocol}")]
    NeedsPort {
        /// The protocol.
        protocol: Protocol,
    },
    /// The protocol does not exist.
    #[error("protocol {0:?} is neither TCP, UDP, SCTP, ICMP, ICMPv6 nor a number from 0 to 255")]
    UnknownProtocol(String),
    /// The port is neither a number nor a name.
    #[error("port {0:?} is neither a number from 0 to 65535 nor the name of a port")]
    BadPort(String),
    /// The ICMP type is invalid.
    #[error("ICMP type {0:?}: write it as TYPE or TYPE/CODE, each from 0 to 255")]
    BadIcmp(String),
    /// The destination before NAT is invalid.
    #[error(
        "original destination {0:?}: write it as ADDRESS:PORT, [ADDRESS]:PORT or ADDRESS{hint}",
        hint = if *.1 { "" } else { "; the protocol has no ports" }
    )]
    BadOriginalDestination(String, bool),
    /// No flow has the family of the destination before NAT.
    #[error("original destination {0}: the connection has no addresses of this family")]
    OriginalFamily(IpAddr),
    /// An ICMP type is given for another protocol.
    #[error("an ICMP type was given, but {0} is not ICMP")]
    NotIcmp(Protocol),
}

/// A destination port as written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum QueryPort {
    Number(u16),
    /// A named port of the destination endpoint.
    Named(String),
}

impl QueryPort {
    /// The port number at an endpoint.
    pub(super) fn resolve(&self, endpoint: Option<&Endpoint>, protocol: Protocol) -> Option<u16> {
        match self {
            QueryPort::Number(port) => Some(*port),
            QueryPort::Named(name) => endpoint.and_then(|e| e.named_port(name, protocol)),
        }
    }
}

/// The traffic of a query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct QueryTraffic {
    pub(super) protocol: Protocol,
    pub(super) port: Option<QueryPort>,
    source_port: u16,
    icmp: Option<(u8, u8)>,
    original_destination: Option<(IpAddr, Option<u16>)>,
}

impl QueryTraffic {
    pub(super) fn from_query(query: &ExplainQuery) -> Result<Self, TrafficError> {
        let (port, protocol) = match (&query.port, &query.protocol) {
            (None, None) => return Err(TrafficError::Unspecified),
            (None, Some(protocol)) => (None, parse_protocol(protocol)?),
            (Some(port), given) => {
                let (port, of_port) = match port.split_once('/') {
                    Some((port, protocol)) => (port, Some(protocol)),
                    None => (port.as_str(), given.as_deref()),
                };
                let protocol = parse_protocol(of_port.unwrap_or("TCP"))?;
                if !protocol.has_ports() {
                    let port = port.to_owned();
                    return Err(TrafficError::NoPorts { port, protocol });
                }
                (Some(read_port(port)?), protocol)
            }
        };
        if port.is_none() && protocol.has_ports() {
            return Err(TrafficError::NeedsPort { protocol });
        }
        let icmp = query.icmp_type.as_deref().map(read_icmp).transpose()?;
        if icmp.is_some() && !protocol.is_icmp() {
            return Err(TrafficError::NotIcmp(protocol));
        }
        let original = query.original_destination.as_deref();
        let original_destination = original
            .map(|text| {
                let original = read_original_destination(text, protocol.has_ports());
                original.ok_or_else(|| {
                    TrafficError::BadOriginalDestination(text.to_owned(), protocol.has_ports())
                })
            })
            .transpose()?;
        Ok(QueryTraffic {
            protocol,
            port,
            source_port: query.source_port.unwrap_or(DEFAULT_SOURCE_PORT),
            icmp,
            original_destination,
        })
    }

    /// The destination before NAT of a packet to a port; `None` for a packet that is not translated.
    pub(super) fn pre_dnat(&self, port: Option<u16>) -> Option<PreDnat> {
        let (destination, sent_to) = self.original_destination?;
        Some(PreDnat {
            destination,
            port: sent_to.or(port).unwrap_or_default(),
        })
    }

    /// The family of a protocol that exists in only one (ICMP, ICMPv6).
    pub(super) fn family(&self) -> Option<Family> {
        match self.protocol {
            Protocol::ICMP => Some(Family::V4),
            Protocol::ICMPV6 => Some(Family::V6),
            _ => None,
        }
    }

    /// The transport header of the first packet, with this destination port if the protocol has ports.
    pub(super) fn l4(&self, destination: Option<u16>) -> L4 {
        const ECHO_REQUEST: u8 = 8;
        const ECHO_REQUEST_V6: u8 = 128;
        if let Some(destination) = destination {
            return L4::Ports {
                source: self.source_port,
                destination,
            };
        }
        let echo = match self.protocol {
            Protocol::ICMP => Some((ECHO_REQUEST, 0)),
            Protocol::ICMPV6 => Some((ECHO_REQUEST_V6, 0)),
            _ => None,
        };
        match self.icmp.or(echo) {
            Some((kind, code)) => L4::Icmp { kind, code },
            None => L4::None,
        }
    }
}

/// An address with or without a port, which only some protocols have.
fn read_original_destination(text: &str, has_ports: bool) -> Option<(IpAddr, Option<u16>)> {
    let with_port = || text.parse::<SocketAddr>().ok().filter(|_| has_ports);
    match text.parse() {
        Ok(address) => Some((address, None)),
        Err(_) => with_port().map(|sent_to| (sent_to.ip(), Some(sent_to.port()))),
    }
}

fn parse_protocol(text: &str) -> Result<Protocol, TrafficError> {
    Protocol::parse(text).ok_or_else(|| TrafficError::UnknownProtocol(text.to_owned()))
}

fn read_port(text: &str) -> Result<QueryPort, TrafficError> {
    let digits = text.bytes().all(|b| b.is_ascii_digit());
    match text.parse() {
        Ok(port) if digits => Ok(QueryPort::Number(port)),
        _ if text.is_empty() || digits => Err(TrafficError::BadPort(text.to_owned())),
        _ => Ok(QueryPort::Named(text.to_owned())),
    }
}

fn read_icmp(text: &str) -> Result<(u8, u8), TrafficError> {
    let (kind, code) = text.split_once('/').unwrap_or((text, "0"));
    match (kind.parse(), code.parse()) {
        (Ok(kind), Ok(code)) => Ok((kind, code)),
        _ => Err(TrafficError::BadIcmp(text.to_owned())),
    }
}
