//! Where recent flows go beside their readers: the record, the metrics, the logs.
//!
//! Promises: what is wrong with one of them is a condition of the status. Never: holds up the core.

use palisade_api::DriverConditionReport;
use palisade_flows::recorder::FlowRecorder;
use palisade_hubble::{FlowLogStatus, HubbleMetrics};
use palisade_text::error_chain;
use palisade_views::metrics::exposition::Exposition;
use palisade_views::metrics::table::{FLOW_LOG_LINES, FLOW_METRICS_REFUSED};
use std::time::Instant;

/// Those that the configuration asks for.
#[derive(Clone, Default)]
pub struct FlowOutputs {
    /// The record on disk.
    pub record: Option<FlowRecorder>,
    /// The metrics of Hubble's names.
    pub metrics: Option<HubbleMetrics>,
    /// What is known of the flow logs.
    pub logs: Option<FlowLogStatus>,
}

impl FlowOutputs {
    /// What is wrong with them.
    pub(crate) fn conditions(&self) -> Vec<DriverConditionReport> {
        let record = self.record.as_ref().and_then(FlowRecorder::condition);
        let record = record.map(|error| DriverConditionReport {
            kind: "FlowRecord".to_owned(),
            reason: error.reason().to_owned(),
            message: error_chain(&*error),
        });
        let logs = self.logs.as_ref().and_then(FlowLogStatus::error);
        let logs = logs.map(|error| DriverConditionReport {
            kind: "FlowLog".to_owned(),
            reason: error.reason().to_owned(),
            message: error_chain(&error),
        });
        let refused = self.metrics.iter().flat_map(HubbleMetrics::refused);
        let refused = refused.filter(|(_, count)| *count > 0);
        let refused = refused.map(|(metric, count)| DriverConditionReport {
            kind: "FlowMetrics".to_owned(),
            reason: "TooManySeries".to_owned(),
            message: format!(
                "{metric} has as many series as it may have; {count} flows are not counted: choose labels with fewer values in hubble-metrics"
            ),
        });
        record.into_iter().chain(logs).chain(refused).collect()
    }

    /// Adds the metrics of flows, and of how they are counted and logged.
    pub(crate) fn add_metrics(&self, exposition: &mut Exposition, now: Instant) {
        if let Some(metrics) = &self.metrics {
            exposition.append_text(&metrics.text(now));
            for (metric, count) in metrics.refused() {
                exposition.add_sample(&FLOW_METRICS_REFUSED, &[&metric], count as f64);
            }
        }
        for (log, [written, failed]) in self.logs.iter().flat_map(FlowLogStatus::lines) {
            exposition.add_sample(&FLOW_LOG_LINES, &[&log, "written"], written as f64);
            exposition.add_sample(&FLOW_LOG_LINES, &[&log, "failed"], failed as f64);
        }
    }
}
