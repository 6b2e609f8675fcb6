//! A cache of frequently requested responses.
//!
//! However often a page is requested, it is built at most once per second while nothing changes, and
//! after changes so rarely that building takes at most a twentieth of the core's time. A request made
//! after a change was queued for the core sees that change. Packet counters may be one second old. At
//! most one request per page is sent to the core at a time.

use palisade_api::Status;
use palisade_views::metrics::exposition::Exposition;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Mutex;
use tokio::time::Instant;

/// The maximum age of a page while nothing changes.
pub(crate) const MAX_PAGE_AGE: Duration = Duration::from_secs(1);
/// The minimum interval between two builds while something changes.
const MIN_PAGE_INTERVAL: Duration = Duration::from_millis(20);
/// A page is not rebuilt for this many times its build time.
const REBUILD_FACTOR: u32 = 20;

/// The cached pages.
#[derive(Default)]
pub(crate) struct PageCaches {
    pub(crate) status: PageCache<Status>,
    pub(crate) metrics: PageCache<Exposition>,
}

/// One page.
pub(crate) struct PageCache<T>(Mutex<Option<CachedPage<T>>>);

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
    /// The page, from the cache or built now; `build` gives it with the time that building it took.
    pub(crate) async fn get<E>(
        &self,
        change_counter: impl Fn() -> u64,
        build: impl Future<Output = Result<(T, Duration), E>>,
    ) -> Result<Arc<T>, E> {
        // Concurrent callers share the page that the first of them builds.
        let mut cached = self.0.lock().await;
        if let Some(current) = &*cached {
            if current.change_counter == change_counter()
                && current.built_at.elapsed() < MAX_PAGE_AGE
            {
                return Ok(Arc::clone(&current.page));
            }
            tokio::time::sleep_until(current.built_at + current.min_age).await;
        }
        // Changes after this point may be missing from the page.
        let changes = change_counter();
        let (page, took) = build.await?;
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
