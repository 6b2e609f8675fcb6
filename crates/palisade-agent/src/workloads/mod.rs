//! The workloads of this host: registry, records on disk, addresses, interfaces.
//!
//! [`Workloads`] owns their state. [`attach`] and [`lifecycle`] are its operations: attach, restore,
//! detach, rollback. [`named`] and [`cni`] check the requests of users and of container runtimes,
//! [`host`] repairs what others change on the host side. Promises: the host side of a workload is brought
//! up only when its policy is in the kernel; what cannot be rolled back stays recorded with its addresses,
//! and is retried with increasing delays.
//!
//! Never: decides policy, or writes it; the [`Enforcer`] does, and every operation that changes policy
//! takes it.

mod addresses;
pub mod attach;
pub mod cni;
pub mod deletions;
mod error;
pub mod host;
mod lifecycle;
pub mod named;
mod nodes;

pub use error::WorkloadError;
pub(crate) use nodes::{NodeChanges, follow_nodes, missing_pools, repair_routes};

use crate::clock::Clock;
use crate::cluster_nodes::{ClusterNodes, own_node_name};
use crate::enforcer::{Enforcer, VerifyResult};
use crate::host_endpoints::InterfaceAddresses;
use crate::ipam::Ipam;
use crate::lockout::{self, TcpConnection};
use crate::network_driver::{AddressUse, NetworkDriver, NetworkDriverError};
use crate::node_pools::NodePools;
use crate::node_routes::NodeRoutes;
use crate::registry::{Workload, WorkloadRegistry};
use crate::retry_timer::RetryTimer;
use crate::settings::SettingsFile;
use crate::workload_store::{WorkloadRecord, WorkloadStore};
pub(crate) use addresses::{is_masqueraded, masquerade_policy};
use palisade_api::EndpointState;
use palisade_config::Config;
use palisade_model::{EndpointId, Prefix, Str, Update};
use palisade_source::error_chain;
use palisade_sys::fault;
use palisade_sys::netns::{NetNs, NetNsError};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The timeout for opening a namespace.
pub const NETNS_OPEN_TIMEOUT: Duration = Duration::from_secs(2);

/// A namespace opened outside the core's thread, or why that failed; `None`: not opened yet.
pub type PreopenedNetns = Option<Result<NetNs, NetNsError>>;

/// The workloads of this host. See the module's description.
pub struct Workloads {
    pub(crate) config: Arc<Config>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) network: Box<dyn NetworkDriver>,
    pub(crate) records: WorkloadStore,
    pub(crate) registry: WorkloadRegistry,
    pub(crate) ipam: Ipam,
    /// The nodes of the cluster.
    pub(crate) nodes: ClusterNodes,
    /// The pools of this host's Node, if addresses are allocated from these.
    pub(crate) node_pools: Option<NodePools>,
    /// The routes to the pods of other nodes.
    pub(crate) node_routes: NodeRoutes,
    /// Workloads whose attach failed and could not be rolled back; saved as pending.
    pub(crate) leftovers: Vec<WorkloadRecord>,
    /// The file of changed sysctls.
    settings: SettingsFile,
    /// Whether this host has to forward: true from its first workload on.
    forwarding_enabled: bool,
    /// Whether a queued CNI DEL failed.
    deletions_failed: bool,
    /// The pending records of the workloads that are being attached; their attach brings them up, not
    /// [`Workloads::open_pending`].
    attaching: BTreeMap<EndpointId, WorkloadRecord>,
    /// When the request of each workload arrived that has not been open since.
    unopened: BTreeMap<EndpointId, Instant>,
    open_waiters: Vec<(EndpointId, tokio::sync::oneshot::Sender<()>)>,
    /// When leftovers and queued CNI DELs are retried.
    pub(crate) retry: RetryTimer,
}

