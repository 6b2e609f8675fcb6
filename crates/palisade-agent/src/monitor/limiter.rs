//! How many packets are told of each rule, and how many were not.
//!
//! Promises: of each key at most the rate, and as many at once; every other one is counted.

use std::collections::BTreeMap;
use std::time::Duration;

/// Keys whose bucket is full are forgotten once there are so many.
const KEYS: usize = 1024;

struct Bucket {
    tokens: f64,
    filled: Duration,
    lost: u64,
}

/// Token buckets by key.
pub struct Limiter<K> {
    rate: f64,
    buckets: BTreeMap<K, Bucket>,
}

impl<K: Ord + Clone> Limiter<K> {
    /// So many a second of each key.
    pub fn new(rate: u32) -> Self {
        Limiter {
            rate: rate.into(),
            buckets: BTreeMap::new(),
        }
    }

    /// So many from now on; what a bucket holds beyond that goes with its next one.
    pub fn set_rate(&mut self, rate: u32) {
        self.rate = rate.into();
    }

    /// Whether one more of `key` passes; it is counted if not. `now` never goes back.
    pub fn pass(&mut self, key: &K, now: Duration) -> bool {
        if self.buckets.len() >= KEYS && !self.buckets.contains_key(key) {
            self.forget_full(now);
        }
        let rate = self.rate;
        let bucket = self.buckets.entry(key.clone()).or_insert(Bucket {
            tokens: rate,
            filled: now,
            lost: 0,
        });
        bucket.fill(rate, now);
        if bucket.tokens < 1.0 {
            bucket.lost += 1;
            return false;
        }
        bucket.tokens -= 1.0;
        true
    }

    /// What did not pass since the last call, by key.
    pub fn take_lost(&mut self) -> Vec<(K, u64)> {
        let lost = self.buckets.iter_mut().filter(|(_, b)| b.lost > 0);
        lost.map(|(key, bucket)| (key.clone(), std::mem::take(&mut bucket.lost)))
            .collect()
    }

    fn forget_full(&mut self, now: Duration) {
        let rate = self.rate;
        self.buckets.retain(|_, bucket| {
            bucket.fill(rate, now);
            bucket.lost > 0 || bucket.tokens < rate
        });
    }
}

impl Bucket {
    fn fill(&mut self, rate: f64, now: Duration) {
        let since = now.saturating_sub(self.filled).as_secs_f64();
        self.tokens = (self.tokens + since * rate).min(rate);
        self.filled = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_key_has_its_own_rate_and_nothing_is_lost_uncounted() {
        let mut limiter = Limiter::new(10);
        let mut passed = BTreeMap::new();
        for step in 0..3_000u64 {
            // Three seconds, a millisecond a step; "b" comes only five times a second.
            let now = Duration::from_millis(step);
            for key in ["a", "b"] {
                if (key == "a" || step % 200 == 0) && limiter.pass(&key, now) {
                    *passed.entry(key).or_insert(0u64) += 1;
                }
            }
        }
        assert_eq!(passed["b"], 15);
        assert!((38..=41).contains(&passed["a"]), "{passed:?}");
        assert_eq!(limiter.take_lost(), [("a", 3_000 - passed["a"])]);
        assert_eq!(limiter.take_lost(), []);
    }

    #[test]
    fn keys_that_are_idle_are_forgotten() {
        let mut limiter = Limiter::new(10);
        for key in 0..KEYS as u64 * 3 {
            assert!(limiter.pass(&key, Duration::from_secs(key)));
        }
        assert!(limiter.buckets.len() <= KEYS);
    }
}
