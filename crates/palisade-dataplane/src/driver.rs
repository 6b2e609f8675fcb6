//! The traits of a driver, one for each concern, and their results.
//!
//! [`PolicyDriver`] is what every driver does; counters are part of it, as what is written and deleted is
//! what counts. The rest of [`Dataplane`] is optional: translation of addresses, notices of changes by others,
//! reports of packets. All calls are synchronous; one thread owns a driver and lends it, or one of its
//! traits, to its parts.
//!
//! Promises: changes are written in safe order, one atomic step after the other; a step that fails has no
//! effect; each counter is in the ledger before it is deleted.
//!
//! Never: decides a verdict; verdicts are in the decision tables.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use palisade_layout::Counters;
use palisade_model::{Prefix, Str};
use palisade_tables::{Delta, Phase, Tables};

use crate::counter_ledger::CounterLedger;
use crate::error::DriverError;
use crate::packet_report::PacketWatch;

/// Makes the kernel hold the decision tables. What it writes it counts in the ledger that it is lent.
pub trait PolicyDriver: Send {
    /// The interfaces and points that the kernel has policy for now. Reads only, without a cache.
    ///
    /// # Errors
    /// If the kernel cannot be read.
    fn observe(&mut self) -> Result<InstalledPolicy, DriverError>;

    /// What [`PolicyDriver::resync`] would write now. Reads only.
    ///
    /// # Errors
    /// If the kernel cannot be read.
    fn preview(&mut self, tables: &Tables) -> Result<PlanPreview, DriverError>;

    /// Reads the kernel's state, adopts what matches by content, and writes the difference in safe order.
    /// Called at startup and after any error.
    ///
    /// # Errors
    /// If the kernel cannot be read or written.
    fn resync(
        &mut self,
        tables: &Tables,
        ledger: &mut CounterLedger,
    ) -> Result<ApplyOutcome, DriverError>;

    /// Executes one delta; `tables` is the state after it. When it returns, every packet that arrives is judged
    /// by these tables; the grace period after the last step may still run, and the next change waits for its
    /// end. After an error only [`PolicyDriver::resync`] writes again; calls that read may come at any time.
    ///
    /// # Errors
    /// If the kernel cannot be written; earlier steps stay applied.
    fn execute(
        &mut self,
        delta: &Delta,
        tables: &Tables,
        ledger: &mut CounterLedger,
    ) -> Result<ApplyOutcome, DriverError>;

    /// Compares the kernel with `tables`, which were written last, and repairs it in safe order.
    /// [`ApplyOutcome::writes`] is 0 if nothing differed.
    ///
    /// # Errors
    /// If the kernel cannot be read or written.
    fn verify(
        &mut self,
        tables: &Tables,
        ledger: &mut CounterLedger,
    ) -> Result<ApplyOutcome, DriverError>;

    /// Reads the counters into the ledger; returns the totals, which never decrease.
    ///
    /// # Errors
    /// If the counters cannot be read.
    fn counters(&mut self, ledger: &mut CounterLedger) -> Result<Counters, DriverError>;

    /// The tables that were written last; `None` if the kernel's content is not known.
    fn written_tables(&self) -> Option<&Tables>;

    /// The names of the objects in the kernel that [`PolicyDriver::remove`] would remove, for people.
    ///
    /// # Errors
    /// If they cannot be queried.
    fn installed_objects(&mut self) -> Result<Vec<String>, DriverError>;

    /// Removes everything of ours from the kernel.
    ///
    /// # Errors
    /// If an object cannot be removed.
    fn remove(&mut self) -> Result<(), DriverError>;
}

/// Replaces the workloads' source addresses by the host's. Verdicts do not depend on it.
pub trait AddressTranslation {
    /// Makes the kernel masquerade exactly what `wanted` says; returns the number of objects and elements
    /// written.
    ///
    /// # Errors
    /// If the kernel cannot be read or written; nothing is changed then.
    fn masquerade(&mut self, wanted: &MasqueradePolicy) -> Result<usize, DriverError>;

    /// The addresses that are masqueraded.
    fn masqueraded_addresses(&mut self) -> BTreeSet<IpAddr>;
}

