//! The agent's core: one thread that owns the policy, the workloads and the other subsystems.
//!
//! Every input reaches it as a [`CoreEvent`] on one bounded queue ([`crate::core_queue`], whose loop calls
//! [`Core::handle_event`]): sources send batches, the API sends requests (closures), watchers send kernel
//! notifications. Events are handled one after the other: a source's batch becomes one delta, which is executed before
//! the next event is taken; attaches that wait together become one delta as well, and so do detaches. After each event
//! the subsystems that have work run ([`Core::run_subsystems`]). The core never waits for a source or a client.
//!
//! Other threads read the policy from its [`SharedPolicy`]; nothing else is shared.

use crate::dns_proxy::rule_set_path;
use crate::flow_outputs::FlowOutputs;
use crate::reload::{ConfigListener, reread_config};
use crate::subsystems::{name_manager, subsystems, workload_sections, workloads};
use palisade_api::{BootstrapStage, CniAttachment, CniResponse, FastPathReport, SubsystemPlan};
use palisade_config::Config;
use palisade_dataplane::Dataplane;
use palisade_effective::{Diagnostic, EffectiveReport, HostNetworkChange};
use palisade_enforcer::cut_connections;
use palisade_enforcer::enforcer::Enforcer;
use palisade_enforcer::policy_state::SharedPolicy;
use palisade_enforcer::policy_subsystem::element_budget;
use palisade_flows::recent::RecentLines;
use palisade_model::{EndpointId, Str, Update};
use palisade_monitor::SharedMonitor;
use palisade_name_manager::NameManager;
use palisade_name_manager::answer_link::OfferedAnswer;
use palisade_name_manager::connection_list::ConnectionSnapshot;
use palisade_name_manager::rule_set_store::RuleSetStore;
use palisade_network::forwarding::Forwarding;
use palisade_network::interfaces::{follow_interfaces, list_interfaces};
use palisade_network::network_driver::HostDrivers;
use palisade_network::node_state::NodeState;
use palisade_node::clock::Clock;
use palisade_node::cluster_nodes::{ClusterNodes, own_node_name};
use palisade_node::host_changes::HostChanges;
use palisade_node::subsystem::{ObjectChanges, Repairs, RunSubsystem, Runner, SubsystemError};
use palisade_node::workload_store::WorkloadRecord;
use palisade_source::{SourceHandle, UpdateBatch};
use palisade_sys::fault;
use palisade_text::error_chain;
use palisade_views::{CoreSnapshot, StartupRecord};
use palisade_workloads::workloads::attach::AttachRequest;
use palisade_workloads::workloads::deletions::run_queued_deletions;
use palisade_workloads::workloads::{WorkloadError, Workloads, cni, masquerade_policy};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The number of recent packets and flows that are kept for readers, about 1 KB each.
const RECENT_LINES: usize = 16_384;
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
    /// Answers that the DNS proxy offers.
    Answers(Vec<OfferedAnswer>),
    /// The connections of this host, which were asked for.
    Connections(ConnectionSnapshot),
    /// The configuration file changed.
    ConfigChanged,
    /// Stop the core; the kernel continues to enforce policy.
    Stop,
}

/// The parts of a core.
pub struct CoreParts {
    /// The configuration.
    pub config: Config,
    /// The dataplane.
    pub dataplane: Box<dyn Dataplane>,
    /// The drivers of this host.
    pub host: HostDrivers,
    /// The clock.
    pub clock: Box<dyn Clock>,
    /// The name and the location of each source, in the order of precedence.
    pub sources: Vec<(String, String)>,
}

/// The core. See the module's description.
pub struct Core {
    /// The configuration in force: it is reread and reported here, subsystems have their sections.
    config: Config,
    node: NodeState,
    workloads: Runner<Workloads>,
    /// The addresses of names.
    pub(crate) names: NameManager,
    /// What runs after the workloads.
    subsystems: Vec<Box<dyn RunSubsystem<NodeState>>>,
    monitor: SharedMonitor,
    clock: Arc<dyn Clock>,
    sources: SourceStates,
    startup: StartupRecord,
    logged: LoggedFaults,
    listeners: CoreListeners,
    flow_outputs: FlowOutputs,
}

