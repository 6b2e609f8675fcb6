//! What every dataplane can do, and what it tells about it.
//!
//! Promises: what is written is written in safe order, whole step by whole
//! step; on an error nothing of the failed step was done; counts never go back.
//!
//! Never: decides what a packet gets; that is in the decision tables.

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

/// One dataplane. Everything is synchronous; one thread owns it.
pub trait Dataplane: Send {
    /// Reads the kernel back, adopts what is ours by content, and writes the difference in safe
    /// order. Also what follows any error.
    ///
    /// # Errors
    /// What could not be read or written.
    fn start(&mut self, tables: &Tables) -> Result<ApplyOutcome, Error>;

    /// Executes one delta; `tables` is the state after it. After an error [`Dataplane::start`] is
    /// called before anything else.
    ///
    /// # Errors
    /// What could not be written; steps before it stay done.
    fn apply(&mut self, delta: &Delta, tables: &Tables) -> Result<ApplyOutcome, Error>;

    /// Compares the kernel with what was last written, and repairs it in safe order.
    /// [`ApplyOutcome::writes`] is 0 if nothing was wrong.
    ///
    /// # Errors
    /// What could not be read or written.
    fn verify(&mut self, tables: &Tables) -> Result<ApplyOutcome, Error>;

    /// Packets and bytes so far.
    ///
    /// # Errors
    /// What could not be read.
    fn counters(&mut self) -> Result<Counters, Error>;

    /// Has the kernel translate what this says, and nothing else; returns how much was written.
    /// Without addresses there is no table for it.
    ///
    /// # Errors
    /// What could not be read or written; then it is as it was.
    fn masquerade(&mut self, wanted: &Masquerade) -> Result<usize, Error>;

    /// What of workloads the kernel holds now, read anew.
    ///
    /// # Errors
    /// What could not be read.
    fn installed_workloads(&mut self) -> Result<InstalledWorkloads, Error>;

    /// Removes everything of ours from the kernel.
    ///
    /// # Errors
    /// What could not be removed.
    fn remove(&mut self) -> Result<(), Error>;

    /// Listens, from now on, for changes of our kernel state by others.
    ///
    /// # Errors
    /// If the kernel gives no notifications.
    fn tamper_watch(&self) -> Result<TamperWatch, Error>;

    /// Listens, from now on, to packets that were denied, dropped, or asked for by a Log rule. `None`
    /// if this kernel reports none.
    ///
    /// # Errors
    /// If somebody else listens already, or the kernel refuses.
    fn packet_watch(&self) -> Result<Option<PacketWatch>, Error>;

    /// What a delta that has not been applied would replace of what the kernel holds; `None` if that
    /// is not known.
    fn undo(&self, delta: &Delta) -> Option<UndoRecord>;

    /// Keeps counts in a ledger from now on, and takes over the entries that an earlier process
    /// wrote there; before the first start.
    fn set_journal(&mut self, journal: Box<dyn CounterJournal>, entries: Vec<JournalEntry>);

    /// Forgets the counts of rules that nobody will ask for again.
    fn retain_counts(&mut self, keep: &dyn Fn(&Credit) -> bool);

    /// What went wrong with the ledger since this was asked last.
    fn take_journal_error(&mut self) -> Option<std::io::Error>;
}

/// What of workloads a kernel holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InstalledWorkloads {
    /// The interfaces that are judged.
    pub interfaces: BTreeSet<Str>,
    /// The interfaces and addresses that have policy.
    pub points: BTreeSet<(Str, IpAddr)>,
    /// The addresses that are translated.
    pub masqueraded_addresses: BTreeSet<IpAddr>,
}

/// What was done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ApplyOutcome {
    /// Kernel objects and elements written or deleted.
    pub writes: usize,
    /// The steps, in order.
    pub steps: Vec<StepOutcome>,
    /// The generation that established flows must carry.
    pub generation: u32,
}

/// One step of an [`ApplyOutcome`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepOutcome {
    /// What it was for.
    pub phase: Phase,
    /// Kernel objects and elements written or deleted.
    pub ops: usize,
    /// Time it took, the wait for packets under way included.
    pub duration: Duration,
    /// How much of it was waiting for packets under way.
    pub grace_duration: Duration,
}

/// Packets and bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// By what they are credited to.
    pub by_rule: BTreeMap<Arc<Credit>, CounterValue>,
    /// Dropped without a rule's word, by reason.
    pub by_drop_reason: BTreeMap<&'static str, CounterValue>,
}

/// Something of ours was changed by someone else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TamperEvent {
    /// An object was made, changed or deleted.
    Changed {
        /// Which, for people.
        description: String,
    },
    /// Notifications were lost, so something may have been.
    EventsLost,
}

/// Tells of changes by others.
pub struct TamperWatch {
    next: Box<TamperReceiver>,
}

type TamperReceiver = dyn FnMut(Duration) -> Result<Option<TamperEvent>, Error> + Send;

impl TamperWatch {
    /// From a function that waits for the next change, at most the time given.
    pub fn new(
        next: impl FnMut(Duration) -> Result<Option<TamperEvent>, Error> + Send + 'static,
    ) -> Self {
        Self {
            next: Box::new(next),
        }
    }

    /// The next change; `None` if there was none for `timeout`.
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

/// What went wrong with a dataplane.
#[derive(Debug, Error)]
pub enum Error {
    /// No socket to the kernel.
    #[error("reaching the kernel's packet filter")]
    Open(#[from] palisade_sys::netlink::OpenError),
    /// The namespace is not there.
    #[error("reaching the network namespace")]
    NetNs(#[from] palisade_sys::netns::NetNsError),
    /// A feature of the kernel could not be looked at.
    #[error("looking at kernel features")]
    Feature(#[from] palisade_sys::sysctl::SysctlError),
    /// The kernel offers no grace periods.
    #[error("waiting for packets under way")]
    Grace(#[from] palisade_sys::grace::GraceError),
    /// The kernel could not be read.
    #[error("reading the kernel back")]
    Read(#[from] TableReadError),
    /// The table is another agent's, or cannot be taken over.
    #[error("making sure that no other agent has the table")]
    Owner(#[from] OwnerError),
    /// The kernel could not be written.
    #[error("writing to the kernel")]
    Execute(#[from] ExecuteError),
    /// The kernel's notifications ended.
    #[error("listening for changes by others")]
    Watch(#[from] palisade_sys::nfnetlink::NfRequestError),
    /// The kernel's reports of packets cannot be had.
    #[error("listening to the kernel's reports of packets")]
    Reports(#[from] palisade_sys::nflog::NflogError),
    /// The interfaces could not be looked at.
    #[error("looking at interfaces")]
    Links(#[from] palisade_sys::link::LinkError),
    /// Which marks established flows carry could not be told.
    #[error("looking at established flows")]
    Flows(#[from] palisade_sys::conntrack::ConntrackError),
    /// The kernel gave no random number.
    #[error("asking the kernel for a random number")]
    Random(#[from] palisade_sys::random::RandomError),
    /// A parameter that cannot be.
    #[error("{0}")]
    Config(&'static str),
    /// A failure that a test asked for.
    #[error("failed on request: {0}")]
    Injected(String),
}
