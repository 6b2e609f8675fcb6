//! The policy of this host after the last change: one state, written by the core and read by every other thread.
//!
//! The core changes it between two flushes ([`SharedPolicy::write`]); while it writes to the kernel it holds no lock, so
//! readers judge packets and explain flows meanwhile. A [`PolicyGuard`] is one state: nothing in it changes as long as
//! the guard exists. A writer has precedence over readers that come later.
//!
//! One locked state, not a copy for each flush: a copy of tables and names costs memory and time with the size of the
//! cluster, the lock costs a change at most what one reader does under it.
//!
//! Promises: tables, names and history belong to one revision. Never: read or written across a wait for the kernel, a
//! file or a client.

use crate::flush_history::FlushHistory;
use palisade_engine::Engine;
use palisade_model::{EndpointId, Str};
use palisade_tables::{PastTables, Tables};
use std::net::IpAddr;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Condvar, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

/// The label of closed interfaces.
pub const CLOSED_LABEL: &str = "reserved:closed";

/// What the enforcer computes and has written.
pub struct PolicyState {
    /// The objects, and the tables computed from them.
    pub engine: Engine,
    /// What recent flushes replaced.
    pub(crate) history: FlushHistory,
    /// The revision that the kernel enforces.
    pub realised_revision: u64,
}

impl PolicyState {
    /// The tables, which the kernel holds unless a flush is in progress or has failed.
    pub fn tables(&self) -> &Tables {
        self.engine.tables()
    }

    /// Whether the kernel holds the tables: no write is in progress, and none has failed.
    pub fn is_realised(&self) -> bool {
        !self.history.is_flush_in_progress()
    }

    /// The states of the tables that may have evaluated a packet at a time, the most likely first, with their
    /// revision and whether they are past.
    pub fn states_at(&self, at: Duration) -> Vec<(PastTables<'_>, u64, bool)> {
        let revision = if self.history.is_flush_in_progress() {
            self.engine.revision()
        } else {
            self.realised_revision
        };
        self.history.states_at(self.tables(), revision, at)
    }

    /// The holder of an address at a time.
    pub fn address_holder(&self, address: IpAddr, at: Duration) -> Option<EndpointId> {
        self.history.address_holder(&self.engine, address, at)
    }

    /// Whether an endpoint released an address a short time ago: its holder depends on the time.
    pub fn was_released(&self, address: IpAddr) -> bool {
        self.history.was_released(address)
    }

    /// The workload of an interface of this host.
    pub fn workload_at(&self, interface: &Str) -> Option<EndpointId> {
        let mut endpoints = self.engine.local_endpoints();
        let endpoint = endpoints.find(|endpoint| {
            !endpoint.is_host()
                && endpoint.interface.as_ref() == Some(interface)
                && endpoint.labels.get(CLOSED_LABEL).is_none()
        })?;
        Some(endpoint.id.clone())
    }
}

/// The state that the core shares.
#[derive(Clone)]
pub struct SharedPolicy {
    state: Arc<RwLock<PolicyState>>,
    writes: Arc<PolicyWrites>,
}

/// How often the kernel's policy was changed, for those who wait for it.
#[derive(Default)]
struct PolicyWrites {
    count: Mutex<u64>,
    is_changed: Condvar,
}

impl SharedPolicy {
    /// The state of this engine, with nothing in the kernel.
    pub(crate) fn new(engine: Engine) -> Self {
        SharedPolicy {
            state: Arc::new(RwLock::new(PolicyState {
                engine,
                history: FlushHistory::default(),
                realised_revision: 0,
            })),
            writes: Arc::default(),
        }
    }

    /// Waits until the kernel's policy has been changed more often than this; how often it was.
    pub fn wait_for_write(&self, known: u64) -> u64 {
        let writes = &self.writes;
        let count = writes.count.lock().unwrap_or_else(PoisonError::into_inner);
        let changed = writes.is_changed.wait_while(count, |count| *count <= known);
        *changed.unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes those who wait for a change of the kernel's policy.
    pub(crate) fn announce_write(&self) {
        let count = self.writes.count.lock();
        *count.unwrap_or_else(PoisonError::into_inner) += 1;
        self.writes.is_changed.notify_all();
    }

    /// The present state; blocks while the core changes it.
    pub fn read(&self) -> PolicyGuard<'_> {
        PolicyGuard(self.state.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// The state, to be changed by the core. Blocks until every reader is done.
    pub fn write(&self) -> impl DerefMut<Target = PolicyState> + use<'_> {
        let guard: RwLockWriteGuard<'_, PolicyState> =
            self.state.write().unwrap_or_else(PoisonError::into_inner);
        guard
    }
}

/// One state, which does not change while this exists.
pub struct PolicyGuard<'a>(RwLockReadGuard<'a, PolicyState>);

impl Deref for PolicyGuard<'_> {
    type Target = PolicyState;

    fn deref(&self) -> &PolicyState {
        &self.0
    }
}
