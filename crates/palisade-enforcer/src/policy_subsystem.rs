//! Policy as a subsystem: the engine computes the tables, and its deltas are written by the driver.
//!
//! The state of engine and kernel is shared with readers ([`SharedPolicy`]); a flush changes it before it begins and
//! after it ends, and holds no lock but for reading while the kernel is written. Promises: one delta for each call of
//! [`PolicySubsystem::accept`]; after an error all of it is read and written again.
//!
//! Never: writes before the source is in sync.

use crate::counts::CountsFile;
use crate::cut_connections::{HostPolicyChanges, changes_host_policy};
use crate::flush_history::RETENTION;
use crate::metrics::CoreMetrics;
use crate::policy_state::SharedPolicy;
use palisade_api::FlushReport;
use palisade_config::{DnsConfig, HostConfig, NodesConfig, PolicyConfig};
use palisade_dataplane::{ApplyOutcome, CounterLedger, Counters, Dataplane};
use palisade_engine::{ElementBudget, Engine};
use palisade_model::{HairpinAction, Object, ObjectKey, PolicyId, Update};
use palisade_node::clock::{Clock, millis};
use palisade_node::cluster_nodes::own_node_name;
use palisade_node::subsystem::{ActionOutcome, Subsystem, SubsystemError};
use palisade_sys::fault;
use palisade_tables::{Delta, JudgementOptions, Tables, VerdictCause};
use palisade_text::error_chain;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The maximum number of changes whose implementation delay is measured at once.
const MAX_UNREALISED_CHANGES: usize = 1_024;

/// Since when the kernel enforces a policy in its present version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RealisedPolicy {
    /// The revision whose flush wrote it.
    pub revision: u64,
    /// When that flush was complete, since the epoch.
    pub since: Duration,
}

/// What the kernel enforces of the present objects.
#[derive(Debug, Default)]
pub struct RealisationProgress {
    /// The policies that the kernel enforces in their present version.
    pub realised_policies: BTreeMap<PolicyId, RealisedPolicy>,
    /// Policies whose present version is not in the kernel yet.
    unrealised_policies: BTreeSet<PolicyId>,
    /// When the changes of the source were detected that are not in the kernel yet.
    unrealised_changes: Vec<Instant>,
    /// The first flush of this process.
    pub initial_flush: Option<FlushReport>,
    /// The latest flush.
    pub last_flush: Option<FlushReport>,
    /// When nothing needs the tables any more that the last flush replaced.
    past_tables_expiry: Option<Instant>,
}

/// What is to be written.
#[derive(Debug, Default)]
enum PendingWrite {
    /// Nothing.
    #[default]
    None,
    /// The kernel has what was written last; this delta is missing, which was begun at this time.
    Delta(Delta, Instant),
    /// The kernel has what was written last, unless another program changed it.
    Verification,
    /// What the kernel has is not known.
    Resync,
}

/// The policy of this host. See the module's description.
pub struct PolicySubsystem {
    /// The policy as other threads read it.
    pub view: SharedPolicy,
    /// The totals of what the dataplane counts.
    pub ledger: CounterLedger,
    /// Its counters and histograms.
    pub metrics: CoreMetrics,
    /// Whether the source has been read completely; nothing is written before.
    pub in_sync: bool,
    /// What the kernel enforces, and since when.
    pub progress: RealisationProgress,
    pending: PendingWrite,
    /// Whether the last resync failed.
    has_failed: bool,
    /// Whether the kernel was resynchronised since this was last asked.
    is_resynced: bool,
    /// What verifications wrote since this was last asked.
    repair_writes: usize,
    /// The changes of host policy, for the thread that warns of connections they cut.
    host_policy_changes: Option<HostPolicyChanges>,
    clock: Arc<dyn Clock>,
}

/// One write of policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PolicyWrite {
    /// The pending delta, to this revision.
    Execute(u64),
    /// All, compared with what the kernel has.
    Resync,
    /// What another program changed.
    Verify,
}

impl fmt::Display for PolicyWrite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PolicyWrite::Execute(revision) => write!(f, "write revision {revision}"),
            PolicyWrite::Resync => f.write_str("write all policy"),
            PolicyWrite::Verify => f.write_str("verify all policy"),
        }
    }
}