/// Faults as they were logged last.
#[derive(Default)]
struct LoggedFaults {
    /// Why the state of this node could not be written to the API server.
    node_status: Option<String>,
    /// What no failsafe port keeps open.
    missing_failsafe: Vec<String>,
}

/// A listener for changes of the cluster's nodes.
pub(crate) type NodeListener = Box<dyn Fn(&ClusterNodes) + Send>;

/// Who is told of changes that the core takes in.
#[derive(Default)]
struct CoreListeners {
    config: Vec<ConfigListener>,
    nodes: Vec<NodeListener>,
    updates: Vec<UpdateListener>,
}

/// A listener for updates of the sources.
pub(crate) type UpdateListener = Box<dyn Fn(&[Update]) + Send>;

/// What the core knows of the sources.
#[derive(Default)]
struct SourceStates {
    /// The name and the location of each, in the order of precedence.
    names: Vec<(String, String)>,
    handles: Vec<SourceHandle>,
    /// What is in force of them, and what is not.
    report: EffectiveReport,
    /// The pods on the network of their node, each with the node that it names.
    host_network_pods: BTreeMap<EndpointId, Option<Str>>,
    /// Who waits until they are in sync, and the kernel with them.
    sync_waiters: Vec<tokio::sync::oneshot::Sender<()>>,
}

impl Core {
    /// A core of these parts, without state.
    pub fn new(parts: CoreParts) -> Self {
        let clock: Arc<dyn Clock> = Arc::from(parts.clock);
        let config = parts.config;
        let HostDrivers {
            network,
            forwarding,
            node_routes,
            redirect_routes,
            connections,
        } = parts.host;
        let sections = (&config.policy, &config.dns, &config.host, &config.nodes);
        let mut dataplane = parts.dataplane;
        if !config.dry_run {
            let store = RuleSetStore::new(rule_set_path(&config.state));
            dataplane.set_dns_rule_store(Box::new(store));
        }
        let mut enforcer = Enforcer::new(sections, dataplane, Arc::clone(&clock));
        let view = enforcer.view().clone();
        if let Some(changes) =
            connections.and_then(|reader| cut_connections::start(view.clone(), reader))
        {
            enforcer.policy.set_host_policy_changes(changes);
        }
        let monitor = SharedMonitor::new(
            config.monitor.rate,
            view,
            own_node_name(&config.nodes),
            Arc::clone(&clock),
            (config.monitor.follows_flows).then(|| RecentLines::new(RECENT_LINES)),
        );
        let workloads = workloads(&config, network, Arc::clone(&clock));
        let forwarding = Forwarding::new(&config.workloads, &config.state, forwarding);
        let mut core = Core {
            node: NodeState::new(
                (&config.nodes, &config.ipam, &config.state),
                config.dry_run,
                enforcer,
                forwarding,
                Arc::clone(&clock),
            ),
            workloads: Runner::new(workloads),
            names: name_manager(&config, Arc::clone(&clock)),
            subsystems: subsystems(&config, node_routes, redirect_routes),
            config,
            monitor,
            startup: StartupRecord {
                since: clock.wall(),
                stages: Vec::new(),
                fast_path: None,
            },
            clock,
            sources: SourceStates {
                names: parts.sources,
                ..SourceStates::default()
            },
            logged: LoggedFaults::default(),
            listeners: CoreListeners::default(),
            flow_outputs: FlowOutputs::default(),
        };
        core.workloads.ipam.set_pools(core.node.pools());
        core
    }

    /// Restores the workloads and counters from disk, before any address is allocated.
    ///
    /// # Errors
    /// If the workload store cannot be read or written, or the host's interfaces cannot be inspected.
    pub fn restore(&mut self) -> Result<(), WorkloadError> {
        let enforcer = &mut self.node.enforcer;
        if !self.config.dry_run {
            enforcer.policy.restore_counts(&self.config.state.dir);
        }
        list_interfaces(&mut *self.workloads.network, enforcer);
        self.workloads.restore(&mut self.node)?;
        let names = self.names.restore();
        self.node.enforcer.apply(names);
        Ok(())
    }

