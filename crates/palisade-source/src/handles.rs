//! Handles that change settings while sources run.

use palisade_effective::ElementBudget;
use palisade_sys::watch::Waker;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Makes a source report soon, even without a change.
#[derive(Clone, Debug)]
pub struct RefreshHandle {
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
    pub fn refresh(&self) {
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
