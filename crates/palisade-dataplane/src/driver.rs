//! The traits of a driver, one for each concern, and their results.
//!
//! [`PolicyDriver`] is what every driver does; counters are part of it, as what is written and deleted is
//! what counts. The rest of [`Dataplane`] is optional: translation of addresses, notices of changes by others,
//! reports of packets. All calls are synchronous; one thread owns a driver and lends it, or one of its
//! traits, to its parts.
//!
//! Promises: changes are written in safe order, one step after the other, each step or each entry atomically, as
//! [`PolicyDriver::atomicity`] says; each counter is in the ledger before it is deleted.
//!
//! Never: decides a verdict; verdicts are in the decision tables.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use palisade_layout::Counters;
use palisade_model::{Prefix, Str};
use palisade_tables::{Atomicity, Delta, DnsRules, Phase, Point, Tables};

use crate::counter_ledger::CounterLedger;
use crate::error::DriverError;
use crate::fast_path_view::FastPathReader;
use crate::flow_event::FlowEventBatch;
use crate::packet_report::PacketReportBatch;
use crate::subscription::Subscription;

/// Makes the kernel hold the decision tables. What it writes it counts in the ledger that it is lent.
pub trait PolicyDriver: Send {
    /// What of a step packets see at once. With [`Atomicity::Step`] a step that fails has no effect; with
    /// [`Atomicity::Entry`] it leaves a prefix of its changes.
    fn atomicity(&self) -> Atomicity;

    /// The interfaces that exist in the driver's network namespace: whatever else it knows is gone. Called before the
    /// first [`PolicyDriver::resync`], and when notifications were lost. A driver that is not attached to interfaces
    /// ignores it.
    ///
    /// # Errors
    /// If an interface cannot be used; then [`PolicyDriver::resync`] tries again.
    fn interfaces_listed(&mut self, _: &[Interface]) -> Result<(), DriverError> {
        Ok(())
    }

    /// Interfaces that appeared, changed or are gone, in order. That of a workload is named here before its policy is
    /// written, and so before it is brought up.
    ///
    /// # Errors
    /// As [`PolicyDriver::interfaces_listed`].
    fn interfaces_changed(&mut self, _: &[InterfaceChange]) -> Result<(), DriverError> {
        Ok(())
    }

    /// Has an observer called after each step that is written, before its grace period; `None` for nobody. An error
    /// of the observer is one of the step, which is written.
    fn set_step_observer(&mut self, observer: Option<StepObserver>);

    /// What the driver says of itself. Reads nothing.
    fn status(&self) -> DriverStatus;

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

    /// The objects in the kernel that [`PolicyDriver::remove`] would remove.
    ///
    /// # Errors
    /// If they cannot be queried.
    fn installed_objects(&mut self) -> Result<Vec<InstalledObject>, DriverError>;

    /// Removes everything of ours from the kernel.
    ///
    /// # Errors
    /// If an object cannot be removed.
    fn remove(&mut self) -> Result<(), DriverError>;
}

/// Stores the rules for DNS queries where the proxy reads them.
pub trait DnsRuleStore: Send {
    /// What is stored, also by an agent before; what cannot be read counts as nothing.
    fn load(&mut self) -> BTreeMap<u32, Arc<DnsRules>>;

    /// Stores these rules in place of all others, by the number in the mark of the packets that they are for.
    ///
    /// # Errors
    /// If they cannot be stored; what was stored is unchanged.
    fn store(&mut self, rules: &BTreeMap<u32, Arc<DnsRules>>) -> io::Result<()>;
}

/// Replaces the workloads' source addresses by the host's. Verdicts do not depend on it.
pub trait AddressTranslation {
    /// Makes the kernel masquerade exactly what `wanted` says; returns the number of objects and elements
    /// written.
    ///
    /// # Errors
    /// If the kernel cannot be read or written; nothing is changed then.
    fn masquerade(&mut self, wanted: &MasqueradePolicy) -> Result<usize, DriverError>;

    /// What [`AddressTranslation::masquerade`] would write now. Reads only.
    ///
    /// # Errors
    /// If the kernel cannot be read.
    fn preview(&mut self, wanted: &MasqueradePolicy) -> Result<PlanPreview, DriverError>;

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

    /// What the driver cannot do now although it is configured, most important first. Conditions come and go: the
    /// agent asks after each change that it writes.
    fn conditions(&self) -> Vec<DriverCondition> {
        Vec::new()
    }

    /// What the driver's fast path has; `None` if none runs. Takes some milliseconds.
    fn fast_path(&self) -> Option<FastPathFigures> {
        None
    }

    /// The flows that the driver's fast path has handed over to connection tracking since the last call; `None` if it
    /// has handed over none.
    fn take_hand_over(&mut self) -> Option<FlowHandOver> {
        None
    }

