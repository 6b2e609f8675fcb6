//! The agent's core: one thread that owns the enforcer, the workloads and the monitor.
//!
//! Every input reaches it as a [`CoreEvent`] on one bounded queue ([`crate::core_queue`], whose loop calls
//! [`Core::handle_event`]), so there is no shared state: sources send batches, the API sends requests
//! (closures), watchers send kernel notifications. Events are handled one after the other: a source's
//! batch becomes one delta, which is executed before the next event is taken; attaches that wait together
//! become one delta as well, and so do detaches. The core never waits for a source or a client.

use crate::clock::Clock;
use crate::cni_conf;
use crate::enforcer::Enforcer;
use crate::interfaces::{follow_interfaces, list_interfaces};
use crate::monitor::{Monitor, MonitorBatch, PacketContext};
use crate::network_driver::NetworkDriver;
use crate::options::element_budget;
use crate::reload::{ConfigListener, reread_config};
use crate::retry_timer::RetryTimer;
use crate::views::CoreSnapshot;
use crate::workload_store::WorkloadRecord;
use crate::workloads::attach::AttachRequest;
use crate::workloads::deletions::run_queued_deletions;
use crate::workloads::host::{HostChanges, repair_host};
use crate::workloads::{
    NodeChanges, WorkloadError, Workloads, cni, follow_nodes, missing_pools, repair_routes,
};
use palisade_api::{BootstrapStage, CniAttachment, CniResponse, MonitorQuery};
use palisade_config::Config;
use palisade_dataplane::Dataplane;
use palisade_model::{EndpointId, Str, Update};
use palisade_source::error_chain;
use palisade_source::{Diagnostic, EffectiveReport, HostNetworkChange, UpdateBatch};
use palisade_sys::fault;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// After a batch of at least this many updates, and after the first synchronisation, freed memory is returned to
/// the kernel.
const LARGE_BATCH: usize = 2_000;
/// The maximum number of new problems of one batch that are logged individually.
const MAX_LOGGED_PROBLEMS: usize = 100;

/// A request that runs on the core thread.
pub type CoreRequest = Box<dyn FnOnce(&mut Core) + Send>;

/// A request in the queue that is handled in a batch with others, and what answers its caller.
pub struct QueuedOperation<R, T> {
    /// The request.
    pub request: R,
    /// Called with the result.
    pub answer: OperationAnswer<T>,
}

/// Answers the caller of an operation.
pub type OperationAnswer<T> = Box<dyn FnOnce(&mut Core, Result<T, WorkloadError>) + Send>;

/// An attach; it is answered when the policy of the workload is in the kernel.
pub type QueuedAttach = QueuedOperation<AttachRequest, WorkloadRecord>;

/// A CNI DEL; it is answered when the workload, its policy and its record are gone.
pub type QueuedDetach = QueuedOperation<CniAttachment, CniResponse>;

/// An event for the core.
pub enum CoreEvent {
    /// Updates of the policy source.
    Source(UpdateBatch),
    /// A request of the API or of the agent itself.
    Request(CoreRequest),
    /// Attaches that waited together; no two of them are about the same object.
    Attach(Vec<QueuedAttach>),
    /// CNI DELs that waited together; no two of them are about the same container.
    Detach(Vec<QueuedDetach>),
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
    /// The name and the location of each source, in the order of precedence.
    pub sources: Vec<(String, String)>,
}

/// The core. See the module's description.
pub struct Core {
    config: Arc<Config>,
    enforcer: Enforcer,
    workloads: Workloads,
    monitor: Monitor,
    clock: Arc<dyn Clock>,
    sources: Vec<(String, String)>,
    source_report: EffectiveReport,
    /// The pods on the network of their node, each with the node that it names.
    host_network_pods: BTreeMap<EndpointId, Option<Str>>,
    started: Duration,
    startup_stages: Vec<BootstrapStage>,
    /// Why the CNI configuration could not be written.
    cni_conf_failure: Option<String>,
    /// When to try again to write the CNI configuration.
    cni_conf_retry: RetryTimer,
    /// Why the state of this node could not be written to the API server.
    node_status_failure: Option<String>,
    /// Whether the CNI configuration is written once this host has address pools.
    waits_for_pools: bool,
    config_listeners: Vec<ConfigListener>,
    /// What no failsafe port keeps open, as it was logged last.
    missing_failsafe: Vec<String>,
    source_refreshes: Vec<Arc<dyn Fn() + Send + Sync>>,
    sync_waiters: Vec<tokio::sync::oneshot::Sender<()>>,
}

