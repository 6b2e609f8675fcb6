//! Changes that arrive together are passed on together. Never waits for long.

use std::future::Future;
use std::time::{Duration, Instant};

/// Changes are passed on once none arrived for so long.
const SETTLE: Duration = Duration::from_millis(5);
/// And at the latest after so long.
const MAX_DELAY: Duration = Duration::from_millis(50);
/// Or when there are so many.
pub const MAX_CHANGES: usize = 1_000;

/// The time within which changes belong to one batch.
#[derive(Clone, Copy, Debug)]
pub struct ChangeBatch {
    detected_at: tokio::time::Instant,
}

impl ChangeBatch {
    /// A batch whose first change was detected now.
    #[must_use]
    pub fn begin() -> Self {
        ChangeBatch {
            detected_at: tokio::time::Instant::now(),
        }
    }

    /// When the first change was detected.
    #[must_use]
    pub fn detected_at(self) -> Instant {
        self.detected_at.into_std()
    }

    /// The next event, if it arrives in time to belong to this batch.
    pub async fn next<T>(self, event: impl Future<Output = T>) -> Option<T> {
        let deadline = self.detected_at + MAX_DELAY;
        let settled = tokio::time::Instant::now() + SETTLE;
        let next = tokio::time::timeout_at(deadline.min(settled), event);
        next.await.ok()
    }
}
