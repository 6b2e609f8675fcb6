//! The enforcer: makes the kernel hold the policy of the objects it was given.
//!
//! It owns the engine, which computes the tables, and the driver, which writes them. Start, retry and
//! repair are one path ([`Enforcer::resync`]). Promises: nothing is written before the source is in sync;
//! what the kernel rejects is retried with growing delays, and the kernel counts as failed until then.
//! Masquerade rules are written beside the policy; a failure of one leaves the other as it is.
//!
//! Never: knows a workload's interface or record, or reads a source.

use crate::clock::{Clock, millis};
use crate::cluster_nodes::own_node_name;
use crate::counts::CountsFile;
use crate::flush_history::FlushHistory;
use crate::lockout::{self, TcpConnection};
use crate::metrics::CoreMetrics;
use crate::options::element_budget;
use crate::retry_timer::RetryTimer;
use palisade_api::{FlushReport, RepairReport};
use palisade_config::Config;
use palisade_dataplane::{
    ApplyOutcome, CounterLedger, Counters, Dataplane, DriverCondition, DriverError,
    DriverErrorKind, MasqueradePolicy,
};
use palisade_engine::Engine;
use palisade_model::{HostTrafficAction, Object, ObjectKey, PolicyId, Update};
use palisade_source::error_chain;
use palisade_sys::fault;
use palisade_tables::{Credit, Delta};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The reason why an agent that has just started is not ready.
pub(crate) const NOT_IN_SYNC_REASON: &str = "the policy source has not been read completely yet";
/// How long counters that were read are used again.
const MAX_COUNTER_AGE: Duration = Duration::from_secs(1);
/// The maximum number of changes whose implementation delay is measured at once.
const MAX_UNREALISED_CHANGES: usize = 1_024;
/// The maximum number of repairs in the status.
const MAX_REPAIRS: usize = 16;
/// The maximum number of differences that one repair names.
const MAX_NAMED_IN_REPAIR: usize = 4;

/// Since when the kernel enforces a policy in its present version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RealisedPolicy {
    /// The revision whose flush wrote it.
    pub(crate) revision: u64,
    /// When that flush was complete, since the epoch.
    pub(crate) since: Duration,
}

/// What a verification did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum VerifyResult {
    /// The kernel was compared, and repaired if it differed.
    Verified,
    /// It could not be compared, so all of it was written again.
    Resynced,
}

/// Computes the masquerade rules of the present workloads; called only where they are written.
pub(crate) type MasqueradeSource<'a> = dyn Fn() -> MasqueradePolicy + 'a;

/// The enforcer. See the module's description.
pub struct Enforcer {
    pub(crate) engine: Engine,
    pub(crate) dataplane: Box<dyn Dataplane>,
    /// The totals of what the dataplane counts.
    pub(crate) ledger: CounterLedger,
    pub(crate) metrics: CoreMetrics,
    /// What recent flushes replaced.
    pub(crate) history: FlushHistory,
    /// Whether the source has been read completely; nothing is written before.
    pub(crate) in_sync: bool,
    pub(crate) realised_revision: u64,
    /// The policies that the kernel enforces in their present version.
    pub(crate) realised_policies: BTreeMap<PolicyId, RealisedPolicy>,
    /// Policies whose present version is not in the kernel yet.
    unrealised_policies: BTreeSet<PolicyId>,
    /// When the changes of the source were detected that are not in the kernel yet.
    unrealised_changes: Vec<Instant>,
    pub(crate) initial_flush: Option<FlushReport>,
    pub(crate) last_flush: Option<FlushReport>,
    pub(crate) repairs: VecDeque<RepairReport>,
    pub(crate) repair_count: u64,
    /// Why the kernel does not hold the policy.
    pub(crate) kernel_failure: Option<String>,
    /// Why the masquerade rules could not be written.
    pub(crate) masquerade_failure: Option<String>,
    clock: Arc<dyn Clock>,
    /// What the driver said last that it cannot do.
    conditions: Vec<DriverCondition>,
    /// The kernel's counters, and when they were read.
    cached_counters: Option<(Instant, Arc<Counters>)>,
    /// When the kernel is retried, if it failed.
    pub(crate) retry: RetryTimer,
}

