//! Packets that a dataplane reports: denied, dropped, or matched by a Log rule.
//!
//! Promises: a report has what the kernel knew, and the reason; the rule is found by judging the first
//! packet of the flow again. Packets that were not delivered are counted by reason.
//!
//! Never: judges.

use std::collections::BTreeMap;
use std::time::Duration;

use palisade_tables::{Packet, ReportReason};

/// A packet that was reported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PacketReport {
    /// When the kernel saw it, since the Unix epoch; `None` if the kernel does not say.
    pub time: Option<Duration>,
    /// Why it is reported.
    pub reason: ReportReason,
    /// Whether it is in the reply direction of its flow; policy was evaluated for the first packet's
    /// direction.
    pub reply: bool,
    /// The packet itself.
    pub packet: Packet,
    /// Whether the packet's [`pre_dnat`](Packet::pre_dnat) is known. Linux built without
    /// `CONFIG_NETFILTER_NETLINK_GLUE_CT` does not report it.
    pub is_pre_dnat_known: bool,
    /// Its length in bytes, from the network header on.
    pub length: u32,
}

impl PacketReport {
    /// The packet that policy was evaluated for: for a reply, the first packet of its flow.
    pub fn judged_packet(&self) -> Packet {
        let packet = self.packet.clone();
        if self.reply {
            Packet {
                pre_dnat: packet.pre_dnat,
                ..packet.request()
            }
        } else {
            packet
        }
    }
}

/// The packets since the last call, at most a few hundred. When packets stop arriving, one batch without packets
/// follows, with the packets lost.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PacketReportBatch {
    /// The packets, in order.
    pub packets: Vec<PacketReport>,
    /// The number of further packets that were not delivered.
    pub lost: BTreeMap<ReportReason, u64>,
}
