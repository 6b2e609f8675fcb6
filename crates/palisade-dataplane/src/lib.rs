//! Executes transactions, reads the kernel back, repairs.
//!
//! [`driver`] says what a dataplane is; [`NftDataplane`] is the one over nf_tables, for which [`netlink`] carries the words of
//! `palisade-nft` to the kernel and back; [`fake`] is a dataplane for tests of
//! what stands above.
//!
//! Promises: a step is in the kernel whole or not at all; the next one waits
//! until no packet is still between two lookups of the last; what is not ours
//! is never touched.
//!
//! Never: decides what a packet gets, or in which order things change; both
//! come as values from `palisade-tables` and `palisade-nft`.

mod conntrack_marks;
mod counter_journal;
mod counter_ledger;
mod counts;
pub mod driver;
pub mod fake;
mod nat;
pub mod netlink;
mod nft;
mod packet_header;
mod packet_report;
mod report_reader;

pub use counter_journal::{CounterJournal, JournalAccount, JournalEntry};
pub use driver::{
    ApplyOutcome, Counters, Dataplane, Error, InstalledWorkloads, Masquerade, StepOutcome,
    TamperEvent, TamperWatch,
};
pub use fake::FakeDataplane;
pub use netlink::OwnerError;
pub use nft::{NftConfig, NftDataplane, PlanPreview};
pub use packet_report::{PacketReport, PacketReportBatch, PacketWatch, ReportReason};
pub use palisade_nft::CounterValue;
