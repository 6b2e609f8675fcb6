//! The agent's core: one thread that owns the engine, the dataplane and the workloads.
//!
//! Every input reaches it as a [`CoreEvent`] on one bounded queue ([`crate::core_queue`]), so there is
//! no shared state: sources send batches, the API sends requests (closures), watchers send kernel
//! notifications. Events are handled one after the other: a source's batch becomes one delta, which is
//! executed before the next event is taken; attaches that wait together become one delta as well. The core never waits for a source or a client.

use crate::attach::AttachRequest;
use crate::attach_steps::StepHook;
use crate::clock::Clock;
use crate::config::Config;
pub use crate::core_queue::{CoreHandle, EventReceiver};
use crate::counts::CountsFile;
use crate::host::HostChanges;
use crate::ipam::Ipam;
use crate::metrics::CoreMetrics;
use crate::monitor::Monitor;
use crate::network_driver::NetworkDriver;
use crate::registry::WorkloadRegistry;
use crate::settings::SettingsFile;
use crate::workload_store::{WorkloadRecord, WorkloadStore};
use crate::workloads::WorkloadError;
use palisade_api::{BootstrapStage, FlushReport, RepairReport};
use palisade_dataplane::{CounterLedger, Counters, Dataplane};
use palisade_engine::Engine;
use palisade_model::{EndpointId, HostTrafficAction, ObjectKey, Update};
use palisade_source::{Diagnostic, SourceReport, UpdateBatch};
use palisade_sys::fault;
use palisade_tables::{Credit, Delta};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};

/// The first and the maximum delay before the dataplane is retried.
const RETRY_BACKOFF: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(10));

/// After a batch of at least this many updates, freed memory is returned to the kernel.
const LARGE_BATCH: usize = 2_000;
/// The maximum number of new problems of one batch that are logged individually.
const MAX_LOGGED_PROBLEMS: usize = 100;

/// A request that runs on the core thread.
pub type CoreRequest = Box<dyn FnOnce(&mut Core) + Send>;

/// An attach in the queue, and what answers its caller.
pub struct QueuedAttach {
    /// The request.
    pub request: AttachRequest,
    /// Called with the result, when the policy of the workload is in the kernel.
    pub answer: AttachAnswer,
}

/// Answers the caller of an attach.
pub type AttachAnswer = Box<dyn FnOnce(&mut Core, Result<WorkloadRecord, WorkloadError>) + Send>;

/// An event for the core.
pub enum CoreEvent {
    /// Updates of the policy source.
    Source(UpdateBatch),
    /// The policy source stopped, which is an error.
    SourceEnded(String),
    /// A request of the API or of the agent itself.
    Request(CoreRequest),
    /// Attaches that waited together; no two of them are about the same object.
    Attach(Vec<QueuedAttach>),
    /// Another program changed what the driver wrote to the kernel.
    Tampered {
        /// What was changed, for messages.
        what: String,
        /// When the change was detected.
        detected_at: Instant,
    },
    /// Links, routes, neighbours or sysctls of this host changed.
    HostChanged {
        /// The changes.
        changes: HostChanges,
        /// When the changes were detected.
        detected_at: Instant,
    },
    /// The configuration file changed.
    ConfigChanged,
    /// Packets that were denied, dropped, or matched a Log rule.
    Packets(crate::monitor::packet_queue::PacketDelivery),
    /// Stop the core; the kernel continues to enforce policy.
    Stop,
}

/// The parts of a core.
pub struct CoreParts {
    /// The configuration.
    pub config: Config,
    /// The dataplane.
    pub dataplane: Box<dyn Dataplane>,
    /// The driver that connects network namespaces to this host.
    pub network: Box<dyn NetworkDriver>,
    /// The clock.
    pub clock: Box<dyn Clock>,
    /// The kind of the source, and its path.
    pub source: (String, String),
}

