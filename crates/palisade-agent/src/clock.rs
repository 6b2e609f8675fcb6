//! The only module that reads the clock.

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
    let seconds = rfc3339(since_1970);
    let micros = since_1970.subsec_micros();
    format!("{}.{micros:06}Z", seconds.trim_end_matches('Z'))
}

/// A time since 1970 as RFC 3339 in UTC, to the second.
pub fn rfc3339(since_1970: Duration) -> String {
    let seconds = since_1970.as_secs();
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = civil_date(days);
    format!(
        "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z",
        rest / 3600,
        rest / 60 % 60,
        rest % 60
    )
}

/// The date of a day since 1970, computed in 400-year cycles that begin on 1 March.
fn civil_date(days: u64) -> (u64, u64, u64) {
    let shifted = days + 719_468;
    let (era, of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let day_of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_index = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_index + 2) / 5 + 1;
    let month = if month_index < 10 {
        month_index + 3
    } else {
        month_index - 9
    };
    (year_of_era + era * 400 + u64::from(month <= 2), month, day)
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
        let text = "1970-01-01T00:00:01.000042Z";
        assert_eq!(rfc3339_micros(Duration::from_micros(1_000_042)), text);
    }
}
