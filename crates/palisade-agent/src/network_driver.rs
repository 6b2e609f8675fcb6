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

mod netns_facts;
mod veth_pair;

pub use netns_facts::{AddressUse, NetnsFacts};

use crate::settings::{self, SettingsError, SettingsFile};
use crate::workload_store::{NetnsIdentity, WorkloadRecord};
use palisade_sys::link::{
    IpNet, KernelLinks, LinkChange, LinkError, MAIN_TABLE, MacAddr, Neighbour, Route, RouteKind,
    VethEnd,
};
use palisade_sys::netns::{NetNs, NetNsError, NetNsOpener};
use palisade_sys::sysctl::KernelSysctl;
use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;
use veth_pair::InnerVeth;

/// The IPv4 gateway of workloads; no interface has this address.
pub const GATEWAY_V4: Ipv4Addr = Ipv4Addr::new(169, 254, 1, 1);
/// The IPv6 gateway of workloads; no interface has this address.
pub const GATEWAY_V6: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1);
/// How long the core waits for the file system of a namespace's path.
const CORE_NETNS_TIMEOUT: Duration = Duration::from_millis(500);
/// The protocol number of routes added by the kernel itself.
const RTPROT_KERNEL: u8 = 2;
/// The MAC address of every host-side interface; it has only one neighbour, so it need not be unique.
pub const HOST_MAC: MacAddr = MacAddr([0xee, 0xee, 0xee, 0xee, 0xee, 0xee]);

/// Why a namespace could not be attached or detached.
#[derive(Debug, thiserror::Error)]
pub enum NetworkDriverError {
    /// The namespace cannot be opened.
    #[error(transparent)]
    Netns(#[from] NetNsError),
    /// An operation on an interface, address or route failed.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// A sysctl could not be changed.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// The interface exists already.
    #[error("the namespace {netns} already has an interface {interface}")]
    InterfaceExists {
        /// The namespace.
        netns: String,
        /// The interface.
        interface: String,
    },
    /// The host-side interface does not exist.
    #[error("the interface {0} does not exist")]
    InterfaceMissing(String),
    /// The interface with the host side's name belongs to something else.
    #[error(
        "the interface {0} is not the workload's: it is not a veth whose peer is the interface in that \
         namespace"
    )]
    NotVethPeer(String),
    /// The path now refers to a different namespace than at the attach.
    #[error("the path {0} refers to a different network namespace than when it was attached")]
    NetnsChanged(String),
    /// This host does not forward the interface's packets.
    #[error(
        "the interface {interface} is a port of {master}, which forwards its packets without routing \
         them through this host: chain palisade-cni after a plugin that routes, such as ptp"
    )]
    BridgePort {
        /// The interface.
        interface: String,
        /// The bridge or other master of the interface.
        master: String,
    },
    /// The namespace is the host's own.
    #[error("the namespace {0} is the one this agent runs in")]
    HostNetns(String),
}

/// The network operations of the host that the core uses.
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

    /// Deletes the pair; a chained interface stays. Idempotent.
    ///
    /// # Errors
    /// If the kernel rejects it.
    fn delete_interfaces(&mut self, record: &WorkloadRecord) -> Result<(), NetworkDriverError>;

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

    /// Enables forwarding if it is off, and makes the kernel accept router advertisements as before;
    /// returns the changed sysctls. The former values are saved in `file`; names of the agent's
    /// interfaces begin with `prefix`.
    ///
    /// # Errors
    /// If a sysctl cannot be changed, or its value cannot be saved.
    fn ensure_forwarding(
        &mut self,
        prefix: &str,
        file: &SettingsFile,
    ) -> Result<Vec<String>, NetworkDriverError>;

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

/// The driver for the running kernel.
pub struct KernelNetworkDriver {
    host: NetNs,
    opener: NetNsOpener,
    pinned_netns: Option<NetNs>,
}

impl KernelNetworkDriver {
    /// The driver for the network namespace of this thread.
    ///
    /// # Errors
    /// If the namespace cannot be opened.
    pub fn current() -> Result<Self, NetworkDriverError> {
        Ok(KernelNetworkDriver {
            host: NetNs::current()?,
            opener: NetNsOpener::default(),
            pinned_netns: None,
        })
    }

