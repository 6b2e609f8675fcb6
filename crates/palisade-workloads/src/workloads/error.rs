//! Why an operation on a workload failed.

use crate::access::AccessDenied;
use crate::ipam::IpamError;
use palisade_network::network_driver::NetworkDriverError;
use palisade_node::workload_store::WorkloadStoreError;
use std::net::IpAddr;

/// Why a workload was not attached or detached.
#[derive(Debug, thiserror::Error)]
pub enum WorkloadError {
    /// A field of the request is invalid.
    #[error("{field}: {reason}")]
    Invalid {
        /// The field of the request.
        field: &'static str,
        /// Why it is invalid.
        reason: String,
    },
    /// The caller does not have the permission.
    #[error(transparent)]
    NotPermitted(#[from] AccessDenied),
    /// A workload with this name is attached elsewhere.
    #[error("{id} is already attached from {netns}; remove it first")]
    Exists {
        /// The workload.
        id: String,
        /// Its network namespace.
        netns: String,
    },
    /// No address could be allocated.
    #[error("allocating an address for {id}: {source}")]
    Address {
        /// The workload.
        id: String,
        /// The cause.
        source: IpamError,
    },
    /// The pools are those of this host's Node, and not known yet.
    #[error("{0}; retry later, or configure ipam-pool")]
    NoPools(String),
    /// Another workload has the address.
    #[error("the address {address} for {id} is in use by {holder}")]
    AddressTaken {
        /// The workload.
        id: String,
        /// The address.
        address: IpAddr,
        /// The other workload.
        holder: String,
    },
    /// The attached workload could not be inspected.
    #[error("looking up the interface of {id}: {source}")]
    Inspect {
        /// The workload.
        id: String,
        /// The cause.
        source: Box<NetworkDriverError>,
    },
    /// The interfaces could not be created or configured.
    #[error("attaching {id} from {netns}: {source}")]
    Attach {
        /// The workload.
        id: String,
        /// The namespace.
        netns: String,
        /// The cause.
        source: Box<NetworkDriverError>,
    },
    /// The interface could not be deleted.
    #[error("removing the interface {interface} of {id}: {source}")]
    Detach {
        /// The workload.
        id: String,
        /// Its host-side interface.
        interface: String,
        /// The cause.
        source: Box<NetworkDriverError>,
    },
    /// The record could not be saved.
    #[error(transparent)]
    Record(#[from] WorkloadStoreError),
    /// The kernel does not hold its policy.
    #[error("{id} stays closed: the kernel rejected its policy: {reason}")]
    NotEnforced {
        /// The workload.
        id: String,
        /// The cause.
        reason: String,
    },
    /// The agent is not in sync with the source yet.
    #[error("the agent has not read its policy source completely yet; retry later")]
    NotInSync,
    /// No such container is attached.
    #[error("network {network} has no container {container} with interface {interface}")]
    NotAttached {
        /// The network.
        network: String,
        /// The container.
        container: String,
        /// The interface inside it.
        interface: String,
    },
    /// A container differs from its state after ADD.
    #[error("{id} differs from its state at attach: {}", differences.join("; "))]
    NotAsAttached {
        /// The workload.
        id: String,
        /// The differences.
        differences: Vec<String>,
    },
    /// The masquerade rules could not be written to the kernel.
    #[error("the kernel rejected the masquerade rules for {id}")]
    NotMasqueraded {
        /// The workload.
        id: String,
        /// The cause.
        source: Box<palisade_node::subsystem::SubsystemError>,
    },
}

impl WorkloadError {
    /// An interface, address or route of this object could not be looked up.
    pub fn inspect(id: impl ToString) -> impl FnOnce(NetworkDriverError) -> WorkloadError {
        let id = id.to_string();
        move |source| WorkloadError::Inspect {
            id,
            source: Box::new(source),
        }
    }
}
