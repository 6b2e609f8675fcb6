//! The subsystems of this agent, in the order in which they run. A new one is one line here, which passes it its
//! sections of the configuration; no subsystem sees the whole.
//!
//! Policy and masquerading run before them, by the enforcer: what they open is judged already.

use crate::driver::redirect_marks;
use palisade_config::Config;
use palisade_name_manager::NameManager;
use palisade_name_manager::name_journal::NameJournal;
use palisade_name_manager::server_trust::ServerTrust;
use palisade_network::dns_redirect::DnsRedirect;
use palisade_network::network_driver::{NetworkDriver, NodeRouteDriver, RedirectRouteDriver};
use palisade_network::node_routes::NodeRoutes;
use palisade_network::node_state::NodeState;
use palisade_node::clock::Clock;
use palisade_node::cluster_nodes::own_node_name;
use palisade_node::subsystem::{RunSubsystem, Runner};
use palisade_node::workload_store::WorkloadStore;
use palisade_workloads::cni_conf::CniConfiguration;
use palisade_workloads::registry::WorkloadRegistry;
use palisade_workloads::workloads::{WorkloadSections, Workloads};
use std::sync::Arc;

/// What workloads read of the configuration.
pub(crate) fn workload_sections(config: &Config) -> WorkloadSections {
    WorkloadSections {
        workloads: config.workloads.clone(),
        ipam: config.ipam.clone(),
        cni: config.cni.clone(),
        api: config.api.clone(),
        masquerade: config.masquerade.clone(),
        state: config.state.clone(),
    }
}

/// The workloads; those of a dry run write no records.
pub(crate) fn workloads(
    config: &Config,
    network: Box<dyn NetworkDriver>,
    clock: Arc<dyn Clock>,
) -> Workloads {
    let registry = WorkloadRegistry::new(
        own_node_name(&config.nodes),
        config.policy.honors_pod_mode,
        config.host.policy_audit,
    );
    let records = if config.dry_run {
        WorkloadStore::read_only(&config.state.dir)
    } else {
        WorkloadStore::in_state_dir(&config.state.dir)
    };
    Workloads::new(workload_sections(config), registry, records, network, clock)
}

/// The names; those of a dry run are not stored.
pub(crate) fn name_manager(config: &Config, clock: Arc<dyn Clock>) -> NameManager {
    let journal = if config.dry_run {
        NameJournal::read_only(&config.state.dir)
    } else {
        NameJournal::in_state_dir(&config.state.dir)
    };
    let trust = ServerTrust::new(config.dns.servers.clone(), ServerTrust::usual_files());
    NameManager::new(&config.dns, trust, journal, clock)
}

/// What runs after the workloads.
pub(crate) fn subsystems(
    config: &Config,
    node_routes: Option<Box<dyn NodeRouteDriver>>,
    redirect_routes: Option<Box<dyn RedirectRouteDriver>>,
) -> Vec<Box<dyn RunSubsystem<NodeState>>> {
    let mut all: Vec<Box<dyn RunSubsystem<NodeState>>> = Vec::new();
    if let Some(driver) = node_routes {
        all.push(Box::new(Runner::new(NodeRoutes::new(
            &config.nodes,
            &config.workloads,
            driver,
        ))));
    }
    if let Some(driver) = redirect_routes {
        let redirect = DnsRedirect::new(redirect_marks(), &config.state, driver);
        all.push(Box::new(Runner::new(redirect)));
    }
    let cni = CniConfiguration::new(&config.cni, &config.state, &config.api);
    all.push(Box::new(Runner::new(cni)));
    all
}