    /// Sets what the status shows of the start: whether the host could run the fast path, and the stages.
    pub fn set_startup(&mut self, fast_path: FastPathReport, stages: Vec<BootstrapStage>) {
        self.startup.fast_path = Some(fast_path);
        self.startup.stages.extend(stages);
    }

    /// Handles one event.
    pub fn handle_event(&mut self, event: CoreEvent) {
        match event {
            CoreEvent::Source(batch) => self.handle_batch(batch),
            CoreEvent::Request(request) => request(self),
            CoreEvent::Attach(queued) => self.handle_operations(queued, Workloads::attach_all),
            CoreEvent::Detach(queued) => {
                self.handle_operations(queued, cni::del_all);
                // Before that, the objects of the sources are not known.
                if self.node.enforcer.is_in_sync() {
                    self.forget_absent_workloads();
                }
            }
            CoreEvent::Tampered { what, detected_at } => {
                self.node.enforcer.verify(&what, detected_at);
            }
            CoreEvent::Answers(answers) => self.learn_names(answers),
            CoreEvent::Connections(list) => self.expire_names(list),
            CoreEvent::ConfigChanged => self.reread_config(),
            CoreEvent::HostChanged {
                changes,
                detected_at,
            } => self.handle_host_changes(&changes, detected_at),
            CoreEvent::Stop => return,
        }
        self.run_subsystems();
    }

    fn learn_names(&mut self, answers: Vec<OfferedAnswer>) {
        let updates = self.names.learn(&self.node.enforcer.state(), answers);
        if !updates.is_empty() {
            self.node.enforcer.apply(updates);
        }
    }

    /// Forgets what workloads have learnt that exist no longer.
    fn forget_absent_workloads(&mut self) {
        let updates = (self.names).forget_absent_workloads(&self.node.enforcer.state());
        if !updates.is_empty() {
            self.node.enforcer.apply(updates);
        }
    }

    fn expire_names(&mut self, connections: ConnectionSnapshot) {
        let updates = self.names.expire(&self.node.enforcer.state(), connections);
        if !updates.is_empty() {
            self.node.enforcer.apply(updates);
        }
    }

    fn handle_host_changes(&mut self, changes: &HostChanges, detected_at: Instant) {
        let network = &mut *self.workloads.network;
        follow_interfaces(network, &mut self.node.enforcer, changes);
        let forwarding: &mut dyn RunSubsystem<()> = &mut self.node.forwarding;
        forwarding.host_changed(changes, detected_at);
        let workloads: &mut dyn RunSubsystem<NodeState> = &mut self.workloads;
        workloads.host_changed(changes, detected_at);
        for subsystem in &mut self.subsystems {
            subsystem.host_changed(changes, detected_at);
        }
        self.find_host_addresses();
        let updates = self.workloads.find_host_interfaces();
        if !updates.is_empty() {
            self.node.enforcer.policy.record_change(detected_at);
            self.node.enforcer.apply(updates);
        }
    }

    /// Tells the monitor the addresses of this host, by which it knows flows of the host itself.
    fn find_host_addresses(&mut self) {
        if self.monitor.recent().is_none() {
            return;
        }
        match self.workloads.network.interface_addresses() {
            Ok(addresses) => {
                let addresses = addresses.into_iter().map(|(address, _)| address);
                self.monitor.set_host_addresses(addresses.collect());
            }
            Err(error) => {
                tracing::warn!(error = %error_chain(&error), "reading the addresses of this host failed; flows of new addresses of the host have no names");
            }
        }
    }

    /// Runs every subsystem that has work or whose retry is due, in order; a failure holds up no other.
    fn run_subsystems(&mut self) {
        let now = self.clock.monotonic();
        let node = &mut self.node;
        if self.config.dry_run {
            // They are previewed.
            return;
        }
        node.enforcer.retry_failed();
        if self.names.has_unconfirmed() && node.is_policy_in_force() {
            self.names.confirm();
        }
        self.names.ask_for_connections();
        let mut repairs = Vec::new();
        repairs.extend(node.forwarding.run_if_due(&mut (), now));
        repairs.extend(self.workloads.run_if_due(node, now));
        for subsystem in &mut self.subsystems {
            repairs.extend(subsystem.run_if_due(node, now));
        }
        record_repairs(node, repairs);
    }

