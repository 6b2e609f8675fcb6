//! The dataplane interface, its results and its errors.
//!
//! Promises: changes are written in safe order, one atomic step after the other; a step that fails has no
//! effect; counters never decrease.
//!
//! Never: decides a verdict; verdicts are in the decision tables.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use palisade_model::Str;
pub use palisade_nft::{CounterValue, Masquerade};
use palisade_tables::{Credit, Delta, Phase, Tables, UndoRecord};
use thiserror::Error;

use crate::counter_journal::{CounterJournal, JournalEntry};
use crate::netlink::{ExecuteError, OwnerError, TableReadError};
use crate::packet_report::PacketWatch;

/// A dataplane. All calls are synchronous; one thread owns it.
pub trait Dataplane: Send {
    /// Reads the kernel's state, adopts what matches by content, and writes the difference in safe order.
    /// Called at startup and after any error.
    ///
    /// # Errors
    /// If the kernel cannot be read or written.
    fn start(&mut self, tables: &Tables) -> Result<ApplyOutcome, Error>;

    /// Applies one delta; `tables` is the state after it. After an error [`Dataplane::start`] must be called
    /// before anything else.
    ///
    /// # Errors
    /// If the kernel cannot be written; earlier steps stay applied.
    fn apply(&mut self, delta: &Delta, tables: &Tables) -> Result<ApplyOutcome, Error>;

    /// Compares the kernel with what was last written, and repairs it in safe order.
    /// [`ApplyOutcome::writes`] is 0 if nothing differed.
    ///
    /// # Errors
    /// If the kernel cannot be read or written.
    fn verify(&mut self, tables: &Tables) -> Result<ApplyOutcome, Error>;

    /// Packets and bytes counted so far.
    ///
    /// # Errors
    /// If the counters cannot be read.
    fn counters(&mut self) -> Result<Counters, Error>;

    /// Makes the masquerade table match `wanted`; returns the number of objects and elements written.
    /// Without addresses the table is removed.
    ///
    /// # Errors
    /// If the table cannot be read or written; it is then unchanged.
    fn masquerade(&mut self, wanted: &Masquerade) -> Result<usize, Error>;

    /// The workload state in the kernel now, without a cache.
    ///
    /// # Errors
    /// If the kernel cannot be read.
    fn installed_workloads(&mut self) -> Result<InstalledWorkloads, Error>;

    /// Removes all our tables from the kernel.
    ///
    /// # Errors
    /// If a table cannot be removed.
    fn remove(&mut self) -> Result<(), Error>;

    /// Subscribes to changes of our kernel state by other programs.
    ///
    /// # Errors
    /// If the kernel provides no notifications.
    fn tamper_watch(&self) -> Result<TamperWatch, Error>;

    /// Subscribes to packets that were denied, dropped, or matched by a Log rule. `None` if this kernel has
    /// no nflog.
    ///
    /// # Errors
    /// If another program already listens on the nflog group, or the kernel refuses.
    fn packet_watch(&self) -> Result<Option<PacketWatch>, Error>;

    /// The previous values of everything that a delta not yet applied would replace; `None` if the kernel's
    /// content is not known.
    fn undo(&self, delta: &Delta) -> Option<UndoRecord>;

    /// Records counts in a journal from now on, and restores the entries that an earlier process wrote to
    /// it; to be called before the first start.
    fn set_journal(&mut self, journal: Box<dyn CounterJournal>, entries: Vec<JournalEntry>);

    /// Drops the counts of rules for which `keep` returns false.
    fn retain_counts(&mut self, keep: &dyn Fn(&Credit) -> bool);

    /// The journal error since the last call, if any.
    fn take_journal_error(&mut self) -> Option<std::io::Error>;
}

/// The workload state in a kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InstalledWorkloads {
    /// The interfaces that are subject to policy.
    pub interfaces: BTreeSet<Str>,
    /// The pairs of interface and address that have policy.
    pub points: BTreeSet<(Str, IpAddr)>,
    /// The addresses that are masqueraded.
    pub masqueraded_addresses: BTreeSet<IpAddr>,
}

