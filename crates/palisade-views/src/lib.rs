//! The responses of the API and the metrics: free functions from a read-only snapshot of the core to types of the API.
//!
//! Promises: an answer is of one moment; reports are bounded.
//!
//! Never: changes anything, or waits; what has to be read from the kernel is read before and passed in.

pub mod bpf;
mod budget;
pub mod endpoints;
pub mod explain;
pub mod ipam;
pub mod metrics;
pub mod names;
pub mod node_status;
pub mod policies;
pub mod policy_findings;
pub mod policy_lookup;
mod policy_states;
pub mod status;

use palisade_api::{BootstrapStage, FastPathReport};
use palisade_config::Config;
use palisade_effective::EffectiveReport;
use palisade_enforcer::enforcer::Enforcer;
use palisade_enforcer::policy_state::PolicyGuard;
use palisade_model::{EndpointId, Str};
use palisade_name_manager::NameManager;
use palisade_network::node_state::NodeState;
use palisade_node::subsystem::RunSubsystem;
use palisade_node::workload_store::pod_id;
use palisade_source::UnjudgedPod;
use palisade_workloads::workloads::Workloads;
use std::collections::BTreeMap;
use std::time::Duration;

/// How the agent started.
#[derive(Clone, Debug, Default)]
pub struct StartupRecord {
    /// When, since the epoch.
    pub since: Duration,
    /// The steps of the start, with their durations.
    pub stages: Vec<BootstrapStage>,
    /// Whether the host could run the fast path, if it was asked.
    pub fast_path: Option<FastPathReport>,
}

/// The state of the core at one moment.
pub struct CoreSnapshot<'a> {
    /// The time, since the epoch.
    pub now: Duration,
    /// How the agent started.
    pub startup: &'a StartupRecord,
    /// The configuration of this process.
    pub config: &'a Config,
    /// Policy in the kernel.
    pub enforcer: &'a Enforcer,
    /// The objects and tables.
    pub policy: PolicyGuard<'a>,
    /// What subsystems act through.
    pub node: &'a NodeState,
    /// The addresses of names.
    pub names: &'a NameManager,
    /// The other subsystems.
    pub subsystems: &'a [Box<dyn RunSubsystem<NodeState>>],
    /// The workloads of this host.
    pub workloads: &'a Workloads,
    /// The name and the location of each source, in the order of precedence.
    pub sources: &'a [(String, String)],
    /// What is in force, and what is not.
    pub source_report: &'a EffectiveReport,
    /// Why the state of this node could not be written to the API server.
    pub node_status_failure: Option<&'a str>,
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