/// Which traffic is judged on a host of this configuration: one answer, for the engine and for every driver.
pub fn judgement_options(policy: &PolicyConfig, host: &HostConfig) -> JudgementOptions {
    JudgementOptions::new(policy.host_to_endpoint, policy.hairpin, host.failsafe())
}

impl PolicySubsystem {
    /// Without objects.
    pub(crate) fn new(
        (policy, dns, host, nodes): (&PolicyConfig, &DnsConfig, &HostConfig, &NodesConfig),
        clock: Arc<dyn Clock>,
    ) -> Self {
        let engine = Engine::new(palisade_engine::EngineOptions {
            host_node: Some(own_node_name(nodes)).filter(|name| !name.is_empty()),
            judgement: judgement_options(policy, host),
            judges_hairpin_by_kind: policy.hairpin == HairpinAction::ByKind,
            allowed_encapsulation: policy.allowed_encapsulation,
            unread_dns: dns.unread_dns,
            audit: policy.audit_mode,
            budget: element_budget(policy),
        });
        PolicySubsystem {
            view: SharedPolicy::new(engine),
            ledger: CounterLedger::default(),
            metrics: CoreMetrics::default(),
            in_sync: false,
            progress: RealisationProgress::default(),
            pending: PendingWrite::default(),
            has_failed: false,
            is_resynced: false,
            repair_writes: 0,
            host_policy_changes: None,
            clock,
        }
    }

    /// Sends the changes of host policy to the thread that warns of connections they cut.
    pub fn set_host_policy_changes(&mut self, changes: HostPolicyChanges) {
        self.host_policy_changes = Some(changes);
    }

    /// Takes note of a change of the source: how long it takes until the kernel has it is measured.
    pub fn record_change(&mut self, detected_at: Instant) {
        // Beyond this number, a kernel that rejects everything is the greater problem.
        if self.progress.unrealised_changes.len() < MAX_UNREALISED_CHANGES {
            self.progress.unrealised_changes.push(detected_at);
        }
    }

    /// Passes updates to the engine; what they change is written by the next run, once the source is in sync.
    /// `written`: the tables in the kernel, if they are known. Returns whether a policy is deleted.
    pub fn accept(&mut self, updates: Vec<Update>, written: Option<&Tables>) -> bool {
        let started = self.clock.monotonic();
        let mut deletes_policy = false;
        for update in &updates {
            match update {
                Update::Upsert(Object::Policy(policy)) => {
                    self.progress.realised_policies.remove(&policy.id);
                    self.progress.unrealised_policies.insert(policy.id.clone());
                }
                Update::Delete(ObjectKey::Policy(id)) => {
                    deletes_policy = true;
                    self.progress.unrealised_policies.remove(id);
                    self.progress.realised_policies.remove(id);
                }
                _ => {}
            }
        }
        let changes_hosts = updates.iter().any(changes_host_policy);
        let mut guard = self.view.write();
        let state = &mut *guard;
        let now = self.clock.wall();
        if self.in_sync {
            (state.history).record_released_addresses(&state.engine, &updates, now);
        }
        let delta = state.engine.apply(updates);
        if !self.in_sync {
            return deletes_policy;
        }
        if self.has_failed || !matches!(self.pending, PendingWrite::None) {
            // A delta that was not written, or a kernel whose state is not known.
            self.pending = PendingWrite::Resync;
            return deletes_policy;
        }
        if !delta.is_empty() {
            let replaced = state.realised_revision;
            // From here on readers have the new tables, and packets may still be judged by the former.
            state.history.begin_flush(now, replaced, &delta, written);
            if let Some(changes) = self.host_policy_changes.as_ref().filter(|_| changes_hosts) {
                changes.send(replaced);
            }
        }
        self.pending = PendingWrite::Delta(delta, started);
        deletes_policy
    }

    /// Sets the limits of elements; they apply with the next call of [`PolicySubsystem::accept`].
    pub fn set_budget(&mut self, budget: palisade_engine::ElementBudget) {
        self.view.write().engine.set_budget(budget);
    }

    /// Makes the next run write all of it.
    pub(crate) fn request_resync(&mut self) {
        self.pending = PendingWrite::Resync;
    }

