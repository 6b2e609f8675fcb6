//! Joining a network namespace to the host: a veth pair, addresses and routes on both sides.
//!
//! [`Attach::join`] makes the pair with the host side down, so nothing passes, [`Attach::furnish`]
//! gives the inside addresses and routes, and only when the endpoint's policy is in the kernel does
//! [`Attach::open`] bring the host side up and route to it. [`Attach::part`] undoes whatever of it was
//! done. Of an interface that another plugin made, these only look whether it can be judged.
//!
//! A namespace is opened once for all these steps ([`Attach::hold`]), and one that is opened again later
//! must be the very same, whatever its path leads to by then. Nothing here knows policy.

mod claims;
mod ends;

pub use claims::{AddressUse, Tenancy};

use crate::addresses::Survey;
use crate::record::{NetnsIdentity, Record};
use crate::settings::{self, SettingsError, SettingsFile};
use ends::InnerEnd;
use palisade_sys::link::{
    KernelLinkOpener, LinkChange, LinkError, LinkOpener, Links, MAIN_TABLE, MacAddr, Neighbour,
    Prefix, Route, RouteKind, VethEnd,
};
use palisade_sys::netns::{NetNs, NetNsError, Opener};
use palisade_sys::sysctl::KernelSysctl;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

/// The address workloads use as their IPv4 gateway; it exists nowhere.
pub const GATEWAY_V4: Ipv4Addr = Ipv4Addr::new(169, 254, 1, 1);
/// The address workloads use as their IPv6 gateway; it exists nowhere.
pub const GATEWAY_V6: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1);
/// How long the core waits for the file system that a namespace's path lies on.
const CORE_PATIENCE: Duration = Duration::from_millis(500);
/// The number of those routes that the kernel makes itself.
const RTPROT_KERNEL: u8 = 2;
/// The Ethernet address of every host-side interface: each has one neighbour only.
pub const HOST_MAC: MacAddr = MacAddr([0xee, 0xee, 0xee, 0xee, 0xee, 0xee]);

/// Why a namespace could not be attached or detached.
#[derive(Debug, thiserror::Error)]
pub enum AttachError {
    /// The namespace cannot be opened.
    #[error(transparent)]
    Netns(#[from] NetNsError),
    /// An interface, address or route was refused.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// A kernel setting was refused.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// The interface is there already.
    #[error("the namespace {netns} already has an interface {interface}")]
    Occupied {
        /// The namespace.
        netns: String,
        /// The interface.
        interface: String,
    },
    /// The host side is not there.
    #[error("the interface {0} is gone")]
    Gone(String),
    /// Something else has the host side's name.
    #[error(
        "the interface {0} is not the workload's: it is no veth whose other end is the interface in \
         that namespace"
    )]
    Foreign(String),
    /// Its path leads to another namespace than when it was attached.
    #[error("the path {0} leads to another network namespace than when it was attached")]
    OtherNetns(String),
    /// Its packets are not forwarded by this host.
    #[error(
        "the interface {interface} is a port of {master}, which passes its packets on without \
         asking this host: chain palisade-cni after a plugin that routes, such as ptp"
    )]
    Port {
        /// The interface.
        interface: String,
        /// What it is a port of.
        master: String,
    },
    /// That is this host's own namespace.
    #[error("the namespace {0} is the one this agent runs in")]
    OwnNetns(String),
}

/// What the agent's core asks of the host.
pub trait Attach: Send {
    /// What opens namespaces for whoever must not be held up by their file system; `None` on a host
    /// that has no namespaces.
    fn opener(&self) -> Option<Opener>;

    /// Takes this namespace for the workloads of its path until another is held, or none.
    fn hold(&mut self, netns: Option<NetNs>);

    /// Whose the namespace is, and whether anything uses it.
    ///
    /// # Errors
    /// If it cannot be opened or looked into.
    fn tenancy(&mut self, record: &Record) -> Result<Tenancy, AttachError>;

    /// What this host does with an address of a pool already; `None` if nothing. Looking for gateways
    /// too (`whole`) reads every route.
    ///
    /// # Errors
    /// If the kernel cannot be asked.
    fn address_use(
        &mut self,
        address: IpAddr,
        pool: Option<palisade_model::Prefix>,
        whole: bool,
    ) -> Result<Option<AddressUse>, AttachError>;

    /// The number of the link of this name on the host; `None` if there is none.
    ///
    /// # Errors
    /// If the kernel cannot be asked.
    fn index_of(&mut self, name: &str) -> Result<Option<u32>, AttachError>;

    /// What the link of this number on the host is called; `None` if there is none.
    ///
    /// # Errors
    /// If the kernel cannot be asked.
    fn name_of(&mut self, index: u32) -> Result<Option<String>, AttachError>;

