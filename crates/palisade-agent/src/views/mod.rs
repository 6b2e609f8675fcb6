//! The responses of the API: free functions from a read-only snapshot of the core to types of the API.
//!
//! Never: changes anything, or waits; what has to be read from the kernel is read before and passed in.

mod budget;
pub mod endpoints;
pub mod explain;
pub mod ipam;
pub mod metrics;
pub mod node_status;
pub mod policies;
pub mod policy_findings;
pub mod policy_lookup;
mod policy_states;
pub mod status;

use palisade_api::BootstrapStage;
use palisade_config::Config;
use palisade_effective::EffectiveReport;
use palisade_enforcer::enforcer::Enforcer;
use palisade_enforcer::policy_state::PolicyGuard;
use palisade_model::{EndpointId, Str};
use palisade_network::node_state::NodeState;
use palisade_node::subsystem::RunSubsystem;
use palisade_node::workload_store::pod_id;
use palisade_source::UnjudgedPod;
use palisade_workloads::registry::WorkloadRegistry;
use palisade_workloads::workloads::Workloads;
use std::collections::BTreeMap;
use std::time::Duration;

/// The state of the core at one moment.
pub struct CoreSnapshot<'a> {
    /// The time, since the epoch.
    pub(crate) now: Duration,
    /// When the agent started, since the epoch.
    pub(crate) started: Duration,
    pub(crate) config: &'a Config,
    pub(crate) enforcer: &'a Enforcer,
    /// The objects and tables.
    pub(crate) policy: PolicyGuard<'a>,
    pub(crate) node: &'a NodeState,
    pub(crate) subsystems: &'a [Box<dyn RunSubsystem<NodeState>>],
    pub(crate) workloads: &'a Workloads,
    pub(crate) registry: &'a WorkloadRegistry,
    /// The name and the location of each source, in the order of precedence.
    pub(crate) sources: &'a [(String, String)],
    pub(crate) source_report: &'a EffectiveReport,
    pub(crate) startup_stages: &'a [BootstrapStage],
    /// Why the state of this node could not be written to the API server.
    pub(crate) node_status_failure: Option<&'a str>,
}

/// The pod of this name (`namespace/name`, or a name in the namespace `default`) if it is one of these, which are on
/// the network of their node: it is no endpoint.
pub fn host_network_pod(
    pods: &BTreeMap<EndpointId, Option<Str>>,
    name: &str,
) -> Option<UnjudgedPod> {
    let (namespace, name) = name.split_once('/').unwrap_or(("default", name));
    let id = pod_id(namespace, name);
    let node = pods.get(&id)?.clone();
    Some(UnjudgedPod {
        id,
        node,
        host_network: true,
    })
}

impl CoreSnapshot<'_> {
    /// The order of a tier; `None` where it has none or does not exist.
    fn tier_order(&self, name: &str) -> Option<f64> {
        self.policy.engine.tier(name)?.order.number()
    }
}
