//! The only module that reads the clock.

use jiff::{SignedDuration, Timestamp};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// A clock; tests use their own.
pub trait Clock: Send + Sync {
    /// Time since 1970-01-01 UTC.
    fn wall(&self) -> Duration;
    /// Monotonic time.
    fn monotonic(&self) -> Instant;
}

/// The system clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[allow(
        clippy::disallowed_methods,
        reason = "the only clock; all other code gets it passed"
    )]
    fn wall(&self) -> Duration {
        SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default()
    }

    #[allow(
        clippy::disallowed_methods,
        reason = "the only clock; all other code gets it passed"
    )]
    fn monotonic(&self) -> Instant {
        Instant::now()
    }
}

/// A duration in milliseconds, for display.
pub fn millis(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 1_000_000.0).round() / 1_000.0
}

/// A time since 1970 as RFC 3339 in UTC, to the microsecond.
pub fn rfc3339_micros(since_1970: Duration) -> String {
    format!("{:.6}", timestamp(since_1970))
}

/// A time since 1970 as RFC 3339 in UTC, to the second.
pub fn rfc3339(since_1970: Duration) -> String {
    format!("{:.0}", timestamp(since_1970))
}

/// A time after the year 9999 is that year's end.
fn timestamp(since_1970: Duration) -> Timestamp {
    let since = SignedDuration::try_from(since_1970);
    since
        .and_then(Timestamp::from_duration)
        .unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_795_246_325, "2026-11-21T07:32:05Z"),
            (4_102_444_799, "2099-12-31T23:59:59Z"),
        ] {
            assert_eq!(rfc3339(Duration::from_secs(seconds)), text);
        }
        let half = Duration::from_millis(1_500);
        assert_eq!(rfc3339(half), "1970-01-01T00:00:01Z", "cut, not rounded");
        assert_eq!(&rfc3339(Duration::MAX)[..4], "9999");
        let text = "1970-01-01T00:00:01.000042Z";
        assert_eq!(rfc3339_micros(Duration::from_micros(1_000_042)), text);
    }
}