    fn links(&self) -> Result<KernelLinks, LinkError> {
        KernelLinks::open(&self.host)
    }

    /// A workload's namespace: the pinned one, or the one its path refers to, if it is the one it was
    /// attached from.
    fn netns(&self, record: &WorkloadRecord) -> Result<NetNs, NetworkDriverError> {
        let pinned = self.pinned_netns.as_ref();
        let netns = match pinned.filter(|held| held.label() == record.netns) {
            Some(held) => held.clone(),
            None => self.opener.open(&record.netns, CORE_NETNS_TIMEOUT)?,
        };
        match record.netns_identity {
            Some(known) if known != NetnsIdentity::of(&netns) => {
                Err(NetworkDriverError::NetnsChanged(record.netns.clone()))
            }
            _ => Ok(netns),
        }
    }
}

impl NetworkDriver for KernelNetworkDriver {
    fn opener(&self) -> Option<NetNsOpener> {
        Some(self.opener.clone())
    }

    fn pin_netns(&mut self, netns: Option<NetNs>) {
        self.pinned_netns = netns;
    }

    fn netns_facts(&mut self, record: &WorkloadRecord) -> Result<NetnsFacts, NetworkDriverError> {
        self.read_netns_facts(record)
    }

    fn address_use(
        &mut self,
        address: IpAddr,
        pool: Option<palisade_model::Prefix>,
        whole: bool,
    ) -> Result<Option<AddressUse>, NetworkDriverError> {
        self.read_address_use(address, pool, whole)
    }

    fn link_index(&mut self, name: &str) -> Result<Option<u32>, NetworkDriverError> {
        Ok(self.links()?.link(name)?.map(|link| link.index))
    }

    fn link_name(&mut self, index: u32) -> Result<Option<String>, NetworkDriverError> {
        Ok(self.links()?.link_by_index(index)?.map(|link| link.name))
    }

    fn create_interfaces(&mut self, record: &WorkloadRecord) -> Result<(), NetworkDriverError> {
        let pod = self.netns(record)?;
        if pod.id() == self.host.id() {
            return Err(NetworkDriverError::HostNetns(record.netns.clone()));
        }
        if record.chained {
            return self.check_chained(record);
        }
        let mut inside = KernelLinks::open(&pod)?;
        if inside.link(&record.inside)?.is_some() {
            return Err(NetworkDriverError::InterfaceExists {
                netns: record.netns.clone(),
                interface: record.inside.clone(),
            });
        }
        let mut host = self.links()?;
        let outer = VethEnd {
            name: record.interface.to_string(),
            mac: Some(HOST_MAC),
            mtu: record.mtu,
            netns: None,
        };
        let inner = VethEnd {
            name: record.inside.clone(),
            mac: None,
            mtu: record.mtu,
            netns: Some(pod),
        };
        Ok(host.create_veth(&outer, &inner)?)
    }

    fn configure_netns(&mut self, record: &WorkloadRecord) -> Result<(), NetworkDriverError> {
        if record.chained {
            return Ok(());
        }
        let pod = self.netns(record)?;
        configure_links(&mut KernelLinks::open(&pod)?, record)
    }

    fn bring_up(&mut self, record: &WorkloadRecord) -> Result<(), NetworkDriverError> {
        if record.chained {
            return self.check_chained(record);
        }
        let pod = self.netns(record)?;
        let mut host = self.links()?;
        let gone = || NetworkDriverError::InterfaceMissing(record.inside.clone());
        let inner =
            InnerVeth::find((&self.host, &mut host), &pod, &record.inside)?.ok_or_else(gone)?;
        let mac = inner.link.mac.ok_or_else(gone)?;
        let Some(outer) = host.link(&record.interface)? else {
            return Err(NetworkDriverError::InterfaceMissing(
                record.interface.to_string(),
            ));
        };
        if !inner.is_peer(&outer) {
            return Err(NetworkDriverError::NotVethPeer(
                record.interface.to_string(),
            ));
        }
        if outer.mac != Some(HOST_MAC) {
            host.change_link(&record.interface, &LinkChange::Mac(HOST_MAC))?;
        }
        host.change_link(&record.interface, &LinkChange::Up)?;
        for address in &record.addresses {
            host.set_neighbour(&Neighbour::permanent(&record.interface, *address, mac))?;
            host.replace_route(&Route::device(IpNet::host(*address), &record.interface))?;
        }
        Ok(())
    }