impl Workloads {
    /// No workloads, with this configuration and driver.
    pub(crate) fn new(
        config: Arc<Config>,
        network: Box<dyn NetworkDriver>,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let node = own_node_name(&config.nodes);
        let node_pools = config
            .ipam
            .has_node_pools()
            .then(|| NodePools::restore(&config.state.dir, node.clone(), config.dry_run));
        let pools = node_pools
            .as_ref()
            .map_or(config.ipam.networks(), NodePools::pools);
        Workloads {
            ipam: Ipam::new(pools, &config.ipam.reserved),
            registry: WorkloadRegistry::new(
                node.clone(),
                config.policy.honors_pod_mode,
                config.host.policy_audit,
            ),
            nodes: ClusterNodes::new(node),
            node_pools,
            node_routes: NodeRoutes::new(config.nodes.has_routes),
            records: match config.dry_run {
                true => WorkloadStore::read_only(&config.state.dir),
                false => WorkloadStore::in_state_dir(&config.state.dir),
            },
            settings: SettingsFile::in_state_dir(&config.state.dir),
            config,
            clock,
            network,
            leftovers: Vec::new(),
            forwarding_enabled: false,
            deletions_failed: false,
            attaching: BTreeMap::new(),
            unopened: BTreeMap::new(),
            open_waiters: Vec::new(),
            retry: RetryTimer::default(),
        }
    }

    /// Passes updates to the enforcer, and opens the workloads that waited for their policy.
    pub(crate) fn apply(&mut self, enforcer: &mut Enforcer, updates: Vec<Update>) {
        let connections = self.connections_at_risk(enforcer, &updates);
        let masquerade = || masquerade_policy(self);
        enforcer.apply(updates, &connections, &masquerade);
        self.open_pending(enforcer);
    }

    /// The TCP connections of this host, where updates may change what its host endpoints allow; none elsewhere.
    fn connections_at_risk(
        &mut self,
        enforcer: &Enforcer,
        updates: &[Update],
    ) -> Vec<TcpConnection> {
        let is_judged = self.registry.host_endpoints.states().next().is_some();
        if !enforcer.in_sync || !is_judged || !updates.iter().any(lockout::changes_host_policy) {
            return Vec::new();
        }
        self.network.tcp_connections().unwrap_or_else(|error| {
            tracing::warn!(error = %error_chain(&error), "the TCP connections of this host are not known; which of them a change of host policy cuts is not told");
            Vec::new()
        })
    }

    /// Finds the interfaces of host endpoints: those that are named, and those that are known by their addresses.
    /// Returns what changed. If the kernel cannot be asked, each keeps its interface.
    pub(crate) fn find_host_interfaces(&mut self) -> Vec<Update> {
        let names = self.registry.host_endpoints.interface_names();
        let network = &mut self.network;
        let missing = names.filter(|name| matches!(network.link_index(name), Ok(None)));
        let missing: BTreeSet<Str> = missing.cloned().collect();
        self.registry.host_endpoints.set_missing(missing);
        if !self.registry.host_endpoints.needs_addresses() {
            return Vec::new();
        }
        let addresses = match self.network.interface_addresses() {
            Ok(addresses) => addresses,
            Err(error) => {
                tracing::warn!(error = %error_chain(&error), "reading the addresses of this host failed; host endpoints keep their interfaces");
                return Vec::new();
            }
        };
        let mut interfaces = InterfaceAddresses::new();
        for (address, name) in addresses {
            interfaces.entry(address).or_insert_with(|| name.into());
        }
        self.registry.host_endpoints.find_interfaces(interfaces)
    }

    /// Makes the kernel hold the tables, whatever its present state is, and opens the workloads that waited
    /// for their policy.
    pub(crate) fn resync(&mut self, enforcer: &mut Enforcer) {
        let masquerade = || masquerade_policy(self);
        enforcer.resync(&masquerade);
        self.open_pending(enforcer);
    }

