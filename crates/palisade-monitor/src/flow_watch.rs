//! The thread of the flows that the dataplane reports.
//!
//! What waits is in the kernel's queue, which is bounded; what it cannot hold is told as lost, and what is open is then
//! compared with what was told. Never: polls.

use super::SharedMonitor;
use super::open_flows::OpenFlows;
use palisade_dataplane::{FlowEventBatch, Subscription};
use palisade_text::error_chain;
use std::time::Duration;

/// Reports the dataplane's flows to a monitor. Ends with the process, or if the kernel's reports end.
pub fn follow_flows(mut watch: Subscription<FlowEventBatch>, monitor: &SharedMonitor) {
    let mut open = OpenFlows::default();
    loop {
        match watch.wait(Duration::MAX) {
            Ok(Some(batch)) => monitor.report_flows(&batch, &mut open),
            Ok(None) => {}
            Err(error) => {
                return tracing::error!(error = %error_chain(&error), "reading flows failed; flows are no longer reported");
            }
        }
    }
}
