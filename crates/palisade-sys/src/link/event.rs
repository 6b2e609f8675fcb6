//! Change notifications of links, addresses, routes, neighbours and forwarding.

use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use super::types::{IpNet, Link, LinkAction};
use super::{LinkError, codec};
use crate::Errno;
use crate::netlink::{Attrs, KernelError, NetlinkFamily, NetlinkMessage, NetlinkSocket};
use crate::netns::NetNs;

const RTNLGRP_LINK: u32 = 1;
const RTNLGRP_IPV4_IFADDR: u32 = 5;
const RTNLGRP_IPV6_IFADDR: u32 = 9;
const RTNLGRP_NEIGH: u32 = 3;
const RTNLGRP_IPV4_ROUTE: u32 = 7;
const RTNLGRP_IPV6_ROUTE: u32 = 11;
const RTNLGRP_IPV4_RULE: u32 = 8;
const RTNLGRP_IPV6_RULE: u32 = 19;
const RTNLGRP_IPV4_NETCONF: u32 = 24;
const RTNLGRP_IPV6_NETCONF: u32 = 25;
const NETCONFA_IFINDEX: u16 = 1;
/// Interface index that means the settings of all links.
const NETCONFA_IFINDEX_ALL: u32 = -1_i32 as u32;
/// Bytes of `struct netconfmsg`, padded.
const NETCONFMSG_LEN: usize = 4;
/// Large enough for bursts such as the removal of hundreds of links.
const RECEIVE_BUFFER_BYTES: usize = 4 * 1024 * 1024;

/// One change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LinkEvent {
    /// A link was added or changed; its present state.
    Link(Link),
    /// A link was removed; its last state.
    LinkRemoved(Link),
    /// An address was added to a link.
    Address {
        /// Index of the link.
        link_index: u32,
        /// The address.
        prefix: IpNet,
    },
    /// An address was removed from a link.
    AddressRemoved {
        /// Index of the link.
        link_index: u32,
        /// The address.
        prefix: IpNet,
    },
    /// A route was added, changed or removed.
    Route {
        /// Its destination.
        destination: IpNet,
    },
    /// A neighbour was added, changed or removed.
    Neighbour {
        /// Its address.
        address: IpAddr,
    },
    /// A routing rule was added or removed.
    RoutingRule,
    /// A setting of the whole namespace changed, such as forwarding.
    Netconf,
    /// Notifications were lost because the reader was too slow: list again.
    Overrun,
}

/// A stream of notifications.
pub trait LinkEvents {
    /// The next notification; `None` if there was none within `timeout` (`None` waits without limit).
    ///
    /// # Errors
    /// If the socket fails; lost notifications are not an error but [`LinkEvent::Overrun`].
    fn next_event(&mut self, timeout: Option<Duration>) -> Result<Option<LinkEvent>, LinkError>;
}

/// The kernel's notifications of one namespace; readable ([`AsFd`]) when one is pending.
#[derive(Debug)]
pub struct KernelLinkEvents {
    socket: NetlinkSocket,
}

impl KernelLinkEvents {
    /// Subscribes to links and addresses of `netns`.
    ///
    /// # Errors
    /// [`LinkError::Open`].
    pub fn open(netns: &NetNs) -> Result<Self, LinkError> {
        Self::listen(
            netns,
            &[RTNLGRP_LINK, RTNLGRP_IPV4_IFADDR, RTNLGRP_IPV6_IFADDR],
        )
    }

    /// Subscribes to links, routes, routing rules, neighbours and settings of `netns`.
    ///
    /// # Errors
    /// [`LinkError::Open`].
    pub fn open_routing(netns: &NetNs) -> Result<Self, LinkError> {
        let groups = [
            RTNLGRP_LINK,
            RTNLGRP_NEIGH,
            RTNLGRP_IPV4_ROUTE,
            RTNLGRP_IPV6_ROUTE,
            RTNLGRP_IPV4_RULE,
            RTNLGRP_IPV6_RULE,
            RTNLGRP_IPV4_NETCONF,
            RTNLGRP_IPV6_NETCONF,
        ];
        Self::listen(netns, &groups)
    }

    fn listen(netns: &NetNs, groups: &[u32]) -> Result<Self, LinkError> {
        let socket = NetlinkSocket::open(netns, NetlinkFamily::Route, groups)?;
        socket.grow_receive_buffer(RECEIVE_BUFFER_BYTES);
        Ok(Self { socket })
    }

    fn listen_error(&self, error: KernelError) -> LinkError {
        LinkError::Refused {
            action: Box::new(LinkAction::Listen),
            netns: self.socket.netns().to_owned(),
            error,
        }
    }
}

impl AsFd for KernelLinkEvents {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl LinkEvents for KernelLinkEvents {
    fn next_event(&mut self, timeout: Option<Duration>) -> Result<Option<LinkEvent>, LinkError> {
        loop {
            match self.socket.next_message(timeout) {
                Ok(Some(message)) => {
                    if let Some(event) = read_event(&message).map_err(|e| self.listen_error(e))? {
                        return Ok(Some(event));
                    }
                }
                Ok(None) => return Ok(None),
                Err(error) if error.errno == Errno::ENOBUFS => return Ok(Some(LinkEvent::Overrun)),
                Err(error) => return Err(self.listen_error(error)),
            }
        }
    }
}

fn read_event(message: &NetlinkMessage) -> Result<Option<LinkEvent>, KernelError> {
    let payload = &message.payload;
    Ok(match message.kind {
        libc::RTM_NEWLINK => Some(LinkEvent::Link(codec::read_link(payload)?)),
        libc::RTM_DELLINK => Some(LinkEvent::LinkRemoved(codec::read_link(payload)?)),
        libc::RTM_NEWADDR => codec::read_address(payload)?.map(|a| LinkEvent::Address {
            link_index: a.link_index,
            prefix: a.prefix,
        }),
        libc::RTM_DELADDR => codec::read_address(payload)?.map(|a| LinkEvent::AddressRemoved {
            link_index: a.link_index,
            prefix: a.prefix,
        }),
        libc::RTM_NEWROUTE | libc::RTM_DELROUTE => {
            codec::read_route(payload)?.map(|read| LinkEvent::Route {
                destination: read.route.destination,
            })
        }
        libc::RTM_NEWNEIGH | libc::RTM_DELNEIGH => {
            codec::read_neighbour_address(payload)?.map(|address| LinkEvent::Neighbour { address })
        }
        libc::RTM_NEWRULE | libc::RTM_DELRULE => Some(LinkEvent::RoutingRule),
        libc::RTM_NEWNETCONF => {
            let attrs = Attrs::after_header(payload, NETCONFMSG_LEN, "settings")?;
            let index = attrs.require(NETCONFA_IFINDEX, "settings")?.u32()?;
            (index == NETCONFA_IFINDEX_ALL).then_some(LinkEvent::Netconf)
        }
        _ => None,
    })
}