/// A driver: policy, and what else it has.
pub trait Dataplane: PolicyDriver {
    /// The name by which it is opened.
    fn name(&self) -> &'static str;

    /// Fails if another running agent uses the same kernel objects. Changes nothing.
    ///
    /// # Errors
    /// Of kind [`Owned`](crate::DriverErrorKind::Owned) if another agent uses them; others if that cannot be
    /// queried.
    fn check_owner(&mut self) -> Result<(), DriverError> {
        Ok(())
    }

    /// Takes the lock on the kernel objects, so that no other agent uses them while this driver exists; where
    /// the kernel supports it.
    ///
    /// # Errors
    /// As [`Dataplane::check_owner`].
    fn acquire_lock(&mut self) -> Result<(), DriverError> {
        Ok(())
    }

    /// What the driver cannot do on this kernel although it is configured, for the log.
    fn limitation(&self) -> Option<&'static str> {
        None
    }

    /// Translation of addresses, if the driver has it.
    fn address_translation(&mut self) -> Option<&mut dyn AddressTranslation> {
        None
    }

    /// Whether the driver notices changes by other programs. If not, it is verified on demand only.
    fn notices_changes(&self) -> bool {
        false
    }

    /// Subscribes to changes of our kernel state by other programs; `None` if the driver does not notice
    /// them.
    ///
    /// # Errors
    /// If the kernel provides no notifications.
    fn tamper_watch(&self) -> Result<Option<TamperWatch>, DriverError> {
        Ok(None)
    }

    /// Subscribes to packets that were denied, dropped, or matched by a Log rule; `None` if the driver cannot
    /// report packets on this host.
    ///
    /// # Errors
    /// If another program already listens to them, or the kernel refuses.
    fn packet_watch(&self) -> Result<Option<PacketWatch>, DriverError> {
        Ok(None)
    }
}

/// The policy that a kernel holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InstalledPolicy {
    /// The interfaces that are subject to policy.
    pub interfaces: BTreeSet<Str>,
    /// The pairs of interface and address that have policy.
    pub points: BTreeSet<(Str, IpAddr)>,
}

/// Which addresses are masqueraded, and when.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MasqueradePolicy {
    /// The workload addresses that are masqueraded; without any, the kernel has nothing of it.
    pub addresses: BTreeSet<IpAddr>,
    /// Destinations that see the workloads' own addresses.
    pub exempt_prefixes: Vec<Prefix>,
}

/// A plan that is not executed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PlanPreview {
    /// Kernel objects and elements that it would write or delete.
    pub writes: usize,
    /// Its steps, in the driver's syntax.
    pub text: String,
}

/// The result of applying changes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ApplyOutcome {
    /// Kernel objects and elements written or deleted.
    pub writes: usize,
    /// The steps, in order.
    pub steps: Vec<StepOutcome>,
    /// The number of the last revocation, as established flows carry it; 0 if the driver has none.
    pub generation: u32,
}

/// One step of an [`ApplyOutcome`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepOutcome {
    /// The phase that it belongs to; `Tighten` for a step that writes everything.
    pub phase: Phase,
    /// Kernel objects and elements written or deleted.
    pub ops: usize,
    /// Time it took, the grace period included.
    pub duration: Duration,
    /// The part of it spent waiting for the grace period.
    pub grace_duration: Duration,
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

type TamperReceiver = dyn FnMut(Duration) -> Result<Option<TamperEvent>, DriverError> + Send;

impl TamperWatch {
    /// Wraps a function that waits for the next change, at most for the time given.
    pub fn new(
        next: impl FnMut(Duration) -> Result<Option<TamperEvent>, DriverError> + Send + 'static,
    ) -> Self {
        Self {
            next: Box::new(next),
        }
    }

    /// The next change; `None` if there was none within `timeout`.
    ///
    /// # Errors
    /// If the notifications end.
    pub fn wait(&mut self, timeout: Duration) -> Result<Option<TamperEvent>, DriverError> {
        (self.next)(timeout)
    }
}

impl std::fmt::Debug for TamperWatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TamperWatch")
    }
}
