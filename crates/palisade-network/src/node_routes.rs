//! Routes between the pools of nodes, where the network is flat: one for each network of another node whose
//! internal address is on a link of this host.
//!
//! A change costs what it concerns. A network that overlaps one of this host has no route. Where networks of two
//! nodes overlap, the one that has its route keeps it, and the others have none; among new ones the node with the
//! first name does. A network to which another program has a route is left to it. Never: changes a route of
//! others, or one before the nodes were read completely.

use crate::network_driver::{InstalledRoute, NetworkDriverError, NodeRoute, NodeRouteDriver};
use crate::node_state::NodeState;
use palisade_api::{CleanupItem, CleanupKind, NodeRoutesStatus, Status};
use palisade_config::{NodesConfig, WorkloadsConfig};
use palisade_model::{Family, Prefix, Str};
use palisade_node::cluster_nodes::ClusterNodes;
use palisade_node::host_changes::HostChanges;
use palisade_node::subsystem::{ActionOutcome, ObjectChanges, Subsystem, SubsystemError};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// The maximum number of networks without a route in `status`; the others are counted.
const MAX_ROUTE_PROBLEMS: usize = 100;

/// What the routes are decided by.
struct RouteInputs<'a> {
    nodes: &'a ClusterNodes,
    /// The pools of this host.
    pools: &'a [Prefix],
}

/// The routes to other nodes.
pub struct NodeRoutes {
    driver: Box<dyn NodeRouteDriver>,
    is_enabled: bool,
    /// The prefix of the names of workloads' interfaces: no node is behind one.
    interface_prefix: Str,
    /// Whether the kernel was read.
    is_started: bool,
    routes: BTreeMap<Prefix, NodeRoute>,
    /// Why a network has no route, or not the intended one.
    problems: BTreeMap<Prefix, String>,
    changes: RouteChanges,
}

/// What the next plan compares with the kernel.
#[derive(Debug, Default)]
struct RouteChanges {
    /// Whether nodes changed, or were read completely.
    is_observed: bool,
    /// Everything.
    is_whole: bool,
    /// The networks of nodes that changed, and those of which the kernel rejected a change.
    networks: BTreeSet<Prefix>,
    /// Networks whose routes another program may have changed.
    host_networks: BTreeSet<Prefix>,
}

/// A change of one route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouteAction {
    change: RouteChange,
    /// Another program removed or changed the route.
    is_repair: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum RouteChange {
    Add(NodeRoute),
    Replace(NodeRoute),
    Delete(NodeRoute),
}

impl RouteChange {
    fn route(&self) -> &NodeRoute {
        let (RouteChange::Add(route) | RouteChange::Replace(route) | RouteChange::Delete(route)) =
            self;
        route
    }
}

impl fmt::Display for RouteAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verb = match self.change {
            RouteChange::Add(_) => "add",
            RouteChange::Replace(_) => "replace",
            RouteChange::Delete(_) => "delete",
        };
        write!(f, "{verb} route {}", self.change.route())
    }
}

/// Whether and by which route a network is reached.
struct RouteChoice {
    route: Option<NodeRoute>,
    problem: Option<String>,
}

impl NodeRoutes {
    /// None yet, of a host with these sections of the configuration; if not enabled, those that exist are removed.
    pub fn new(
        nodes: &NodesConfig,
        workloads: &WorkloadsConfig,
        driver: Box<dyn NodeRouteDriver>,
    ) -> Self {
        NodeRoutes {
            driver,
            is_enabled: nodes.has_routes,
            interface_prefix: workloads.interface_prefix.as_str().into(),
            is_started: false,
            routes: BTreeMap::new(),
            problems: BTreeMap::new(),
            changes: RouteChanges::default(),
        }
    }

    /// Whether there may be routes.
    fn is_active(&self) -> bool {
        self.is_enabled && self.is_started
    }

