//! The thread that writes back to the cluster: the state of this node, and events and conditions of policies.
//!
//! It asks the core as any other reader, one question at a time, and never blocks it. Without it, or while it
//! fails, everything else goes on; status says why the state of this node cannot be written.

use crate::core::{Core, CoreEvent};
use crate::core_queue::CoreHandle;
use crate::options::credentials;
use crate::run_error::RunError;
use palisade_config::{KubernetesConfig, NodesConfig};
use palisade_kubernetes::{
    FeedbackIntervals, NodeStatusWriter, PolicyFeedbackWriter, StatusIntervals,
};
use palisade_node::clock::{Clock, SystemClock, rfc3339_micros};
use palisade_node::cluster_nodes::own_node_name;
use palisade_views::node_status::node_policy_report;
use palisade_views::policy_findings::policy_findings;
use std::io;

/// Starts the thread, if there is an API server and the configuration does not forbid it.
///
/// # Errors
/// If the thread cannot be started.
pub(crate) fn write_cluster_status(
    kubernetes: &KubernetesConfig,
    nodes: &NodesConfig,
    core: &CoreHandle,
) -> Result<(), RunError> {
    let credentials = credentials(kubernetes).filter(|_| kubernetes.status_write);
    let Some(credentials) = credentials else {
        return Ok(());
    };
    let node = own_node_name(nodes).to_string();
    // As other candidates of leases: two agents may have one host name.
    let identity = format!("{node}_{}", std::process::id());
    let wall = || rfc3339_micros(SystemClock.wall());
    let intervals = FeedbackIntervals::default();
    let feedback = PolicyFeedbackWriter::new(credentials.clone(), identity, intervals, wall);
    let status = NodeStatusWriter::new(credentials, node, StatusIntervals::default());
    let core = core.clone();
    let failed = |error: io::Error| RunError::Thread("cluster-status", error);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(failed)?;
    let work = move || {
        let report = async || {
            let build = |core: &mut Core| node_policy_report(&core.snapshot());
            core.ask(build).await
        };
        let record = |failure: Option<String>| {
            let record = move |core: &mut Core| core.record_node_status(failure);
            core.send(CoreEvent::Request(Box::new(record)));
        };
        let findings = async || {
            let build = |core: &mut Core| policy_findings(&core.snapshot());
            core.ask(build).await
        };
        let status = status.run(report, record);
        let feedback = feedback.run(findings);
        runtime.block_on(async { tokio::join!(status, feedback) });
    };
    // Not supervised: enforcement does not need it. Not joined: a write may wait for the server.
    std::thread::Builder::new()
        .name("cluster-status".to_owned())
        .spawn(work)
        .map(drop)
        .map_err(failed)
}
