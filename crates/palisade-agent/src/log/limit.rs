//! How often the same message is written, and how many of it were not.
//!
//! The same message is the same words of the same component at the same level; fields do not count,
//! or a message that names a duration would never be the same again. Promises: everything left out
//! is counted exactly once, in memory that is bounded.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use tracing::Level;

/// How many of one message are written in one window.
pub(super) const FIRST: u32 = 20;

/// How long a window is; it begins with the first message.
pub(super) const WINDOW: Duration = Duration::from_secs(60);

/// Messages told apart at once; more of them count as one.
const MESSAGES: usize = 1024;

/// What makes messages the same.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Message {
    pub(super) level: Level,
    pub(super) component: &'static str,
    pub(super) text: String,
}

/// What becomes of a message.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Taken {
    /// It is written, after the count of those left out in the window that has ended.
    Write { left_out: u64 },
    /// It is counted; whether as the first of its window.
    LeaveOut { first: bool },
}

struct Window {
    began: Instant,
    written: u32,
    left_out: u64,
}

/// The windows that are open.
#[derive(Default)]
pub(super) struct Limiter {
    windows: BTreeMap<Message, Window>,
}

impl Limiter {
    /// Takes in a message.
    pub(super) fn take(&mut self, message: &Message, now: Instant) -> Taken {
        if !self.windows.contains_key(message) && self.windows.len() >= MESSAGES {
            self.windows
                .retain(|_, window| window.left_out > 0 || now < window.began + WINDOW);
        }
        let full = !self.windows.contains_key(message) && self.windows.len() >= MESSAGES;
        let shared;
        let message = match full {
            true => {
                shared = Message {
                    level: Level::WARN,
                    component: "log",
                    text: "too many different messages".to_owned(),
                };
                &shared
            }
            false => message,
        };
        let fresh = Window {
            began: now,
            written: 0,
            left_out: 0,
        };
        let window = self.windows.entry(message.clone()).or_insert(fresh);
        let mut left_out = 0;
        if now >= window.began + WINDOW {
            left_out = window.left_out;
            *window = Window {
                began: now,
                written: 0,
                left_out: 0,
            };
        }
        if window.written < FIRST {
            window.written += 1;
            return Taken::Write { left_out };
        }
        window.left_out += 1;
        let first = window.left_out == 1;
        Taken::LeaveOut { first }
    }

    /// When the next window ends in which something was left out.
    pub(super) fn next_end(&self) -> Option<Instant> {
        let open = self.windows.values().filter(|window| window.left_out > 0);
        open.map(|window| window.began + WINDOW).min()
    }

    /// Closes the windows that have ended; what was left out in them.
    pub(super) fn take_ended(&mut self, now: Instant) -> Vec<(Message, u64)> {
        self.close(|window| now >= window.began + WINDOW)
    }

    /// Closes all windows; what was left out in them.
    pub(super) fn take_all(&mut self) -> Vec<(Message, u64)> {
        self.close(|_| true)
    }

    fn close(&mut self, ends: impl Fn(&Window) -> bool) -> Vec<(Message, u64)> {
        let mut left_out = Vec::new();
        self.windows.retain(|message, window| {
            let ends = ends(window);
            if ends && window.left_out > 0 {
                left_out.push((message.clone(), window.left_out));
            }
            !ends
        });
        left_out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::{Clock, SystemClock};

    #[test]
    fn memory_is_bounded_and_everything_left_out_is_counted() {
        let mut limiter = Limiter::default();
        let zero = SystemClock.monotonic();
        let message = |n: usize| Message {
            level: Level::INFO,
            component: "x",
            text: n.to_string(),
        };
        let mut written = 0;
        let count = MESSAGES + 100;
        for n in 0..count {
            if matches!(limiter.take(&message(n), zero), Taken::Write { .. }) {
                written += 1;
            }
        }
        assert_eq!(limiter.windows.len(), MESSAGES + 1);
        assert_eq!(written, MESSAGES + FIRST as usize);
        assert_eq!(limiter.next_end(), Some(zero + WINDOW));
        let left_out: u64 = limiter
            .take_ended(zero + WINDOW)
            .iter()
            .map(|(_, n)| n)
            .sum();
        assert_eq!(left_out as usize, count - written);
        assert_eq!((limiter.windows.len(), limiter.next_end()), (0, None));
    }
}
