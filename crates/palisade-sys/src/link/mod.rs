//! Links, addresses, routes, routing rules, neighbours and filters of traffic control of one network namespace.
//!
//! Promises: every error names the action, the object and the namespace, with the kernel's extended
//! acknowledgement if there is one; callers identify links by name, not by index, since they own the name; a
//! name of arbitrary bytes is shown as text that converts back to it ([`escape_name`]).
//!
//! Never: caches kernel state, retries, or undoes.

mod codec;
mod event;
mod kernel;
mod name;
mod routing_rule;
mod traffic_control;
mod types;

use thiserror::Error;

pub use event::{KernelLinkEvents, LinkEvent, LinkEvents};
pub use kernel::KernelLinks;
pub use name::{escape_name, unescape_name};
pub use traffic_control::{TcFilter, TcFilterId};
pub use types::{
    Address, AddressFamily, IpNet, Link, LinkAction, LinkChange, MAIN_TABLE, MacAddr, Neighbour,
    ParseMacError, Route, RouteKind, RouteScope, RoutingRule, VethEnd,
};

use crate::Errno;
use crate::netlink::{KernelError, OpenError};

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

    /// True if the link, address, route or neighbour does not exist.
    #[must_use]
    pub fn is_not_found(&self) -> bool {
        matches!(
            self.errno(),
            Some(Errno::ENODEV | Errno::ESRCH | Errno::EADDRNOTAVAIL | Errno::ENOENT)
        )
    }
}
