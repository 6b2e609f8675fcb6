//! The threads that record flows, if the configuration asks for it.
//!
//! Promises: what was read is written before the agent ends. Never: holds up the core.

use crate::core::Core;
use crate::run_error::RunError;
use palisade_flows::recorder::FlowRecorder;
use palisade_flows::store::{FlowStore, RECORD_FILE, StoreLimits};
use palisade_node::clock::{Clock, SystemClock};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

/// A record that is written until this is dropped.
pub(crate) struct FlowRecording {
    record: FlowRecorder,
    thread: Option<JoinHandle<()>>,
}

/// Starts to record flows, if they are followed and to be recorded.
///
/// # Errors
/// If the thread does not start.
pub(crate) fn start_recording(core: &mut Core) -> Result<Option<FlowRecording>, RunError> {
    let config = core.config().clone();
    let Some(recent) = core.monitor().recent() else {
        return Ok(None);
    };
    if !config.monitor.records_flows || config.dry_run {
        return Ok(None);
    }
    let limits = StoreLimits {
        bytes: u64::from(config.monitor.record_mebibytes) << 20,
        age: Duration::from_secs(u64::from(config.monitor.record_hours) * 3_600),
    };
    let store = FlowStore::new(config.state.dir.join(RECORD_FILE), limits);
    let record = FlowRecorder::new(recent, store, Arc::new(|| SystemClock.wall()));
    core.flow_outputs_mut().record = Some(record.clone());
    let runs = record.clone();
    // Not supervised: without it flows are not recorded, but enforcement is not affected.
    let thread = std::thread::Builder::new().name("flow-record".to_owned());
    let thread = thread.spawn(move || {
        if let Err(error) = runs.run() {
            tracing::error!(%error, "flows are recorded no longer");
        }
    });
    let thread = thread.map_err(|error| RunError::Thread("flow-record", error))?;
    Ok(Some(FlowRecording {
        record,
        thread: Some(thread),
    }))
}

impl Drop for FlowRecording {
    fn drop(&mut self) {
        self.record.stop();
        if self
            .thread
            .take()
            .is_some_and(|thread| thread.join().is_err())
        {
            tracing::error!("the thread that records flows panicked");
        }
    }
}