impl Enforcer {
    /// An enforcer without objects.
    pub(crate) fn new(
        config: &Config,
        dataplane: Box<dyn Dataplane>,
        clock: Arc<dyn Clock>,
    ) -> Self {
        Enforcer {
            engine: Engine::new(palisade_engine::EngineOptions {
                host_node: Some(own_node_name(&config.nodes)).filter(|name| !name.is_empty()),
                judge_host_traffic: config.policy.host_to_endpoint == HostTrafficAction::Policy,
                hairpin: config.policy.hairpin,
                allowed_encapsulation: config.policy.allowed_encapsulation,
                audit: config.policy.audit_mode,
                failsafe: config.host.failsafe(),
                budget: element_budget(&config.policy),
            }),
            conditions: dataplane.conditions(),
            dataplane,
            ledger: CounterLedger::default(),
            metrics: CoreMetrics::default(),
            history: FlushHistory::default(),
            in_sync: false,
            realised_revision: 0,
            realised_policies: BTreeMap::new(),
            unrealised_policies: BTreeSet::new(),
            unrealised_changes: Vec::new(),
            initial_flush: None,
            last_flush: None,
            repairs: VecDeque::new(),
            repair_count: 0,
            kernel_failure: None,
            masquerade_failure: None,
            clock,
            cached_counters: None,
            retry: RetryTimer::default(),
        }
    }

    /// Whether the kernel rejected policy or masquerade rules, and has to be retried.
    pub(crate) fn has_failed(&self) -> bool {
        self.kernel_failure.is_some() || self.masquerade_failure.is_some()
    }

    /// Takes note of a change of the source: how long it takes until the kernel has it is measured.
    pub(crate) fn record_change(&mut self, detected_at: Instant) {
        // Beyond this number, a kernel that rejects everything is the greater problem.
        if self.unrealised_changes.len() < MAX_UNREALISED_CHANGES {
            self.unrealised_changes.push(detected_at);
        }
    }

    /// Passes updates to the engine and writes the changes to the kernel. `connections`: those of this host that a
    /// change of host policy may cut, which is told first.
    pub(crate) fn apply(
        &mut self,
        updates: Vec<Update>,
        connections: &[TcpConnection],
        masquerade: &MasqueradeSource<'_>,
    ) {
        let started = self.clock.monotonic();
        let mut deletes_policy = false;
        for update in &updates {
            match update {
                Update::Upsert(Object::Policy(policy)) => {
                    self.realised_policies.remove(&policy.id);
                    self.unrealised_policies.insert(policy.id.clone());
                }
                Update::Delete(ObjectKey::Policy(id)) => {
                    deletes_policy = true;
                    self.unrealised_policies.remove(id);
                    self.realised_policies.remove(id);
                }
                _ => {}
            }
        }
        if self.in_sync {
            let now = self.clock.wall();
            self.history
                .record_released_addresses(&self.engine, &updates, now);
        }
        let delta = self.engine.apply(updates);
        if !self.in_sync {
            return;
        }
        // At the start the kernel has what it had: nothing is judged if that is nothing.
        if let Some(before) = self.dataplane.written_tables() {
            lockout::warn_of_cut(before, self.engine.tables(), connections);
        }
        self.execute(&delta, started, masquerade);
        if deletes_policy {
            self.prune_counts();
        }
    }

    fn execute(&mut self, delta: &Delta, started: Instant, masquerade: &MasqueradeSource<'_>) {
        if self.kernel_failure.is_some() {
            return self.resync(masquerade);
        }
        if delta.is_empty() {
            return self.record_flush(ApplyOutcome::default(), started);
        }
        let began = self.clock.wall();
        let before = self.dataplane.written_tables();
        let revision = self.realised_revision;
        self.history.begin_flush(began, revision, delta, before);
        let (tables, ledger) = (self.engine.tables(), &mut self.ledger);
        match self.dataplane.execute(delta, tables, ledger) {
            Ok(outcome) => {
                self.history.end_flush(self.clock.wall());
                self.record_flush(outcome, started);
            }
            Err(error) => {
                tracing::warn!(error = %error_chain(&error), "writing to the kernel failed; will resync");
                self.metrics.failures += 1;
                self.resync(masquerade);
            }
        }
    }

