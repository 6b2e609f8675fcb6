//! The network driver of the running kernel.

use super::connections;
use super::netns_facts::{read_address_use, read_netns_facts};
use super::veth_pair::{InnerVeth, check_chained, find_host_link};
use super::{
    AddressUse, GATEWAY_V4, GATEWAY_V6, HOST_MAC, HostInterfaceState, HostInventory, NetnsFacts,
    NetnsInterface, NetworkDriver, NetworkDriverError,
};
use crate::forwarding::ForwardingDriver;
use crate::forwarding::sysctls::{self, ChangedSetting, SettingsFile};
use palisade_dataplane::Interface;
use palisade_enforcer::cut_connections::{ConnectionReader, ConnectionsError, TcpConnection};
use palisade_node::workload_store::{NetnsIdentity, WorkloadRecord};
use palisade_sys::link::{
    IpNet, KernelLinks, LinkChange, LinkError, MAIN_TABLE, Neighbour, Route, RouteKind, VethEnd,
};
use palisade_sys::netns::{NetNs, NetNsError, NetNsOpener};
use palisade_sys::sysctl::KernelSysctl;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long the core waits for the file system of a namespace's path.
const CORE_NETNS_TIMEOUT: Duration = Duration::from_millis(500);
/// The protocol number of routes added by the kernel itself.
const RTPROT_KERNEL: u8 = 2;

/// The driver for the running kernel.
pub struct KernelNetworkDriver {
    host: NetNs,
    opener: NetNsOpener,
    pinned_netns: Option<NetNs>,
    /// Where the host's kernel parameters are.
    sysctl_dir: PathBuf,
    /// Every operation that would change something does nothing.
    pub(super) is_read_only: bool,
}

impl KernelNetworkDriver {
    /// The driver for the network namespace of this thread; kernel parameters are below `sysctl_dir`.
    ///
    /// # Errors
    /// If the namespace cannot be opened.
    pub fn current(sysctl_dir: &Path) -> Result<Self, NetworkDriverError> {
        Ok(KernelNetworkDriver {
            host: NetNs::current()?,
            opener: NetNsOpener::default(),
            pinned_netns: None,
            sysctl_dir: sysctl_dir.to_owned(),
            is_read_only: false,
        })
    }

    /// The same, but operations that would change the host or a namespace succeed and do nothing: for a dry
    /// run.
    ///
    /// # Errors
    /// If the namespace cannot be opened.
    pub fn read_only() -> Result<Self, NetworkDriverError> {
        let driver = Self::current(Path::new("/proc/sys"))?;
        Ok(KernelNetworkDriver {
            is_read_only: true,
            ..driver
        })
    }

    pub(super) fn sysctl(&self) -> KernelSysctl {
        KernelSysctl::mounted_at(&self.host, &self.sysctl_dir)
    }

    pub(super) fn links(&self) -> Result<KernelLinks, LinkError> {
        KernelLinks::open(&self.host)
    }

    /// A workload's namespace: the pinned one, or the one its path refers to, if it is the one it was
    /// attached from.
    fn netns(&self, record: &WorkloadRecord) -> Result<NetNs, NetworkDriverError> {
        let pinned = self.pinned_netns.as_ref();
        let netns = match pinned.filter(|pinned| pinned.label() == record.netns) {
            Some(pinned) => pinned.clone(),
            None => self.opener.open(&record.netns, CORE_NETNS_TIMEOUT)?,
        };
        match record.netns_identity {
            Some(known) if known != NetnsIdentity::of(&netns) => {
                Err(NetworkDriverError::NetnsChanged(record.netns.clone()))
            }
            _ => Ok(netns),
        }
    }

    /// See [`check_chained`].
    fn check_chained(&self, record: &WorkloadRecord) -> Result<(), NetworkDriverError> {
        check_chained(
            (&self.host, &mut self.links()?),
            &self.netns(record)?,
            record,
        )
    }

    /// The interface inside the namespace, if it can be queried.
    fn inner_veth(&self, host: &mut KernelLinks, record: &WorkloadRecord) -> Option<InnerVeth> {
        let pod = self.netns(record).ok()?;
        InnerVeth::find((&self.host, host), &pod, &record.inside).ok()?
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
        read_netns_facts(&self.netns(record)?, &record.netns)
    }

    fn address_use(
        &mut self,
        address: IpAddr,
        pool: Option<palisade_model::Prefix>,
        whole: bool,
    ) -> Result<Option<AddressUse>, NetworkDriverError> {
        read_address_use(&mut self.links()?, address, pool, whole)
    }

    fn link_index(&mut self, name: &str) -> Result<Option<u32>, NetworkDriverError> {
        Ok(self.links()?.link(name)?.map(|link| link.index))
    }

    fn link_name(&mut self, index: u32) -> Result<Option<String>, NetworkDriverError> {
        Ok(self.links()?.link_by_index(index)?.map(|link| link.name))
    }

    fn interfaces(&mut self) -> Result<Vec<Interface>, NetworkDriverError> {
        let links = self.links()?.links()?.into_iter();
        let interfaces = links.map(|link| Interface {
            name: link.name.into(),
            index: link.index,
        });
        Ok(interfaces.collect())
    }

