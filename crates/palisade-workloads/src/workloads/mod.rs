//! The workloads of this host: registry, records on disk, addresses, interfaces.
//!
//! [`Workloads`] owns their state. [`attach`] and [`lifecycle`] are its operations: attach, restore,
//! detach, rollback. [`named`] and [`cni`] check the requests of users and of container runtimes. As a subsystem
//! ([`host`]) it opens what waited for its policy, repairs what others change on the host side, and retries. Promises: the host side of a workload is brought
//! up only when its policy is in the kernel; what cannot be rolled back stays recorded with its addresses,
//! and is retried with increasing delays.
//!
//! Never: decides policy, or writes it; the enforcer of the [`NodeState`] does, which every operation that changes
//! policy takes.

mod addresses;
pub mod attach;
mod attach_plan;
pub mod cni;
pub mod deletions;
mod error;
pub mod host;
mod installed;
mod lifecycle;
pub mod named;
mod sections;
mod vanished;

pub use error::WorkloadError;
pub use sections::WorkloadSections;

use crate::host_endpoints::InterfaceAddresses;
use crate::ipam::Ipam;
use crate::registry::WorkloadRegistry;
pub use addresses::{is_masqueraded, masquerade_policy};
use palisade_api::EndpointState;
use palisade_model::{EndpointId, Prefix, Str, Update};
use palisade_network::network_driver::{AddressUse, NetworkDriver, NetworkDriverError};
use palisade_network::node_state::NodeState;
use palisade_node::clock::Clock;
use palisade_node::host_changes::HostChanges;
use palisade_node::workload_store::{WorkloadRecord, WorkloadStore};
use palisade_sys::fault;
use palisade_sys::netns::{NetNs, NetNsError};
use palisade_text::error_chain;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The timeout for opening a namespace.
pub const NETNS_OPEN_TIMEOUT: Duration = Duration::from_secs(2);

/// A namespace opened outside the core's thread, or why that failed; `None`: not opened yet.
pub type PreopenedNetns = Option<Result<NetNs, NetNsError>>;

/// Whether the kernel holds the policy of the workloads, so that they may be opened.
fn may_open(node: &NodeState) -> bool {
    let is_in_force = node.is_policy_in_force() || fault::is_injected("opened-though-refused");
    is_in_force && node.enforcer.is_in_sync()
}

/// The workloads of this host. See the module's description.
pub struct Workloads {
    /// What they read of the configuration, replaced when its file changes.
    pub sections: WorkloadSections,
    pub(crate) clock: Arc<dyn Clock>,
    /// The interfaces of this host.
    pub network: Box<dyn NetworkDriver>,
    /// The records on disk.
    pub records: WorkloadStore,
    /// What policy knows of them.
    pub registry: WorkloadRegistry,
    /// Their addresses.
    pub ipam: Ipam,
    /// Workloads whose attach failed and could not be rolled back; saved as pending.
    pub leftovers: Vec<WorkloadRecord>,
    /// Whether a queued CNI DEL failed.
    deletions_failed: bool,
    opening: OpeningWorkloads,
    /// What may have changed on this host since the last run.
    host_changes: HostChanges,
    /// The number of flushes when workloads that waited for their policy were last opened.
    opened_at_flush: u64,
    /// Whether leftovers and queued CNI DELs are tried again by the next run.
    is_retry_due: bool,
}

/// The workloads that are not open yet.
#[derive(Default)]
struct OpeningWorkloads {
    /// The pending records of the workloads that are being attached; their attach brings them up, not
    /// [`Workloads::open_pending`].
    attaching: BTreeMap<EndpointId, WorkloadRecord>,
    /// When the request of each workload arrived that has not been open since.
    unopened: BTreeMap<EndpointId, Instant>,
    /// Who waits until a workload is open.
    waiters: Vec<(EndpointId, tokio::sync::oneshot::Sender<()>)>,
}

impl Workloads {
    /// No workloads, of the host with this registry and these records.
    pub fn new(
        sections: WorkloadSections,
        registry: WorkloadRegistry,
        records: WorkloadStore,
        network: Box<dyn NetworkDriver>,
        clock: Arc<dyn Clock>,
    ) -> Self {
        Workloads {
            ipam: Ipam::new(sections.ipam.networks(), &sections.ipam.reserved),
            sections,
            clock,
            network,
            records,
            registry,
            leftovers: Vec::new(),
            deletions_failed: false,
            opening: OpeningWorkloads::default(),
            host_changes: HostChanges::default(),
            opened_at_flush: 0,
            is_retry_due: false,
        }
    }

