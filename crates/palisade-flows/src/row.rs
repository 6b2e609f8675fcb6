//! A row of the record: what flows have in common, by numbers of a dictionary, and their counts.

use crate::dictionary::EntryNumber;
use palisade_api::{FlowIcmp, FlowTraffic, ProtocolName};
use palisade_model::Protocol;
use std::hash::{Hash, Hasher};

/// The number of [`ProtocolName::Other`], which is no protocol: reserved by IANA.
const OTHER: u8 = 255;

/// What the protocol has beside its number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum RowPort {
    /// Nothing, or it was left out.
    #[default]
    Absent,
    /// A destination port.
    Port(u16),
    /// Type and code of ICMP.
    Icmp(u8, u8),
}

impl RowPort {
    /// The port of a destination, or else the ICMP header.
    pub(crate) fn new(port: Option<u16>, icmp: Option<FlowIcmp>) -> Self {
        match (port, icmp) {
            (Some(port), _) => RowPort::Port(port),
            (None, Some(icmp)) => RowPort::Icmp(icmp.kind, icmp.code),
            (None, None) => RowPort::Absent,
        }
    }
}

/// What the flows of a row have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RowKey {
    /// The text of the source.
    pub(crate) source: EntryNumber,
    /// The text of the destination.
    pub(crate) destination: EntryNumber,
    /// The IP protocol.
    pub(crate) protocol: u8,
    /// The destination port, or the ICMP header.
    pub(crate) port: RowPort,
    /// Whether it is a row of denied packets.
    pub(crate) is_denied: bool,
    /// The text of what decided at the source.
    pub(crate) egress: EntryNumber,
    /// The text of what decided at the destination.
    pub(crate) ingress: EntryNumber,
}

impl Hash for RowKey {
    /// In three numbers, since a query hashes each row.
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        let pair = |high: u32, low: u32| u64::from(high) << 32 | u64::from(low);
        let port = match self.port {
            RowPort::Absent => 0,
            RowPort::Port(port) => 1 << 16 | u32::from(port),
            RowPort::Icmp(kind, code) => 2 << 16 | u32::from(u16::from_le_bytes([kind, code])),
        };
        let verdict = u32::from(self.protocol) << 1 | u32::from(self.is_denied);
        hasher.write_u64(pair(self.source, self.destination));
        hasher.write_u64(pair(self.egress, self.ingress));
        hasher.write_u64(pair(verdict, port));
    }
}

impl RowKey {
    /// Changes the number of every text.
    pub(crate) fn map_texts(&mut self, mut map: impl FnMut(EntryNumber) -> EntryNumber) {
        for number in [
            &mut self.source,
            &mut self.destination,
            &mut self.egress,
            &mut self.ingress,
        ] {
            *number = map(*number);
        }
    }
}

/// The counts of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RowCounts {
    /// When the first one was seen, in seconds since the epoch.
    pub(crate) first: u64,
    /// When the last one was seen.
    pub(crate) last: u64,
    /// The number of flows that began, or of denied packets.
    pub(crate) count: u64,
    /// What the flows that have ended carried.
    pub(crate) traffic: Option<FlowTraffic>,
}

impl RowCounts {
    /// Nothing, seen at this time.
    pub(crate) fn at(time: u64) -> Self {
        RowCounts {
            first: time,
            last: time,
            count: 0,
            traffic: None,
        }
    }

    /// Adds others.
    pub(crate) fn add(&mut self, other: &RowCounts) {
        self.first = self.first.min(other.first);
        self.last = self.last.max(other.last);
        self.count = self.count.saturating_add(other.count);
        if let Some(traffic) = &other.traffic {
            add_traffic(&mut self.traffic, traffic);
        }
    }
}

fn add_traffic(sum: &mut Option<FlowTraffic>, other: &FlowTraffic) {
    let none = FlowTraffic {
        packets_sent: 0,
        bytes_sent: 0,
        packets_received: 0,
        bytes_received: 0,
    };
    let sum = sum.get_or_insert(none);
    for (sum, other) in [
        (&mut sum.packets_sent, other.packets_sent),
        (&mut sum.bytes_sent, other.bytes_sent),
        (&mut sum.packets_received, other.packets_received),
        (&mut sum.bytes_received, other.bytes_received),
    ] {
        *sum = sum.saturating_add(other);
    }
}

/// The number of a protocol.
pub(crate) fn protocol_number(name: ProtocolName) -> u8 {
    match name {
        ProtocolName::Tcp => Protocol::TCP.0,
        ProtocolName::Udp => Protocol::UDP.0,
        ProtocolName::Sctp => Protocol::SCTP.0,
        ProtocolName::Icmp => Protocol::ICMP.0,
        ProtocolName::Icmpv6 => Protocol::ICMPV6.0,
        ProtocolName::Other => OTHER,
        ProtocolName::Number(number) => number,
    }
}

/// The protocol of a number.
pub(crate) fn protocol_name(number: u8) -> ProtocolName {
    match number {
        OTHER => ProtocolName::Other,
        number => Protocol(number).into(),
    }
}
