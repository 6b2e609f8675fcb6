//! What the fast path in eBPF knows of the decision tables: the part that is about this host's workloads.
//!
//! The fast path delivers what it can prove allowed at both ends, and passes everything else to nftables. So it needs
//! the points of workloads, the policy sets that these use, and of those the rows for identities of workloads of this
//! host: what any other packet would need is left out, and such a packet passes.
//!
//! Promises: a packet that the [`Projection`] allows at both ends is allowed by
//! [`Tables::judge`](palisade_tables::Tables::judge) and owes no report; every packet that may begin a flow and that the
//! tables allow without a report, without a reading of its queries and whatever its source port is allowed, but for classes
//! with more ranges than the programs search ([`MAX_RANGES`]) and for what has no room ([`Shortage`]). What it denies the
//! tables deny. An update changes nothing that is in force until all of it is written, and costs what changes.
//!
//! Never: knows a map of the kernel.

#![no_std]

extern crate alloc;

mod class;
mod classes;
mod map_write;
mod networks;
mod projection;
mod proven;
mod room;
mod spans;

pub use class::{ClassWords, CounterId, FastProtocol, MAX_RANGES, PortRow, ProtocolWords, Word};
pub use map_write::{MapWrite, SlotRow};
pub use networks::{MAX_LENGTHS, mapped_length};
pub use projection::{EndJudgement, Projection};
pub use proven::{ProvenPorts, proven_ports};
pub use room::{Room, Shortage};

#[cfg(test)]
mod tests;