    /// Runs those that have to be done before policy is written.
    fn run_preceding_subsystems(&mut self) {
        if self.config.dry_run {
            return;
        }
        let now = self.clock.monotonic();
        let node = &mut self.node;
        let subsystems = self.subsystems.iter_mut();
        let preceding = subsystems.filter(|subsystem| subsystem.precedes_policy());
        let repairs: Vec<Repairs> = preceding
            .filter_map(|subsystem| subsystem.run_if_due(node, now))
            .collect();
        record_repairs(node, repairs);
    }

    /// Runs a batch of operations and answers each.
    fn handle_operations<R, T>(
        &mut self,
        queued: Vec<QueuedOperation<R, T>>,
        run: impl FnOnce(&mut Workloads, &mut NodeState, Vec<R>) -> Vec<Result<T, WorkloadError>>,
    ) {
        let queued = queued.into_iter();
        let (requests, answers): (Vec<R>, Vec<_>) = queued
            .map(|operation| (operation.request, operation.answer))
            .unzip();
        let results = run(&mut self.workloads, &mut self.node, requests);
        for (answer, result) in answers.into_iter().zip(results) {
            answer(self, result);
        }
    }

    fn handle_batch(&mut self, batch: UpdateBatch) {
        let in_sync = batch.in_sync;
        self.node.enforcer.policy.metrics.batches += 1;
        self.record_report(batch.report);
        for change in batch.host_network {
            match change {
                HostNetworkChange::Set { id, node } => {
                    self.sources.host_network_pods.insert(id, node)
                }
                HostNetworkChange::Removed(id) => self.sources.host_network_pods.remove(&id),
            };
        }
        let is_first_sync = in_sync && !self.node.enforcer.is_in_sync();
        self.observe_objects(&batch.updates, is_first_sync);
        self.monitor.observe(&batch.updates);
        for listener in &self.listeners.updates {
            listener(&batch.updates);
        }
        let names = self.names.observe(&batch.updates);
        // Workloads and host endpoints complete what the sources know of them.
        let registry = &mut self.workloads.registry;
        let source_updates = batch.updates.into_iter();
        let mut updates: Vec<Update> = source_updates
            .flat_map(|update| registry.overlay_update(update))
            .collect();
        if registry.host_endpoints.is_touched() {
            updates.extend(self.workloads.find_host_interfaces());
        }
        updates.extend(names);
        let is_large = is_first_sync || updates.len() >= LARGE_BATCH;
        if let Some(detected_at) = batch.detected_at {
            self.node.enforcer.policy.record_change(detected_at);
        }
        self.log_missing_failsafe();
        self.run_preceding_subsystems();
        if is_first_sync {
            self.begin_enforcement(updates);
        } else {
            self.node.enforcer.apply(updates);
        }
        if is_large && self.node.enforcer.is_in_sync() {
            palisade_sys::heap::trim();
        }
    }

    /// Gives what the sources changed to everything that reads it.
    fn observe_objects(&mut self, updates: &[Update], is_first_sync: bool) {
        let nodes = self.node.observe_nodes(updates, is_first_sync);
        let changes = ObjectChanges {
            updates,
            nodes: &nodes,
            is_first_sync,
        };
        let workloads: &mut dyn RunSubsystem<NodeState> = &mut self.workloads;
        workloads.observe(&changes);
        for subsystem in &mut self.subsystems {
            subsystem.observe(&changes);
        }
        if nodes.is_changed || is_first_sync {
            for listener in &self.listeners.nodes {
                listener(&self.node.nodes);
            }
            self.workloads.ipam.set_pools(self.node.pools());
            let wanted = masquerade_policy(&self.workloads, &self.node);
            self.node.enforcer.masquerade.set_wanted(wanted);
        }
    }

