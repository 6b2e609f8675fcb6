//! The time since the proxy started.
//!
//! Promises: never goes back; stands still where a test says so.
//!
//! Never: is the time of day.

use std::time::Duration;
use tokio::time::Instant;

/// Counts milliseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProxyClock(Instant);

impl ProxyClock {
    /// A clock that starts now.
    pub(crate) fn start() -> Self {
        ProxyClock(Instant::now())
    }

    /// The time since the start.
    pub(crate) fn elapsed(self) -> Duration {
        self.0.elapsed()
    }

    /// Milliseconds since the start.
    pub(crate) fn now(self) -> u64 {
        u64::try_from(self.0.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}
