//! Rate limit of reported packets, by key.
//!
//! Promises: for each key at most the rate, with a burst of the same size; every other packet is counted.

use std::collections::BTreeMap;
use std::time::Duration;

/// The number of keys above which those with a full bucket are dropped.
const MAX_KEYS: usize = 1024;

struct PacketBucket {
    tokens: f64,
    refilled_at: Duration,
    dropped: u64,
}

/// Token buckets by key.
pub struct PacketLimiter<K> {
    rate: f64,
    buckets: BTreeMap<K, PacketBucket>,
}

impl<K: Ord + Clone> PacketLimiter<K> {
    /// A limit of this many per second for each key.
    pub fn new(rate: u32) -> Self {
        PacketLimiter {
            rate: rate.into(),
            buckets: BTreeMap::new(),
        }
    }

    /// Sets the rate; a bucket above the new limit is cut at its next use.
    pub fn set_rate(&mut self, rate: u32) {
        self.rate = rate.into();
    }

    /// Whether one more of `key` passes; otherwise it is counted. `now` must not decrease.
    pub fn try_acquire(&mut self, key: &K, now: Duration) -> bool {
        if self.buckets.len() >= MAX_KEYS && !self.buckets.contains_key(key) {
            self.evict_full(now);
        }
        let rate = self.rate;
        let bucket = self.buckets.entry(key.clone()).or_insert(PacketBucket {
            tokens: rate,
            refilled_at: now,
            dropped: 0,
        });
        bucket.refill(rate, now);
        if bucket.tokens < 1.0 {
            bucket.dropped += 1;
            return false;
        }
        bucket.tokens -= 1.0;
        true
    }

    /// The number of rejected ones since the last call, by key.
    pub fn take_dropped(&mut self) -> Vec<(K, u64)> {
        let lost = self.buckets.iter_mut().filter(|(_, b)| b.dropped > 0);
        lost.map(|(key, bucket)| (key.clone(), std::mem::take(&mut bucket.dropped)))
            .collect()
    }

    fn evict_full(&mut self, now: Duration) {
        let rate = self.rate;
        self.buckets.retain(|_, bucket| {
            bucket.refill(rate, now);
            bucket.dropped > 0 || bucket.tokens < rate
        });
    }
}

impl PacketBucket {
    fn refill(&mut self, rate: f64, now: Duration) {
        let since = now.saturating_sub(self.refilled_at).as_secs_f64();
        self.tokens = (self.tokens + since * rate).min(rate);
        self.refilled_at = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_key_has_its_own_rate_and_nothing_is_lost_uncounted() {
        let mut limiter = PacketLimiter::new(10);
        let mut passed = BTreeMap::new();
        for step in 0..3_000u64 {
            // Three seconds in steps of a millisecond; "b" comes only five times per second.
            let now = Duration::from_millis(step);
            for key in ["a", "b"] {
                if (key == "a" || step % 200 == 0) && limiter.try_acquire(&key, now) {
                    *passed.entry(key).or_insert(0u64) += 1;
                }
            }
        }
        assert_eq!(passed["b"], 15);
        assert!((38..=41).contains(&passed["a"]), "{passed:?}");
        assert_eq!(limiter.take_dropped(), [("a", 3_000 - passed["a"])]);
        assert_eq!(limiter.take_dropped(), []);
    }

    #[test]
    fn keys_that_are_idle_are_forgotten() {
        let mut limiter = PacketLimiter::new(10);
        for key in 0..MAX_KEYS as u64 * 3 {
            assert!(limiter.try_acquire(&key, Duration::from_secs(key)));
        }
        assert!(limiter.buckets.len() <= MAX_KEYS);
    }
}
