//! Links, addresses, routes and neighbours of one network namespace.
//!
//! Promises: every failure says which action failed on which object in which
//! namespace, with the kernel's own words where it gave some; links are named,
//! never numbered, by callers, since a name is what they own; a name of any
//! bytes is shown as text that leads back to it ([`escape_name`]).
//!
//! Never: caches what the kernel holds, retries, or undoes.

mod codec;
mod event;
mod fake;
mod kernel;
mod name;
mod types;

use std::net::IpAddr;
use thiserror::Error;

pub use event::{FakeLinkEvents, KernelLinkEvents, LinkEvent, LinkEvents};
pub use fake::{FakeLinks, FakeNet};
pub use kernel::{KernelLinkOpener, KernelLinks};
pub use name::{escape_name, unescape_name};
pub use types::{
    Address, IpNet, Link, LinkAction, LinkChange, MAIN_TABLE, MacAddr, Neighbour, ParseMacError,
    Route, RouteKind, RouteScope, VethEnd,
};

use crate::Errno;
use crate::netlink::{KernelError, OpenError};
use crate::netns::NetNs;

/// What went wrong with links.
#[derive(Debug, Error)]
pub enum LinkError {
    /// No socket to the namespace.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The kernel refused an action.
    #[error("{action} in network namespace {netns}: {error}")]
    Refused {
        /// What was being done to which object.
        action: Box<LinkAction>,
        /// The namespace.
        netns: String,
        /// The kernel's answer.
        error: KernelError,
    },
}

impl LinkError {
    /// The kernel's error number, if it was the kernel that refused.
    #[must_use]
    pub fn errno(&self) -> Option<Errno> {
        match self {
            Self::Open(OpenError::Socket { errno, .. }) => Some(*errno),
            Self::Open(OpenError::NetNs(_)) => None,
            Self::Refused { error, .. } => Some(error.errno),
        }
    }

    /// True if the object is there already.
    #[must_use]
    pub fn is_already_exists(&self) -> bool {
        self.errno() == Some(Errno::EEXIST)
    }

    /// True if the link, address, route or neighbour is not there.
    #[must_use]
    pub fn is_not_found(&self) -> bool {
        matches!(
            self.errno(),
            Some(Errno::ENODEV | Errno::ESRCH | Errno::EADDRNOTAVAIL | Errno::ENOENT)
        )
    }
}

/// Links of one namespace. Every method fails with [`LinkError::Refused`].
pub trait Links {
    /// Makes a veth pair; an end whose `netns` is `None` lies in this namespace.
    ///
    /// # Errors
    /// `EEXIST` if a name is taken; then neither end is made.
    fn create_veth(&mut self, end: &VethEnd, peer: &VethEnd) -> Result<(), LinkError>;

    /// Deletes a link; of a veth, both ends.
    ///
    /// # Errors
    /// `ENODEV` if it is not there.
    fn delete_link(&mut self, link: &str) -> Result<(), LinkError>;

    /// Changes one property of a link.
    ///
    /// # Errors
    /// `ENODEV` if it is not there; `EBUSY` for a new name while it is up on old kernels.
    fn change_link(&mut self, link: &str, change: &LinkChange) -> Result<(), LinkError>;

    /// All links, by index.
    ///
    /// # Errors
    /// What the kernel answered.
    fn links(&mut self) -> Result<Vec<Link>, LinkError>;

    /// One link; `None` if it is not there.
    ///
    /// # Errors
    /// What the kernel answered.
    fn link(&mut self, link: &str) -> Result<Option<Link>, LinkError>;

    /// One link by its number; `None` if it is not there.
    ///
    /// # Errors
    /// What the kernel answered.
    fn link_by_index(&mut self, index: u32) -> Result<Option<Link>, LinkError>;

    /// The number that this namespace has for another, as [`Link::peer_netnsid`] says it; `None`
    /// where it has none, which no link then leads to.
    ///
    /// # Errors
    /// What the kernel answered.
    fn namespace_id(&mut self, other: &NetNs) -> Result<Option<i32>, LinkError>;

    /// Adds an address. Duplicate address detection is skipped: the caller owns the address.
    ///
    /// # Errors
    /// `EEXIST` if it is there, `ENODEV` if the link is not.
    fn add_address(&mut self, link: &str, address: IpNet) -> Result<(), LinkError>;

    /// Deletes an address.
    ///
    /// # Errors
    /// `EADDRNOTAVAIL` if it is not there, `ENODEV` if the link is not.
    fn delete_address(&mut self, link: &str, address: IpNet) -> Result<(), LinkError>;

    /// All addresses of all links.
    ///
    /// # Errors
    /// What the kernel answered.
    fn addresses(&mut self) -> Result<Vec<Address>, LinkError>;

    /// Adds a route.
    ///
    /// # Errors
    /// `EEXIST` if one to that destination with that metric is there, `ENODEV` without its link,
    /// `ENETUNREACH` or `EHOSTUNREACH` for a gateway off-link.
    fn add_route(&mut self, route: &Route) -> Result<(), LinkError>;

    /// Adds a route or replaces the one to the same destination with the same metric.
    ///
    /// # Errors
    /// As [`Links::add_route`], except `EEXIST`.
    fn replace_route(&mut self, route: &Route) -> Result<(), LinkError>;

    /// Deletes a route.
    ///
    /// # Errors
    /// `ESRCH` if it is not there.
    fn delete_route(&mut self, route: &Route) -> Result<(), LinkError>;

    /// All routes of both families and all tables, the kernel's own included.
    ///
    /// # Errors
    /// What the kernel answered.
    fn routes(&mut self) -> Result<Vec<Route>, LinkError>;

    /// The route that packets to an address take, of whichever table; `None` where there is none, or
    /// one that refuses them.
    ///
    /// # Errors
    /// What the kernel answered.
    fn route_to(&mut self, address: IpAddr) -> Result<Option<Route>, LinkError>;

    /// Sets a permanent neighbour entry, replacing one for the same address.
    ///
    /// # Errors
    /// `ENODEV` if the link is not there.
    fn set_neighbour(&mut self, neighbour: &Neighbour) -> Result<(), LinkError>;

    /// Deletes a neighbour entry.
    ///
    /// # Errors
    /// `ENOENT` if it is not there.
    fn delete_neighbour(&mut self, neighbour: &Neighbour) -> Result<(), LinkError>;

    /// All neighbour entries that hold a link-layer address, and all proxied addresses.
    ///
    /// # Errors
    /// What the kernel answered.
    fn neighbours(&mut self) -> Result<Vec<Neighbour>, LinkError>;
}

/// Opens the links of a namespace.
pub trait LinkOpener {
    /// What it opens.
    type Links: Links;

    /// Binds to `netns`; the result stays bound to it.
    ///
    /// # Errors
    /// [`LinkError::Open`].
    fn open_links(&self, netns: &NetNs) -> Result<Self::Links, LinkError>;
}
