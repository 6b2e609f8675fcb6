//! What follows the Node objects: the address pools of this host, and the routes to other nodes' pods.

use super::Workloads;
use crate::cluster_nodes::ClusterNodes;
use crate::enforcer::Enforcer;
use crate::network_driver::NodeRouteDriver;
use crate::node_routes::{NodeRoutes, RouteInputs};
use crate::workloads::host::HostChanges;
use palisade_model::{Prefix, Update};
use std::collections::BTreeSet;
use std::time::Instant;

/// What updates changed of nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct NodeChanges {
    /// Whether a node changed.
    is_changed: bool,
    /// The networks of changed nodes, before and after.
    networks: BTreeSet<Prefix>,
}

impl NodeChanges {
    /// Takes updates in.
    pub(crate) fn of(nodes: &mut ClusterNodes, updates: &[Update]) -> Self {
        let mut changes = NodeChanges::default();
        for update in updates {
            if let Some((_, networks)) = nodes.apply(update) {
                changes.is_changed = true;
                changes.networks.extend(networks);
            }
        }
        changes
    }
}

/// Follows the nodes after they changed, or were read completely for the first time.
pub(crate) fn follow_nodes(
    workloads: &mut Workloads,
    enforcer: &mut Enforcer,
    changes: &NodeChanges,
    is_first: bool,
) {
    if !changes.is_changed && !is_first {
        return;
    }
    if let Some(pools) = &mut workloads.node_pools
        && pools.update(&workloads.nodes)
    {
        workloads.ipam.set_pools(pools.pools());
    }
    if !enforcer.in_sync {
        return;
    }
    update_routes(workloads, |routes, inputs, driver| {
        routes.update(&changes.networks, inputs, driver)
    });
    if !is_first {
        workloads.update_masquerade(enforcer);
    }
}

/// Restores the routes to other nodes after changes of this host.
pub(crate) fn repair_routes(
    workloads: &mut Workloads,
    enforcer: &mut Enforcer,
    changes: &HostChanges,
    detected_at: Instant,
) {
    if !workloads.node_routes.is_active() {
        return;
    }
    let is_whole = changes.is_all() || workloads.node_routes.uses_link(changes.names());
    let mut networks = BTreeSet::new();
    for network in changes.networks() {
        networks.insert(*network);
        networks.extend(workloads.nodes.networks_reached_in(*network));
    }
    if networks.is_empty() && !is_whole {
        return;
    }
    let repairs = update_routes(workloads, |routes, inputs, driver| match is_whole {
        true => routes.update_all(inputs, driver),
        false => routes.update(&networks, inputs, driver),
    });
    if !repairs.is_empty() {
        enforcer.record_repair(&repairs, repairs.len(), detected_at);
    }
}

/// Changes the routes, if the driver has routes; a failure is retried.
pub(crate) fn update_routes(
    workloads: &mut Workloads,
    change: impl FnOnce(&mut NodeRoutes, &RouteInputs<'_>, &mut dyn NodeRouteDriver) -> Vec<String>,
) -> Vec<String> {
    let node_pools = workloads.node_pools.as_ref();
    let inputs = RouteInputs {
        nodes: &workloads.nodes,
        pools: node_pools.map_or(workloads.config.ipam.networks(), |pools| pools.pools()),
        interface_prefix: &workloads.config.workloads.interface_prefix,
    };
    let Some(driver) = workloads.network.node_route_driver() else {
        return Vec::new();
    };
    let repairs = change(&mut workloads.node_routes, &inputs, driver);
    if workloads.node_routes.has_failed() {
        workloads.ensure_retry();
    }
    repairs
}

/// Why this host has no pools, if it waits for those of its Node.
pub(crate) fn missing_pools(workloads: &Workloads) -> Option<String> {
    let pools = workloads.node_pools.as_ref();
    let missing = pools.filter(|pools| pools.pools().is_empty())?;
    Some(missing.problems().collect::<Vec<_>>().join("; "))
}