    /// Reads the routes that an agent before has left, once this host is a node; whether that is done.
    fn start(&mut self, inputs: &RouteInputs<'_>) -> Result<bool, NetworkDriverError> {
        if self.is_started {
            return Ok(true);
        }
        let own = inputs.nodes.own();
        let is_node = own.is_some_and(|own| !own.pod_networks.is_empty());
        if self.is_enabled && !is_node {
            return Ok(false);
        }
        let installed = self.driver.node_routes()?.into_iter();
        self.routes = installed.map(|route| (route.network, route)).collect();
        self.is_started = true;
        self.changes.is_whole = true;
        Ok(true)
    }

    /// The networks to compare.
    fn concerned(&self, inputs: &RouteInputs<'_>) -> BTreeSet<Prefix> {
        let RouteChanges {
            is_whole,
            networks,
            host_networks,
            ..
        } = &self.changes;
        let mut concerned = networks.clone();
        for network in host_networks {
            concerned.insert(*network);
            concerned.extend(inputs.nodes.networks_reached_in(*network));
        }
        if *is_whole {
            concerned.extend(self.routes.keys().chain(self.problems.keys()));
            concerned.extend(inputs.nodes.other_networks());
        }
        let overlapping: Vec<Prefix> = concerned
            .iter()
            .flat_map(|network| inputs.nodes.overlapping(*network))
            .map(|(network, _)| network)
            .collect();
        concerned.extend(overlapping);
        concerned
    }

    fn compare(
        &mut self,
        inputs: &RouteInputs<'_>,
    ) -> Result<Vec<RouteAction>, NetworkDriverError> {
        if !self.start(inputs)? {
            return Ok(Vec::new());
        }
        let networks: Vec<Prefix> = self.concerned(inputs).into_iter().collect();
        let installed = self.driver.installed_routes(&networks)?;
        let mut actions = Vec::new();
        let mut problems = BTreeMap::new();
        for (network, installed) in networks.iter().zip(installed) {
            let RouteChoice { route, mut problem } = self.choose(*network, inputs)?;
            let recorded = self.routes.get(network);
            let is_repair = recorded.is_some() && recorded == route.as_ref();
            let change = match (route, installed) {
                (Some(wanted), InstalledRoute::Own(own)) if own == wanted => {
                    self.routes.insert(*network, wanted);
                    None
                }
                (Some(wanted), InstalledRoute::Own(_)) => Some(RouteChange::Replace(wanted)),
                (Some(wanted), InstalledRoute::Absent) => Some(RouteChange::Add(wanted)),
                (wanted, installed) => {
                    if let (Some(_), InstalledRoute::Foreign(protocol)) = (&wanted, &installed) {
                        problem = Some(format!(
                            "{network} is left to another program, which has a route to it (protocol {protocol})"
                        ));
                    }
                    let own = match installed {
                        InstalledRoute::Own(own) => Some(own),
                        _ => recorded.cloned(),
                    };
                    own.map(RouteChange::Delete)
                }
            };
            problems.insert(*network, problem);
            let is_repair = is_repair && !matches!(change, Some(RouteChange::Delete(_)));
            actions.extend(change.map(|change| RouteAction { change, is_repair }));
        }
        for (network, problem) in problems {
            match problem {
                Some(problem) => drop(self.problems.insert(network, problem)),
                None => drop(self.problems.remove(&network)),
            }
        }
        Ok(actions)
    }

