//! Routes to the pods of other nodes, in the host's main routing table.
//!
//! They have a protocol number of their own, by which they are recognised after a restart, and a metric that is
//! greater than those of other programs' routes, so that each of these has precedence. Never: changes a route of
//! another protocol.

use super::{KernelNetworkDriver, NetworkDriverError};
use palisade_model::{Prefix, address_from_number};
use palisade_sys::link::{IpNet, MAIN_TABLE, Route, RouteKind, RouteScope};
use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;

/// The protocol number of these routes (`RTPROT_…`); no routing daemon is known to use it.
pub const NODE_ROUTE_PROTOCOL: u8 = 112;
/// Their metric; the kernel's default is 0, or 1024 in IPv6.
const METRIC: u32 = 4096;
/// Beyond so many networks all routes are read once.
const MAX_LOOKUPS: usize = 16;

/// A route to the pods of another node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeRoute {
    /// The network of the pods.
    pub network: Prefix,
    /// The address of the node.
    pub gateway: IpAddr,
    /// The link on which the node is.
    pub link: String,
}

impl fmt::Display for NodeRoute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} via {} dev {}", self.network, self.gateway, self.link)
    }
}

/// The route that this host has to exactly a network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InstalledRoute {
    /// None.
    Absent,
    /// One of ours.
    Own(NodeRoute),
    /// One of another program; its protocol number.
    Foreign(u8),
}

/// The routes of a host.
pub trait NodeRouteDriver: Send {
    /// All routes of ours.
    ///
    /// # Errors
    /// If the kernel cannot be queried.
    fn node_routes(&mut self) -> Result<Vec<NodeRoute>, NetworkDriverError>;

    /// The route to each of these networks that takes effect.
    ///
    /// # Errors
    /// If the kernel cannot be queried.
    fn installed_routes(
        &mut self,
        networks: &[Prefix],
    ) -> Result<Vec<InstalledRoute>, NetworkDriverError>;

    /// The link on which an address is directly reachable.
    ///
    /// # Errors
    /// If the kernel cannot be queried.
    fn on_link_interface(&mut self, address: IpAddr) -> Result<Option<String>, NetworkDriverError>;

    /// Adds a route where there is none.
    ///
    /// # Errors
    /// If the kernel rejects it.
    fn add_node_route(&mut self, route: &NodeRoute) -> Result<(), NetworkDriverError>;

    /// Replaces our route to the network.
    ///
    /// # Errors
    /// If the kernel rejects it.
    fn replace_node_route(&mut self, route: &NodeRoute) -> Result<(), NetworkDriverError>;

    /// Deletes a route; it is no error if there is none.
    ///
    /// # Errors
    /// If the kernel rejects it.
    fn delete_node_route(&mut self, route: &NodeRoute) -> Result<(), NetworkDriverError>;
}

impl NodeRouteDriver for KernelNetworkDriver {
    fn node_routes(&mut self) -> Result<Vec<NodeRoute>, NetworkDriverError> {
        let routes = self.links()?.routes()?.into_iter();
        Ok(routes.filter_map(|route| own_route(&route)).collect())
    }

    fn installed_routes(
        &mut self,
        networks: &[Prefix],
    ) -> Result<Vec<InstalledRoute>, NetworkDriverError> {
        let mut links = self.links()?;
        let (mut found, mut unknown) = (BTreeMap::new(), Vec::new());
        for network in networks {
            let entry = if networks.len() > MAX_LOOKUPS {
                None
            } else {
                links.route_to(an_address_of(*network))?
            };
            match entry {
                Some(route) if destination(&route) == *network => {
                    found.insert(*network, installed(&route));
                }
                // A less specific route takes effect, so there is no exact one.
                Some(route) if route.destination.len < network.length() => {}
                // Nothing, one that drops packets, or one to a part of the network.
                _ => unknown.push(*network),
            }
        }
        if !unknown.is_empty() {
            let mut best: BTreeMap<Prefix, Route> = BTreeMap::new();
            for route in links.routes()? {
                let network = destination(&route);
                let is_better = |old: &Route| route.metric < old.metric;
                let is_asked = unknown.len() > MAX_LOOKUPS || unknown.contains(&network);
                if is_asked && route.table == MAIN_TABLE && best.get(&network).is_none_or(is_better)
                {
                    best.insert(network, route);
                }
            }
            found.extend(
                best.into_iter()
                    .map(|(network, r)| (network, installed(&r))),
            );
        }
        let absent = || InstalledRoute::Absent;
        let each = networks.iter();
        Ok(each
            .map(|n| found.get(n).cloned().unwrap_or_else(absent))
            .collect())
    }

    fn on_link_interface(&mut self, address: IpAddr) -> Result<Option<String>, NetworkDriverError> {
        let route = self.links()?.route_to(address)?;
        let direct = route.filter(|r| r.gateway.is_none() && r.kind == RouteKind::Unicast);
        Ok(direct.and_then(|route| route.link))
    }

    fn add_node_route(&mut self, route: &NodeRoute) -> Result<(), NetworkDriverError> {
        if self.is_read_only {
            return Ok(());
        }
        Ok(self.links()?.add_route(&kernel_route(route))?)
    }

    fn replace_node_route(&mut self, route: &NodeRoute) -> Result<(), NetworkDriverError> {
        if self.is_read_only {
            return Ok(());
        }
        Ok(self.links()?.replace_route(&kernel_route(route))?)
    }

    fn delete_node_route(&mut self, route: &NodeRoute) -> Result<(), NetworkDriverError> {
        if self.is_read_only {
            return Ok(());
        }
        match self.links()?.delete_route(&kernel_route(route)) {
            Err(error) if error.is_not_found() => Ok(()),
            other => Ok(other?),
        }
    }
}

/// The kernel's form of a route.
pub(crate) fn kernel_route(route: &NodeRoute) -> Route {
    let destination = IpNet::new(route.network.address(), route.network.length());
    Route {
        destination,
        link: Some(route.link.clone()),
        gateway: Some(route.gateway),
        on_link: false,
        scope: RouteScope::Universe,
        kind: RouteKind::Unicast,
        source: None,
        metric: Some(METRIC),
        table: MAIN_TABLE,
        protocol: NODE_ROUTE_PROTOCOL,
    }
}

/// The route, if it is one of ours.
pub(crate) fn own_route(route: &Route) -> Option<NodeRoute> {
    if route.protocol != NODE_ROUTE_PROTOCOL {
        return None;
    }
    Some(NodeRoute {
        network: destination(route),
        gateway: route.gateway?,
        link: route.link.clone()?,
    })
}

fn installed(route: &Route) -> InstalledRoute {
    match own_route(route) {
        Some(own) => InstalledRoute::Own(own),
        None => InstalledRoute::Foreign(route.protocol),
    }
}

fn destination(route: &Route) -> Prefix {
    Prefix::new(route.destination.address, route.destination.len)
}

/// An address of a network; not the first, which some hosts have as a broadcast address.
fn an_address_of(network: Prefix) -> IpAddr {
    let (first, last) = network.bounds();
    address_from_number(network.family(), last.min(first + 1))
}
