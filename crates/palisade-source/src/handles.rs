//! Handles that end sources, or change settings while they run.

use palisade_effective::ElementBudget;
use palisade_sys::watch::Waker;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Ends a source, or makes it report, from another thread.
#[derive(Clone)]
pub struct SourceHandle {
    stop: Arc<dyn Fn() + Send + Sync>,
    refresh: Arc<dyn Fn() + Send + Sync>,
}

impl SourceHandle {
    /// A handle of a source that does this on request.
    pub fn new(
        stop: impl Fn() + Send + Sync + 'static,
        refresh: impl Fn() + Send + Sync + 'static,
    ) -> Self {
        SourceHandle {
            stop: Arc::new(stop),
            refresh: Arc::new(refresh),
        }
    }

    /// Makes [`crate::Source::run`] return soon.
    pub fn stop(&self) {
        (self.stop)();
    }

    /// Makes the source report soon, even without a change, and read again what could not be read.
    pub fn refresh(&self) {
        (self.refresh)();
    }
}

impl std::fmt::Debug for SourceHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SourceHandle").finish_non_exhaustive()
    }
}

/// Requests a report of a source.
#[derive(Clone, Debug)]
pub(crate) struct RefreshHandle {
    requested: Arc<AtomicBool>,
    waker: Option<Waker>,
}

impl RefreshHandle {
    pub(crate) fn new(waker: Option<Waker>) -> Self {
        RefreshHandle {
            requested: Arc::default(),
            waker,
        }
    }

    /// Requests a report.
    pub(crate) fn refresh(&self) {
        self.requested.store(true, Ordering::Release);
        if let Some(waker) = &self.waker {
            waker.wake();
        }
    }

    /// Whether a report was requested since the last call.
    pub(crate) fn take(&self) -> bool {
        self.requested.swap(false, Ordering::Acquire)
    }
}

/// Changes the element budget from another thread. It is effective when a source reports next.
#[derive(Clone, Debug)]
pub struct ElementBudgetHandle(Arc<Mutex<ElementBudget>>);

impl ElementBudgetHandle {
    pub(crate) fn new(budget: ElementBudget) -> Self {
        ElementBudgetHandle(Arc::new(Mutex::new(budget)))
    }

    /// Sets the element budget; returns whether it changed.
    pub fn set(&self, budget: ElementBudget) -> bool {
        std::mem::replace(&mut *self.lock(), budget) != budget
    }

    pub(crate) fn get(&self) -> ElementBudget {
        *self.lock()
    }

    fn lock(&self) -> MutexGuard<'_, ElementBudget> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