    /// Chooses the route of a network.
    fn choose(
        &mut self,
        network: Prefix,
        inputs: &RouteInputs<'_>,
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
            let holder = |claimed: Prefix| {
                let route = self.routes.get(&claimed)?;
                let reached = |name: &&Str| {
                    let facts = inputs.nodes.get(name);
                    facts.is_some_and(|facts| facts.internal_addresses.contains(&route.gateway))
                };
                inputs.nodes.claimants(claimed).find(reached)
            };
            let holders = overlapping
                .iter()
                .filter_map(|(claimed, _)| holder(*claimed));
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
            let link = self.driver.on_link_interface(*gateway)?;
            if let Some(link) = link.filter(|link| !link.starts_with(&*self.interface_prefix)) {
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

impl Subsystem<NodeState> for NodeRoutes {
    type Action = RouteAction;

    fn name(&self) -> &'static str {
        "routes to other nodes"
    }

    fn observe(&mut self, changes: &ObjectChanges<'_>) {
        if changes.nodes.is_changed || changes.is_first_sync {
            self.changes.is_observed = true;
            self.changes.networks.extend(&changes.nodes.networks);
        }
    }

    fn host_changed(&mut self, changes: &HostChanges) {
        if self.is_active() {
            let uses_link = |route: &NodeRoute| changes.names().contains(&route.link);
            self.changes.is_whole |= changes.is_all() || self.routes.values().any(uses_link);
            self.changes.host_networks.extend(changes.networks());
        }
    }

    fn has_work(&self, node: &NodeState) -> bool {
        let RouteChanges {
            is_observed,
            is_whole,
            networks,
            host_networks,
        } = &self.changes;
        let is_changed =
            *is_observed || *is_whole || !networks.is_empty() || !host_networks.is_empty();
        is_changed && node.enforcer.is_in_sync()
    }

    fn plan(&mut self, node: &mut NodeState) -> Result<Vec<RouteAction>, SubsystemError> {
        if !node.enforcer.is_in_sync() {
            return Ok(Vec::new());
        }
        let inputs = RouteInputs {
            nodes: &node.nodes,
            pools: node.pools(),
        };
        let actions = self.compare(&inputs).map_err(SubsystemError::new)?;
        self.changes = RouteChanges::default();
        Ok(actions)
    }

    fn execute(
        &mut self,
        RouteAction { change, is_repair }: RouteAction,
        _: &mut NodeState,
    ) -> Result<ActionOutcome, SubsystemError> {
        let network = change.route().network;
        let result = match &change {
            RouteChange::Add(route) => self.driver.add_node_route(route),
            RouteChange::Replace(route) => self.driver.replace_node_route(route),
            RouteChange::Delete(route) => self.driver.delete_node_route(route),
        };
        if let Err(error) = result {
            let problem = format!(
                "the route to {network}: {}",
                palisade_text::error_chain(&error)
            );
            self.problems.insert(network, problem);
            self.changes.networks.insert(network);
            return Err(SubsystemError::new(error));
        }
        let outcome = if is_repair {
            let route = change.route();
            ActionOutcome::Repaired(vec![format!("the route {route} was removed or changed")])
        } else {
            ActionOutcome::Done
        };
        match change {
            RouteChange::Add(route) | RouteChange::Replace(route) => {
                self.routes.insert(network, route);
            }
            RouteChange::Delete(_) => drop(self.routes.remove(&network)),
        }
        Ok(outcome)
    }

    fn report(&self, status: &mut Status) {
        if let Some(node) = status.node.as_mut().filter(|_| self.is_active()) {
            let problems = self.problems.values();
            node.routes = Some(NodeRoutesStatus {
                installed: self.routes.len(),
                more_problems: problems.len().saturating_sub(MAX_ROUTE_PROBLEMS),
                problems: problems.take(MAX_ROUTE_PROBLEMS).cloned().collect(),
            });
        }
    }

    fn installed(&mut self) -> Result<Vec<CleanupItem>, SubsystemError> {
        let routes = self.driver.node_routes().map_err(SubsystemError::new)?;
        let names = routes.into_iter().map(|route| route.to_string());
        Ok(names
            .map(|name| CleanupItem::new(CleanupKind::Route, name, None))
            .collect())
    }

    fn remove(&mut self, item: &CleanupItem) -> Result<bool, SubsystemError> {
        let routes = self.driver.node_routes().map_err(SubsystemError::new)?;
        for route in routes.iter().filter(|route| route.to_string() == item.name) {
            self.driver
                .delete_node_route(route)
                .map_err(SubsystemError::new)?;
        }
        Ok(true)
    }
}

fn join(names: &[&Str]) -> String {
    let names: Vec<&str> = names.iter().map(|name| &***name).collect();
    names.join(", ")
}
