//! Prometheus metrics: definition, collection and exposition.
//!
//! Every metric is defined once, in [`table`], which also generates the exposition and
//! `docs/metrics.md`. The core counts events in [`CoreMetrics`]; gauges are read for each scrape. No
//! metric names a workload or a policy, because readers of metrics may not be permitted to read those.

pub mod exposition;
mod histogram;
mod process;
pub mod table;

pub use histogram::Histogram;
pub(crate) use process::collect as collect_process;

use palisade_dataplane::ApplyOutcome;
use palisade_tables::Phase;
use std::collections::BTreeMap;
use std::time::Duration;

/// Counters and histograms of the core.
#[derive(Clone, Debug, Default)]
pub struct CoreMetrics {
    pub(crate) flush: Histogram,
    /// From the arrival of an ADD to its open interface.
    pub(crate) attach: Histogram,
    /// From the arrival of a DEL until everything of it is gone.
    pub(crate) detach: Histogram,
    /// From the detection of a change by its source to its last acknowledgement by the kernel.
    pub(crate) implementation_delay: Histogram,
    pub(crate) phases: BTreeMap<&'static str, Histogram>,
    pub(crate) transactions: u64,
    pub(crate) writes: u64,
    /// Failed writes to the kernel.
    pub(crate) failures: u64,
    pub(crate) retries: u64,
    /// Batches of the source.
    pub(crate) batches: u64,
}

impl CoreMetrics {
    /// Records a flush to the kernel.
    pub(crate) fn observe_flush(&mut self, outcome: &ApplyOutcome, took: Duration) {
        if outcome.steps.is_empty() {
            return;
        }
        self.flush.observe(took);
        self.observe_steps(outcome);
    }

    /// Records the executed steps of a flush or repair.
    pub(crate) fn observe_steps(&mut self, outcome: &ApplyOutcome) {
        for step in &outcome.steps {
            let phase = self.phases.entry(phase_name(step.phase)).or_default();
            phase.observe(step.duration);
            self.transactions += 1;
        }
        self.writes += outcome.writes as u64;
    }
}

fn phase_name(phase: Phase) -> &'static str {
    match phase {
        Phase::Split => "split",
        Phase::Tighten => "tighten",
        Phase::Shift => "shift",
        Phase::Revoke => "revoke",
        Phase::Loosen => "loosen",
        Phase::Merge => "merge",
        Phase::Delete => "delete",
    }
}
