//! Applies planned transactions to the kernel, reads its state back, and repairs it.
//!
//! [`driver`] defines the dataplane interface. [`NftDataplane`] implements it with nf_tables; [`netlink`]
//! encodes the types of `palisade-nft` for the kernel and decodes them. [`fake`] is an in-memory dataplane
//! for tests of the callers.
//!
//! Promises: a step is applied atomically; the next step starts only after a grace period, when no packet is
//! still between two lookups of the previous one; objects of other programs are never changed.
//!
//! Never: decides a verdict, or the order of changes; both are computed by `palisade-tables` and
//! `palisade-nft`.
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
pub use packet_report::{PacketReport, PacketReportBatch, PacketWatch};
pub use palisade_nft::CounterValue;