    fn delete_interfaces(&mut self, record: &WorkloadRecord) -> Result<(), NetworkDriverError> {
        if record.chained {
            return Ok(());
        }
        match self.links()?.delete_link(&record.interface) {
            Err(error) if error.is_not_found() => Ok(()),
            other => Ok(other?),
        }
    }

    fn has_interface(&mut self, record: &WorkloadRecord) -> Result<bool, NetworkDriverError> {
        let mut host = self.links()?;
        if !record.chained {
            return Ok(host.link(&record.interface)?.is_some());
        }
        let inner = self.inner_veth(&mut host, record);
        Ok(self
            .find_host_link(&host.links()?, record, inner.as_ref())
            .is_some())
    }

    fn netns_interface(
        &mut self,
        record: &WorkloadRecord,
    ) -> Result<NetnsInterface, NetworkDriverError> {
        let pod = self.netns(record)?;
        let mut links = KernelLinks::open(&pod)?;
        let gone = || NetworkDriverError::InterfaceMissing(record.inside.clone());
        let link = links.link(&record.inside)?.ok_or_else(gone)?;
        let addresses = links.addresses()?.into_iter();
        let routes = links.routes()?.into_iter();
        Ok(NetnsInterface {
            mac: link.mac.ok_or_else(gone)?,
            mtu: link.mtu,
            addresses: addresses
                .filter(|address| address.link_index == link.index)
                .map(|address| address.prefix.address)
                .collect(),
            routes: routes
                .filter(|route| route.gateway.is_some())
                .filter(|route| route.link.as_deref() == Some(&*record.inside))
                .map(|route| route.destination)
                .collect(),
        })
    }

    fn host_interface_states(
        &mut self,
        records: &[WorkloadRecord],
    ) -> Result<Vec<HostInterfaceState>, NetworkDriverError> {
        let mut host = self.links()?;
        let (links, routes, neighbours) = (host.links()?, host.routes()?, host.neighbours()?);
        let mut state_of = |record: &WorkloadRecord| {
            let name = &*record.interface;
            let inner = self.inner_veth(&mut host, record);
            let Some(link) = self.find_host_link(&links, record, inner.as_ref()) else {
                return HostInterfaceState::Missing;
            };
            if link.name != name {
                return HostInterfaceState::Renamed(link.name.clone());
            }
            let inside = inner.as_ref().map(|inner| &inner.link);
            if record.chained {
                return HostInterfaceState::Intact;
            }
            let mut changed = Vec::new();
            if !link.is_up() {
                changed.push(format!("{name} was set down"));
            }
            if link.mac != Some(HOST_MAC) {
                changed.push(format!("the hardware address of {name}"));
            }
            for address in &record.addresses {
                let has_route = routes.iter().any(|route| {
                    route.destination == IpNet::host(*address)
                        && route.link.as_deref() == Some(name)
                        && (route.table, route.kind) == (MAIN_TABLE, RouteKind::Unicast)
                        && route.gateway.is_none()
                });
                if !has_route {
                    changed.push(format!("the route to {address}"));
                }
                let has_neighbour = neighbours.iter().any(|neighbour| {
                    (&*neighbour.link, neighbour.address) == (name, *address)
                        && neighbour.permanent
                        && neighbour.mac.is_some()
                        && inside.is_none_or(|i| i.mac == neighbour.mac)
                });
                if !has_neighbour {
                    changed.push(format!("the neighbour {address}"));
                }
            }
            match changed.is_empty() {
                true => HostInterfaceState::Intact,
                false => HostInterfaceState::Changed(changed),
            }
        };
        Ok(records.iter().map(&mut state_of).collect())
    }

