//! Rate limits: a token bucket for each key.
//!
//! A bucket holds at most its burst and is refilled at its rate; each event takes one token. It never blocks
//! and never reads a clock. Full buckets are dropped, so keys that come and go use no memory.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// The number of buckets above which full ones are dropped.
const MAX_BUCKETS: usize = 1024;

/// A sustained rate and a burst.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateLimit {
    /// The sustained rate, in events per second; at least one.
    pub per_second: u32,
    /// The maximum burst, in events.
    pub burst: u32,
}

/// The token buckets by key.
#[derive(Debug)]
pub struct RateLimiter<K> {
    /// The time at which the bucket of a key is full again (generic cell rate algorithm).
    full_at: BTreeMap<K, Instant>,
}

impl<K> Default for RateLimiter<K> {
    fn default() -> Self {
        RateLimiter {
            full_at: BTreeMap::new(),
        }
    }
}

impl<K: Ord> RateLimiter<K> {
    /// Takes a token of this key. `now` must not decrease.
    ///
    /// # Errors
    /// The time until a token is available.
    pub fn try_acquire(&mut self, key: K, limit: RateLimit, now: Instant) -> Result<(), Duration> {
        if self.full_at.len() >= MAX_BUCKETS {
            self.full_at.retain(|_, full_at| *full_at > now);
        }
        let interval = Duration::from_secs(1) / limit.per_second.max(1);
        let full_at = self.full_at.entry(key).or_insert(now);
        let after = (*full_at).max(now) + interval;
        match (after - now).checked_sub(interval * limit.burst) {
            None | Some(Duration::ZERO) => {
                *full_at = after;
                Ok(())
            }
            Some(wait) => Err(wait),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::{Clock, SystemClock};

    const LIMIT: RateLimit = RateLimit {
        per_second: 10,
        burst: 3,
    };

    #[test]
    fn a_burst_then_the_rate_each_key_alone() {
        let start = SystemClock.monotonic();
        let at = |millis| start + Duration::from_millis(millis);
        let mut limiter = RateLimiter::default();
        let mut take = |key, millis| limiter.try_acquire(key, LIMIT, at(millis)).is_ok();
        let taken: Vec<bool> = (0..5).map(|_| take("a", 0)).collect();
        assert_eq!(taken, [true, true, true, false, false]);
        assert!(take("b", 0), "another key");
        assert!(!take("a", 50), "half a token");
        assert!(take("a", 100));
        assert!(!take("a", 100));
        let taken = (0..5).filter(|_| take("a", 60_000)).count();
        assert_eq!(taken, 3, "no more than the burst after a long time");
        let wait = limiter.try_acquire("a", LIMIT, at(60_000)).unwrap_err();
        assert_eq!(wait, Duration::from_millis(100));
    }

    #[test]
    fn what_is_rejected_takes_no_token() {
        let start = SystemClock.monotonic();
        let mut limiter = RateLimiter::default();
        let mut passed = BTreeMap::new();
        for step in 0..3_000u64 {
            // Three seconds in steps of a millisecond; "b" comes only five times per second.
            let now = start + Duration::from_millis(step);
            for key in ["a", "b"] {
                let comes = key == "a" || step % 200 == 0;
                if comes && limiter.try_acquire(key, LIMIT, now).is_ok() {
                    *passed.entry(key).or_insert(0u64) += 1;
                }
            }
        }
        assert_eq!(passed["b"], 15);
        assert!((31..=34).contains(&passed["a"]), "{passed:?}");
    }

    #[test]
    fn full_buckets_are_forgotten() {
        let start = SystemClock.monotonic();
        let mut limiter = RateLimiter::default();
        for key in 0..MAX_BUCKETS as u64 * 3 {
            let now = start + Duration::from_secs(key);
            limiter.try_acquire(key, LIMIT, now).unwrap();
        }
        assert!(limiter.full_at.len() <= MAX_BUCKETS);
    }
}