    /// Compares the kernel with the tables, and repairs it.
    pub(crate) fn verify(&mut self, enforcer: &mut Enforcer, what: &str, detected_at: Instant) {
        let masquerade = || masquerade_policy(self);
        if enforcer.verify(what, detected_at, &masquerade) == VerifyResult::Resynced {
            self.open_pending(enforcer);
        }
    }

    /// Retries the removal of leftovers, and queued CNI DELs. It is scheduled with increasing delays until
    /// nothing is left.
    pub(crate) fn retry_failed(&mut self, enforcer: &mut Enforcer) {
        if !self.leftovers.is_empty()
            && let Err(error) = self.clear_leftovers(enforcer, None)
        {
            tracing::warn!(error = %error_chain(&error), "removing workloads whose rollback failed; will retry");
        }
        if self.deletions_failed
            && let Err(error) = deletions::run_queued_deletions(self, enforcer)
        {
            tracing::warn!(%error, "running queued CNI DELs failed");
        }
        if self.node_routes.has_failed() {
            nodes::update_routes(self, |routes, inputs, driver| {
                routes.retry(inputs, driver);
                Vec::new()
            });
        }
        let is_done = self.leftovers.is_empty() && !self.deletions_failed;
        match is_done && !self.node_routes.has_failed() {
            true => self.retry.clear(),
            false => drop(self.retry.schedule(self.clock.monotonic())),
        }
    }

    /// Schedules a retry of leftovers and queued CNI DELs, unless one is scheduled already.
    fn ensure_retry(&mut self) {
        self.retry.ensure(self.clock.monotonic());
    }

    /// The namespace of a path: the one opened before, else it is opened now.
    pub(crate) fn open_netns(
        &mut self,
        path: &str,
        netns: PreopenedNetns,
    ) -> Result<Option<NetNs>, NetworkDriverError> {
        match (netns, self.network.opener()) {
            (Some(opened), _) => Ok(Some(opened?)),
            (None, Some(opener)) => Ok(Some(opener.open(path, NETNS_OPEN_TIMEOUT)?)),
            (None, None) => Ok(None),
        }
    }

    /// Saves all workloads and closed interfaces to disk.
    pub(crate) fn save_records(&mut self) -> Result<(), WorkloadError> {
        let closed = self.registry.closed_interfaces();
        Ok(self.records.write(self.known_records(), closed)?)
    }

    /// The records of all workloads; those that are being attached, or could not be rolled back, are
    /// pending.
    pub(crate) fn known_records(&self) -> impl Iterator<Item = &WorkloadRecord> {
        let attached = self.registry.iter();
        let attached = attached.filter(|(id, _)| !self.attaching.contains_key(*id));
        let attached = attached.map(|(_, workload)| &workload.record);
        attached
            .chain(self.attaching.values())
            .chain(&self.leftovers)
    }

    /// Keeps a workload that could not be removed, for a retry; its addresses stay allocated.
    pub(crate) fn add_leftover(&mut self, record: WorkloadRecord) {
        if !self
            .leftovers
            .iter()
            .any(|left| left.interface == record.interface)
        {
            self.leftovers.push(WorkloadRecord {
                pending: true,
                ..record
            });
        }
        self.ensure_retry();
    }

    /// Updates the masquerade rules after nodes changed; a failure is retried.
    pub(crate) fn update_masquerade(&self, enforcer: &mut Enforcer) {
        let wanted = masquerade_policy(self);
        if !wanted.addresses.is_empty() {
            enforcer.sync_masquerade(&wanted);
        }
    }

    /// Applies the masquerade rules for one workload.
    pub(crate) fn apply_masquerade_for(
        &mut self,
        enforcer: &mut Enforcer,
        id: &EndpointId,
    ) -> Result<(), WorkloadError> {
        let wanted = masquerade_policy(self);
        match enforcer.apply_masquerade(&wanted) {
            Ok(_) => Ok(()),
            Err(error) => Err(WorkloadError::NotMasqueraded {
                id: id.to_string(),
                source: Box::new(error),
            }),
        }
    }