    /// Makes the pair; the host side stays down. Of a chained one, looks whether its packets can be
    /// judged.
    ///
    /// # Errors
    /// If the kernel refuses it, or it is not as it must be; then nothing is left.
    fn join(&mut self, record: &Record) -> Result<(), AttachError>;

    /// Gives the inside addresses and routes; nothing of that for a chained one.
    ///
    /// # Errors
    /// If any step is refused.
    fn furnish(&mut self, record: &Record) -> Result<(), AttachError>;

    /// Brings the host side up and routes to it. Repeating it does no harm.
    ///
    /// # Errors
    /// If any step is refused.
    fn open(&mut self, record: &Record) -> Result<(), AttachError>;

    /// Removes the pair; a chained one stays. Removing what is gone is no error.
    ///
    /// # Errors
    /// If the kernel refuses.
    fn part(&mut self, record: &Record) -> Result<(), AttachError>;

    /// Whether the host-side interface is there.
    ///
    /// # Errors
    /// If the kernel cannot be asked.
    fn is_joined(&mut self, record: &Record) -> Result<bool, AttachError>;

    /// How the inside is, as a runtime wants to be told.
    ///
    /// # Errors
    /// If it is not there, or the kernel cannot be asked.
    fn inside(&mut self, record: &Record) -> Result<Inside, AttachError>;

    /// How the host side of each of these is.
    ///
    /// # Errors
    /// If the kernel cannot be asked.
    fn look(&mut self, records: &[Record]) -> Result<Vec<Found>, AttachError>;

    /// Gives the host side, which is called `now`, its own name again. If that cannot be, it is set
    /// down: under another name nothing judges it.
    ///
    /// # Errors
    /// Why the name is refused.
    fn rename_back(&mut self, record: &Record, now: &str) -> Result<(), AttachError>;

    /// Switches forwarding on where it is off, and has router advertisements taken as before; says
    /// which settings were changed. What was before is remembered in `file`; names of ours begin with
    /// `prefix`.
    ///
    /// # Errors
    /// If a setting is refused, or cannot be remembered.
    fn keep_forwarding(
        &mut self,
        prefix: &str,
        file: &SettingsFile,
    ) -> Result<Vec<String>, AttachError>;

    /// What of this host could be workloads'; names of ours begin with `prefix`.
    ///
    /// # Errors
    /// If the kernel cannot be asked.
    fn survey(&mut self, prefix: &str) -> Result<Survey, AttachError>;

    /// The size of the largest packet that leaves by this host's default routes, the smallest if they
    /// differ; `None` where there are none.
    ///
    /// # Errors
    /// If the kernel cannot be asked.
    fn outside_mtu(&mut self) -> Result<Option<u32>, AttachError>;

    /// Whether the network namespace still exists.
    fn netns_exists(&self, record: &Record) -> bool;
}

/// The interface inside a namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inside {
    /// Its Ethernet address.
    pub mac: MacAddr,
    /// The size of its largest packet, in bytes.
    pub mtu: u32,
    /// Its addresses.
    pub addresses: Vec<IpAddr>,
    /// The prefixes that it has routes to by a gateway.
    pub routes: Vec<Prefix>,
}

/// How a host side is found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// As [`Attach::open`] leaves it.
    Whole,
    /// There, but changed: in what.
    Changed(Vec<String>),
    /// There, under this name.
    Renamed(String),
    /// Not there.
    Gone,
}

impl Found {
    /// What is not as it should be, in words.
    pub fn differences(self, interface: &str) -> Vec<String> {
        match self {
            Found::Whole => Vec::new(),
            Found::Changed(what) => what,
            Found::Renamed(now) => vec![format!("{interface} is called {now}")],
            Found::Gone => vec![format!("{interface} is gone")],
        }
    }
}

/// The kernel this agent runs on.
pub struct KernelAttach {
    host: NetNs,
    opener: Opener,
    held: Option<NetNs>,
}

impl KernelAttach {
    /// For the network namespace this thread is in.
    ///
    /// # Errors
    /// If it cannot be opened.
    pub fn current() -> Result<Self, AttachError> {
        Ok(KernelAttach {
            host: NetNs::current()?,
            opener: Opener::default(),
            held: None,
        })
    }

    fn links(&self) -> Result<impl Links + use<>, LinkError> {
        KernelLinkOpener.open_links(&self.host)
    }

    /// A workload's namespace: the one that is held, or what its path leads to, if that is still the
    /// one it was attached from.
    fn netns(&self, record: &Record) -> Result<NetNs, AttachError> {
        let held = self.held.as_ref();
        let netns = match held.filter(|held| held.label() == record.netns) {
            Some(held) => held.clone(),
            None => self.opener.open(&record.netns, CORE_PATIENCE)?,
        };
        match record.netns_identity {
            Some(known) if known != NetnsIdentity::of(&netns) => {
                Err(AttachError::OtherNetns(record.netns.clone()))
            }
            _ => Ok(netns),
        }
    }
}