/// The core. See the module's description.
pub struct Core {
    pub(crate) config: Config,
    pub(crate) engine: Engine,
    pub(crate) dataplane: Box<dyn Dataplane>,
    /// The totals of what the dataplane counts.
    pub(crate) ledger: CounterLedger,
    pub(crate) network: Box<dyn NetworkDriver>,
    pub(crate) clock: Box<dyn Clock>,
    pub(crate) records: WorkloadStore,
    /// The file of changed sysctls.
    pub(crate) settings: SettingsFile,
    /// Whether this host has to forward: true from its first workload on.
    pub(crate) forwarding_enabled: bool,
    pub(crate) registry: WorkloadRegistry,
    pub(crate) ipam: Ipam,
    pub(crate) monitor: Monitor,
    pub(crate) metrics: CoreMetrics,
    pub(crate) source: (String, String),
    pub(crate) source_ended: Option<String>,
    pub(crate) source_report: SourceReport,
    pub(crate) in_sync: bool,
    pub(crate) realised_revision: u64,
    pub(crate) generation: u32,
    pub(crate) started: Duration,
    pub(crate) initial_flush: Option<FlushReport>,
    pub(crate) last_flush: Option<FlushReport>,
    pub(crate) repairs: VecDeque<RepairReport>,
    pub(crate) repair_count: u64,
    pub(crate) kernel_failure: Option<String>,
    pub(crate) startup_stages: Vec<BootstrapStage>,
    /// Workloads whose attach failed and could not be rolled back; saved as pending.
    pub(crate) leftovers: Vec<WorkloadRecord>,
    /// Whether a queued CNI DEL failed.
    pub(crate) deletions_failed: bool,
    /// Why the CNI configuration could not be written.
    pub(crate) cni_conf_failure: Option<String>,
    /// Why the masquerade rules could not be written.
    pub(crate) masquerade_failure: Option<String>,
    /// The pending records of the workloads that are being attached; their attach brings them up, not
    /// [`Core::open_pending`].
    pub(crate) attaching: BTreeMap<EndpointId, WorkloadRecord>,
    pub(crate) open_waiters: Vec<(EndpointId, tokio::sync::oneshot::Sender<()>)>,
    pub(crate) step_hook: Option<StepHook>,
    pub(crate) config_listeners: Vec<crate::reload::ConfigListener>,
    /// The kernel's counters, and when they were read.
    cached_counters: Option<(Instant, Counters)>,
    sync_waiters: Vec<tokio::sync::oneshot::Sender<()>>,
    retry: Option<(Instant, Duration)>,
}

impl Core {
    /// A core of these parts, without state.
    pub fn new(parts: CoreParts) -> Self {
        let judge_host_traffic = parts.config.host_to_endpoint == HostTrafficAction::Policy;
        let started = parts.clock.wall();
        Core {
            engine: Engine::new(palisade_engine::EngineOptions {
                judge_host_traffic,
                allowed_encapsulation: parts.config.allowed_encapsulation,
                budget: parts.config.budget,
            }),
            records: match parts.config.dry_run {
                true => WorkloadStore::read_only(&parts.config.state_dir),
                false => WorkloadStore::in_state_dir(&parts.config.state_dir),
            },
            settings: SettingsFile::in_state_dir(&parts.config.state_dir),
            forwarding_enabled: false,
            registry: WorkloadRegistry::default(),
            ipam: Ipam::new(&parts.config.pools, &parts.config.reserved),
            monitor: Monitor::new(parts.config.monitor_rate, parts.clock.monotonic()),
            metrics: CoreMetrics::default(),
            config: parts.config,
            dataplane: parts.dataplane,
            ledger: CounterLedger::default(),
            network: parts.network,
            clock: parts.clock,
            source: parts.source,
            source_ended: None,
            source_report: SourceReport::default(),
            in_sync: false,
            realised_revision: 0,
            generation: 0,
            started,
            initial_flush: None,
            last_flush: None,
            repairs: VecDeque::new(),
            repair_count: 0,
            kernel_failure: None,
            startup_stages: Vec::new(),
            leftovers: Vec::new(),
            deletions_failed: false,
            cni_conf_failure: None,
            masquerade_failure: None,
            attaching: BTreeMap::new(),
            open_waiters: Vec::new(),
            step_hook: None,
            config_listeners: Vec::new(),
            cached_counters: None,
            sync_waiters: Vec::new(),
            retry: None,
        }
    }

