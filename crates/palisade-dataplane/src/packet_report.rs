//! Packets that a dataplane reports: denied, dropped, or asked for by a Log rule.
//!
//! Promises: a sighting says what the kernel knew, and why it was reported; which rule it was is
//! found by judging its first packet again. What was not reported is counted by the reason that it
//! would have had.
//!
//! Never: judges.

use std::collections::BTreeMap;
use std::time::Duration;

use palisade_model::{Direction, L4};
use palisade_tables::Packet;

use crate::driver::Error;

/// Why a packet is reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ReportReason {
    /// One of its judgements denied it.
    Denied,
    /// Its judgement in this direction allowed it, and a Log rule was met on the way.
    Logged(Direction),
    /// Dropped: sent from an address that is not the endpoint's own.
    Spoofed,
    /// Dropped: it came by an interface with our prefix that nobody announced.
    UnknownInterface,
    /// Dropped: it fits no connection and begins none.
    Invalid,
    /// Dropped: nothing judges the address that it has at an interface of ours.
    NoPoint,
}

impl ReportReason {
    /// Its name, as [`Counters::by_drop_reason`](crate::Counters::by_drop_reason) has those of drops.
    pub fn name(self) -> &'static str {
        match self {
            ReportReason::Denied => "denied",
            ReportReason::Logged(_) => "logged",
            ReportReason::Spoofed => "spoofed",
            ReportReason::UnknownInterface => "unknown-interface",
            ReportReason::Invalid => "invalid",
            ReportReason::NoPoint => "no-point",
        }
    }
}

/// A packet that was reported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PacketReport {
    /// When the kernel saw it, since 1970; `None` if it does not say.
    pub time: Option<Duration>,
    /// Why it is reported.
    pub reason: ReportReason,
    /// Whether it runs against its flow's first packet, in whose direction it was judged.
    pub reply: bool,
    /// The packet itself.
    pub packet: Packet,
    /// Its length in bytes, from the network header on.
    pub length: u32,
}

impl PacketReport {
    /// The packet that was judged: of a reply, the first of its flow.
    pub fn judged_packet(&self) -> Packet {
        let packet = self.packet.clone();
        if !self.reply {
            return packet;
        }
        let l4 = match packet.l4 {
            L4::Ports {
                source,
                destination,
            } => L4::Ports {
                source: destination,
                destination: source,
            },
            L4::Icmp { kind, code } => L4::Icmp {
                kind: palisade_nft::icmp_request_type(packet.protocol, kind).unwrap_or(kind),
                code,
            },
            L4::None => L4::None,
        };
        Packet {
            input_interface: packet.output_interface,
            output_interface: packet.input_interface,
            source: packet.destination,
            destination: packet.source,
            protocol: packet.protocol,
            l4,
        }
    }
}

/// What was seen since the last look.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PacketReportBatch {
    /// Packets, in order.
    pub packets: Vec<PacketReport>,
    /// How many more there were that nobody gets to see.
    pub lost: BTreeMap<ReportReason, u64>,
}

/// Tells of packets.
pub struct PacketWatch {
    next: Box<ReportReceiver>,
}

type ReportReceiver = dyn FnMut(Duration) -> Result<Option<PacketReportBatch>, Error> + Send;

impl PacketWatch {
    /// From a function that waits for the next packets, at most the time given.
    pub fn new(
        next: impl FnMut(Duration) -> Result<Option<PacketReportBatch>, Error> + Send + 'static,
    ) -> Self {
        Self {
            next: Box::new(next),
        }
    }

    /// The next packets, at most a few hundred; `None` if there were none for `timeout`. When no
    /// more come after some, that is told once, by none with whatever was lost.
    ///
    /// # Errors
    /// If the reports end.
    pub fn wait(&mut self, timeout: Duration) -> Result<Option<PacketReportBatch>, Error> {
        (self.next)(timeout)
    }
}

impl std::fmt::Debug for PacketWatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PacketWatch")
    }
}
