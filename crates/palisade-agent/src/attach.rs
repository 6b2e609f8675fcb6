//! Joining a network namespace to the host: a veth pair, addresses and routes on both sides.
//!
//! Attaching is two halves. [`Attach::join`] makes the pair with the host side down, so nothing
//! passes; only when the endpoint's policy is in the kernel does [`Attach::open`] bring it up and
//! route to it. Each undoes what it made, in reverse, if a later step fails. Nothing here knows
//! policy.

use crate::record::Record;
use palisade_sys::link::{
    KernelLinkOpener, LinkChange, LinkError, LinkOpener, Links, MacAddr, Neighbour, Prefix, Route,
    VethEnd,
};
use palisade_sys::netns::{NetNs, NetNsError};
use palisade_sys::sysctl::SysctlError;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The address workloads use as their IPv4 gateway; it exists nowhere.
pub const GATEWAY_V4: Ipv4Addr = Ipv4Addr::new(169, 254, 1, 1);
/// The address workloads use as their IPv6 gateway; it exists nowhere.
pub const GATEWAY_V6: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1);
/// The Ethernet address of every host-side interface: each has one neighbour only.
const HOST_MAC: MacAddr = MacAddr([0xee, 0xee, 0xee, 0xee, 0xee, 0xee]);

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
    Sysctl(#[from] SysctlError),
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
    /// That is this host's own namespace.
    #[error("the namespace {0} is the one this agent runs in")]
    OwnNetns(String),
}

/// What the agent's core asks of the host.
pub trait Attach: Send {
    /// Makes the pair, with addresses and routes inside the namespace; the host side stays down.
    ///
    /// # Errors
    /// If any step is refused; then nothing is left.
    fn join(&mut self, record: &Record, mtu: u32) -> Result<(), AttachError>;

    /// Brings the host side up and routes to it. Repeating it does no harm.
    ///
    /// # Errors
    /// If any step is refused.
    fn open(&mut self, record: &Record) -> Result<(), AttachError>;

    /// Removes the pair. Removing what is gone is no error.
    ///
    /// # Errors
    /// If the kernel refuses.
    fn part(&mut self, record: &Record) -> Result<(), AttachError>;

    /// Whether the host-side interface is there.
    ///
    /// # Errors
    /// If the kernel cannot be asked.
    fn is_joined(&mut self, record: &Record) -> Result<bool, AttachError>;

    /// Whether the network namespace still exists.
    fn netns_exists(&self, record: &Record) -> bool;
}

/// The kernel this agent runs on.
pub struct KernelAttach {
    host: NetNs,
}

impl KernelAttach {
    /// For the network namespace this thread is in.
    ///
    /// # Errors
    /// If it cannot be opened.
    pub fn current() -> Result<Self, AttachError> {
        Ok(KernelAttach {
            host: NetNs::current()?,
        })
    }

    fn links(&self) -> Result<impl Links + use<>, LinkError> {
        KernelLinkOpener.open_links(&self.host)
    }
}

impl Attach for KernelAttach {
    fn join(&mut self, record: &Record, mtu: u32) -> Result<(), AttachError> {
        let pod = NetNs::open(&record.netns)?;
        if pod.id() == self.host.id() {
            return Err(AttachError::OwnNetns(record.netns.clone()));
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
            mtu: Some(mtu),
            netns: None,
        };
        let inner = VethEnd {
            name: record.inside.clone(),
            mac: None,
            mtu: Some(mtu),
            netns: Some(pod),
        };
        host.create_veth(&outer, &inner)?;
        let furnished = furnish(&mut inside, record);
        if furnished.is_err() {
            // The first error is the one to tell; the pair must go whatever deleting it says.
            if let Err(error) = host.delete_link(&record.interface) {
                tracing::warn!(interface = %record.interface, %error, "undoing a failed attach");
            }
        }
        furnished
    }

    fn open(&mut self, record: &Record) -> Result<(), AttachError> {
        let pod = NetNs::open(&record.netns)?;
        let inside = KernelLinkOpener.open_links(&pod)?.link(&record.inside)?;
        let mac = inside
            .and_then(|link| link.mac)
            .ok_or_else(|| AttachError::Gone(record.inside.clone()))?;
        let mut host = self.links()?;
        if host.link(&record.interface)?.is_none() {
            return Err(AttachError::Gone(record.interface.to_string()));
        }
        host.change_link(&record.interface, &LinkChange::Up)?;
        for address in &record.addresses {
            host.set_neighbour(&Neighbour::permanent(&record.interface, *address, mac))?;
            host.replace_route(&Route::device(Prefix::host(*address), &record.interface))?;
        }
        Ok(())
    }

    fn part(&mut self, record: &Record) -> Result<(), AttachError> {
        match self.links()?.delete_link(&record.interface) {
            Err(error) if error.is_missing() => Ok(()),
            other => Ok(other?),
        }
    }

    fn is_joined(&mut self, record: &Record) -> Result<bool, AttachError> {
        Ok(self.links()?.link(&record.interface)?.is_some())
    }

    fn netns_exists(&self, record: &Record) -> bool {
        NetNs::open(&record.netns).is_ok()
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
