//! When to retry what failed: with delays that double up to a maximum.

use std::time::{Duration, Instant};

/// The first and the maximum delay before a retry.
const RETRY_BACKOFF: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(10));
/// When to retry; every retry doubles the delay, up to a maximum.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RetryTimer(Option<(Instant, Duration)>);

impl RetryTimer {
    /// When the retry is due.
    pub(crate) fn due(self) -> Option<Instant> {
        self.0.map(|(at, _)| at)
    }

    /// Schedules a retry with a doubled delay; returns the delay.
    pub(crate) fn schedule(&mut self, now: Instant) -> Duration {
        let doubled = |(_, wait): (Instant, Duration)| (wait * 2).min(RETRY_BACKOFF.1);
        let wait = self.0.map_or(RETRY_BACKOFF.0, doubled);
        self.0 = Some((now + wait, wait));
        wait
    }

    /// Schedules a retry, unless one is scheduled already.
    pub(crate) fn ensure(&mut self, now: Instant) {
        if self.0.is_none() {
            self.schedule(now);
        }
    }

    /// Nothing has to be retried.
    pub(crate) fn clear(&mut self) {
        self.0 = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::{Clock, SystemClock};

    #[test]
    fn a_retry_waits_longer_each_time_and_starts_anew_once_cleared() {
        let now = SystemClock.monotonic();
        let mut timer = RetryTimer::default();
        assert_eq!(timer.due(), None);
        let waits = [100, 200, 400, 800, 1_600, 3_200, 6_400, 10_000, 10_000];
        for millis in waits {
            let wait = Duration::from_millis(millis);
            assert_eq!(timer.schedule(now), wait);
            timer.ensure(now + wait);
            assert_eq!(timer.due(), Some(now + wait));
        }
        timer.clear();
        assert_eq!(timer.due(), None);
        timer.ensure(now);
        assert_eq!(timer.due(), Some(now + RETRY_BACKOFF.0));
    }
}
