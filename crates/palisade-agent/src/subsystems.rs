//! The subsystems of this agent, in the order in which they run. A new one is one line here.
//!
//! Policy and masquerading run before them, by the enforcer: what they open is judged already.

use palisade_config::Config;
use palisade_network::network_driver::NodeRouteDriver;
use palisade_network::node_routes::NodeRoutes;
use palisade_network::node_state::NodeState;
use palisade_node::subsystem::{RunSubsystem, Runner};
use palisade_workloads::cni_conf::CniConfiguration;

/// What runs after the workloads.
pub(crate) fn subsystems(
    config: &Config,
    node_routes: Option<Box<dyn NodeRouteDriver>>,
) -> Vec<Box<dyn RunSubsystem<NodeState>>> {
    let mut all: Vec<Box<dyn RunSubsystem<NodeState>>> = Vec::new();
    if let Some(driver) = node_routes {
        all.push(Box::new(Runner::new(NodeRoutes::new(
            config.nodes.has_routes,
            driver,
        ))));
    }
    let cni = CniConfiguration::new(&config.cni, &config.state, &config.api);
    all.push(Box::new(Runner::new(cni)));
    all
}
