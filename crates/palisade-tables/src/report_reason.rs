//! The reasons why a dataplane reports a packet: denied, logged, in audit, or dropped without a judgement.
//!
//! Promises: one list for drivers, counters and the monitor; a reason's name never changes. Never: decides a
//! verdict.

use palisade_model::Direction;

/// Why a packet is reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ReportReason {
    /// Policy denied it in one direction.
    Denied,
    /// Policy denied it in one direction, and denials answer.
    Rejected,
    /// Policy allowed it in this direction, and a Log rule matched.
    Logged(Direction),
    /// Policy allowed it in this direction, and would deny it if nothing were in audit.
    Audited(Direction),
    /// Dropped: its source is not an address of the endpoint.
    Spoofed,
    /// Dropped: it arrived by an interface with our prefix that belongs to no known endpoint.
    UnknownInterface,
    /// Dropped: it belongs to no connection and opens none.
    Invalid,
    /// Dropped: its address at our interface has no policy.
    NoPoint,
}

impl ReportReason {
    /// All reasons.
    pub const ALL: [ReportReason; 10] = [
        ReportReason::Denied,
        ReportReason::Rejected,
        ReportReason::Logged(Direction::Ingress),
        ReportReason::Logged(Direction::Egress),
        ReportReason::Audited(Direction::Ingress),
        ReportReason::Audited(Direction::Egress),
        ReportReason::Spoofed,
        ReportReason::UnknownInterface,
        ReportReason::Invalid,
        ReportReason::NoPoint,
    ];

    /// The reasons of drops that no rule decides.
    pub const DROPS: [ReportReason; 4] = [
        ReportReason::Spoofed,
        ReportReason::UnknownInterface,
        ReportReason::Invalid,
        ReportReason::NoPoint,
    ];

    /// Its name in text output, in metrics and in the counter journal.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            ReportReason::Denied => "denied",
            ReportReason::Rejected => "rejected",
            ReportReason::Logged(_) => "logged",
            ReportReason::Audited(_) => "audited",
            ReportReason::Spoofed => "spoofed",
            ReportReason::UnknownInterface => "unknown-interface",
            ReportReason::Invalid => "invalid",
            ReportReason::NoPoint => "no-point",
        }
    }
}
