//! The clock of the benches: it runs, and can be stopped while what is not measured is done.

use std::cell::Cell;
use std::time::{Duration, Instant};

#[allow(
    clippy::disallowed_methods,
    reason = "a bench measures real time; this is its only clock"
)]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// Runs from when it is made, but for the time spent in [`Stopwatch::apart`].
pub(crate) struct Stopwatch {
    began: Instant,
    apart: Cell<Duration>,
}

impl Stopwatch {
    /// Starts.
    pub(crate) fn start() -> Self {
        Stopwatch {
            began: now(),
            apart: Cell::new(Duration::ZERO),
        }
    }

    /// Does something that is not measured.
    pub(crate) fn exclude<T>(&self, work: impl FnOnce() -> T) -> T {
        let began = now();
        let done = work();
        self.apart.set(self.apart.get() + began.elapsed());
        done
    }

    /// What was measured so far.
    pub(crate) fn elapsed(&self) -> Duration {
        self.began.elapsed().saturating_sub(self.apart.get())
    }
}
