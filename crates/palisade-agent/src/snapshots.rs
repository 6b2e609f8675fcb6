//! Pages that many ask for, made once for all of them.
//!
//! Promises: however often a page is asked for, it is made at most once a second while nothing
//! changes, and after a change so seldom that making it takes a twentieth of the core's time at most;
//! whoever asks after a change was handed to the core sees it. Packets are counted as of the last
//! second. Never: asks the core twice at a time for one page.

use crate::core::Core;
use crate::http::Lane;
use crate::metrics::exposition::Exposition;
use crate::queue::{Handle, Unanswered};
use palisade_api::Status;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Mutex;
use tokio::time::Instant;

/// How old a page may be while nothing changes.
pub(crate) const LONGEST: Duration = Duration::from_secs(1);
/// The least time between two, while something changes.
const SHORTEST: Duration = Duration::from_millis(20);
/// How many times as long as making a page took it is not made again.
const REST: u32 = 20;

/// The pages.
#[derive(Default)]
pub(crate) struct Snapshots {
    status: Page<Status>,
    figures: Page<Exposition>,
}

struct Page<T>(Mutex<Option<Made<T>>>);

impl<T> Default for Page<T> {
    fn default() -> Self {
        Page(Mutex::new(None))
    }
}

struct Made<T> {
    page: Arc<T>,
    changes: u64,
    at: Instant,
    rest: Duration,
}

impl<T: Send + Sync + 'static> Page<T> {
    async fn get(&self, core: &Handle, make: fn(&mut Core) -> T) -> Result<Arc<T>, Unanswered> {
        // All who wait here take what the first of them gets.
        let mut made = self.0.lock().await;
        if let Some(made) = &*made {
            if made.changes == core.changes() && made.at.elapsed() < LONGEST {
                return Ok(Arc::clone(&made.page));
            }
            tokio::time::sleep_until(made.at + made.rest).await;
        }
        // Whatever is handed in from here on may be missing on the page.
        let changes = core.changes();
        let timed = move |core: &mut Core| {
            let began = core.clock.monotonic();
            let page = make(core);
            (page, core.clock.monotonic() - began)
        };
        let (page, took) = core.ask_for(Lane::Read, timed).await?;
        let page = Arc::new(page);
        *made = Some(Made {
            page: Arc::clone(&page),
            changes,
            at: Instant::now(),
            rest: (took * REST).clamp(SHORTEST, LONGEST),
        });
        Ok(page)
    }
}

impl Handle {
    /// `GET /v1/status`.
    ///
    /// # Errors
    /// If the core does not answer.
    pub async fn status(&self) -> Result<Arc<Status>, Unanswered> {
        self.snapshots.status.get(self, Core::status).await
    }

    /// `GET /metrics`, but for what the API counts itself.
    ///
    /// # Errors
    /// If the core does not answer.
    pub async fn figures(&self) -> Result<Arc<Exposition>, Unanswered> {
        self.snapshots.figures.get(self, Core::figures).await
    }
}
