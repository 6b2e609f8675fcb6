//! Links, addresses, routes and neighbours of one network namespace.
//!
//! Promises: every error names the action, the object and the namespace, with the kernel's extended
//! acknowledgement if there is one; callers identify links by name, not by index, since they own the name; a
//! name of arbitrary bytes is shown as text that converts back to it ([`escape_name`]).
//!
//! Never: caches kernel state, retries, or undoes.

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

/// A request about links failed.
#[derive(Debug, Error)]
pub enum LinkError {
    /// The socket in the namespace could not be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The kernel rejected an action.
    #[error("{action} in network namespace {netns}: {error}")]
    Refused {
        /// The action and its object.
        action: Box<LinkAction>,
        /// The namespace.
        netns: String,
        /// The kernel's answer.
        error: KernelError,
    },
}

impl LinkError {
    /// The kernel's error number, if the kernel rejected the action.
    #[must_use]
    pub fn errno(&self) -> Option<Errno> {
        match self {
            Self::Open(OpenError::Socket { errno, .. }) => Some(*errno),
            Self::Open(OpenError::NetNs(_)) => None,
            Self::Refused { error, .. } => Some(error.errno),
        }
    }

    /// True if the object exists already.
    #[must_use]
    pub fn is_already_exists(&self) -> bool {
        self.errno() == Some(Errno::EEXIST)
    }

    /// True if the link, address, route or neighbour does not exist.
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
    /// Creates a veth pair; an end whose `netns` is `None` is created in this namespace.
    ///
    /// # Errors
    /// `EEXIST` if a name is in use; then neither end is created.
    fn create_veth(&mut self, end: &VethEnd, peer: &VethEnd) -> Result<(), LinkError>;

    /// Deletes a link; for a veth, both ends.
    ///
    /// # Errors
    /// `ENODEV` if it does not exist.
    fn delete_link(&mut self, link: &str) -> Result<(), LinkError>;

    /// Changes one property of a link.
    ///
    /// # Errors
    /// `ENODEV` if it does not exist; `EBUSY` when a link that is up is renamed on an old kernel.
    fn change_link(&mut self, link: &str, change: &LinkChange) -> Result<(), LinkError>;

    /// All links, ordered by index.
    ///
    /// # Errors
    /// The kernel's error.
    fn links(&mut self) -> Result<Vec<Link>, LinkError>;

    /// One link; `None` if it does not exist.
    ///
    /// # Errors
    /// The kernel's error.
    fn link(&mut self, link: &str) -> Result<Option<Link>, LinkError>;

    /// One link by index; `None` if it does not exist.
    ///
    /// # Errors
    /// The kernel's error.
    fn link_by_index(&mut self, index: u32) -> Result<Option<Link>, LinkError>;

    /// The netnsid that this namespace has for another, as in [`Link::peer_netnsid`]; `None` if it has none,
    /// and then no link leads there.
    ///
    /// # Errors
    /// The kernel's error.
    fn namespace_id(&mut self, other: &NetNs) -> Result<Option<i32>, LinkError>;

    /// Adds an address. Duplicate address detection is skipped: the caller owns the address.
    ///
    /// # Errors
    /// `EEXIST` if it exists, `ENODEV` if the link does not.
    fn add_address(&mut self, link: &str, address: IpNet) -> Result<(), LinkError>;

    /// Deletes an address.
    ///
    /// # Errors
    /// `EADDRNOTAVAIL` if it does not exist, `ENODEV` if the link does not.
    fn delete_address(&mut self, link: &str, address: IpNet) -> Result<(), LinkError>;

    /// All addresses of all links.
    ///
    /// # Errors
    /// The kernel's error.
    fn addresses(&mut self) -> Result<Vec<Address>, LinkError>;

    /// Adds a route.
    ///
    /// # Errors
    /// `EEXIST` if a route with the same destination and metric exists, `ENODEV` without its link,
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
    /// `ESRCH` if it does not exist.
    fn delete_route(&mut self, route: &Route) -> Result<(), LinkError>;

    /// All routes of both families and all tables, including those the kernel added.
    ///
    /// # Errors
    /// The kernel's error.
    fn routes(&mut self) -> Result<Vec<Route>, LinkError>;

    /// The route that packets to an address take, from any table; `None` if there is none, or if it is an
    /// unreachable, blackhole or prohibit route.
    ///
    /// # Errors
    /// The kernel's error.
    fn route_to(&mut self, address: IpAddr) -> Result<Option<Route>, LinkError>;

    /// Sets a permanent neighbour entry, replacing one for the same address.
    ///
    /// # Errors
    /// `ENODEV` if the link does not exist.
    fn set_neighbour(&mut self, neighbour: &Neighbour) -> Result<(), LinkError>;

    /// Deletes a neighbour entry.
    ///
    /// # Errors
    /// `ENOENT` if it does not exist.
    fn delete_neighbour(&mut self, neighbour: &Neighbour) -> Result<(), LinkError>;

    /// All neighbour entries with a link-layer address, and all proxy entries.
    ///
    /// # Errors
    /// The kernel's error.
    fn neighbours(&mut self) -> Result<Vec<Neighbour>, LinkError>;
}

/// Opens the links of a namespace.
pub trait LinkOpener {
    /// The links of one namespace.
    type Links: Links;

    /// Binds to `netns`; the result stays bound to it.
    ///
    /// # Errors
    /// [`LinkError::Open`].
    fn open_links(&self, netns: &NetNs) -> Result<Self::Links, LinkError>;
}
