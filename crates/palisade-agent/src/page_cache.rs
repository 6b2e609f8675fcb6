//! Pages that many ask for, made once for all of them.
//!
//! Promises: however often a page is asked for, it is made at most once a second while nothing
//! changes, and after a change so seldom that making it takes a twentieth of the core's time at most;
//! whoever asks after a change was handed to the core sees it. Packets are counted as of the last
//! second. Never: asks the core twice at a time for one page.

use crate::core::Core;
use crate::core_queue::{CoreHandle, CoreUnavailable};
use crate::http::OperationClass;
use crate::metrics::exposition::Exposition;
use palisade_api::Status;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Mutex;
use tokio::time::Instant;

/// How old a page may be while nothing changes.
pub(crate) const MAX_PAGE_AGE: Duration = Duration::from_secs(1);
/// The least time between two, while something changes.
const MIN_PAGE_INTERVAL: Duration = Duration::from_millis(20);
/// How many times as long as making a page took it is not made again.
const REBUILD_FACTOR: u32 = 20;

/// The pages.
#[derive(Default)]
pub(crate) struct PageCaches {
    status: PageCache<Status>,
    metrics: PageCache<Exposition>,
}

struct PageCache<T>(Mutex<Option<CachedPage<T>>>);

impl<T> Default for PageCache<T> {
    fn default() -> Self {
        PageCache(Mutex::new(None))
    }
}

struct CachedPage<T> {
    page: Arc<T>,
    change_counter: u64,
    built_at: Instant,
    min_age: Duration,
}

impl<T: Send + Sync + 'static> PageCache<T> {
    async fn get(
        &self,
        core: &CoreHandle,
        build: fn(&mut Core) -> T,
    ) -> Result<Arc<T>, CoreUnavailable> {
        // All who wait here take what the first of them gets.
        let mut cached = self.0.lock().await;
        if let Some(current) = &*cached {
            if current.change_counter == core.change_counter()
                && current.built_at.elapsed() < MAX_PAGE_AGE
            {
                return Ok(Arc::clone(&current.page));
            }
            tokio::time::sleep_until(current.built_at + current.min_age).await;
        }
        // Whatever is handed in from here on may be missing on the page.
        let changes = core.change_counter();
        let timed = move |core: &mut Core| {
            let began = core.clock.monotonic();
            let page = build(core);
            (page, core.clock.monotonic() - began)
        };
        let (page, took) = core.ask_for_client(OperationClass::Read, timed).await?;
        let page = Arc::new(page);
        *cached = Some(CachedPage {
            page: Arc::clone(&page),
            change_counter: changes,
            built_at: Instant::now(),
            min_age: (took * REBUILD_FACTOR).clamp(MIN_PAGE_INTERVAL, MAX_PAGE_AGE),
        });
        Ok(page)
    }
}

impl CoreHandle {
    /// `GET /v1/status`.
    ///
    /// # Errors
    /// If the core does not answer.
    pub async fn status(&self) -> Result<Arc<Status>, CoreUnavailable> {
        self.page_cache.status.get(self, Core::status).await
    }

    /// `GET /metrics`, but for what the API counts itself.
    ///
    /// # Errors
    /// If the core does not answer.
    pub async fn metrics(&self) -> Result<Arc<Exposition>, CoreUnavailable> {
        self.page_cache
            .metrics
            .get(self, Core::collect_metrics)
            .await
    }
}
