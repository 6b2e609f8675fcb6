//! Connects a network namespace to the host: a veth pair, addresses and routes on both sides.
//!
//! [`NetworkDriver::create_interfaces`] creates the pair with the host side down, so no traffic passes;
//! [`NetworkDriver::configure_netns`] configures addresses and routes inside. Only after the endpoint's
//! policy is in the kernel does [`NetworkDriver::bring_up`] bring the host side up and add the routes
//! to it. [`NetworkDriver::delete_interfaces`] undoes all of it. For an interface of another plugin
//! these methods only check whether policy can be applied to it.
//!
//! A namespace is opened once for all these steps ([`NetworkDriver::pin_netns`]); when it is reopened
//! later, it must be the same namespace, whatever its path refers to then. This module does not know
//! policy.

mod connections;
mod kernel;
mod netns_facts;
mod node_routes;
mod redirect_routes;
mod veth_pair;

pub use crate::network_error::NetworkDriverError;
pub use kernel::KernelNetworkDriver;
pub use netns_facts::{AddressUse, NetnsFacts};
pub use node_routes::{InstalledRoute, NODE_ROUTE_PROTOCOL, NodeRoute, NodeRouteDriver};
pub use palisade_node::host_changes::HOST_MAC;
pub use redirect_routes::RedirectRouteDriver;

use crate::forwarding::ForwardingDriver;
use palisade_dataplane::Interface;
use palisade_enforcer::cut_connections::ConnectionReader;
use palisade_node::workload_store::WorkloadRecord;
use palisade_sys::link::{IpNet, MacAddr};
use palisade_sys::netns::{NetNs, NetNsOpener};
use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;

/// The IPv4 gateway of workloads; no interface has this address.
pub const GATEWAY_V4: Ipv4Addr = Ipv4Addr::new(169, 254, 1, 1);
/// The IPv6 gateway of workloads; no interface has this address.
pub const GATEWAY_V6: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1);

/// What the agent's subsystems act on a host by, one driver each.
pub struct HostDrivers {
    /// Interfaces of workloads.
    pub network: Box<dyn NetworkDriver>,
    /// Sysctls of forwarding.
    pub forwarding: Box<dyn ForwardingDriver>,
    /// Routes to other nodes; `None`: this host has none.
    pub node_routes: Option<Box<dyn NodeRouteDriver>>,
    /// Routing of redirected packets; `None`: nothing is redirected.
    pub redirect_routes: Option<Box<dyn RedirectRouteDriver>>,
    /// TCP connections of the host; `None`: those that a change of policy cuts are not reported.
    pub connections: Option<Box<dyn ConnectionReader>>,
}

impl HostDrivers {
    /// Those of the network namespace of this thread; kernel parameters are below `sysctl_dir`.
    ///
    /// # Errors
    /// If the namespace cannot be opened.
    pub fn current(sysctl_dir: &Path) -> Result<Self, NetworkDriverError> {
        let driver = || KernelNetworkDriver::current(sysctl_dir);
        Ok(HostDrivers {
            network: Box::new(driver()?),
            forwarding: Box::new(driver()?),
            node_routes: Some(Box::new(driver()?)),
            redirect_routes: Some(Box::new(driver()?)),
            connections: Some(Box::new(driver()?)),
        })
    }

    /// The same, but operations that would change the host succeed and do nothing: for a dry run.
    ///
    /// # Errors
    /// If the namespace cannot be opened.
    pub fn read_only() -> Result<Self, NetworkDriverError> {
        Ok(HostDrivers {
            network: Box::new(KernelNetworkDriver::read_only()?),
            forwarding: Box::new(KernelNetworkDriver::read_only()?),
            node_routes: Some(Box::new(KernelNetworkDriver::read_only()?)),
            redirect_routes: Some(Box::new(KernelNetworkDriver::read_only()?)),
            connections: None,
        })
    }
}

/// The network operations of the host that workloads need.
pub trait NetworkDriver: Send {
    /// Opens namespaces outside the core's thread, for callers that must not block on a file system;
    /// `None` on a host without namespaces.
    fn opener(&self) -> Option<NetNsOpener>;

    /// Uses this open namespace for the workloads of its path until the next call.
    fn pin_netns(&mut self, netns: Option<NetNs>);

    /// The ownership and use of a namespace.
    ///
    /// # Errors
    /// If the namespace cannot be opened or inspected.
    fn netns_facts(&mut self, record: &WorkloadRecord) -> Result<NetnsFacts, NetworkDriverError>;

    /// The present use of a pool address on this host; `None` if it is unused. With `include_gateways`
    /// every route is read to find gateways.
    ///
    /// # Errors
    /// If the kernel cannot be queried.
    fn address_use(
        &mut self,
        address: IpAddr,
        pool: Option<palisade_model::Prefix>,
        include_gateways: bool,
    ) -> Result<Option<AddressUse>, NetworkDriverError>;

    /// The index of the host's link with this name; `None` if there is none.
    ///
    /// # Errors
    /// If the kernel cannot be queried.
    fn link_index(&mut self, name: &str) -> Result<Option<u32>, NetworkDriverError>;

    /// The name of the host's link with this index; `None` if there is none.
    ///
    /// # Errors
    /// If the kernel cannot be queried.
    fn link_name(&mut self, index: u32) -> Result<Option<String>, NetworkDriverError>;

