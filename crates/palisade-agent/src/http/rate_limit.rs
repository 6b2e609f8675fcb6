//! Rate limits: a token bucket for each user and operation class.
//!
//! A bucket holds at most its burst and is refilled at its rate; a request takes one token. It never
//! blocks and never reads a clock. Full buckets are dropped, so users that come and go use no memory.

use super::OperationClass;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// The number of buckets above which full ones are dropped.
const MAX_BUCKETS: usize = 1024;

/// A sustained rate and a burst.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestRate {
    /// The sustained rate, in requests per second.
    pub per_second: u32,
    /// The maximum burst, in requests.
    pub burst: u32,
}

#[derive(Clone, Copy, Debug)]
struct RequestBucket {
    tokens: f64,
    refilled_at: Instant,
}

impl RequestBucket {
    fn tokens_at(self, rate: RequestRate, now: Instant) -> f64 {
        let gained = now
            .saturating_duration_since(self.refilled_at)
            .as_secs_f64()
            * f64::from(rate.per_second);
        (self.tokens + gained).min(f64::from(rate.burst))
    }
}

/// The token buckets of all users.
#[derive(Debug, Default)]
pub struct RequestLimiter {
    buckets: BTreeMap<(OperationClass, u32), RequestBucket>,
}

impl RequestLimiter {
    /// Takes a token of this user.
    ///
    /// # Errors
    /// The time until a token is available.
    pub fn try_acquire(
        &mut self,
        lane: OperationClass,
        uid: u32,
        rate: RequestRate,
        now: Instant,
    ) -> Result<(), Duration> {
        if self.buckets.len() >= MAX_BUCKETS {
            self.buckets
                .retain(|_, bucket| bucket.tokens_at(rate, now) < f64::from(rate.burst));
        }
        let bucket = self.buckets.entry((lane, uid)).or_insert(RequestBucket {
            tokens: f64::from(rate.burst),
            refilled_at: now,
        });
        let tokens = bucket.tokens_at(rate, now);
        *bucket = RequestBucket {
            tokens,
            refilled_at: now,
        };
        if tokens >= 1.0 {
            bucket.tokens -= 1.0;
            return Ok(());
        }
        let wait = (1.0 - tokens) / f64::from(rate.per_second.max(1));
        Err(Duration::from_secs_f64(wait))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[allow(clippy::disallowed_methods, reason = "an arbitrary origin")]
    fn a_burst_then_the_rate_each_user_and_lane_alone() {
        let rate = RequestRate {
            per_second: 10,
            burst: 3,
        };
        let start = Instant::now();
        let at = |millis| start + Duration::from_millis(millis);
        let mut limiter = RequestLimiter::default();
        let mut take = |lane, uid, millis| limiter.try_acquire(lane, uid, rate, at(millis)).is_ok();
        let taken: Vec<bool> = (0..5).map(|_| take(OperationClass::Read, 7, 0)).collect();
        assert_eq!(taken, [true, true, true, false, false]);
        assert!(take(OperationClass::Read, 8, 0), "another user");
        assert!(take(OperationClass::Runtime, 7, 0), "another lane");
        assert!(!take(OperationClass::Read, 7, 50), "half a token");
        assert!(take(OperationClass::Read, 7, 100));
        assert!(!take(OperationClass::Read, 7, 100));
        let taken = (0..5)
            .filter(|_| take(OperationClass::Read, 7, 60_000))
            .count();
        assert_eq!(taken, 3, "no more than the burst after a long time");
        let wait = limiter
            .try_acquire(OperationClass::Read, 7, rate, at(60_000))
            .unwrap_err();
        assert_eq!(wait, Duration::from_millis(100));
    }

    #[test]
    #[allow(clippy::disallowed_methods, reason = "an arbitrary origin")]
    fn full_buckets_are_forgotten() {
        let rate = RequestRate {
            per_second: 10,
            burst: 3,
        };
        let start = Instant::now();
        let mut limiter = RequestLimiter::default();
        for uid in 0..5_000 {
            let now = start + Duration::from_secs(uid.into());
            limiter
                .try_acquire(OperationClass::Read, uid, rate, now)
                .unwrap();
        }
        assert!(limiter.buckets.len() <= MAX_BUCKETS);
    }
}
