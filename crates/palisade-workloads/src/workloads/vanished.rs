//! Containers whose network namespace went without a DEL: their addresses are needed by others.
//!
//! Never: detaches a container whose interface still exists.

use super::{WorkloadError, Workloads};
use palisade_api::CniAttachment;
use palisade_network::node_state::NodeState;
use palisade_node::workload_store::WorkloadRecord;

/// Detaches containers whose namespace is gone, and with it their interface.
///
/// # Errors
/// If one cannot be detached.
pub(super) fn detach_vanished(
    workloads: &mut Workloads,
    node: &mut NodeState,
) -> Result<Vec<CniAttachment>, WorkloadError> {
    let records = workloads.registry.records();
    let containers = records.filter(|record| record.container.is_some());
    let vanished = containers.filter(|record| !workloads.network.netns_exists(record));
    let vanished: Vec<WorkloadRecord> = vanished.cloned().collect();
    let mut removed = Vec::new();
    for record in vanished {
        let joined = workloads.network.has_interface(&record);
        let joined = joined.map_err(WorkloadError::inspect(record.id()))?;
        // A namespace may still exist although its path is gone.
        if !joined {
            tracing::info!(workload = %record.id(), netns = record.netns, "detached a workload whose network namespace no longer exists");
            workloads.detach(node, &record.id())?;
            removed.extend(record.attachment());
        }
    }
    Ok(removed)
}
