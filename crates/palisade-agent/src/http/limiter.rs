//! How often somebody may ask: a bucket of tokens for each user and lane.
//!
//! A bucket holds at most its burst and fills at its rate; a request takes one. It never waits and
//! never reads a clock. It remembers only buckets that are not full, so users that come and go cost
//! nothing.

use super::Lane;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// How many buckets are remembered before the full ones are dropped.
const REMEMBERED: usize = 1024;

/// How fast, and how much at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// Requests a second in the long run.
    pub per_second: u32,
    /// Requests at once.
    pub burst: u32,
}

#[derive(Clone, Copy, Debug)]
struct Bucket {
    tokens: f64,
    at: Instant,
}

impl Bucket {
    fn filled(self, rate: Rate, now: Instant) -> f64 {
        let gained =
            now.saturating_duration_since(self.at).as_secs_f64() * f64::from(rate.per_second);
        (self.tokens + gained).min(f64::from(rate.burst))
    }
}

/// The buckets.
#[derive(Debug, Default)]
pub struct Limiter {
    buckets: BTreeMap<(Lane, u32), Bucket>,
}

impl Limiter {
    /// Takes a token of this user; otherwise says how long until there is one.
    ///
    /// # Errors
    /// The time until the next request is taken.
    pub fn take(&mut self, lane: Lane, uid: u32, rate: Rate, now: Instant) -> Result<(), Duration> {
        if self.buckets.len() >= REMEMBERED {
            self.buckets
                .retain(|_, bucket| bucket.filled(rate, now) < f64::from(rate.burst));
        }
        let bucket = self.buckets.entry((lane, uid)).or_insert(Bucket {
            tokens: f64::from(rate.burst),
            at: now,
        });
        let tokens = bucket.filled(rate, now);
        *bucket = Bucket { tokens, at: now };
        if tokens >= 1.0 {
            bucket.tokens -= 1.0;
            return Ok(());
        }
        let missing = (1.0 - tokens) / f64::from(rate.per_second.max(1));
        Err(Duration::from_secs_f64(missing))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[allow(
        clippy::disallowed_methods,
        reason = "an arbitrary point to count from"
    )]
    fn a_burst_then_the_rate_each_user_and_lane_alone() {
        let rate = Rate {
            per_second: 10,
            burst: 3,
        };
        let start = Instant::now();
        let at = |millis| start + Duration::from_millis(millis);
        let mut limiter = Limiter::default();
        let mut take = |lane, uid, millis| limiter.take(lane, uid, rate, at(millis)).is_ok();
        let taken: Vec<bool> = (0..5).map(|_| take(Lane::Read, 7, 0)).collect();
        assert_eq!(taken, [true, true, true, false, false]);
        assert!(take(Lane::Read, 8, 0), "another user");
        assert!(take(Lane::Runtime, 7, 0), "another lane");
        assert!(!take(Lane::Read, 7, 50), "half a token");
        assert!(take(Lane::Read, 7, 100));
        assert!(!take(Lane::Read, 7, 100));
        let taken = (0..5).filter(|_| take(Lane::Read, 7, 60_000)).count();
        assert_eq!(taken, 3, "no more than the burst after a long time");
        let wait = limiter.take(Lane::Read, 7, rate, at(60_000)).unwrap_err();
        assert_eq!(wait, Duration::from_millis(100));
    }

    #[test]
    #[allow(
        clippy::disallowed_methods,
        reason = "an arbitrary point to count from"
    )]
    fn full_buckets_are_forgotten() {
        let rate = Rate {
            per_second: 10,
            burst: 3,
        };
        let start = Instant::now();
        let mut limiter = Limiter::default();
        for uid in 0..5_000 {
            let now = start + Duration::from_secs(uid.into());
            limiter.take(Lane::Read, uid, rate, now).unwrap();
        }
        assert!(limiter.buckets.len() <= REMEMBERED);
    }
}