    /// The sources have been read completely: the kernel is read, and made to hold their policy.
    fn begin_enforcement(&mut self, updates: Vec<Update>) {
        let started = self.clock.monotonic();
        self.node.enforcer.apply(updates);
        // Of those that were deleted while no agent ran.
        self.forget_absent_workloads();
        self.node.enforcer.begin();
        let millis = palisade_node::clock::millis(self.clock.monotonic() - started);
        self.startup.stages.push(BootstrapStage {
            name: "kernel synchronised".to_owned(),
            millis,
        });
        for waiter in self.sources.sync_waiters.drain(..) {
            // The receiver may have stopped waiting.
            let _ = waiter.send(());
        }
    }

    /// Keeps the report of the sources, and logs the problems that are new.
    fn record_report(&mut self, report: EffectiveReport) {
        let known: BTreeSet<&Diagnostic> = self.sources.report.problems.iter().collect();
        let mut new = (report.problems.iter()).filter(|diagnostic| !known.contains(diagnostic));
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
        self.sources.report = report;
    }

    /// Notifies `waiter` once the source is in sync and the kernel has been resynchronised.
    pub fn notify_when_in_sync(&mut self, waiter: tokio::sync::oneshot::Sender<()>) {
        if self.node.enforcer.is_in_sync() || fault::is_injected("told-before-in-line") {
            let _ = waiter.send(());
        } else {
            self.sources.sync_waiters.push(waiter);
        }
    }

    /// When [`Core::retry_failed`] is due; `None`: nothing has failed.
    pub fn retry_due(&self) -> Option<Instant> {
        let own = [
            self.node.enforcer.retry_due(),
            self.node.forwarding.retry_due(),
            self.workloads.retry_due(),
            self.names.expiry_due(),
        ];
        let others = self
            .subsystems
            .iter()
            .map(|subsystem| subsystem.retry_due());
        own.into_iter().chain(others).flatten().min()
    }

    /// Retries what failed and is due.
    pub fn retry_failed(&mut self) {
        self.run_subsystems();
    }

    /// Executes every CNI DEL that was queued while no agent ran; returns their number.
    ///
    /// # Errors
    /// If the queue cannot be locked or read. The content of a file is never an error.
    pub fn run_queued_deletions(&mut self) -> io::Result<usize> {
        run_queued_deletions(&mut self.workloads, &mut self.node)
    }

    /// Verifies the kernel if the driver does not notice changes by others; called where an operator asks
    /// for a reload.
    pub fn verify_unnoticed(&mut self) {
        if !self.node.enforcer.dataplane.notices_changes() {
            let now = self.clock.monotonic();
            self.node.enforcer.verify("verified at a reload", now);
        }
    }

    /// Sets what makes the sources report and read again what could not be read.
    pub fn set_source_handles(&mut self, handles: Vec<SourceHandle>) {
        self.sources.handles = handles;
    }

    /// Makes the sources report and read again what could not be read; called where an operator asks for a reload.
    pub fn refresh_sources(&self) {
        self.sources.handles.iter().for_each(SourceHandle::refresh);
    }

    /// Logs what no failsafe port keeps open, once for each change of it.
    fn log_missing_failsafe(&mut self) {
        let hosts = &self.workloads.registry.host_endpoints;
        let missing = hosts.missing_failsafe(&self.config.host.failsafe());
        for text in missing
            .iter()
            .filter(|text| !self.logged.missing_failsafe.contains(text))
        {
            tracing::warn!("{text}");
        }
        self.logged.missing_failsafe = missing;
    }

    /// Adds a listener for changes of the cluster's nodes.
    pub(crate) fn add_node_listener(&mut self, listener: NodeListener) {
        self.listeners.nodes.push(listener);
    }

    /// Adds a listener for updates of the sources.
    pub(crate) fn add_update_listener(&mut self, listener: UpdateListener) {
        self.listeners.updates.push(listener);
    }

    /// Adds a listener for configuration changes.
    pub fn add_config_listener(&mut self, listener: ConfigListener) {
        self.listeners.config.push(listener);
    }

    /// Rereads the configuration file and applies its live parameters.
    pub fn reread_config(&mut self) {
        let Some((config, changed)) = reread_config(&self.config) else {
            return;
        };
        let is_budget_new = element_budget(&config.policy) != element_budget(&self.config.policy);
        self.config = config;
        self.workloads.sections = workload_sections(&self.config);
        self.monitor.set_rate(self.config.monitor.rate);
        if is_budget_new {
            let budget = element_budget(&self.config.policy);
            self.node.enforcer.policy.set_budget(budget);
            self.node.enforcer.apply(Vec::new());
        }
        if !changed.is_empty() {
            for listener in &self.listeners.config {
                listener(&self.config);
            }
        }
    }