impl Core {
    /// A core of these parts, without state.
    pub fn new(parts: CoreParts) -> Self {
        let clock: Arc<dyn Clock> = Arc::from(parts.clock);
        let config = Arc::new(parts.config);
        Core {
            enforcer: Enforcer::new(&config, parts.dataplane, Arc::clone(&clock)),
            workloads: Workloads::new(Arc::clone(&config), parts.network, Arc::clone(&clock)),
            monitor: Monitor::new(config.monitor.rate, Arc::clone(&clock)),
            config,
            started: clock.wall(),
            clock,
            sources: parts.sources,
            source_report: EffectiveReport::default(),
            host_network_pods: BTreeMap::new(),
            startup_stages: Vec::new(),
            cni_conf_failure: None,
            cni_conf_retry: RetryTimer::default(),
            node_status_failure: None,
            waits_for_pools: false,
            config_listeners: Vec::new(),
            missing_failsafe: Vec::new(),
            source_refreshes: Vec::new(),
            sync_waiters: Vec::new(),
        }
    }

    /// Restores the workloads and counters from disk, before any address is allocated.
    ///
    /// # Errors
    /// If the workload store cannot be read or written, or the host's interfaces cannot be inspected.
    pub fn restore(&mut self) -> Result<(), WorkloadError> {
        self.enforcer.restore_counts(&self.config);
        list_interfaces(&mut *self.workloads.network, &mut self.enforcer);
        self.workloads.restore(&mut self.enforcer)
    }

    /// Adds stages of the start that the status shows.
    pub fn add_startup_stages(&mut self, stages: Vec<BootstrapStage>) {
        self.startup_stages.extend(stages);
    }

    /// Handles one event.
    pub fn handle_event(&mut self, event: CoreEvent) {
        match event {
            CoreEvent::Source(batch) => self.handle_batch(batch),
            CoreEvent::Request(request) => request(self),
            CoreEvent::Attach(queued) => self.handle_operations(queued, Workloads::attach_all),
            CoreEvent::Detach(queued) => self.handle_operations(queued, cni::del_all),
            CoreEvent::Tampered { what, detected_at } => {
                self.workloads
                    .verify(&mut self.enforcer, &what, detected_at);
            }
            CoreEvent::ConfigChanged => self.reread_config(),
            CoreEvent::HostChanged {
                changes,
                detected_at,
            } => {
                let (workloads, enforcer) = self.parts();
                follow_interfaces(&mut *workloads.network, enforcer, &changes);
                repair_routes(workloads, enforcer, &changes, detected_at);
                repair_host(workloads, enforcer, &changes, detected_at);
                let updates = workloads.find_host_interfaces();
                if !updates.is_empty() {
                    enforcer.record_change(detected_at);
                    workloads.apply(enforcer, updates);
                }
            }
            CoreEvent::Packets(mut delivery) => self.report_packets(delivery.take_batch()),
            CoreEvent::Stop => {}
        }
    }

    /// Runs a batch of operations and answers each.
    fn handle_operations<R, T>(
        &mut self,
        queued: Vec<QueuedOperation<R, T>>,
        run: impl FnOnce(&mut Workloads, &mut Enforcer, Vec<R>) -> Vec<Result<T, WorkloadError>>,
    ) {
        let queued = queued.into_iter();
        let (requests, answers): (Vec<R>, Vec<_>) = queued
            .map(|operation| (operation.request, operation.answer))
            .unzip();
        let results = run(&mut self.workloads, &mut self.enforcer, requests);
        for (answer, result) in answers.into_iter().zip(results) {
            answer(self, result);
        }
    }