    fn restore_name(
        &mut self,
        record: &WorkloadRecord,
        now: &str,
    ) -> Result<(), NetworkDriverError> {
        let mut host = self.links()?;
        let name = LinkChange::Rename(record.interface.to_string());
        if host.change_link(now, &name).is_ok() {
            return Ok(());
        }
        // Kernels before 6.2 do not rename an interface that is up.
        host.change_link(now, &LinkChange::Down)?;
        Ok(host.change_link(now, &name)?)
    }

    fn ensure_forwarding(
        &mut self,
        prefix: &str,
        file: &SettingsFile,
    ) -> Result<Vec<String>, NetworkDriverError> {
        let (mut sysctl, mut links) = (KernelSysctl::new(&self.host), self.links()?);
        Ok(settings::ensure_forwarding(
            &mut sysctl,
            &mut links,
            prefix,
            file,
        )?)
    }

    fn inventory(&mut self, prefix: &str) -> Result<HostInventory, NetworkDriverError> {
        let mut host = self.links()?;
        let (links, routes, neighbours) = (host.links()?, host.routes()?, host.neighbours()?);
        let addresses = host.addresses()?.into_iter();
        let names = links.into_iter().map(|link| link.name);
        let is_host_route = |route: &Route| {
            let full_length = IpNet::host(route.destination.address).len;
            route.destination.len == full_length
                && (route.table, route.kind) == (MAIN_TABLE, RouteKind::Unicast)
                // Routes that the kernel added for its own addresses.
                && route.protocol != RTPROT_KERNEL
        };
        Ok(HostInventory {
            links: names.filter(|name| name.starts_with(prefix)).collect(),
            routes: routes
                .into_iter()
                .filter(is_host_route)
                .filter_map(|route| Some((route.destination.address, route.link?)))
                .collect(),
            neighbours: neighbours
                .into_iter()
                .filter(|neighbour| neighbour.permanent && neighbour.mac.is_some())
                .map(|neighbour| (neighbour.address, neighbour.link))
                .collect(),
            host_addresses: addresses.map(|address| address.prefix.address).collect(),
        })
    }

    fn default_route_mtu(&mut self) -> Result<Option<u32>, NetworkDriverError> {
        let mut host = self.links()?;
        let routes = host.routes()?;
        let default_links: Vec<&String> = routes
            .iter()
            .filter(|route| route.destination.len == 0 && route.table == MAIN_TABLE)
            .filter(|route| route.kind == RouteKind::Unicast)
            .filter_map(|route| route.link.as_ref())
            .collect();
        let links = host.links()?.into_iter();
        let uplinks = links.filter(|link| default_links.contains(&&link.name));
        Ok(uplinks.map(|link| link.mtu).min())
    }

    fn netns_exists(&self, record: &WorkloadRecord) -> bool {
        match self.netns(record) {
            Ok(_) => true,
            // The state of a namespace on an unresponsive file system is not known.
            Err(NetworkDriverError::Netns(NetNsError::TimedOut { .. })) => true,
            Err(_) => false,
        }
    }
}

/// Configures addresses and routes inside the namespace.
fn configure_links(
    inside: &mut KernelLinks,
    record: &WorkloadRecord,
) -> Result<(), NetworkDriverError> {
    inside.change_link("lo", &LinkChange::Up)?;
    inside.change_link(&record.inside, &LinkChange::Up)?;
    for address in &record.addresses {
        inside.add_address(&record.inside, IpNet::host(*address))?;
    }
    let has = |v4: bool| record.addresses.iter().any(|a| a.is_ipv4() == v4);
    let gateways: [(bool, IpAddr, IpNet); 2] = [
        (
            true,
            GATEWAY_V4.into(),
            IpNet::new(Ipv4Addr::UNSPECIFIED.into(), 0),
        ),
        (
            false,
            GATEWAY_V6.into(),
            IpNet::new(Ipv6Addr::UNSPECIFIED.into(), 0),
        ),
    ];
    for (v4, gateway, everything) in gateways {
        if has(v4) {
            inside.set_neighbour(&Neighbour::permanent(&record.inside, gateway, HOST_MAC))?;
            inside.replace_route(&Route::via_on_link(everything, gateway, &record.inside))?;
        }
    }
    Ok(())
}