    /// Every interface of this host.
    ///
    /// # Errors
    /// If the kernel cannot be queried.
    fn interfaces(&mut self) -> Result<Vec<Interface>, NetworkDriverError>;

    /// Every address of this host, with the name of its interface.
    ///
    /// # Errors
    /// If the kernel cannot be queried.
    fn interface_addresses(&mut self) -> Result<Vec<(IpAddr, String)>, NetworkDriverError>;

    /// Creates the pair; the host side stays down. For a chained interface, checks whether policy can
    /// be applied to its packets.
    ///
    /// # Errors
    /// If an operation fails, or the chained interface is not suitable; then nothing is left.
    fn create_interfaces(&mut self, record: &WorkloadRecord) -> Result<(), NetworkDriverError>;

    /// Configures addresses and routes inside the namespace; does nothing for a chained interface.
    ///
    /// # Errors
    /// If any operation fails.
    fn configure_netns(&mut self, record: &WorkloadRecord) -> Result<(), NetworkDriverError>;

    /// Brings the host side up and adds the routes to it. Idempotent.
    ///
    /// # Errors
    /// If any operation fails.
    fn bring_up(&mut self, record: &WorkloadRecord) -> Result<(), NetworkDriverError>;

    /// Deletes the pairs of these workloads; chained interfaces stay. Idempotent. A result for each: an error
    /// if the kernel rejects it.
    fn delete_interfaces(
        &mut self,
        records: &[WorkloadRecord],
    ) -> Vec<Result<(), NetworkDriverError>>;

    /// Whether the host-side interface exists.
    ///
    /// # Errors
    /// If the kernel cannot be queried.
    fn has_interface(&mut self, record: &WorkloadRecord) -> Result<bool, NetworkDriverError>;

    /// The state of the interface inside, as a CNI runtime needs it.
    ///
    /// # Errors
    /// If it does not exist, or the kernel cannot be queried.
    fn netns_interface(
        &mut self,
        record: &WorkloadRecord,
    ) -> Result<NetnsInterface, NetworkDriverError>;

    /// The state of each workload's host-side interface.
    ///
    /// # Errors
    /// If the kernel cannot be queried.
    fn host_interface_states(
        &mut self,
        records: &[WorkloadRecord],
    ) -> Result<Vec<HostInterfaceState>, NetworkDriverError>;

    /// Renames the host side from `current_name` to its own name. If that fails, sets it down, because
    /// no policy applies to the other name.
    ///
    /// # Errors
    /// If the rename fails.
    fn restore_name(
        &mut self,
        record: &WorkloadRecord,
        current_name: &str,
    ) -> Result<(), NetworkDriverError>;

    /// Objects of this host that could belong to workloads; names of the agent's interfaces begin with
    /// `prefix`.
    ///
    /// # Errors
    /// If the kernel cannot be queried.
    fn inventory(&mut self, prefix: &str) -> Result<HostInventory, NetworkDriverError>;

    /// The MTU of this host's default routes, the smallest if they differ; `None` if there are none.
    ///
    /// # Errors
    /// If the kernel cannot be queried.
    fn default_route_mtu(&mut self) -> Result<Option<u32>, NetworkDriverError>;

    /// The veth links of this host, with their indexes.
    ///
    /// # Errors
    /// If the kernel cannot be queried.
    fn veths(&mut self) -> Result<Vec<(String, u32)>, NetworkDriverError>;

    /// Deletes a link; it is no error if there is none.
    ///
    /// # Errors
    /// If the kernel rejects it.
    fn delete_link(&mut self, name: &str) -> Result<(), NetworkDriverError>;

    /// Sets a link down; it is no error if there is none.
    ///
    /// # Errors
    /// If the kernel rejects it.
    fn close_link(&mut self, name: &str) -> Result<(), NetworkDriverError>;

    /// Whether the network namespace still exists.
    fn netns_exists(&self, record: &WorkloadRecord) -> bool;
}

/// The interface inside a namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NetnsInterface {
    /// Its MAC address.
    pub mac: MacAddr,
    /// Its MTU, in bytes.
    pub mtu: u32,
    /// Its addresses.
    pub addresses: Vec<IpAddr>,
    /// The destinations of its routes by a gateway.
    pub routes: Vec<IpNet>,
}

/// Objects of this host that could belong to workloads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostInventory {
    /// The links with the prefix of generated names.
    pub links: BTreeSet<String>,
    /// Host routes (to one address), with their link.
    pub routes: BTreeSet<(IpAddr, String)>,
    /// Permanent neighbour entries, with their link.
    pub neighbours: BTreeSet<(IpAddr, String)>,
    /// This host's own addresses.
    pub host_addresses: BTreeSet<IpAddr>,
}

/// The state of a host-side interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostInterfaceState {
    /// As [`NetworkDriver::bring_up`] leaves it.
    Intact,
    /// It exists, with these differences.
    Changed(Vec<String>),
    /// It exists under this name.
    Renamed(String),
    /// It does not exist.
    Missing,
}

impl HostInterfaceState {
    /// The differences from the intended state, for messages.
    pub fn differences(self, interface: &str) -> Vec<String> {
        match self {
            HostInterfaceState::Intact => Vec::new(),
            HostInterfaceState::Changed(what) => what,
            HostInterfaceState::Renamed(current_name) => {
                vec![format!("{interface} was renamed to {current_name}")]
            }
            HostInterfaceState::Missing => vec![format!("{interface} does not exist")],
        }
    }
}