    /// Reads what the driver's fast path has; `None` if none runs.
    fn fast_path_reader(&self) -> Option<Box<dyn FastPathReader + '_>> {
        None
    }

    /// Translation of addresses, if the driver has it.
    fn address_translation(&mut self) -> Option<&mut dyn AddressTranslation> {
        None
    }

    /// Stores the rules for DNS queries here from now on. A driver that redirects no packets ignores it.
    fn set_dns_rule_store(&mut self, _: Box<dyn DnsRuleStore>) {}

    /// Whether packets with DNS queries are redirected to a proxy, where policy judges names.
    fn redirects_dns(&self) -> bool {
        false
    }

    /// Whether the driver notices changes by other programs. If not, it is verified on demand only.
    fn notices_changes(&self) -> bool {
        false
    }

    /// Subscribes to changes of our kernel state by other programs, once for each part that notices them; none if the
    /// driver does not.
    ///
    /// # Errors
    /// If the kernel provides no notifications.
    fn tamper_events(&self) -> Result<Vec<Subscription<TamperEvent>>, DriverError> {
        Ok(Vec::new())
    }

    /// Subscribes to packets that were denied, dropped, or matched by a Log rule, once for each part that reports them;
    /// none if the driver cannot report packets on this host.
    ///
    /// # Errors
    /// If another program already listens to them, or the kernel refuses.
    fn packet_reports(&self) -> Result<Vec<Subscription<PacketReportBatch>>, DriverError> {
        Ok(Vec::new())
    }

    /// Subscribes to the flows that policy judged and let pass, from now on, once for each part that sees them; none if
    /// the driver cannot.
    ///
    /// # Errors
    /// If the kernel refuses.
    fn flow_events(&self) -> Result<Vec<Subscription<FlowEventBatch>>, DriverError> {
        Ok(Vec::new())
    }
}

/// An object of a driver in the kernel.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct InstalledObject {
    /// Its kind.
    pub kind: InstalledObjectKind,
    /// Its name, for people.
    pub name: String,
}

/// The kind of an [`InstalledObject`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum InstalledObjectKind {
    /// A table of rules.
    Table,
    /// A folder of pinned BPF objects.
    Pins,
}

/// The policy that a kernel holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InstalledPolicy {
    /// The interfaces that are subject to policy.
    pub interfaces: BTreeSet<Str>,
    /// The points that have policy: interface, hook, direction, and local address or network.
    pub points: BTreeSet<Point>,
}

/// An interface of the driver's network namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Its name.
    pub name: Str,
    /// Its index, which no other interface has while it exists.
    pub index: u32,
}

/// A change of an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InterfaceChange {
    /// It exists: it is new, or has another name, or changed otherwise.
    Present(Interface),
    /// It is gone; what it was.
    Gone(Interface),
}

/// What a driver says of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DriverStatus {
    /// The number of the last revocation, as established flows carry it; `None` if the driver has none.
    pub generation: Option<u32>,
    /// The time spent waiting for grace periods since the driver was opened.
    pub grace_duration: Duration,
    /// How grace periods are waited for, for people; `None` if the driver has none.
    pub grace_method: Option<&'static str>,
}

/// What a fast path has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FastPathFigures {
    /// Addresses of workloads whose packets it may deliver.
    pub addresses: usize,
    /// Rows of policy.
    pub rows: usize,
    /// Flows that it delivers; those that ended a moment ago may be among them.
    pub flows: u64,
    /// Flows that the stack delivers, and whose answers go by it.
    pub flows_via_stack: u64,
    /// Live flows that had to make room.
    pub evictions: u64,
    /// Interfaces of workloads that cannot have its programs.
    pub refused_interfaces: usize,
    /// What its maps have no room for.
    pub shortage: FastPathShortage,
}

/// What the maps of a fast path have no room for, and what nftables delivers therefore.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FastPathShortage {
    /// Addresses of workloads.
    pub addresses: usize,
    /// Policy sets.
    pub sets: usize,
    /// Classes.
    pub classes: usize,
    /// Prefixes of networks of other hosts: with any, no flow to or from other hosts is proven.
    pub prefixes: usize,
}

/// What became of the flows of a fast path that was removed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FlowHandOver {
    /// Flows that connection tracking knows from now on.
    pub created: usize,
    /// Flows that it knew already.
    pub existing: usize,
    /// Flows that it refused, as it does for want of room.
    pub refused: usize,
    /// The first refusal, or why no flow could be handed over.
    pub failure: Option<String>,
}

impl fmt::Display for FlowHandOver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let FlowHandOver {
            created,
            existing,
            refused,
            failure,
        } = self;
        write!(
            f,
            "{created} flows of the fast path were handed over to connection tracking, which knew {existing} others"
        )?;
        match failure {
            Some(reason) if *refused > 0 => write!(f, " and refused {refused}: {reason}"),
            Some(reason) => write!(f, "; not all of them: {reason}"),
            None => Ok(()),
        }
    }
}

/// Something that a driver cannot do now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DriverCondition {
    /// What cannot be done, as one word in upper camel case that never changes.
    pub kind: &'static str,
    /// Why, in the same form.
    pub reason: &'static str,
    /// The same for people, with objects and figures.
    pub message: String,
}

/// A function that is called for each step that is written, with its index and phase.
pub struct StepObserver {
    observe: Box<ObserveStep>,
}

type ObserveStep = dyn FnMut(usize, Phase) -> Result<(), DriverError> + Send;

impl StepObserver {
    /// Wraps a function.
    pub fn new(
        observe: impl FnMut(usize, Phase) -> Result<(), DriverError> + Send + 'static,
    ) -> Self {
        StepObserver {
            observe: Box::new(observe),
        }
    }

    /// The step of this index, from 0, is written; its grace period has not begun.
    ///
    /// # Errors
    /// Of the observer.
    pub fn step_written(&mut self, step: usize, phase: Phase) -> Result<(), DriverError> {
        (self.observe)(step, phase)
    }
}

impl fmt::Debug for StepObserver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StepObserver")
    }
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
