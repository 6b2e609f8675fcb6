//! Handles that change settings while sources run.

use palisade_effective::ElementBudget;
use palisade_sys::watch::Waker;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

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
pub struct ElementBudgetHandle {
    amounts: Arc<(AtomicU64, AtomicU64)>,
}

impl ElementBudgetHandle {
    pub(crate) fn new(budget: ElementBudget) -> Self {
        let handle = ElementBudgetHandle {
            amounts: Arc::default(),
        };
        handle.set(budget);
        handle
    }

    /// Sets the element budget; returns whether it changed.
    pub fn set(&self, budget: ElementBudget) -> bool {
        if self.get() == budget {
            return false;
        }
        self.amounts.0.store(budget.set as u64, Ordering::Relaxed);
        self.amounts.1.store(budget.host as u64, Ordering::Release);
        true
    }

    pub(crate) fn get(&self) -> ElementBudget {
        let host = self.amounts.1.load(Ordering::Acquire);
        let amount = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
        ElementBudget {
            set: amount(self.amounts.0.load(Ordering::Relaxed)),
            host: amount(host),
        }
    }
}
