//! Following a server: what is done while its next event is awaited, and between two connections.

use crate::progress::{RemoteObjects, RemoteProgress};
use crate::remote_changes::RemoteChanges;
use palisade_source::{Backoff, DeltaSink};
use rand::SeedableRng;
use rand::rngs::SmallRng;
use std::future::Future;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};
use tokio::sync::Notify;
use tokio::time::Interval;

/// The interval at which the snapshot takes note that the server is followed.
const MARK_INTERVAL: Duration = Duration::from_secs(60);

/// What a [`crate::Remote`] follows its server with. Everything of it breaks when nobody receives the changes.
pub struct Follower<'a, O> {
    /// What was received and what was passed on.
    pub progress: &'a mut RemoteProgress<O>,
    /// The delays between attempts to connect.
    pub backoff: Backoff,
    /// For delays.
    pub random: SmallRng,
    sink: DeltaSink<'a>,
    refresh: &'a Notify,
    marks: Interval,
}

impl<'a, O: RemoteObjects> Follower<'a, O> {
    pub(crate) fn new(
        progress: &'a mut RemoteProgress<O>,
        refresh: &'a Notify,
        sink: DeltaSink<'a>,
    ) -> Self {
        Follower {
            progress,
            backoff: Backoff::default(),
            random: SmallRng::from_rng(&mut rand::rng()),
            sink,
            refresh,
            marks: tokio::time::interval(MARK_INTERVAL),
        }
    }

    /// The progress, and who receives changes.
    pub fn split(&mut self) -> (&mut RemoteProgress<O>, DeltaSink<'_>) {
        (self.progress, self.sink)
    }

    /// Stores the changes, and passes them on.
    pub fn pass_on(
        &mut self,
        changes: RemoteChanges<O::Key>,
        detected_at: Option<Instant>,
    ) -> ControlFlow<()> {
        self.progress.pass_on(changes, detected_at, self.sink)
    }

    /// Waits for an event of the server that is followed. Meanwhile the snapshot takes note of that, and reports
    /// are made on request.
    pub async fn next<T>(&mut self, event: impl Future<Output = T>) -> ControlFlow<(), T> {
        tokio::pin!(event);
        loop {
            tokio::select! {
                event = &mut event => return ControlFlow::Continue(event),
                _ = self.marks.tick() => self.progress.keep_mark(),
                () = self.refresh.notified() => self.progress.pass_on_unchanged(self.sink)?,
            }
        }
    }

    /// Waits before the next attempt to connect. Meanwhile reports are made on request.
    pub async fn wait_for_retry(&mut self) -> ControlFlow<()> {
        let delay = tokio::time::sleep(self.backoff.next_delay(&mut self.random));
        tokio::pin!(delay);
        loop {
            tokio::select! {
                () = &mut delay => break,
                () = self.refresh.notified() => self.progress.pass_on_unchanged(self.sink)?,
            }
        }
        // The next connection begins with a mark.
        self.marks.reset_immediately();
        ControlFlow::Continue(())
    }
}
