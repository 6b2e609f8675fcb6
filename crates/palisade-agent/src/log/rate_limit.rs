//! Rate limit of repeated log messages.
//!
//! Messages are the same if text, component and level are equal; fields are ignored, since a message
//! with a duration would never repeat otherwise. Every suppressed message is counted exactly once, in
//! bounded memory.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use tracing::Level;

/// The maximum number of equal messages that are written per window.
pub(super) const MAX_PER_WINDOW: u32 = 20;

/// The length of a window; it begins with the first message.
pub(super) const WINDOW: Duration = Duration::from_secs(60);

/// The maximum number of open windows; further messages share one.
const MAX_WINDOWS: usize = 1024;

/// The identity of a message.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct LogMessage {
    pub(super) level: Level,
    pub(super) component: &'static str,
    pub(super) text: String,
}

/// The decision for a message.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum LogDecision {
    /// Write it, after the number of messages suppressed in the last window.
    Write { suppressed: u64 },
    /// Count it; `first` for the first one in its window.
    Suppress { first: bool },
}

struct SuppressionWindow {
    began: Instant,
    written: u32,
    suppressed: u64,
}

/// The open windows.
#[derive(Default)]
pub(super) struct LogLimiter {
    windows: BTreeMap<LogMessage, SuppressionWindow>,
}

impl LogLimiter {
    /// Decides about a message.
    pub(super) fn admit(&mut self, message: &LogMessage, now: Instant) -> LogDecision {
        if !self.windows.contains_key(message) && self.windows.len() >= MAX_WINDOWS {
            self.windows
                .retain(|_, window| window.suppressed > 0 || now < window.began + WINDOW);
        }
        let full = !self.windows.contains_key(message) && self.windows.len() >= MAX_WINDOWS;
        let overflow;
        let message = if full {
            overflow = LogMessage {
                level: Level::WARN,
                component: "log",
                text: "too many different messages".to_owned(),
            };
            &overflow
        } else {
            message
        };
        let fresh = SuppressionWindow {
            began: now,
            written: 0,
            suppressed: 0,
        };
        let window = self.windows.entry(message.clone()).or_insert(fresh);
        let mut suppressed = 0;
        if now >= window.began + WINDOW {
            suppressed = window.suppressed;
            *window = SuppressionWindow {
                began: now,
                written: 0,
                suppressed: 0,
            };
        }
        if window.written < MAX_PER_WINDOW {
            window.written += 1;
            return LogDecision::Write { suppressed };
        }
        window.suppressed += 1;
        let first = window.suppressed == 1;
        LogDecision::Suppress { first }
    }

    /// The end of the next window with suppressed messages.
    pub(super) fn next_window_end(&self) -> Option<Instant> {
        let open = self.windows.values().filter(|window| window.suppressed > 0);
        open.map(|window| window.began + WINDOW).min()
    }

    /// Closes the windows that have ended; returns their suppressed messages.
    pub(super) fn take_ended(&mut self, now: Instant) -> Vec<(LogMessage, u64)> {
        self.close(|window| now >= window.began + WINDOW)
    }

    /// Closes all windows; returns their suppressed messages.
    pub(super) fn take_all(&mut self) -> Vec<(LogMessage, u64)> {
        self.close(|_| true)
    }

    fn close(&mut self, ends: impl Fn(&SuppressionWindow) -> bool) -> Vec<(LogMessage, u64)> {
        let mut suppressed = Vec::new();
        self.windows.retain(|message, window| {
            let ends = ends(window);
            if ends && window.suppressed > 0 {
                suppressed.push((message.clone(), window.suppressed));
            }
            !ends
        });
        suppressed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use palisade_node::clock::{Clock, SystemClock};

    #[test]
    fn memory_is_bounded_and_everything_left_out_is_counted() {
        let mut limiter = LogLimiter::default();
        let zero = SystemClock.monotonic();
        let message = |n: usize| LogMessage {
            level: Level::INFO,
            component: "x",
            text: n.to_string(),
        };
        let mut written = 0;
        let count = MAX_WINDOWS + 100;
        for n in 0..count {
            if matches!(limiter.admit(&message(n), zero), LogDecision::Write { .. }) {
                written += 1;
            }
        }
        assert_eq!(limiter.windows.len(), MAX_WINDOWS + 1);
        assert_eq!(written, MAX_WINDOWS + MAX_PER_WINDOW as usize);
        assert_eq!(limiter.next_window_end(), Some(zero + WINDOW));
        let left_out: u64 = limiter
            .take_ended(zero + WINDOW)
            .iter()
            .map(|(_, n)| n)
            .sum();
        assert_eq!(left_out as usize, count - written);
        assert_eq!(
            (limiter.windows.len(), limiter.next_window_end()),
            (0, None)
        );
    }
}