    /// Makes the kernel hold the tables, whatever its present state is.
    pub(crate) fn resync(&mut self, masquerade: &MasqueradeSource<'_>) {
        let started = self.clock.monotonic();
        if self.kernel_failure.is_some() {
            self.metrics.retries += 1;
        }
        // The former state of the kernel is not known, so packets cannot be attributed to it.
        self.history.clear();
        let (tables, ledger) = (self.engine.tables(), &mut self.ledger);
        match self.dataplane.resync(tables, ledger) {
            Ok(outcome) => {
                if self.kernel_failure.take().is_some() {
                    tracing::info!("the kernel holds the policy again");
                }
                self.sync_masquerade(&masquerade());
                if !self.has_failed() {
                    self.retry.clear();
                }
                let first = self.initial_flush.is_none();
                self.record_flush(outcome, started);
                if first {
                    self.initial_flush = self.last_flush.clone();
                    let writes = self.last_flush.as_ref().map_or(0, |last| last.writes);
                    tracing::info!(
                        writes,
                        revision = self.realised_revision,
                        "in sync: {writes} kernel writes"
                    );
                }
            }
            Err(error) => self.record_failure(&error),
        }
    }

    fn record_failure(&mut self, error: &DriverError) {
        let text = error_chain(error);
        let wait = self.retry.schedule(self.clock.monotonic());
        tracing::error!(error = %text, retry_ms = wait.as_millis() as u64, "the kernel rejected the policy; will retry");
        self.metrics.failures += 1;
        self.kernel_failure = Some(text);
    }

    /// Takes note of whether the driver can use the interfaces that it was told of. If not, the kernel counts as failed
    /// until a resync succeeds; before the first one, that is it.
    pub(crate) fn record_interfaces(&mut self, result: Result<(), DriverError>) {
        match result {
            Err(error) if self.in_sync => self.record_failure(&error),
            Err(error) => {
                tracing::warn!(error = %error_chain(&error), "the driver cannot use an interface yet");
            }
            Ok(()) => {}
        }
        self.follow_conditions();
    }

    /// Logs what the driver cannot do any more.
    fn follow_conditions(&mut self) {
        let conditions = self.dataplane.conditions();
        for condition in &conditions {
            if !self.conditions.contains(condition) {
                tracing::warn!("{}", condition.message);
            }
        }
        self.conditions = conditions;
    }

