//! The time that the proxy adds to queries, as a histogram.
//!
//! Promises: an observation costs no memory. Never: keeps a single time.

use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The upper bounds of the buckets, in microseconds; an unbounded bucket follows.
const BOUNDS: [u64; 12] = [
    50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000,
];
const BUCKETS: usize = BOUNDS.len() + 1;

/// Times by bucket: of a query from its arrival until it is passed on, and of its answer from its arrival until it is
/// released, both together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LatencyCounts {
    buckets: [u64; BUCKETS],
    /// All times together.
    nanoseconds: u64,
}

impl LatencyCounts {
    /// Adds a time.
    pub(crate) fn observe(&mut self, time: Duration) {
        let at = BOUNDS.partition_point(|bound| Duration::from_micros(*bound) < time);
        if let Some(bucket) = self.buckets.get_mut(at) {
            *bucket += 1;
        }
        let nanoseconds = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.nanoseconds = self.nanoseconds.saturating_add(nanoseconds);
    }

    /// Each bound with the number of times up to it; the last is without bound and has all.
    pub fn cumulative(&self) -> impl Iterator<Item = (Option<Duration>, u64)> {
        let bounds = BOUNDS.into_iter().map(Duration::from_micros).map(Some);
        let counts = self.buckets.iter().scan(0_u64, |sum, count| {
            *sum = sum.saturating_add(*count);
            Some(*sum)
        });
        bounds.chain([None]).zip(counts)
    }

    /// All times together.
    #[must_use]
    pub fn sum(&self) -> Duration {
        Duration::from_nanos(self.nanoseconds)
    }

    /// The numbers that only grow.
    pub(crate) fn numbers(&mut self) -> impl Iterator<Item = &mut u64> {
        let LatencyCounts {
            buckets,
            nanoseconds,
        } = self;
        buckets.iter_mut().chain([nanoseconds])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_in_the_first_bucket_whose_bound_it_keeps() {
        let mut latency = LatencyCounts::default();
        for nanoseconds in [0, 50_000, 50_001, 250_000_000, 250_000_001] {
            latency.observe(Duration::from_nanos(nanoseconds));
        }
        assert_eq!(latency.sum(), Duration::from_nanos(500_100_002));
        let counts: Vec<_> = latency.cumulative().collect();
        assert_eq!(counts[0], (Some(Duration::from_micros(50)), 2));
        assert_eq!(counts[1], (Some(Duration::from_micros(100)), 3));
        assert_eq!(counts[11], (Some(Duration::from_millis(250)), 4));
        assert_eq!(counts[12], (None, 5));
        latency.observe(Duration::MAX);
        assert_eq!(latency.sum(), Duration::from_nanos(u64::MAX));
    }

    #[test]
    fn other_numbers_of_buckets_are_refused() {
        let mut text = serde_json::to_value(LatencyCounts::default()).unwrap();
        for buckets in [vec![0; BUCKETS - 1], vec![0; BUCKETS + 1], Vec::new()] {
            text["buckets"] = buckets.into();
            assert!(serde_json::from_value::<LatencyCounts>(text.clone()).is_err());
        }
    }
}