/// The result of applying changes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ApplyOutcome {
    /// Kernel objects and elements written or deleted.
    pub writes: usize,
    /// The steps, in order.
    pub steps: Vec<StepOutcome>,
    /// The generation in the connection mark of accepted flows.
    pub generation: u32,
}

/// One step of an [`ApplyOutcome`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepOutcome {
    /// The phase that it belongs to.
    pub phase: Phase,
    /// Kernel objects and elements written or deleted.
    pub ops: usize,
    /// Time it took, the grace period included.
    pub duration: Duration,
    /// The part of it spent waiting for the grace period.
    pub grace_duration: Duration,
}

/// Packet and byte counters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// By the rule, tier default or profile that they are credited to.
    pub by_rule: BTreeMap<Arc<Credit>, CounterValue>,
    /// Drops that no rule decided, by reason.
    pub by_drop_reason: BTreeMap<&'static str, CounterValue>,
}

/// Another program changed our kernel state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TamperEvent {
    /// An object was created, changed or deleted.
    Changed {
        /// Human-readable description of the change.
        description: String,
    },
    /// Notifications were lost, so there may have been changes.
    EventsLost,
}

/// A subscription to changes by other programs.
pub struct TamperWatch {
    next: Box<TamperReceiver>,
}

type TamperReceiver = dyn FnMut(Duration) -> Result<Option<TamperEvent>, Error> + Send;

impl TamperWatch {
    /// Wraps a function that waits for the next change, at most for the time given.
    pub fn new(
        next: impl FnMut(Duration) -> Result<Option<TamperEvent>, Error> + Send + 'static,
    ) -> Self {
        Self {
            next: Box::new(next),
        }
    }

    /// The next change; `None` if there was none within `timeout`.
    ///
    /// # Errors
    /// If the notifications end.
    pub fn wait(&mut self, timeout: Duration) -> Result<Option<TamperEvent>, Error> {
        (self.next)(timeout)
    }
}

impl std::fmt::Debug for TamperWatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TamperWatch")
    }
}

/// An error of a dataplane.
#[derive(Debug, Error)]
pub enum Error {
    /// The netlink socket could not be opened.
    #[error("opening the nf_tables netlink socket")]
    Open(#[from] palisade_sys::netlink::OpenError),
    /// The network namespace does not exist or cannot be entered.
    #[error("entering the network namespace")]
    NetNs(#[from] palisade_sys::netns::NetNsError),
    /// A kernel setting could not be read.
    #[error("reading kernel settings")]
    Feature(#[from] palisade_sys::sysctl::SysctlError),
    /// The kernel offers no way to wait for a grace period.
    #[error("setting up RCU grace periods")]
    Grace(#[from] palisade_sys::grace::GraceError),
    /// The nftables table could not be read.
    #[error("reading the nftables table from the kernel")]
    Read(#[from] TableReadError),
    /// The table is owned by another agent, or cannot be taken over.
    #[error("checking who owns the nftables table")]
    Owner(#[from] OwnerError),
    /// The transaction could not be applied.
    #[error("applying nftables changes")]
    Execute(#[from] ExecuteError),
    /// The subscription to nftables notifications failed.
    #[error("watching nftables notifications")]
    Watch(#[from] palisade_sys::nfnetlink::NfRequestError),
    /// Packets cannot be read from nflog.
    #[error("reading packets from nflog")]
    Reports(#[from] palisade_sys::nflog::NflogError),
    /// The network interfaces could not be listed.
    #[error("listing network interfaces")]
    Links(#[from] palisade_sys::link::LinkError),
    /// The conntrack table could not be read or its marks changed.
    #[error("reading the conntrack table")]
    Flows(#[from] palisade_sys::conntrack::ConntrackError),
    /// The kernel returned no random number.
    #[error("getting a random number from the kernel")]
    Random(#[from] palisade_sys::random::RandomError),
    /// An invalid parameter.
    #[error("{0}")]
    Config(&'static str),
    /// A failure injected by a test.
    #[error("injected failure: {0}")]
    Injected(String),
}
