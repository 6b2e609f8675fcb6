//! Counters and histograms of the agent's events, for its metrics.
//!
//! Never: names a workload or a policy, because readers of metrics may not be permitted to read those.

mod histogram;

pub use histogram::Histogram;

use palisade_dataplane::ApplyOutcome;
use palisade_tables::Phase;
use std::collections::BTreeMap;
use std::time::Duration;

/// Counters and histograms of the core.
#[derive(Clone, Debug, Default)]
pub struct CoreMetrics {
    /// From a change to its last acknowledgement by the kernel.
    pub flush: Histogram,
    /// From the arrival of an ADD to its open interface.
    pub attach: Histogram,
    /// From the arrival of a DEL until everything of it is gone.
    pub detach: Histogram,
    /// From the detection of a change by its source to its last acknowledgement by the kernel.
    pub implementation_delay: Histogram,
    /// The duration of each step, by its phase.
    pub phases: BTreeMap<&'static str, Histogram>,
    /// Committed kernel transactions.
    pub transactions: u64,
    /// Objects and elements written or deleted.
    pub writes: u64,
    /// Failed writes to the kernel.
    pub failures: u64,
    /// Attempts to resync the kernel after a failure.
    pub retries: u64,
    /// Batches of the source.
    pub batches: u64,
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
