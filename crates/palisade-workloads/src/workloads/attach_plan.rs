//! What the check of a request comes to, whichever way it came.

use super::PreopenedNetns;
use palisade_node::workload_store::WorkloadRecord;

/// What a request needs.
pub(crate) enum AttachPlan {
    /// Nothing: the workload is attached already.
    Present(WorkloadRecord),
    /// An attach, with addresses of these families if the record has none.
    New {
        record: WorkloadRecord,
        families: Vec<u8>,
        netns: PreopenedNetns,
    },
}
