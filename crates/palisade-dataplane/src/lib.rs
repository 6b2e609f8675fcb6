//! The contract between the agent and what enforces policy, and the drivers that fulfil it.
//!
//! [`driver`] has the traits, one for each concern, and their results; [`DriverError`] their errors. The
//! [`CounterLedger`] adds up what the [parts](LedgerPart) of drivers count, and its file belongs to it, not to a driver.
//! [`nftables`] is one driver, [`ebpf`] the same with a fast path above it.
//!
//! Promises: a step, or each of its entries, is applied atomically ([`PolicyDriver::atomicity`]); the next step starts
//! only after a grace period, when no packet is still between two lookups of the previous one; objects of other programs are never changed; only
//! [`nftables`] depends on nf_tables, and only [`ebpf`] on BPF.
//!
//! Never: decides a verdict, or the order of changes; both are computed by `palisade-tables` and
//! `palisade-nft`. What every driver of maps keeps beside the tables is `palisade-layout`.

mod counter_journal;
mod counter_ledger;

pub mod driver;
pub mod ebpf;
mod error;
mod fast_path_view;
mod flow_event;
pub mod nftables;
mod packet_report;
mod subscription;

pub use counter_journal::{CounterJournal, JournalError};
pub use counter_ledger::{CounterLedger, LedgerPart};
pub use driver::{
    AddressTranslation, ApplyOutcome, Dataplane, DnsRuleStore, DriverCondition, DriverStatus,
    FastPathFigures, FastPathShortage, FlowHandOver, InstalledObject, InstalledObjectKind,
    InstalledPolicy, Interface, InterfaceChange, MasqueradePolicy, PlanPreview, PolicyDriver,
    StepObserver, StepOutcome, TamperEvent,
};
pub use error::{DriverError, DriverErrorKind};
pub use fast_path_view::{
    FastPathCheck, FastPathCounter, FastPathDifference, FastPathEnd, FastPathEndpoint,
    FastPathFlow, FastPathFlowFilter, FastPathFlows, FastPathObstacle, FastPathPair, FastPathPart,
    FastPathPolicy, FastPathPolicyQuery, FastPathProven, FastPathReader, FastPathUplink,
};
pub use flow_event::{FlowEvent, FlowEventBatch, FlowPhase, FlowSnapshot, OpenFlowKey};
pub use packet_report::{PacketReport, PacketReportBatch};
pub use palisade_layout::{
    CountAccount, CounterAccounts, CounterKey, CounterSnapshot, Counters, RetiringCounter,
};
pub use palisade_tables::{Atomicity, CounterValue};
pub use subscription::Subscription;
