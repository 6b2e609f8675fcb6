//! The enforcer: makes the kernel hold the policy of the objects it was given.
//!
//! It owns the driver and the two subsystems that write by it: policy ([`PolicySubsystem`], which has the engine that
//! computes the tables) and masquerading. Start, retry and repair are one path. Promises: nothing is written before
//! the source is in sync; what the kernel rejects is retried with growing delays, and the kernel counts as failed until
//! then. A failure of one subsystem leaves the other as it is.
//!
//! Never: knows a workload's interface or record, or reads a source.

use crate::masquerade::MasqueradeSubsystem;
use crate::policy_state::{PolicyGuard, SharedPolicy};
use crate::policy_subsystem::PolicySubsystem;
use palisade_config::{DnsConfig, HostConfig, NodesConfig, PolicyConfig};
use palisade_dataplane::{Counters, Dataplane, DriverCondition, DriverError, MasqueradePolicy};
use palisade_model::Update;
use palisade_node::clock::Clock;
use palisade_node::repairs::RepairLog;
use palisade_node::subsystem::{RunSubsystem, Runner, SubsystemError};
use palisade_sys::fault;
use palisade_text::error_chain;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The reason why an agent that has just started is not ready.
pub const NOT_IN_SYNC_REASON: &str = "the policy source has not been read completely yet";
/// How long counters that were read are used again.
const MAX_COUNTER_AGE: Duration = Duration::from_secs(1);

/// The enforcer. See the module's description.
pub struct Enforcer {
    /// The driver, open for writing.
    pub dataplane: Box<dyn Dataplane>,
    /// Policy: the engine, and what of it is in the kernel.
    pub policy: Runner<PolicySubsystem>,
    /// The masquerade rules.
    pub masquerade: Runner<MasqueradeSubsystem>,
    /// What other programs changed and was repaired.
    pub repairs: RepairLog,
    /// What the driver could not do when it was last asked.
    conditions: Vec<DriverCondition>,
    clock: Arc<dyn Clock>,
    /// The number of runs of policy.
    flushes: u64,
    /// The kernel's counters, and when they were read.
    cached_counters: Option<(Instant, Arc<Counters>)>,
    update_observer: Option<UpdateObserver>,
}

/// Who is told of every update before it is applied.
pub type UpdateObserver = Box<dyn FnMut(&[Update]) + Send>;

impl Enforcer {
    /// An enforcer without objects, by the sections of the configuration that policy reads.
    pub fn new(
        sections: (&PolicyConfig, &DnsConfig, &HostConfig, &NodesConfig),
        dataplane: Box<dyn Dataplane>,
        clock: Arc<dyn Clock>,
    ) -> Self {
        Enforcer {
            conditions: dataplane.conditions(),
            dataplane,
            policy: Runner::new(PolicySubsystem::new(sections, Arc::clone(&clock))),
            masquerade: Runner::new(MasqueradeSubsystem::default()),
            repairs: RepairLog::new(Arc::clone(&clock)),
            clock,
            flushes: 0,
            cached_counters: None,
            update_observer: None,
        }
    }

    /// Tells `observer` of every update from now on, before it is applied.
    pub fn set_update_observer(&mut self, observer: UpdateObserver) {
        self.update_observer = Some(observer);
    }

    /// The policy as other threads read it.
    pub fn view(&self) -> &SharedPolicy {
        &self.policy.view
    }

