//! Routes between the pools of nodes, where the network is flat: one for each network of another node whose
//! internal address is on a link of this host.
//!
//! A change costs what it concerns. A network that overlaps one of this host has no route. Where networks of two
//! nodes overlap, the one that has its route keeps it, and the others have none; among new ones the node with the
//! first name does. A network to which another program has a route is left to it. Never: changes a route of
//! others, or one before the nodes were read completely.

use crate::cluster_nodes::ClusterNodes;
use crate::network_driver::{InstalledRoute, NetworkDriverError, NodeRoute, NodeRouteDriver};
use palisade_model::{Family, Prefix, Str};
use palisade_source::error_chain;
use std::collections::{BTreeMap, BTreeSet};

/// What the routes are decided by.
pub(crate) struct RouteInputs<'a> {
    /// The nodes.
    pub(crate) nodes: &'a ClusterNodes,
    /// The pools of this host.
    pub(crate) pools: &'a [Prefix],
    /// The prefix of the names of workloads' interfaces: no node is behind one.
    pub(crate) interface_prefix: &'a str,
}

/// The routes to other nodes.
#[derive(Debug)]
pub struct NodeRoutes {
    is_enabled: bool,
    /// Whether the kernel was read.
    is_started: bool,
    routes: BTreeMap<Prefix, NodeRoute>,
    /// Why a network has no route, or not the intended one.
    problems: BTreeMap<Prefix, String>,
    /// The networks of which the kernel rejected a change.
    failed: BTreeSet<Prefix>,
}

/// Whether and by which route a network is reached.
struct RouteChoice {
    route: Option<NodeRoute>,
    problem: Option<String>,
}

impl NodeRoutes {
    /// None yet; if not enabled, those that exist are removed.
    pub(crate) fn new(is_enabled: bool) -> Self {
        NodeRoutes {
            is_enabled,
            is_started: false,
            routes: BTreeMap::new(),
            problems: BTreeMap::new(),
            failed: BTreeSet::new(),
        }
    }

    /// Whether there may be routes.
    pub(crate) fn is_active(&self) -> bool {
        self.is_enabled && self.is_started
    }

    /// The number of routes.
    pub(crate) fn count(&self) -> usize {
        self.routes.len()
    }

    /// Networks that have no route, or not the intended one, one sentence each.
    pub(crate) fn problems(&self) -> impl ExactSizeIterator<Item = &str> {
        self.problems.values().map(String::as_str)
    }

    /// Whether the kernel rejected a change.
    pub(crate) fn has_failed(&self) -> bool {
        !self.failed.is_empty()
    }

    /// Whether a route leads by one of these links.
    pub(crate) fn uses_link(&self, names: &BTreeSet<String>) -> bool {
        self.routes
            .values()
            .any(|route| names.contains(&route.link))
    }

    /// Follows the nodes, of which these networks changed. The first call, once this host is a node, reads the
    /// kernel. Returns the repairs: routes that another program had removed or changed.
    pub(crate) fn update(
        &mut self,
        changed: &BTreeSet<Prefix>,
        inputs: &RouteInputs<'_>,
        driver: &mut dyn NodeRouteDriver,
    ) -> Vec<String> {
        if !self.is_started {
            return self.start(inputs, driver);
        }
        let mut concerned = changed.clone();
        for network in changed {
            let overlapping = inputs.nodes.overlapping(*network).into_iter();
            concerned.extend(overlapping.map(|(other, _)| other));
        }
        self.reconcile(&concerned, inputs, driver)
    }

    /// Compares everything with the kernel.
    pub(crate) fn update_all(
        &mut self,
        inputs: &RouteInputs<'_>,
        driver: &mut dyn NodeRouteDriver,
    ) -> Vec<String> {
        let known = self.routes.keys().chain(self.problems.keys()).copied();
        let all = known.chain(inputs.nodes.other_networks()).collect();
        self.update(&all, inputs, driver)
    }

    /// Tries again what the kernel rejected.
    pub(crate) fn retry(&mut self, inputs: &RouteInputs<'_>, driver: &mut dyn NodeRouteDriver) {
        let failed = std::mem::take(&mut self.failed);
        self.reconcile(&failed, inputs, driver);
    }

    fn start(&mut self, inputs: &RouteInputs<'_>, driver: &mut dyn NodeRouteDriver) -> Vec<String> {
        let own = inputs.nodes.own();
        let is_node = own.is_some_and(|own| !own.pod_networks.is_empty());
        if self.is_enabled && !is_node {
            return Vec::new();
        }
        match driver.node_routes() {
            Ok(found) => {
                let found = found.into_iter();
                self.routes = found.map(|route| (route.network, route)).collect();
                self.is_started = true;
                self.update_all(inputs, driver)
            }
            Err(error) => {
                tracing::warn!(error = %error_chain(&error), "reading the routes to other nodes failed");
                Vec::new()
            }
        }
    }