    /// Makes the next run compare the kernel with the tables.
    pub(crate) fn request_verification(&mut self) {
        // The driver's state is not known after an error: then only a resync is allowed.
        self.pending = if self.has_failed {
            PendingWrite::Resync
        } else {
            PendingWrite::Verification
        };
    }

    /// The kernel's state is not what was written: the next run is a resync.
    pub(crate) fn mark_failed(&mut self) {
        self.has_failed = true;
        self.metrics.failures += 1;
    }

    /// Whether the kernel was resynchronised since this was last asked.
    pub(crate) fn take_resynced(&mut self) -> bool {
        std::mem::take(&mut self.is_resynced)
    }

    /// What verifications wrote since this was last asked.
    pub(crate) fn take_repair_writes(&mut self) -> usize {
        std::mem::take(&mut self.repair_writes)
    }

    fn write_delta(
        &mut self,
        delta: &Delta,
        started: Instant,
        dataplane: &mut dyn Dataplane,
    ) -> Result<(), SubsystemError> {
        if delta.is_empty() {
            self.record_flush(ApplyOutcome::default(), started);
            return Ok(());
        }
        let state = self.view.read();
        let result = dataplane.execute(delta, state.tables(), &mut self.ledger);
        drop(state);
        match result {
            Ok(outcome) => {
                self.record_flush(outcome, started);
                Ok(())
            }
            Err(error) => {
                tracing::warn!(error = %error_chain(&error), "writing to the kernel failed; will resync");
                self.metrics.failures += 1;
                self.write_all(dataplane)
            }
        }
    }

    fn write_all(&mut self, dataplane: &mut dyn Dataplane) -> Result<(), SubsystemError> {
        let started = self.clock.monotonic();
        if self.has_failed {
            self.metrics.retries += 1;
        }
        // The former state of the kernel is not known, so packets cannot be attributed to it.
        self.view.write().history.clear();
        let state = self.view.read();
        let result = dataplane.resync(state.tables(), &mut self.ledger);
        drop(state);
        let outcome = match result {
            Ok(outcome) => outcome,
            Err(error) => {
                self.metrics.failures += 1;
                self.has_failed = true;
                return Err(SubsystemError::new(error));
            }
        };
        if std::mem::take(&mut self.has_failed) {
            tracing::info!("the kernel holds the policy again");
        }
        self.is_resynced = true;
        self.record_flush(outcome, started);
        if self.progress.initial_flush.is_none()
            && let Some(last) = self.progress.last_flush.clone()
        {
            let (writes, revision) = (last.writes, last.revision);
            tracing::info!(writes, revision, "in sync: {writes} kernel writes");
            self.progress.initial_flush = Some(last);
        }
        Ok(())
    }

    fn verify(&mut self, dataplane: &mut dyn Dataplane) -> Result<(), SubsystemError> {
        let state = self.view.read();
        let result = dataplane.verify(state.tables(), &mut self.ledger);
        drop(state);
        match result {
            Ok(outcome) => {
                if outcome.writes > 0 {
                    self.metrics.observe_steps(&outcome);
                    self.repair_writes += outcome.writes;
                    self.log_journal_error();
                }
                Ok(())
            }
            Err(error) => {
                tracing::warn!(error = %error_chain(&error), "verifying the kernel's state failed; will resync");
                self.metrics.failures += 1;
                self.write_all(dataplane)
            }
        }
    }

    /// When [`PolicySubsystem::forget_past_tables`] is due; `None`: there are none.
    pub(crate) fn past_tables_expiry(&self) -> Option<Instant> {
        self.progress.past_tables_expiry
    }

    /// Forgets the tables before the last flush, once no packet can have been judged by them.
    pub(crate) fn forget_past_tables(&mut self, now: Instant) {
        if self.progress.past_tables_expiry.is_some_and(|at| at <= now) {
            self.progress.past_tables_expiry = None;
            self.view.write().history.forget_ended();
        }
    }

