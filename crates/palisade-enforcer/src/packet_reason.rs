//! The reason that readers see for a packet of the driver's reports and counters.
//!
//! Promises: each reason of a driver has one of the API. Never: tells which rule decided; the monitor does.

use palisade_api::PacketReason;
use palisade_tables::ReportReason;

/// The reason of packets that no rule is known for.
#[must_use]
pub fn packet_reason(reason: ReportReason) -> PacketReason {
    match reason {
        ReportReason::Denied => PacketReason::Denied,
        ReportReason::Rejected => PacketReason::Rejected,
        ReportReason::Logged(_) => PacketReason::Logged,
        ReportReason::Audited(_) => PacketReason::Audited,
        ReportReason::Spoofed => PacketReason::Spoofed,
        ReportReason::UnknownInterface => PacketReason::UnknownInterface,
        ReportReason::Invalid => PacketReason::Invalid,
        ReportReason::NoPoint => PacketReason::NoPoint,
    }
}