    /// Runs until a stop event arrives or all senders are gone.
    pub fn run(mut self, events: &EventReceiver) {
        loop {
            events.mark_idle(self.unready_reasons());
            let now = self.clock.monotonic();
            let timeout = self.retry.map(|(at, _)| at.saturating_duration_since(now));
            let event = events.next(timeout);
            events.mark_busy(self.clock.monotonic());
            match event {
                Ok(CoreEvent::Stop) | Err(RecvTimeoutError::Disconnected) => return,
                Ok(event) => self.handle_event(event),
                Err(RecvTimeoutError::Timeout) => {
                    events.mark_changed();
                    self.retry_failed();
                }
            }
        }
    }

    /// Handles one event.
    pub fn handle_event(&mut self, event: CoreEvent) {
        match event {
            CoreEvent::Source(batch) => self.handle_batch(batch),
            CoreEvent::SourceEnded(reason) => {
                tracing::error!(%reason, "the policy source stopped; current policy stays in force");
                self.source_ended = Some(reason);
            }
            CoreEvent::Request(request) => request(self),
            CoreEvent::Attach(queued) => {
                let queued = queued
                    .into_iter()
                    .map(|attach| (attach.request, attach.answer));
                let (requests, answers): (Vec<_>, Vec<_>) = queued.unzip();
                for (answer, result) in answers.into_iter().zip(self.attach_all(requests)) {
                    answer(self, result);
                }
            }
            CoreEvent::Tampered {
                what,
                detected_at: seen,
            } => self.verify_kernel(&what, seen),
            CoreEvent::ConfigChanged => self.reread_config(),
            CoreEvent::HostChanged {
                changes,
                detected_at: seen,
            } => self.repair_host(&changes, seen),
            CoreEvent::Packets(mut delivery) => {
                let packets = delivery.take_batch();
                self.report_packets(packets);
            }
            CoreEvent::Stop => {}
        }
    }

    fn handle_batch(&mut self, batch: UpdateBatch) {
        self.metrics.count_batch();
        let known: BTreeSet<&Diagnostic> = self.source_report.problems.iter().collect();
        let mut new = (batch.report.problems.iter()).filter(|flaw| !known.contains(flaw));
        for flaw in new.by_ref().take(MAX_LOGGED_PROBLEMS) {
            tracing::warn!(object = flaw.problem.object.as_deref(), "{}", flaw.problem);
        }
        let more: usize = new.map(Diagnostic::count).sum();
        if more > 0 {
            tracing::warn!(more, "more problems of the source; see `palisade status`");
        }
        self.source_report = batch.report;
        let source_updates = batch.updates.into_iter();
        let mut updates: Vec<Update> = source_updates
            .map(|u| self.registry.overlay_update(u))
            .collect();
        updates.extend(
            self.registry
                .set_completed_pods(&self.source_report.completed),
        );
        let big = updates.len() >= LARGE_BATCH;
        let first_sync = batch.in_sync && !self.in_sync;
        self.in_sync |= batch.in_sync;
        self.apply(updates);
        if first_sync {
            let started = self.clock.monotonic();
            self.resync();
            let millis = crate::clock::millis(self.clock.monotonic() - started);
            self.startup_stages.push(BootstrapStage {
                name: "kernel synchronised".to_owned(),
                millis,
            });
            for waiter in self.sync_waiters.drain(..) {
                // The receiver may have stopped waiting.
                let _ = waiter.send(());
            }
        }
        if big {
            palisade_sys::heap::trim();
        }
    }

    /// Notifies `waiter` once the source is in sync and the kernel has been resynchronised.
    pub fn notify_when_in_sync(&mut self, waiter: tokio::sync::oneshot::Sender<()>) {
        if self.in_sync || fault::is_injected("told-before-in-line") {
            let _ = waiter.send(());
        } else {
            self.sync_waiters.push(waiter);
        }
    }