    fn handle_batch(&mut self, batch: UpdateBatch) {
        self.enforcer.metrics.batches += 1;
        let known: BTreeSet<&Diagnostic> = self.source_report.problems.iter().collect();
        let mut new =
            (batch.report.problems.iter()).filter(|diagnostic| !known.contains(diagnostic));
        for diagnostic in new.by_ref().take(MAX_LOGGED_PROBLEMS) {
            tracing::warn!(
                object = diagnostic.problem.object.as_deref(),
                "{}",
                diagnostic.problem
            );
        }
        let more: usize = new.map(Diagnostic::count).sum();
        if more > 0 {
            tracing::warn!(more, "more problems of the source; see `palisade status`");
        }
        self.source_report = batch.report;
        for change in batch.host_network {
            match change {
                HostNetworkChange::Set { id, node } => self.host_network_pods.insert(id, node),
                HostNetworkChange::Removed(id) => self.host_network_pods.remove(&id),
            };
        }
        let first_sync = batch.in_sync && !self.enforcer.in_sync;
        let nodes = NodeChanges::of(&mut self.workloads.nodes, &batch.updates);
        let registry = &mut self.workloads.registry;
        let source_updates = batch.updates.into_iter();
        let mut updates: Vec<Update> = source_updates
            .flat_map(|update| registry.overlay_update(update))
            .collect();
        if registry.host_endpoints.is_touched() {
            updates.extend(self.workloads.find_host_interfaces());
        }
        let is_large = first_sync || updates.len() >= LARGE_BATCH;
        self.enforcer.in_sync |= batch.in_sync;
        if let Some(detected_at) = batch.detected_at {
            self.enforcer.record_change(detected_at);
        }
        self.log_missing_failsafe();
        self.workloads.apply(&mut self.enforcer, updates);
        let (workloads, enforcer) = (&mut self.workloads, &mut self.enforcer);
        follow_nodes(workloads, enforcer, &nodes, first_sync);
        if first_sync {
            let started = self.clock.monotonic();
            self.workloads.resync(&mut self.enforcer);
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
        if self.waits_for_pools && missing_pools(&self.workloads).is_none() {
            self.install_cni_conf();
        }
        if is_large && self.enforcer.in_sync {
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

    /// When [`Core::retry_failed`] is due; `None`: nothing has failed.
    pub fn retry_due(&self) -> Option<Instant> {
        let due = [
            self.workloads.retry.due(),
            self.enforcer.retry.due(),
            self.cni_conf_retry.due(),
        ];
        due.into_iter().flatten().min()
    }

    /// Retries what failed and is due: the kernel's state, leftovers, queued CNI DELs.
    pub fn retry_failed(&mut self) {
        let now = self.clock.monotonic();
        let is_due = |due: Option<Instant>| due.is_some_and(|at| at <= now);
        if is_due(self.enforcer.retry.due()) {
            match self.enforcer.has_failed() {
                true => self.workloads.resync(&mut self.enforcer),
                false => self.enforcer.retry.clear(),
            }
        }
        if is_due(self.workloads.retry.due()) {
            self.workloads.retry_failed(&mut self.enforcer);
        }
        if is_due(self.cni_conf_retry.due()) {
            self.install_cni_conf();
        }
    }

    /// Executes every CNI DEL that was queued while no agent ran; returns their number.
    ///
    /// # Errors
    /// If the queue cannot be locked or read. The content of a file is never an error.
    pub fn run_queued_deletions(&mut self) -> io::Result<usize> {
        run_queued_deletions(&mut self.workloads, &mut self.enforcer)
    }

    /// Verifies the kernel if the driver does not notice changes by others; called where an operator asks
    /// for a reload.
    pub fn verify_unnoticed(&mut self) {
        if !self.enforcer.dataplane.notices_changes() {
            let now = self.clock.monotonic();
            self.workloads
                .verify(&mut self.enforcer, "verified at a reload", now);
        }
    }

    /// Sets what makes the sources report and read again what could not be read.
    pub fn set_source_refreshes(&mut self, refreshes: Vec<Arc<dyn Fn() + Send + Sync>>) {
        self.source_refreshes = refreshes;
    }

    /// Makes the sources report and read again what could not be read; called where an operator asks for a reload.
    pub fn refresh_sources(&self) {
        self.source_refreshes.iter().for_each(|refresh| refresh());
    }

    /// Logs what no failsafe port keeps open, once for each change of it.
    fn log_missing_failsafe(&mut self) {
        let hosts = &self.workloads.registry.host_endpoints;
        let missing = hosts.missing_failsafe(&self.config.host.failsafe());
        for text in missing
            .iter()
            .filter(|text| !self.missing_failsafe.contains(text))
        {
            tracing::warn!("{text}");
        }
        self.missing_failsafe = missing;
    }

    /// Adds a listener for configuration changes.
    pub fn add_config_listener(&mut self, listener: ConfigListener) {
        self.config_listeners.push(listener);
    }

    /// Rereads the configuration file and applies its live parameters.
    pub fn reread_config(&mut self) {
        let Some((config, changed)) = reread_config(&self.config) else {
            return;
        };
        let is_budget_new = element_budget(&config.policy) != element_budget(&self.config.policy);
        self.config = Arc::new(config);
        self.workloads.config = Arc::clone(&self.config);
        self.monitor.set_rate(self.config.monitor.rate);
        if is_budget_new {
            self.enforcer
                .engine
                .set_budget(element_budget(&self.config.policy));
            self.workloads.apply(&mut self.enforcer, Vec::new());
        }
        if !changed.is_empty() {
            for listener in &self.config_listeners {
                listener(&self.config);
            }
        }
    }

    /// Writes the CNI configuration, once this host has address pools; a failure is shown in the status.
    pub fn install_cni_conf(&mut self) {
        self.waits_for_pools = missing_pools(&self.workloads).is_some();
        if self.waits_for_pools {
            return;
        }
        let Err(error) = cni_conf::install(&self.config) else {
            self.cni_conf_retry.clear();
            self.cni_conf_failure = None;
            return;
        };
        // Also a file of another program may go.
        self.cni_conf_retry.schedule(self.clock.monotonic());
        let failure = Some(error_chain(&error));
        if self.cni_conf_failure != failure {
            tracing::error!(
                error = failure,
                "the CNI configuration is not written; this is tried again"
            );
        }
        self.cni_conf_failure = failure;
    }

    /// Takes note of the last attempt to write the state of this node to the API server.
    pub fn record_node_status(&mut self, failure: Option<String>) {
        if self.node_status_failure != failure {
            match &failure {
                Some(error) => {
                    tracing::warn!(error, "the NodePolicyStatus of this node cannot be written");
                }
                None => tracing::info!("the NodePolicyStatus of this node is written again"),
            }
        }
        self.node_status_failure = failure;
    }

    /// Reports packets from the dataplane.
    pub fn report_packets(&mut self, batch: MonitorBatch) {
        let context = PacketContext {
            enforcer: &self.enforcer,
            registry: &self.workloads.registry,
        };
        self.monitor.report_packets(batch, &context);
    }

    /// Adds a subscriber of the packet stream.
    pub fn subscribe(
        &mut self,
        query: MonitorQuery,
    ) -> tokio::sync::mpsc::Receiver<axum::body::Bytes> {
        self.monitor.subscribe(query)
    }

    /// The clock.
    pub fn clock(&self) -> &dyn Clock {
        &*self.clock
    }

    /// The configuration in force.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Why the kernel does not hold the policy of the source; empty if it does.
    pub fn unready_reasons(&self) -> Vec<String> {
        self.enforcer.unready_reasons()
    }

    /// The parts that operations on workloads need.
    pub fn parts(&mut self) -> (&mut Workloads, &mut Enforcer) {
        (&mut self.workloads, &mut self.enforcer)
    }

    /// The present state, for [`crate::views`].
    pub fn snapshot(&self) -> CoreSnapshot<'_> {
        CoreSnapshot {
            now: self.clock.wall(),
            started: self.started,
            config: &self.config,
            enforcer: &self.enforcer,
            engine: &self.enforcer.engine,
            workloads: &self.workloads,
            registry: &self.workloads.registry,
            sources: &self.sources,
            source_report: &self.source_report,
            host_network_pods: &self.host_network_pods,
            startup_stages: &self.startup_stages,
            cni_conf_failure: self.cni_conf_failure.as_deref(),
            node_status_failure: self.node_status_failure.as_deref(),
        }
    }
}
