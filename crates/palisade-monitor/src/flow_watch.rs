//! The threads of the flows that the dataplane reports: one follows them, another judges those that are open again when
//! policy has changed.
//!
//! What waits is in the kernel's queue, which is bounded; what it cannot hold is told as lost, and what is open is then
//! compared with what was told. A change of the kernel's policy costs one judgement of each flow that is remembered, as it
//! costs the kernel one of each flow with packets; however many changes there are, at most once in
//! [`JUDGEMENT_INTERVAL`] and a twentieth of the time. Never: polls.

use super::SharedMonitor;
use super::open_flows::OpenFlows;
use palisade_dataplane::{FlowEventBatch, Subscription};
use palisade_text::error_chain;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// The least time between two judgements of the open flows.
const JUDGEMENT_INTERVAL: Duration = Duration::from_secs(1);

/// The flows of one subscription.
#[derive(Clone)]
pub struct FollowedFlows {
    monitor: SharedMonitor,
    open: Arc<Mutex<OpenFlows>>,
}

impl FollowedFlows {
    /// Flows that are reported to a monitor.
    pub fn new(monitor: SharedMonitor) -> Self {
        FollowedFlows {
            monitor,
            open: Arc::default(),
        }
    }

    /// Reports the dataplane's flows. Ends with the process, or if the kernel's reports end.
    pub fn follow(&self, mut watch: Subscription<FlowEventBatch>) {
        loop {
            match watch.wait(Duration::MAX) {
                Ok(Some(batch)) => {
                    let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
                    self.monitor.report_flows(&batch, &mut open);
                }
                Ok(None) => {}
                Err(error) => {
                    return tracing::error!(error = %error_chain(&error), "reading flows failed; flows are no longer reported");
                }
            }
        }
    }

    /// Judges the flows that are open again whenever the kernel's policy has changed. Ends with the process.
    pub fn judge_again(&self) {
        let mut writes = 0;
        loop {
            writes = self.monitor.view.wait_for_write(writes);
            let duration = self.monitor.judge_open_flows(&self.open);
            #[allow(
                clippy::disallowed_methods,
                reason = "the bound of the cost; what changes meanwhile is judged afterwards"
            )]
            std::thread::sleep(JUDGEMENT_INTERVAL.max(duration.saturating_mul(19)));
        }
    }
}
