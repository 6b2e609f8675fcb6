//! Figures for Prometheus: what there is, what is counted, and how it is written.
//!
//! Every metric is defined once, in [`table`]; from there come its lines of the exposition and its
//! row of `docs/metrics.md`. What happens over time is counted in [`CoreMetrics`] by the core; what is, is
//! read when somebody asks. Nothing here decides anything, and nothing names a workload or a policy:
//! who may read figures need not be who may read those.

mod collect;
pub mod exposition;
mod histogram;
mod process;
pub mod table;

pub use histogram::Histogram;

use palisade_dataplane::ApplyOutcome;
use palisade_tables::Phase;
use std::collections::BTreeMap;
use std::time::Duration;

/// What the core counts.
#[derive(Clone, Debug, Default)]
pub struct CoreMetrics {
    flush: Histogram,
    phases: BTreeMap<&'static str, Histogram>,
    grace_wait: Duration,
    transactions: u64,
    writes: u64,
    failures: u64,
    retries: u64,
    batches: u64,
}

impl CoreMetrics {
    /// Something was written to the kernel.
    pub(crate) fn observe_flush(&mut self, outcome: &ApplyOutcome, took: Duration) {
        if outcome.steps.is_empty() {
            return;
        }
        self.flush.observe(took);
        self.observe_steps(outcome);
    }

    /// Steps were executed, in a flush or for a repair.
    pub(crate) fn observe_steps(&mut self, outcome: &ApplyOutcome) {
        for step in &outcome.steps {
            let phase = self.phases.entry(phase_name(step.phase)).or_default();
            phase.observe(step.duration);
            self.grace_wait += step.grace_duration;
            self.transactions += 1;
        }
        self.writes += outcome.writes as u64;
    }

    /// The kernel refused something.
    pub(crate) fn count_failure(&mut self) {
        self.failures += 1;
    }

    /// It is tried again.
    pub(crate) fn count_retry(&mut self) {
        self.retries += 1;
    }

    /// The source handed something in.
    pub(crate) fn count_batch(&mut self) {
        self.batches += 1;
    }
}

fn phase_name(phase: Phase) -> &'static str {
    match phase {
        Phase::Split => "split",
        Phase::Tighten => "tighten",
        Phase::Revoke => "revoke",
        Phase::Loosen => "loosen",
        Phase::Merge => "merge",
        Phase::Delete => "delete",
    }
}
