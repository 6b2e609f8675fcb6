//! What the subsystems of this node act through: the policy, and what is known of the cluster's nodes.
//!
//! The core owns it and lends it to one subsystem after the other.

use crate::forwarding::Forwarding;
use palisade_config::{IpamConfig, NodesConfig, StateConfig};
use palisade_dataplane::Counters;
use palisade_enforcer::enforcer::Enforcer;
use palisade_model::{Prefix, Update};
use palisade_node::clock::Clock;
use palisade_node::cluster_nodes::{ClusterNodes, NodeChanges, own_node_name};
use palisade_node::node_pools::NodePools;
use palisade_node::subsystem::{Runner, Subsystem, SubsystemError};
use std::sync::Arc;

/// The state that subsystems share. See the module's description.
pub struct NodeState {
    /// The policy in the kernel.
    pub enforcer: Enforcer,
    /// The sysctls of forwarding: before the first workload is opened they are set.
    pub forwarding: Runner<Forwarding>,
    /// The nodes of the cluster.
    pub nodes: ClusterNodes,
    /// The pools of this host's Node, if addresses are allocated from these.
    pub node_pools: Option<NodePools>,
    /// The pools of the configuration, if addresses are allocated from these.
    configured_pools: Vec<Prefix>,
    /// Whether the API serves container runtimes.
    pub serves_runtimes: bool,
    is_dry_run: bool,
    clock: Arc<dyn Clock>,
}

impl NodeState {
    /// Nothing known yet, on a host with these sections of the configuration. A dry run changes nothing on it.
    pub fn new(
        (nodes, ipam, state): (&NodesConfig, &IpamConfig, &StateConfig),
        is_dry_run: bool,
        enforcer: Enforcer,
        forwarding: Forwarding,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let node = own_node_name(nodes);
        let node_pools = ipam
            .has_node_pools()
            .then(|| NodePools::restore(&state.dir, node.clone(), is_dry_run));
        NodeState {
            enforcer,
            forwarding: Runner::new(forwarding),
            nodes: ClusterNodes::new(node),
            node_pools,
            configured_pools: ipam.networks().to_vec(),
            serves_runtimes: false,
            is_dry_run,
            clock,
        }
    }

    /// The kernel's counters, at most one second old, so that frequent readers do not cause more reads.
    pub fn recent_counters(&mut self) -> Option<Arc<Counters>> {
        self.enforcer.recent_counters()
    }

    /// Takes in what updates change of nodes, and with it the pools of this host; returns what changed.
    pub fn observe_nodes(&mut self, updates: &[Update], is_first_sync: bool) -> NodeChanges {
        let changes = NodeChanges::of(&mut self.nodes, updates);
        if (changes.is_changed || is_first_sync)
            && let Some(pools) = &mut self.node_pools
        {
            pools.update(&self.nodes);
        }
        changes
    }

    /// The address pools of this host.
    pub fn pools(&self) -> &[Prefix] {
        let node_pools = self.node_pools.as_ref();
        node_pools.map_or(&self.configured_pools, NodePools::pools)
    }

    /// Why this host has no pools, if it waits for those of its Node.
    pub fn missing_pools(&self) -> Option<String> {
        let pools = self.node_pools.as_ref();
        let missing = pools.filter(|pools| pools.pools().is_empty())?;
        Some(missing.problems().collect::<Vec<_>>().join("; "))
    }

    /// Makes this host forward, if the agent manages that.
    ///
    /// # Errors
    /// If the kernel refuses; it is retried.
    pub fn enable_forwarding(&mut self) -> Result<(), SubsystemError> {
        self.forwarding.enable();
        if self.forwarding.has_work(&()) && !self.is_dry_run {
            let now = self.clock.monotonic();
            self.forwarding.run(&mut (), now)?;
        }
        Ok(())
    }

    /// Whether the kernel holds the policy of the source.
    pub fn is_policy_in_force(&self) -> bool {
        self.enforcer.is_in_sync() && self.enforcer.policy.failure().is_none()
    }
}
