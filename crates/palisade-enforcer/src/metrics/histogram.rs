//! Histograms of durations.

use std::time::Duration;

/// The upper bounds of the buckets, in seconds; an unbounded bucket follows.
pub(super) const BUCKET_BOUNDS: [f64; 14] = [
    0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
];

/// Durations by bucket.
#[derive(Clone, Debug, Default)]
pub struct Histogram {
    counts: [u64; BUCKET_BOUNDS.len() + 1],
    sum: Duration,
}

impl Histogram {
    /// Adds a duration.
    pub fn observe(&mut self, took: Duration) {
        let seconds = took.as_secs_f64();
        let fits = |bound: &f64| seconds <= *bound;
        let at = BUCKET_BOUNDS
            .iter()
            .position(fits)
            .unwrap_or(BUCKET_BOUNDS.len());
        if let Some(count) = self.counts.get_mut(at) {
            *count += 1;
        }
        self.sum += took;
    }

    /// Each bound with the cumulative count; the last bucket is unbounded and has the total.
    pub fn cumulative(&self) -> impl Iterator<Item = (f64, u64)> {
        let bounds = BUCKET_BOUNDS.into_iter().chain([f64::INFINITY]);
        let counts = self.counts.iter().scan(0, |sum, count| {
            *sum += count;
            Some(*sum)
        });
        bounds.zip(counts)
    }

    /// The sum of all durations.
    pub fn sum(&self) -> Duration {
        self.sum
    }
}