    fn record_flush(&mut self, outcome: ApplyOutcome, started: Instant) {
        let mut state = self.view.write();
        let revision = state.engine.revision();
        let since = self.clock.wall();
        state.history.end_flush(since);
        state.realised_revision = revision;
        drop(state);
        if outcome.writes > 0 && !fault::is_injected("open-flows-not-judged") {
            self.view.announce_write();
        }
        let now = self.clock.monotonic();
        self.progress.past_tables_expiry = Some(now + RETENTION);
        for detected_at in self.progress.unrealised_changes.drain(..) {
            let delay = now.saturating_duration_since(detected_at);
            self.metrics.implementation_delay.observe(delay);
        }
        let realised = RealisedPolicy { revision, since };
        let policies = std::mem::take(&mut self.progress.unrealised_policies).into_iter();
        self.progress
            .realised_policies
            .extend(policies.map(|id| (id, realised)));
        let took = now - started;
        self.metrics.observe_flush(&outcome, took);
        let flush = FlushReport {
            revision,
            writes: outcome.writes,
            millis: millis(took),
        };
        tracing::debug!(
            revision = flush.revision,
            writes = flush.writes,
            millis = flush.millis,
            steps = ?outcome.steps,
            "flushed"
        );
        self.progress.last_flush = Some(flush);
        self.log_journal_error();
    }

    /// Restores the counters saved before a restart, and saves them from now on.
    pub fn restore_counts(&mut self, state_dir: &Path) {
        let file = CountsFile::in_state_dir(state_dir);
        if let Err(error) = file.restore(&mut self.ledger) {
            tracing::warn!(error = %error_chain(&error), "reading the counter journal failed; counters from before the restart are lost");
        }
    }

    /// Reads the kernel's counters; `None` if they cannot be read.
    pub(crate) fn read_counters(&mut self, dataplane: &mut dyn Dataplane) -> Option<Counters> {
        let counters = dataplane.counters(&mut self.ledger).inspect_err(
            |error| tracing::warn!(error = %error_chain(error), "reading the kernel's counters failed"),
        );
        counters.ok()
    }

    /// Removes the counters of deleted policies, which would otherwise accumulate in memory and on disk.
    pub(crate) fn prune_counts(&mut self) {
        let state = self.view.read();
        let engine = &state.engine;
        self.ledger.retain(&|cause| match cause.unaudited() {
            VerdictCause::Rule { policy, .. } => engine.has_policy(policy),
            VerdictCause::TierDefault { policies, .. } => {
                policies.iter().any(|p| engine.has_policy(p))
            }
            _ => true,
        });
    }

    /// Logs an error of the counter journal.
    fn log_journal_error(&mut self) {
        if let Some(error) = self.ledger.take_error() {
            tracing::warn!(error = %error_chain(&error), "saving counters failed; a restart would lose them");
        }
    }
}

impl Subsystem<dyn Dataplane> for PolicySubsystem {
    type Action = PolicyWrite;

    fn name(&self) -> &'static str {
        "policy"
    }

    fn has_work(&self, _: &(dyn Dataplane + 'static)) -> bool {
        self.in_sync && !matches!(self.pending, PendingWrite::None)
    }

    fn plan(
        &mut self,
        _: &mut (dyn Dataplane + 'static),
    ) -> Result<Vec<PolicyWrite>, SubsystemError> {
        if !self.in_sync {
            return Ok(Vec::new());
        }
        let write = match &self.pending {
            _ if self.has_failed => PolicyWrite::Resync,
            PendingWrite::None => return Ok(Vec::new()),
            PendingWrite::Delta(delta, _) => PolicyWrite::Execute(delta.revision),
            PendingWrite::Verification => PolicyWrite::Verify,
            PendingWrite::Resync => PolicyWrite::Resync,
        };
        Ok(vec![write])
    }

    fn execute(
        &mut self,
        write: PolicyWrite,
        dataplane: &mut (dyn Dataplane + 'static),
    ) -> Result<ActionOutcome, SubsystemError> {
        match (write, std::mem::take(&mut self.pending)) {
            (PolicyWrite::Execute(_), PendingWrite::Delta(delta, started)) => {
                self.write_delta(&delta, started, dataplane)?;
            }
            (PolicyWrite::Verify, _) => self.verify(dataplane)?,
            (PolicyWrite::Execute(_) | PolicyWrite::Resync, _) => self.write_all(dataplane)?,
        }
        Ok(ActionOutcome::Done)
    }
}

/// The maximum number of kernel elements that policy may use.
pub fn element_budget(config: &PolicyConfig) -> ElementBudget {
    ElementBudget {
        set: config.set_max_elements as usize,
        host: config.host_max_elements as usize,
    }
}