    fn reconcile(
        &mut self,
        networks: &BTreeSet<Prefix>,
        inputs: &RouteInputs<'_>,
        driver: &mut dyn NodeRouteDriver,
    ) -> Vec<String> {
        let networks: Vec<Prefix> = networks.iter().copied().collect();
        let installed = match driver.installed_routes(&networks) {
            Ok(installed) => installed,
            Err(error) => {
                tracing::warn!(error = %error_chain(&error), "reading the routes to other nodes failed; will retry");
                self.failed.extend(networks);
                return Vec::new();
            }
        };
        let mut repairs = Vec::new();
        for (network, installed) in networks.into_iter().zip(installed) {
            self.failed.remove(&network);
            self.problems.remove(&network);
            let before = self.routes.get(&network).cloned();
            match self.reconcile_network(network, installed.clone(), inputs, driver) {
                Ok(problem) => {
                    if let Some(problem) = problem {
                        self.problems.insert(network, problem);
                    }
                    let now = self.routes.get(&network);
                    if let Some(route) = now.filter(|now| before.as_ref() == Some(now))
                        && installed != InstalledRoute::Own(route.clone())
                    {
                        repairs.push(format!("the route {route} was removed or changed"));
                    }
                }
                Err(error) => {
                    tracing::warn!(%network, error = %error_chain(&error), "changing the route to another node's pods failed; will retry");
                    let problem = format!("the route to {network}: {}", error_chain(&error));
                    self.problems.insert(network, problem);
                    self.failed.insert(network);
                }
            }
        }
        repairs
    }

    /// Makes the kernel have the right route to a network; returns why there is none, or not the intended one.
    fn reconcile_network(
        &mut self,
        network: Prefix,
        installed: InstalledRoute,
        inputs: &RouteInputs<'_>,
        driver: &mut dyn NodeRouteDriver,
    ) -> Result<Option<String>, NetworkDriverError> {
        let choice = self.choose(network, inputs, driver)?;
        let mut problem = choice.problem;
        match (choice.route, installed) {
            (Some(wanted), InstalledRoute::Own(own)) => {
                if own != wanted {
                    driver.replace_node_route(&wanted)?;
                }
                self.routes.insert(network, wanted);
            }
            (Some(wanted), InstalledRoute::Absent) => {
                driver.add_node_route(&wanted)?;
                self.routes.insert(network, wanted);
            }
            (wanted, installed) => {
                let own = match &installed {
                    InstalledRoute::Own(own) => Some(own.clone()),
                    _ => self.routes.get(&network).cloned(),
                };
                if let Some(own) = own {
                    driver.delete_node_route(&own)?;
                    self.routes.remove(&network);
                }
                if let (Some(_), InstalledRoute::Foreign(protocol)) = (wanted, installed) {
                    problem = Some(format!(
                        "{network} is left to another program, which has a route to it (protocol {protocol})"
                    ));
                }
            }
        }
        Ok(problem)
    }

    /// Chooses the route of a network.
    fn choose(
        &self,
        network: Prefix,
        inputs: &RouteInputs<'_>,
        driver: &mut dyn NodeRouteDriver,
    ) -> Result<RouteChoice, NetworkDriverError> {
        let none = |problem: Option<String>| {
            Ok(RouteChoice {
                route: None,
                problem,
            })
        };
        let own_name = inputs.nodes.own_name();
        let claimants: Vec<&Str> = inputs.nodes.claimants(network).collect();
        if !self.is_enabled || claimants.iter().all(|name| *name == own_name) {
            return none(None);
        }
        let overlapping = inputs.nodes.overlapping(network);
        let overlaps = |pool: &&Prefix| pool.covers(network) || network.covers(**pool);
        let is_own = overlapping.iter().any(|(_, name)| *name == own_name);
        if is_own || inputs.pools.iter().any(|pool| overlaps(&pool)) {
            let names = join(&claimants);
            return none(Some(format!(
                "{network} of {names} overlaps a network of this host, so it has no route"
            )));
        }
        let names: BTreeSet<&Str> = overlapping.iter().map(|(_, name)| *name).collect();
        let mut problem = None;
        let mut chosen = claimants.first().copied();
        if names.len() > 1 {
            let holder = |of: Prefix| {
                let route = self.routes.get(&of)?;
                let reached = |name: &&Str| {
                    let facts = inputs.nodes.get(name);
                    facts.is_some_and(|facts| facts.internal_addresses.contains(&route.gateway))
                };
                inputs.nodes.claimants(of).find(reached)
            };
            let holders = overlapping.iter().filter_map(|(of, _)| holder(*of));
            let winner = holder(network)
                .or_else(|| holders.min())
                .or(names.first().copied());
            chosen = winner.filter(|name| claimants.contains(name));
            let names: Vec<&Str> = names.into_iter().collect();
            let used = winner.map_or("none of them", |name| name);
            problem = Some(format!(
                "{network} is in networks of {}, which overlap; those of {used} are used",
                join(&names)
            ));
        }
        let Some(name) = chosen else {
            return none(problem);
        };
        let facts = inputs.nodes.get(name);
        let addresses = facts
            .into_iter()
            .flat_map(|facts| &facts.internal_addresses);
        for gateway in addresses.filter(|a| Family::of(**a) == network.family()) {
            let link = driver.on_link_interface(*gateway)?;
            if let Some(link) = link.filter(|link| !link.starts_with(inputs.interface_prefix)) {
                return Ok(RouteChoice {
                    route: Some(NodeRoute {
                        network,
                        gateway: *gateway,
                        link,
                    }),
                    problem,
                });
            }
        }
        none(Some(format!(
            "{network} of {name} has no route: no {} InternalIP of {name} is directly reachable",
            network.family()
        )))
    }
}

fn join(names: &[&Str]) -> String {
    let names: Vec<&str> = names.iter().map(|name| &***name).collect();
    names.join(", ")
}