    /// Passes updates to the engine and writes the changes to the kernel.
    pub(crate) fn apply(&mut self, updates: Vec<Update>) {
        let started = self.clock.monotonic();
        let is_policy = |update: &Update| matches!(update, Update::Delete(ObjectKey::Policy(_)));
        let deletes_policy = updates.iter().any(is_policy);
        self.record_released_addresses(&updates);
        let delta = self.engine.apply(updates);
        if !self.in_sync {
            return;
        }
        self.execute(&delta, started);
        if deletes_policy {
            self.prune_counts();
        }
    }

    fn execute(&mut self, delta: &Delta, started: Instant) {
        if self.kernel_failure.is_some() {
            return self.resync();
        }
        if delta.is_empty() {
            let nothing = palisade_dataplane::ApplyOutcome {
                generation: self.generation,
                ..Default::default()
            };
            return self.record_flush(nothing, started);
        }
        let began = self.clock.wall();
        let before = self.dataplane.written_tables();
        self.monitor
            .begin_flush(began, self.realised_revision, delta, before);
        let (tables, ledger) = (self.engine.tables(), &mut self.ledger);
        match self.dataplane.execute(delta, tables, ledger) {
            Ok(outcome) => {
                self.monitor.end_flush(self.clock.wall());
                self.record_flush(outcome, started);
            }
            Err(error) => {
                tracing::warn!(error = %error_chain(&error), "writing to the kernel failed; will resync");
                self.metrics.count_failure();
                self.resync();
            }
        }
    }