    /// What the subsystems besides policy would change now, in the order in which they run; those that would change nothing
    /// are left out. Afterwards the workloads are as they would be: the drivers of a dry run change nothing.
    ///
    /// # Errors
    /// If the host cannot be read.
    pub fn preview(&mut self) -> Result<Vec<SubsystemPlan>, SubsystemError> {
        let node = &mut self.node;
        let mut plans = vec![(
            node.enforcer.masquerade.name(),
            node.enforcer.preview_masquerade()?,
        )];
        let forwarding: &mut dyn RunSubsystem<()> = &mut node.forwarding;
        plans.push((forwarding.name(), forwarding.preview(&mut ())?));
        let workloads: &mut dyn RunSubsystem<NodeState> = &mut self.workloads;
        plans.push((workloads.name(), workloads.preview(node)?));
        for subsystem in &mut self.subsystems {
            plans.push((subsystem.name(), subsystem.preview(node)?));
        }
        self.workloads.run(node, self.clock.monotonic())?;
        Ok(plans
            .into_iter()
            .filter(|(_, actions)| !actions.is_empty())
            .map(|(name, actions)| SubsystemPlan {
                name: name.to_owned(),
                actions,
            })
            .collect())
    }

    /// The API serves container runtimes: the CNI configuration is written once this host has address pools.
    pub fn serve_runtimes(&mut self) {
        self.node.serves_runtimes = true;
        self.run_subsystems();
    }

    /// Takes note of the last attempt to write the state of this node to the API server.
    pub fn record_node_status(&mut self, failure: Option<String>) {
        if self.logged.node_status != failure {
            match &failure {
                Some(error) => {
                    tracing::warn!(error, "the NodePolicyStatus of this node cannot be written");
                }
                None => tracing::info!("the NodePolicyStatus of this node is written again"),
            }
        }
        self.logged.node_status = failure;
    }

    /// When this agent started, since the epoch.
    pub(crate) fn started(&self) -> Duration {
        self.startup.since
    }

    /// Where recent flows go.
    pub fn flow_outputs(&self) -> &FlowOutputs {
        &self.flow_outputs
    }

    /// Where recent flows go, to add to it.
    pub fn flow_outputs_mut(&mut self) -> &mut FlowOutputs {
        &mut self.flow_outputs
    }

    /// The monitor of packets.
    pub fn monitor(&self) -> &SharedMonitor {
        &self.monitor
    }

    /// The policy, for readers on other threads.
    pub fn policy_view(&self) -> &SharedPolicy {
        self.node.enforcer.view()
    }

    /// The pods on the network of their node, each with the node that it names.
    pub fn host_network_pods(&self) -> &BTreeMap<EndpointId, Option<Str>> {
        &self.sources.host_network_pods
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
        self.node.enforcer.unready_reasons()
    }

    /// The parts that operations on workloads need.
    pub fn parts(&mut self) -> (&mut Workloads, &mut NodeState) {
        (&mut self.workloads, &mut self.node)
    }

    /// The present state, for [`palisade_views`].
    pub fn snapshot(&self) -> CoreSnapshot<'_> {
        CoreSnapshot {
            now: self.clock.wall(),
            startup: &self.startup,
            config: &self.config,
            enforcer: &self.node.enforcer,
            policy: self.node.enforcer.state(),
            node: &self.node,
            names: &self.names,
            subsystems: &self.subsystems,
            workloads: &self.workloads,
            sources: &self.sources.names,
            source_report: &self.sources.report,
            node_status_failure: self.logged.node_status.as_deref(),
        }
    }
}

/// Takes note of what subsystems repaired.
fn record_repairs(node: &mut NodeState, repairs: Vec<Repairs>) {
    for done in repairs {
        let writes = done.what.len();
        let log = &mut node.enforcer.repairs;
        log.record(&done.what, writes, done.detected_at);
    }
}