    /// Finds the interfaces of host endpoints: those that are named, and those that are known by their addresses.
    /// Returns what changed. If the kernel cannot be asked, each keeps its interface.
    pub fn find_host_interfaces(&mut self) -> Vec<Update> {
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

    /// The namespace of a path: the one opened before, else it is opened now.
    pub fn open_netns(
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
        let attached = attached.filter(|(id, _)| !self.opening.attaching.contains_key(*id));
        let attached = attached.map(|(_, workload)| &workload.record);
        attached
            .chain(self.opening.attaching.values())
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
    }

    /// Applies the masquerade rules for one workload.
    pub(crate) fn apply_masquerade_for(
        &mut self,
        node: &mut NodeState,
        id: &EndpointId,
    ) -> Result<(), WorkloadError> {
        let wanted = masquerade_policy(self, node);
        let applied = node.enforcer.set_masquerade(wanted);
        applied.map_err(|error| WorkloadError::NotMasqueraded {
            id: id.to_string(),
            source: Box::new(error),
        })
    }

    /// Whether nothing but policy keeps a workload closed that is not open: its attach is not in progress, and no rule of
    /// this host closes it.
    pub(crate) fn waits_for_policy_alone(&self, id: &EndpointId) -> bool {
        !self.opening.attaching.contains_key(id) && self.registry.closed_reason(id).is_none()
    }

    /// Opens a workload that waited for its policy, if it still waits and the kernel holds the policy.
    pub(crate) fn open_waiting(&mut self, node: &mut NodeState, record: &WorkloadRecord) {
        let workload = self.registry.get(&record.id());
        let is_closed = workload.is_some_and(|w| w.state == EndpointState::Closed);
        if !is_closed || !may_open(node) {
            return;
        }
        if let Err(error) = self.open_workload(node, record) {
            tracing::warn!(workload = %record.id(), error = %error_chain(&error), "bringing the workload's interface up failed");
        }
    }

    /// Opens a workload and notifies the waiters.
    pub(crate) fn open_workload(
        &mut self,
        node: &mut NodeState,
        record: &WorkloadRecord,
    ) -> Result<(), NetworkDriverError> {
        let forwarding = node.enable_forwarding().map_err(NetworkDriverError::from);
        let opened = forwarding.and_then(|()| self.network.bring_up(record));
        let id = record.id();
        if let Some(workload) = self.registry.get_mut(&id) {
            workload.reason = opened.as_ref().err().map(|error| error_chain(error));
            if opened.is_ok() {
                workload.state = EndpointState::Ready;
            }
        }
        if opened.is_ok() {
            if let Some(received_at) = self.opening.unopened.remove(&id) {
                let now = self.clock.monotonic();
                let took = now.saturating_duration_since(received_at);
                node.enforcer.policy.metrics.attach.observe(took);
            }
            for (_, waiting) in self
                .opening
                .waiters
                .extract_if(.., |(waiting_for, _)| *waiting_for == id)
            {
                // The receiver may have stopped waiting.
                let _ = waiting.send(());
            }
        }
        opened
    }

    /// Notifies `waiter` when a workload opens.
    pub fn notify_when_open(&mut self, id: EndpointId, waiter: tokio::sync::oneshot::Sender<()>) {
        self.opening
            .waiters
            .retain(|(_, waiting)| !waiting.is_closed());
        match self.registry.get(&id).map(|workload| workload.state) {
            Some(EndpointState::Closed) => self.opening.waiters.push((id, waiter)),
            // The receiver may have stopped waiting.
            _ => drop(waiter.send(())),
        }
    }

    /// The present use of an address on this host.
    pub fn address_use(
        &mut self,
        address: IpAddr,
        pool: Option<Prefix>,
        whole: bool,
    ) -> Result<Option<AddressUse>, WorkloadError> {
        let used = self.network.address_use(address, pool, whole);
        used.map_err(WorkloadError::inspect(format!("address {address}")))
    }
}