    fn record_flush(&mut self, outcome: ApplyOutcome, started: Instant) {
        self.realised_revision = self.engine.revision();
        let realised = RealisedPolicy {
            revision: self.realised_revision,
            since: self.clock.wall(),
        };
        let now = self.clock.monotonic();
        for detected_at in self.unrealised_changes.drain(..) {
            let delay = now.saturating_duration_since(detected_at);
            self.metrics.implementation_delay.observe(delay);
        }
        let policies = std::mem::take(&mut self.unrealised_policies).into_iter();
        self.realised_policies
            .extend(policies.map(|id| (id, realised)));
        let took = now - started;
        self.metrics.observe_flush(&outcome, took);
        let flush = FlushReport {
            revision: self.realised_revision,
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
        self.last_flush = Some(flush);
        self.follow_conditions();
        self.log_journal_error();
    }

    /// Restores the counters saved before a restart, and saves them from now on.
    pub(crate) fn restore_counts(&mut self, config: &Config) {
        if config.dry_run {
            return;
        }
        let file = CountsFile::in_state_dir(&config.state.dir);
        if let Err(error) = file.restore(self.dataplane.name(), &mut self.ledger) {
            tracing::warn!(error = %error_chain(&error), "reading the counter journal failed; counters from before the restart are lost");
        }
    }

    /// Why the kernel does not hold the policy of the source; empty if it does.
    pub(crate) fn unready_reasons(&self) -> Vec<String> {
        let unsynced = (!self.in_sync).then(|| NOT_IN_SYNC_REASON.to_owned());
        let failed = self.kernel_failure.as_ref();
        let failed = failed.map(|why| format!("the kernel does not hold the policy: {why}"));
        unsynced.into_iter().chain(failed).collect()
    }

    /// The kernel's counters; `None` if they cannot be read.
    pub(crate) fn counters(&mut self) -> Option<Arc<Counters>> {
        let counters = self.dataplane.counters(&mut self.ledger);
        let counters = counters.map(Arc::new).inspect_err(
            |error| tracing::warn!(error = %error_chain(error), "reading the kernel's counters failed"),
        );
        let counters = counters.ok();
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

    /// Removes the counters of deleted policies, which would otherwise accumulate in memory and on disk.
    fn prune_counts(&mut self) {
        let engine = &self.engine;
        self.ledger.retain(&|credit| match credit.unaudited() {
            Credit::Rule { policy, .. } => engine.has_policy(policy),
            Credit::TierDefault { policies: of, .. } => of.iter().any(|p| engine.has_policy(p)),
            _ => true,
        });
    }

    /// Logs an error of the counter journal.
    fn log_journal_error(&mut self) {
        if let Some(error) = self.ledger.take_error() {
            tracing::warn!(error = %error_chain(&error), "saving counters failed; a restart would lose them");
        }
    }

    /// Updates the masquerade table; returns the number of writes. A failure is retried.
    pub(crate) fn sync_masquerade(&mut self, wanted: &MasqueradePolicy) -> usize {
        self.apply_masquerade(wanted).unwrap_or_else(|error| {
            tracing::error!(error = %error_chain(&error), "updating masquerade rules failed; will retry");
            self.retry.schedule(self.clock.monotonic());
            0
        })
    }

    /// Writes the masquerade rules to the kernel; returns the number of writes.
    pub(crate) fn apply_masquerade(
        &mut self,
        wanted: &MasqueradePolicy,
    ) -> Result<usize, DriverError> {
        let written = match self.dataplane.address_translation() {
            Some(translation) => translation.masquerade(wanted),
            None if wanted.addresses.is_empty() => Ok(0),
            None => Err(DriverError::new(
                DriverErrorKind::Unusable,
                "masquerading",
                "workload addresses",
                "the driver has no address translation",
            )),
        };
        self.masquerade_failure = written.as_ref().err().map(|error| error_chain(error));
        written
    }

    /// Compares the kernel with the tables, and repairs it.
    pub(crate) fn verify(
        &mut self,
        what: &str,
        detected_at: Instant,
        masquerade: &MasqueradeSource<'_>,
    ) -> VerifyResult {
        if !self.in_sync {
            return VerifyResult::Verified;
        }
        if self.kernel_failure.is_some() {
            // The driver's state is not known: only a resync is allowed.
            self.resync(masquerade);
            return VerifyResult::Resynced;
        }
        let (tables, ledger) = (self.engine.tables(), &mut self.ledger);
        match self.dataplane.verify(tables, ledger) {
            Ok(outcome) => {
                let translated = match fault::is_injected("masquerade-not-repaired") {
                    true => 0,
                    false => self.sync_masquerade(&masquerade()),
                };
                self.follow_conditions();
                let writes = outcome.writes + translated;
                if writes > 0 {
                    self.metrics.observe_steps(&outcome);
                    self.log_journal_error();
                    self.record_repair(&[what.to_owned()], writes, detected_at);
                }
                VerifyResult::Verified
            }
            Err(error) => {
                tracing::warn!(error = %error_chain(&error), "verifying the kernel's state failed; will resync");
                self.metrics.failures += 1;
                self.resync(masquerade);
                VerifyResult::Resynced
            }
        }
    }

    /// Records a repair of a change detected at `detected_at`.
    pub(crate) fn record_repair(&mut self, what: &[String], writes: usize, detected_at: Instant) {
        let millis = millis(self.clock.monotonic() - detected_at);
        let mut text = what
            .iter()
            .take(MAX_NAMED_IN_REPAIR)
            .cloned()
            .collect::<Vec<_>>()
            .join(", ");
        if what.len() > MAX_NAMED_IN_REPAIR {
            text += &format!(" and {} more", what.len() - MAX_NAMED_IN_REPAIR);
        }
        tracing::warn!(what = %text, writes, millis, "another program changed state of the agent: repaired");
        self.repairs.push_back(RepairReport {
            at: crate::clock::rfc3339(self.clock.wall()),
            what: text,
            writes,
            millis,
        });
        self.repair_count += 1;
        if self.repairs.len() > MAX_REPAIRS {
            self.repairs.pop_front();
        }
    }
}