    /// Makes the kernel hold the tables, whatever its present state is.
    pub(crate) fn resync(&mut self) {
        let started = self.clock.monotonic();
        if self.kernel_failure.is_some() {
            self.metrics.count_retry();
        }
        // The former state of the kernel is not known, so packets cannot be attributed to it.
        self.monitor.clear_history();
        let (tables, ledger) = (self.engine.tables(), &mut self.ledger);
        match self.dataplane.resync(tables, ledger) {
            Ok(outcome) => {
                if self.kernel_failure.take().is_some() {
                    tracing::info!("the kernel holds the policy again");
                }
                self.sync_masquerade();
                if !self.needs_retry() {
                    self.retry = None;
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
            Err(error) => {
                let text = error_chain(&error);
                let wait = self.schedule_retry();
                tracing::error!(error = %text, retry_ms = wait.as_millis() as u64, "the kernel rejected the policy; will retry");
                self.metrics.count_failure();
                self.kernel_failure = Some(text);
            }
        }
    }

    fn record_flush(&mut self, outcome: palisade_dataplane::ApplyOutcome, started: Instant) {
        self.realised_revision = self.engine.revision();
        self.generation = outcome.generation;
        let took = self.clock.monotonic() - started;
        self.metrics.observe_flush(&outcome, took);
        let flush = FlushReport {
            revision: self.realised_revision,
            writes: outcome.writes,
            millis: crate::clock::millis(took),
        };
        tracing::debug!(
            revision = flush.revision,
            writes = flush.writes,
            millis = flush.millis,
            steps = ?outcome.steps,
            "flushed"
        );
        self.last_flush = Some(flush);
        self.open_pending();
        self.log_journal_error();
    }

    /// Restores the counters saved before a restart, and saves them from now on.
    pub(crate) fn restore_counts(&mut self) {
        if self.config.dry_run {
            return;
        }
        let file = CountsFile::in_state_dir(&self.config.state_dir);
        if let Err(error) = file.restore(self.dataplane.name(), &mut self.ledger) {
            tracing::warn!(error = %error_chain(&error), "reading the counter journal failed; counters from before the restart are lost");
        }
    }

    /// The kernel's counters, at most one second old, so that frequent readers do not cause more reads.
    pub(crate) fn recent_counters(&mut self) -> Option<&Counters> {
        let now = self.clock.monotonic();
        let is_recent = |(at, _): &(Instant, Counters)| now - *at < crate::page_cache::MAX_PAGE_AGE;
        if !self.cached_counters.as_ref().is_some_and(is_recent) {
            match self.dataplane.counters(&mut self.ledger) {
                Ok(counters) => self.cached_counters = Some((now, counters)),
                Err(error) => {
                    tracing::warn!(%error, "reading the kernel's counters failed");
                    self.cached_counters = None;
                }
            }
        }
        self.cached_counters.as_ref().map(|(_, counters)| counters)
    }

    /// Removes the counters of deleted policies, which would otherwise accumulate in memory and on disk.
    fn prune_counts(&mut self) {
        let engine = &self.engine;
        self.ledger.retain(&|credit| match credit {
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
    fn sync_masquerade(&mut self) -> usize {
        self.apply_masquerade().unwrap_or_else(|error| {
            tracing::error!(error = %error_chain(&error), "updating masquerade rules failed; will retry");
            self.schedule_retry();
            0
        })
    }

    /// Retries what failed: the kernel's state, leftovers, queued CNI DELs. It is scheduled with
    /// increasing delays until nothing is left.
    pub fn retry_failed(&mut self) {
        if self.kernel_failure.is_some() || self.masquerade_failure.is_some() {
            self.resync();
        }
        if !self.leftovers.is_empty()
            && let Err(error) = self.clear_leftovers(None)
        {
            tracing::warn!(error = %error_chain(&error), "removing workloads whose rollback failed; will retry");
        }
        if self.deletions_failed
            && let Err(error) = self.run_queued_deletions()
        {
            tracing::warn!(%error, "running queued CNI DELs failed");
        }
        if !self.leftovers.is_empty() || self.deletions_failed {
            self.schedule_retry();
        } else if !self.needs_retry() {
            self.retry = None;
        }
    }

    /// Whether anything has to be retried.
    fn needs_retry(&self) -> bool {
        let kernel = self.kernel_failure.is_some() || self.masquerade_failure.is_some();
        kernel || self.deletions_failed || !self.leftovers.is_empty()
    }

    /// Schedules a retry, unless one is scheduled already.
    pub(crate) fn ensure_retry(&mut self) {
        if self.retry.is_none() {
            self.schedule_retry();
        }
    }

    /// Schedules a retry with a doubled delay; returns the delay.
    fn schedule_retry(&mut self) -> Duration {
        let doubled = |(_, wait): (Instant, Duration)| (wait * 2).min(RETRY_BACKOFF.1);
        let wait = self.retry.map_or(RETRY_BACKOFF.0, doubled);
        self.retry = Some((self.clock.monotonic() + wait, wait));
        wait
    }

    /// Verifies the kernel if the driver does not notice changes by others; called where an operator asks
    /// for a reload.
    pub fn verify_unnoticed(&mut self) {
        if !self.dataplane.notices_changes() {
            self.verify_kernel("verified at a reload", self.clock.monotonic());
        }
    }

    /// Compares the kernel with the tables, and repairs it.
    fn verify_kernel(&mut self, what: &str, detected_at: Instant) {
        if !self.in_sync {
            return;
        }
        let (tables, ledger) = (self.engine.tables(), &mut self.ledger);
        match self.dataplane.verify(tables, ledger) {
            Ok(outcome) => {
                let translated = match fault::is_injected("masquerade-not-repaired") {
                    true => 0,
                    false => self.sync_masquerade(),
                };
                let writes = outcome.writes + translated;
                if writes > 0 {
                    self.metrics.observe_steps(&outcome);
                    self.generation = outcome.generation;
                    self.log_journal_error();
                    self.record_repair(&[what.to_owned()], writes, detected_at);
                }
            }
            Err(error) => {
                tracing::warn!(error = %error_chain(&error), "verifying the kernel's state failed; will resync");
                self.metrics.count_failure();
                self.resync();
            }
        }
    }
}

/// An error with all its causes, without duplicates.
pub fn error_chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let cause_text = cause.to_string();
        if !text.ends_with(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        next = cause.source();
    }
    text
}
