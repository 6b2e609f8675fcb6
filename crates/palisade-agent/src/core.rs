//! The agent's core: one thread that owns the engine, the dataplane and the workloads.
//!
//! Every input reaches it as a [`CoreEvent`] on one bounded queue ([`crate::core_queue`]), so there is
//! no shared state: sources send batches, the API sends requests (closures), watchers send kernel
//! notifications. Events are handled one after the other: a source's batch becomes one delta, which is
//! executed before the next event is taken; attaches that wait together become one delta as well. The
//! core never waits for a source or a client.

use crate::attach::AttachRequest;
use crate::attach_steps::StepHook;
use crate::clock::Clock;
use crate::config::Config;
pub use crate::core_queue::{CoreHandle, EventReceiver};
use crate::enforcer::{Enforcer, RetryTimer, VerifyResult};
use crate::error_chain::error_chain;
use crate::host::HostChanges;
use crate::ipam::Ipam;
use crate::monitor::Monitor;
use crate::network_driver::NetworkDriver;
use crate::registry::WorkloadRegistry;
use crate::settings::SettingsFile;
use crate::workload_lifecycle::masquerade_policy;
use crate::workload_store::{WorkloadRecord, WorkloadStore};
use crate::workloads::WorkloadError;
use palisade_api::BootstrapStage;
use palisade_dataplane::Dataplane;
use palisade_model::{EndpointId, Update};
use palisade_source::{Diagnostic, EffectiveReport, UpdateBatch};
use palisade_sys::fault;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};

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
    pub(crate) enforcer: Enforcer,
    pub(crate) network: Box<dyn NetworkDriver>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) records: WorkloadStore,
    /// The file of changed sysctls.
    pub(crate) settings: SettingsFile,
    /// Whether this host has to forward: true from its first workload on.
    pub(crate) forwarding_enabled: bool,
    pub(crate) registry: WorkloadRegistry,
    pub(crate) ipam: Ipam,
    pub(crate) monitor: Monitor,
    pub(crate) source: (String, String),
    pub(crate) source_report: EffectiveReport,
    pub(crate) started: Duration,
    pub(crate) startup_stages: Vec<BootstrapStage>,
    /// Workloads whose attach failed and could not be rolled back; saved as pending.
    pub(crate) leftovers: Vec<WorkloadRecord>,
    /// Whether a queued CNI DEL failed.
    pub(crate) deletions_failed: bool,
    /// Why the CNI configuration could not be written.
    pub(crate) cni_conf_failure: Option<String>,
    /// The pending records of the workloads that are being attached; their attach brings them up, not
    /// [`Core::open_pending`].
    pub(crate) attaching: BTreeMap<EndpointId, WorkloadRecord>,
    /// When the request of each workload arrived that has not been open since.
    pub(crate) unopened: BTreeMap<EndpointId, Instant>,
    pub(crate) open_waiters: Vec<(EndpointId, tokio::sync::oneshot::Sender<()>)>,
    pub(crate) step_hook: Option<StepHook>,
    pub(crate) config_listeners: Vec<crate::reload::ConfigListener>,
    sync_waiters: Vec<tokio::sync::oneshot::Sender<()>>,
    /// When leftovers and queued CNI DELs are retried.
    retry: RetryTimer,
}

impl Core {
    /// A core of these parts, without state.
    pub fn new(parts: CoreParts) -> Self {
        let clock: Arc<dyn Clock> = Arc::from(parts.clock);
        let started = clock.wall();
        Core {
            enforcer: Enforcer::new(&parts.config, parts.dataplane, Arc::clone(&clock)),
            records: match parts.config.dry_run {
                true => WorkloadStore::read_only(&parts.config.state_dir),
                false => WorkloadStore::in_state_dir(&parts.config.state_dir),
            },
            settings: SettingsFile::in_state_dir(&parts.config.state_dir),
            forwarding_enabled: false,
            registry: WorkloadRegistry::default(),
            ipam: Ipam::new(&parts.config.pools, &parts.config.reserved),
            monitor: Monitor::new(parts.config.monitor_rate, clock.monotonic()),
            config: parts.config,
            network: parts.network,
            clock,
            source: parts.source,
            source_report: EffectiveReport::default(),
            started,
            startup_stages: Vec::new(),
            leftovers: Vec::new(),
            deletions_failed: false,
            cni_conf_failure: None,
            attaching: BTreeMap::new(),
            unopened: BTreeMap::new(),
            open_waiters: Vec::new(),
            step_hook: None,
            config_listeners: Vec::new(),
            sync_waiters: Vec::new(),
            retry: RetryTimer::default(),
        }
    }

    /// Runs until a stop event arrives or all senders are gone.
    pub fn run(mut self, events: &EventReceiver) {
        loop {
            events.mark_idle(self.unready_reasons());
            let now = self.clock.monotonic();
            let due = [self.retry.due(), self.enforcer.retry_due()]
                .into_iter()
                .flatten();
            let timeout = due.min().map(|at| at.saturating_duration_since(now));
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
        self.enforcer.metrics.count_batch();
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
        let updates: Vec<Update> = source_updates
            .map(|u| self.registry.overlay_update(u))
            .collect();
        let big = updates.len() >= LARGE_BATCH;
        let first_sync = batch.in_sync && !self.enforcer.in_sync;
        self.enforcer.in_sync |= batch.in_sync;
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
        if self.enforcer.in_sync || fault::is_injected("told-before-in-line") {
            let _ = waiter.send(());
        } else {
            self.sync_waiters.push(waiter);
        }
    }

    /// Passes updates to the enforcer, and opens the workloads that waited for their policy.
    pub(crate) fn apply(&mut self, updates: Vec<Update>) {
        let masquerade = || masquerade_policy(&self.config, &self.registry);
        self.enforcer.apply(updates, &masquerade, &mut self.monitor);
        self.open_pending();
    }

    /// Makes the kernel hold the tables, whatever its present state is.
    fn resync(&mut self) {
        let masquerade = || masquerade_policy(&self.config, &self.registry);
        self.enforcer.resync(&masquerade, &mut self.monitor);
        self.open_pending();
    }

    /// Retries what failed: the kernel's state, leftovers, queued CNI DELs. It is scheduled with
    /// increasing delays until nothing is left.
    pub fn retry_failed(&mut self) {
        match self.enforcer.has_failed() {
            true => self.resync(),
            false => self.enforcer.clear_retry(),
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
            self.retry.schedule(self.clock.monotonic());
        } else {
            self.retry.clear();
        }
    }

    /// Schedules a retry of leftovers and queued CNI DELs, unless one is scheduled already.
    pub(crate) fn ensure_retry(&mut self) {
        self.retry.ensure(self.clock.monotonic());
    }

    /// Verifies the kernel if the driver does not notice changes by others; called where an operator asks
    /// for a reload.
    pub fn verify_unnoticed(&mut self) {
        if !self.enforcer.dataplane.notices_changes() {
            self.verify_kernel("verified at a reload", self.clock.monotonic());
        }
    }

    /// Compares the kernel with the tables, and repairs it.
    fn verify_kernel(&mut self, what: &str, detected_at: Instant) {
        let masquerade = || masquerade_policy(&self.config, &self.registry);
        let monitor = &mut self.monitor;
        let result = self
            .enforcer
            .verify(what, detected_at, &masquerade, monitor);
        if result == VerifyResult::Resynced {
            self.open_pending();
        }
    }
}