impl Attach for KernelAttach {
    fn opener(&self) -> Option<Opener> {
        Some(self.opener.clone())
    }

    fn hold(&mut self, netns: Option<NetNs>) {
        self.held = netns;
    }

    fn tenancy(&mut self, record: &Record) -> Result<Tenancy, AttachError> {
        self.tenancy_of(record)
    }

    fn address_use(
        &mut self,
        address: IpAddr,
        pool: Option<palisade_model::Prefix>,
        whole: bool,
    ) -> Result<Option<AddressUse>, AttachError> {
        self.use_of(address, pool, whole)
    }

    fn index_of(&mut self, name: &str) -> Result<Option<u32>, AttachError> {
        Ok(self.links()?.link(name)?.map(|link| link.index))
    }

    fn name_of(&mut self, index: u32) -> Result<Option<String>, AttachError> {
        Ok(self.links()?.link_at(index)?.map(|link| link.name))
    }

    fn join(&mut self, record: &Record) -> Result<(), AttachError> {
        let pod = self.netns(record)?;
        if pod.id() == self.host.id() {
            return Err(AttachError::OwnNetns(record.netns.clone()));
        }
        if record.chained {
            return self.check_chained(record);
        }
        let mut inside = KernelLinkOpener.open_links(&pod)?;
        if inside.link(&record.inside)?.is_some() {
            return Err(AttachError::Occupied {
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

    fn furnish(&mut self, record: &Record) -> Result<(), AttachError> {
        if record.chained {
            return Ok(());
        }
        let pod = self.netns(record)?;
        furnish(&mut KernelLinkOpener.open_links(&pod)?, record)
    }

    fn open(&mut self, record: &Record) -> Result<(), AttachError> {
        if record.chained {
            return self.check_chained(record);
        }
        let pod = self.netns(record)?;
        let mut host = self.links()?;
        let gone = || AttachError::Gone(record.inside.clone());
        let inner =
            InnerEnd::of((&self.host, &mut host), &pod, &record.inside)?.ok_or_else(gone)?;
        let mac = inner.link.mac.ok_or_else(gone)?;
        let Some(outer) = host.link(&record.interface)? else {
            return Err(AttachError::Gone(record.interface.to_string()));
        };
        if !inner.is_end(&outer) {
            return Err(AttachError::Foreign(record.interface.to_string()));
        }
        if outer.mac != Some(HOST_MAC) {
            host.change_link(&record.interface, &LinkChange::Mac(HOST_MAC))?;
        }
        host.change_link(&record.interface, &LinkChange::Up)?;
        for address in &record.addresses {
            host.set_neighbour(&Neighbour::permanent(&record.interface, *address, mac))?;
            host.replace_route(&Route::device(Prefix::host(*address), &record.interface))?;
        }
        Ok(())
    }

    fn part(&mut self, record: &Record) -> Result<(), AttachError> {
        if record.chained {
            return Ok(());
        }
        match self.links()?.delete_link(&record.interface) {
            Err(error) if error.is_missing() => Ok(()),
            other => Ok(other?),
        }
    }

    fn is_joined(&mut self, record: &Record) -> Result<bool, AttachError> {
        let mut host = self.links()?;
        if !record.chained {
            return Ok(host.link(&record.interface)?.is_some());
        }
        let inner = self.inner_end(&mut host, record);
        Ok(self
            .host_side(&host.links()?, record, inner.as_ref())
            .is_some())
    }

    fn inside(&mut self, record: &Record) -> Result<Inside, AttachError> {
        let pod = self.netns(record)?;
        let mut links = KernelLinkOpener.open_links(&pod)?;
        let gone = || AttachError::Gone(record.inside.clone());
        let link = links.link(&record.inside)?.ok_or_else(gone)?;
        let addresses = links.addresses()?.into_iter();
        let routes = links.routes()?.into_iter();
        Ok(Inside {
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

    fn look(&mut self, records: &[Record]) -> Result<Vec<Found>, AttachError> {
        let mut host = self.links()?;
        let (links, routes, neighbours) = (host.links()?, host.routes()?, host.neighbours()?);
        let mut look = |record: &Record| {
            let name = &*record.interface;
            let inner = self.inner_end(&mut host, record);
            let Some(link) = self.host_side(&links, record, inner.as_ref()) else {
                return Found::Gone;
            };
            if link.name != name {
                return Found::Renamed(link.name.clone());
            }
            let inside = inner.as_ref().map(|inner| &inner.link);
            if record.chained {
                return Found::Whole;
            }
            let mut changed = Vec::new();
            if !link.is_up() {
                changed.push(format!("{name} was set down"));
            }
            if link.mac != Some(HOST_MAC) {
                changed.push(format!("the hardware address of {name}"));
            }
            for address in &record.addresses {
                let routed = routes.iter().any(|route| {
                    route.destination == Prefix::host(*address)
                        && route.link.as_deref() == Some(name)
                        && (route.table, route.kind) == (MAIN_TABLE, RouteKind::Unicast)
                        && route.gateway.is_none()
                });
                if !routed {
                    changed.push(format!("the route to {address}"));
                }
                let known = neighbours.iter().any(|neighbour| {
                    (&*neighbour.link, neighbour.address) == (name, *address)
                        && neighbour.permanent
                        && neighbour.mac.is_some()
                        && inside.is_none_or(|i| i.mac == neighbour.mac)
                });
                if !known {
                    changed.push(format!("the neighbour {address}"));
                }
            }
            match changed.is_empty() {
                true => Found::Whole,
                false => Found::Changed(changed),
            }
        };
        Ok(records.iter().map(&mut look).collect())
    }

    fn rename_back(&mut self, record: &Record, now: &str) -> Result<(), AttachError> {
        let mut host = self.links()?;
        let name = LinkChange::Rename(record.interface.to_string());
        if host.change_link(now, &name).is_ok() {
            return Ok(());
        }
        // Kernels before 6.2 rename no interface that is up.
        host.change_link(now, &LinkChange::Down)?;
        Ok(host.change_link(now, &name)?)
    }

    fn keep_forwarding(
        &mut self,
        prefix: &str,
        file: &SettingsFile,
    ) -> Result<Vec<String>, AttachError> {
        let (mut sysctl, mut links) = (KernelSysctl::new(&self.host), self.links()?);
        Ok(settings::keep_forwarding(
            &mut sysctl,
            &mut links,
            prefix,
            file,
        )?)
    }

    fn survey(&mut self, prefix: &str) -> Result<Survey, AttachError> {
        let mut host = self.links()?;
        let (links, routes, neighbours) = (host.links()?, host.routes()?, host.neighbours()?);
        let addresses = host.addresses()?.into_iter();
        let names = links.into_iter().map(|link| link.name);
        let single = |route: &Route| {
            let all = Prefix::host(route.destination.address).len;
            route.destination.len == all
                && (route.table, route.kind) == (MAIN_TABLE, RouteKind::Unicast)
                // What the kernel made for an address of its own.
                && route.protocol != RTPROT_KERNEL
        };
        Ok(Survey {
            links: names.filter(|name| name.starts_with(prefix)).collect(),
            routes: routes
                .into_iter()
                .filter(single)
                .filter_map(|route| Some((route.destination.address, route.link?)))
                .collect(),
            neighbours: neighbours
                .into_iter()
                .filter(|neighbour| neighbour.permanent && neighbour.mac.is_some())
                .map(|neighbour| (neighbour.address, neighbour.link))
                .collect(),
            own: addresses.map(|address| address.prefix.address).collect(),
        })
    }

    fn outside_mtu(&mut self) -> Result<Option<u32>, AttachError> {
        let mut host = self.links()?;
        let routes = host.routes()?;
        let out: Vec<&String> = routes
            .iter()
            .filter(|route| route.destination.len == 0 && route.table == MAIN_TABLE)
            .filter(|route| route.kind == RouteKind::Unicast)
            .filter_map(|route| route.link.as_ref())
            .collect();
        let links = host.links()?.into_iter();
        let out = links.filter(|link| out.contains(&&link.name));
        Ok(out.map(|link| link.mtu).min())
    }

    fn netns_exists(&self, record: &Record) -> bool {
        match self.netns(record) {
            Ok(_) => true,
            // Of what does not answer, nothing is known.
            Err(AttachError::Netns(NetNsError::NoAnswer { .. })) => true,
            Err(_) => false,
        }
    }
}

/// Addresses and routes inside the namespace.
fn furnish(inside: &mut impl Links, record: &Record) -> Result<(), AttachError> {
    inside.change_link("lo", &LinkChange::Up)?;
    inside.change_link(&record.inside, &LinkChange::Up)?;
    for address in &record.addresses {
        inside.add_address(&record.inside, Prefix::host(*address))?;
    }
    let has = |v4: bool| record.addresses.iter().any(|a| a.is_ipv4() == v4);
    let gateways: [(bool, IpAddr, Prefix); 2] = [
        (
            true,
            GATEWAY_V4.into(),
            Prefix::new(Ipv4Addr::UNSPECIFIED.into(), 0),
        ),
        (
            false,
            GATEWAY_V6.into(),
            Prefix::new(Ipv6Addr::UNSPECIFIED.into(), 0),
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