    fn interface_addresses(&mut self) -> Result<Vec<(IpAddr, String)>, NetworkDriverError> {
        let mut links = self.links()?;
        let names = links
            .links()?
            .into_iter()
            .map(|link| (link.index, link.name));
        let names: BTreeMap<u32, String> = names.collect();
        let addresses = links.addresses()?.into_iter();
        let named = addresses.filter_map(|address| {
            let name = names.get(&address.link_index)?.clone();
            Some((address.prefix.address, name))
        });
        Ok(named.collect())
    }

    fn create_interfaces(&mut self, record: &WorkloadRecord) -> Result<(), NetworkDriverError> {
        if self.is_read_only {
            return Ok(());
        }
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
        if self.is_read_only {
            return Ok(());
        }
        if record.chained {
            return Ok(());
        }
        let pod = self.netns(record)?;
        configure_links(&mut KernelLinks::open(&pod)?, record)
    }

    fn bring_up(&mut self, record: &WorkloadRecord) -> Result<(), NetworkDriverError> {
        if self.is_read_only {
            return Ok(());
        }
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

    fn delete_interfaces(
        &mut self,
        records: &[WorkloadRecord],
    ) -> Vec<Result<(), NetworkDriverError>> {
        let own: Vec<&str> = records
            .iter()
            .filter(|record| !record.chained)
            .map(|record| &*record.interface)
            .collect();
        let deleted = match own.len() {
            _ if self.is_read_only => true,
            0 | 1 => false,
            _ => self
                .links()
                .and_then(|mut host| host.delete_links(&own))
                .is_ok(),
        };
        let delete = |record: &WorkloadRecord| {
            if record.chained || deleted {
                return Ok(());
            }
            match self.links()?.delete_link(&record.interface) {
                Err(error) if error.is_not_found() => Ok(()),
                other => Ok(other?),
            }
        };
        records.iter().map(delete).collect()
    }

    fn has_interface(&mut self, record: &WorkloadRecord) -> Result<bool, NetworkDriverError> {
        let mut host = self.links()?;
        if !record.chained {
            return Ok(host.link(&record.interface)?.is_some());
        }
        let inner = self.inner_veth(&mut host, record);
        Ok(find_host_link(&host.links()?, record, inner.as_ref()).is_some())
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
            let Some(link) = find_host_link(&links, record, inner.as_ref()) else {
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
            if changed.is_empty() {
                HostInterfaceState::Intact
            } else {
                HostInterfaceState::Changed(changed)
            }
        };
        Ok(records.iter().map(&mut state_of).collect())
    }

    fn restore_name(
        &mut self,
        record: &WorkloadRecord,
        now: &str,
    ) -> Result<(), NetworkDriverError> {
        if self.is_read_only {
            return Ok(());
        }
        let mut host = self.links()?;
        let name = LinkChange::Rename(record.interface.to_string());
        if host.change_link(now, &name).is_ok() {
            return Ok(());
        }
        // Kernels before 6.2 do not rename an interface that is up.
        host.change_link(now, &LinkChange::Down)?;
        Ok(host.change_link(now, &name)?)
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

    fn veths(&mut self) -> Result<Vec<(String, u32)>, NetworkDriverError> {
        let links = self.links()?.links()?.into_iter();
        let veths = links.filter(|link| link.kind.as_deref() == Some("veth"));
        Ok(veths.map(|link| (link.name, link.index)).collect())
    }

    fn delete_link(&mut self, name: &str) -> Result<(), NetworkDriverError> {
        if self.is_read_only {
            return Ok(());
        }
        match self.links()?.delete_link(name) {
            Err(error) if error.is_not_found() => Ok(()),
            other => Ok(other?),
        }
    }

    fn close_link(&mut self, name: &str) -> Result<(), NetworkDriverError> {
        if self.is_read_only {
            return Ok(());
        }
        match self.links()?.change_link(name, &LinkChange::Down) {
            Err(error) if error.is_not_found() => Ok(()),
            other => Ok(other?),
        }
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

impl ForwardingDriver for KernelNetworkDriver {
    fn plan_forwarding(
        &mut self,
        prefix: &str,
        file: &SettingsFile,
    ) -> Result<Vec<ChangedSetting>, NetworkDriverError> {
        let mut links = self.links()?;
        let sysctl = self.sysctl();
        Ok(sysctls::plan_forwarding(&sysctl, &mut links, prefix, file)?)
    }

    fn apply_settings(
        &mut self,
        file: &SettingsFile,
        changes: Vec<ChangedSetting>,
    ) -> Result<Vec<String>, NetworkDriverError> {
        if self.is_read_only {
            return Ok(Vec::new());
        }
        Ok(sysctls::apply_settings(&mut self.sysctl(), file, changes)?)
    }

    fn restorable_settings(
        &mut self,
        file: &SettingsFile,
    ) -> Result<Vec<ChangedSetting>, NetworkDriverError> {
        Ok(sysctls::restorable_settings(&self.sysctl(), file)?)
    }

    fn restore_setting(&mut self, setting: &ChangedSetting) -> Result<(), NetworkDriverError> {
        if self.is_read_only {
            return Ok(());
        }
        Ok(sysctls::restore_setting(&mut self.sysctl(), setting)?)
    }
}

impl ConnectionReader for KernelNetworkDriver {
    fn tcp_connections(&mut self) -> Result<Vec<TcpConnection>, ConnectionsError> {
        connections::read(&mut self.links()?)
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