    /// Opens the workloads that wait for their policy, once the kernel holds it.
    pub(crate) fn open_pending(&mut self, enforcer: &mut Enforcer) {
        let refused =
            enforcer.kernel_failure.is_some() && !fault::is_injected("opened-though-refused");
        if refused || !enforcer.in_sync {
            return;
        }
        let is_pending = |(id, workload): &(&EndpointId, &Workload)| {
            workload.state == EndpointState::Closed
                && !self.attaching.contains_key(*id)
                && self.registry.closed_reason(id).is_none()
        };
        let pending = self.registry.iter().filter(is_pending);
        let waiting: Vec<WorkloadRecord> = pending.map(|(_, w)| w.record.clone()).collect();
        for record in waiting {
            if let Err(error) = self.open_workload(enforcer, &record) {
                tracing::warn!(workload = %record.id(), error = %error_chain(&error), "bringing the workload's interface up failed");
            }
        }
    }

    /// Opens a workload and notifies the waiters.
    pub(crate) fn open_workload(
        &mut self,
        enforcer: &mut Enforcer,
        record: &WorkloadRecord,
    ) -> Result<(), NetworkDriverError> {
        let forwarding = self.enable_forwarding();
        let opened = forwarding.and_then(|()| self.network.bring_up(record));
        let id = record.id();
        if let Some(workload) = self.registry.get_mut(&id) {
            workload.reason = opened.as_ref().err().map(|error| error_chain(error));
            if opened.is_ok() {
                workload.state = EndpointState::Ready;
            }
        }
        if opened.is_ok() {
            if let Some(received_at) = self.unopened.remove(&id) {
                let now = self.clock.monotonic();
                let took = now.saturating_duration_since(received_at);
                enforcer.metrics.attach.observe(took);
            }
            for (_, waiting) in self.open_waiters.extract_if(.., |(of, _)| *of == id) {
                // The receiver may have stopped waiting.
                let _ = waiting.send(());
            }
        }
        opened
    }

    /// Enables forwarding, before the first workload is brought up.
    pub(crate) fn enable_forwarding(&mut self) -> Result<(), NetworkDriverError> {
        if !self.forwarding_enabled {
            self.ensure_forwarding()?;
            self.forwarding_enabled = true;
        }
        Ok(())
    }

    /// Enables forwarding on this host, if the agent manages it; returns the changed sysctls.
    fn ensure_forwarding(&mut self) -> Result<Vec<String>, NetworkDriverError> {
        if !self.config.workloads.manages_forwarding {
            return Ok(Vec::new());
        }
        let prefix = &self.config.workloads.interface_prefix;
        let switched = self.network.ensure_forwarding(prefix, &self.settings)?;
        for setting in &switched {
            tracing::info!(setting, "sysctl changed to enable forwarding");
        }
        Ok(switched)
    }

    /// Notifies `waiter` when a workload opens.
    pub(crate) fn notify_when_open(
        &mut self,
        id: EndpointId,
        waiter: tokio::sync::oneshot::Sender<()>,
    ) {
        self.open_waiters
            .retain(|(_, waiting)| !waiting.is_closed());
        match self.registry.get(&id).map(|workload| workload.state) {
            Some(EndpointState::Closed) => self.open_waiters.push((id, waiter)),
            // The receiver may have stopped waiting.
            _ => drop(waiter.send(())),
        }
    }

    /// The present use of an address on this host.
    pub(crate) fn address_use(
        &mut self,
        address: IpAddr,
        pool: Option<Prefix>,
        whole: bool,
    ) -> Result<Option<AddressUse>, WorkloadError> {
        let used = self.network.address_use(address, pool, whole);
        used.map_err(WorkloadError::inspect(format!("address {address}")))
    }
}