    /// The present objects and tables.
    pub fn state(&self) -> PolicyGuard<'_> {
        self.policy.view.read()
    }

    /// Whether the source has been read completely.
    pub fn is_in_sync(&self) -> bool {
        self.policy.in_sync
    }

    /// Passes updates to the engine and writes the changes to the kernel.
    pub fn apply(&mut self, updates: Vec<Update>) {
        if let Some(observer) = &mut self.update_observer {
            observer(&updates);
        }
        let written = self.dataplane.written_tables();
        let deletes_policy = self.policy.accept(updates, written);
        if !self.policy.in_sync {
            return;
        }
        self.run_policy();
        if deletes_policy {
            self.policy.prune_counts();
        }
    }

    /// The source has been read completely: from now on the kernel is made to hold its policy.
    pub fn begin(&mut self) {
        self.policy.in_sync = true;
        self.policy.request_resync();
        self.run_policy();
    }

    /// Writes what is pending, and the masquerade rules where the kernel's state was not known.
    fn run_policy(&mut self) {
        let now = self.clock.monotonic();
        self.flushes += 1;
        // The runner keeps the failure, and the caller looks at it.
        let _ = self.policy.run(&mut *self.dataplane, now);
        self.follow_conditions();
        if self.policy.take_resynced() {
            self.masquerade.recheck();
        }
        if self.policy.failure().is_none() {
            let _ = self.masquerade.run_if_due(&mut *self.dataplane, now);
        }
    }

    /// Takes note of whether the driver can use the interfaces that it was told of. If not, the kernel counts as failed
    /// until a resync succeeds; before the first one, that is it.
    pub fn record_interfaces(&mut self, result: Result<(), DriverError>) {
        match result {
            Err(error) if self.policy.in_sync => {
                self.policy.mark_failed();
                let now = self.clock.monotonic();
                self.policy
                    .fail::<dyn Dataplane>(SubsystemError::new(error), now);
            }
            Err(error) => {
                tracing::warn!(error = %error_chain(&error), "the driver cannot use an interface yet");
            }
            Ok(()) => {}
        }
        self.follow_conditions();
    }

    /// Logs what the driver cannot do any more, and which flows another part of it has now.
    fn follow_conditions(&mut self) {
        match self.dataplane.take_hand_over() {
            Some(outcome) if outcome.failure.is_some() => tracing::warn!("{outcome}"),
            Some(outcome) => tracing::info!("{outcome}"),
            None => {}
        }
        let conditions = self.dataplane.conditions();
        for condition in &conditions {
            if !self.conditions.contains(condition) {
                tracing::warn!("{}", condition.message);
            }
        }
        self.conditions = conditions;
    }

    /// Retries what the kernel rejected and is due, and forgets what only recent packets need. Nothing is retried before
    /// the source is in sync: until then only a part of the nodes is known, and what is masqueraded depends on them.
    pub fn retry_failed(&mut self) {
        let now = self.clock.monotonic();
        self.policy.forget_past_tables(now);
        if !self.policy.in_sync {
            return;
        }
        if self.policy.is_due(&*self.dataplane, now) {
            self.run_policy();
        } else {
            let _ = self.masquerade.run_if_due(&mut *self.dataplane, now);
        }
    }

    /// When [`Enforcer::retry_failed`] is due; `None`: nothing has failed, and nothing is to be forgotten.
    pub fn retry_due(&self) -> Option<Instant> {
        let due = [
            self.policy.retry_due(),
            self.policy.past_tables_expiry(),
            self.masquerade.retry_due(),
        ];
        due.into_iter().flatten().min()
    }

    /// Compares the kernel with the tables, and repairs it.
    pub fn verify(&mut self, what: &str, detected_at: Instant) {
        if !self.policy.in_sync {
            return;
        }
        self.policy.request_verification();
        // What was written before is no repair.
        self.masquerade.take_writes();
        if !fault::is_injected("masquerade-not-repaired") {
            self.masquerade.recheck();
        }
        self.run_policy();
        let writes = self.policy.take_repair_writes() + self.masquerade.take_writes();
        if writes > 0 && self.policy.failure().is_none() {
            self.repairs.record(&[what.to_owned()], writes, detected_at);
        }
    }

    /// Sets the masquerade rules and writes them if they changed.
    ///
    /// # Errors
    /// If the kernel rejects them; they are retried.
    pub fn set_masquerade(&mut self, wanted: MasqueradePolicy) -> Result<(), SubsystemError> {
        self.masquerade.set_wanted(wanted);
        if self.masquerade.is_dirty() {
            let now = self.clock.monotonic();
            self.masquerade.run(&mut *self.dataplane, now)?;
        }
        Ok(())
    }

    /// What the masquerade rules would change now; policy is previewed by the driver.
    ///
    /// # Errors
    /// If the kernel cannot be read.
    pub fn preview_masquerade(&mut self) -> Result<Vec<String>, SubsystemError> {
        self.masquerade.preview(&mut *self.dataplane)
    }

    /// The number of times that policy was written, or found to need no write.
    pub fn flushes(&self) -> u64 {
        self.flushes
    }

    /// Why the kernel does not hold the policy of the source; empty if it does.
    pub fn unready_reasons(&self) -> Vec<String> {
        let unsynced = (!self.policy.in_sync).then(|| NOT_IN_SYNC_REASON.to_owned());
        let failed = self.policy.failure();
        let failed = failed.map(|why| format!("the kernel does not hold the policy: {why}"));
        unsynced.into_iter().chain(failed).collect()
    }

    /// The kernel's counters; `None` if they cannot be read.
    pub fn counters(&mut self) -> Option<Arc<Counters>> {
        let counters = self
            .policy
            .read_counters(&mut *self.dataplane)
            .map(Arc::new);
        let now = self.clock.monotonic();
        self.cached_counters = counters.clone().map(|counters| (now, counters));
        counters
    }

    /// The kernel's counters, at most one second old, so that frequent readers do not cause more reads.
    pub fn recent_counters(&mut self) -> Option<Arc<Counters>> {
        let now = self.clock.monotonic();
        match &self.cached_counters {
            Some((at, counters)) if now - *at < MAX_COUNTER_AGE => Some(Arc::clone(counters)),
            _ => self.counters(),
        }
    }
}
