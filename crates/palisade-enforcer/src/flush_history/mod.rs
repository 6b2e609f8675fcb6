//! What recent flushes replaced: the former tables, and the former holders of addresses.
//!
//! The enforcer records it, the monitor reads it to judge a packet by the tables and names of its time.
//! Bounded in time and memory. Never: knows more of the kernel than what was flushed; after a resync from
//! an unknown state it knows nothing of the past.

mod addresses;
mod tables;

use addresses::AddressHistory;
use palisade_engine::Engine;
use palisade_model::{EndpointId, Object, ObjectKey, Update};
use palisade_tables::{Delta, PastTables, Tables, UndoRecord};
use std::net::IpAddr;
use std::time::Duration;
use tables::TableHistory;

pub(crate) use tables::RETENTION;

/// The history of the flushes.
#[derive(Default)]
pub(crate) struct FlushHistory {
    tables: TableHistory,
    addresses: AddressHistory,
}

impl FlushHistory {
    /// Records what a flush that begins now replaces: a delta, and the tables written until now, if they
    /// are known.
    pub(crate) fn begin_flush(
        &mut self,
        now: Duration,
        revision: u64,
        delta: &Delta,
        before: Option<&Tables>,
    ) {
        let undo = before.map(|before| UndoRecord::new(delta, before));
        self.tables.begin_flush(now, revision, undo);
    }

    /// The flush that began last is in the kernel.
    pub(crate) fn end_flush(&mut self, now: Duration) {
        self.tables.end_flush(now);
    }

    /// Forgets past tables that no packet needs: nothing has been flushed for [`RETENTION`].
    pub(crate) fn forget_ended(&mut self) {
        self.tables.forget_ended();
    }

    /// Forgets past tables after a resync from an unknown state.
    pub(crate) fn clear(&mut self) {
        self.tables.clear();
    }

    /// Whether a flush is in progress: its tables are the present ones already.
    pub(crate) fn is_flush_in_progress(&self) -> bool {
        self.tables.is_flush_in_progress()
    }

    /// The tables before and after the flush that replaced this revision, if it is remembered.
    pub(crate) fn flush_of<'a>(
        &'a self,
        now: &'a Tables,
        replaced: u64,
    ) -> Option<(PastTables<'a>, PastTables<'a>)> {
        self.tables.flush_of(now, replaced)
    }

    /// Records the addresses that these updates of an engine release.
    pub(crate) fn record_released_addresses(
        &mut self,
        engine: &Engine,
        updates: &[Update],
        now: Duration,
    ) {
        for update in updates {
            let (id, remaining) = match update {
                Update::Upsert(Object::Endpoint(endpoint)) => {
                    (&endpoint.id, endpoint.addresses.as_slice())
                }
                Update::Delete(ObjectKey::Endpoint(id)) => (id, [].as_slice()),
                _ => continue,
            };
            let Some(old) = engine.endpoint(id) else {
                continue;
            };
            for address in old.addresses.iter().filter(|a| !remaining.contains(a)) {
                self.addresses.record_release(*address, id.clone(), now);
            }
        }
    }

    /// The states that may have evaluated a packet at a time, the most likely first, with their revision
    /// and whether they are past.
    pub(crate) fn states_at<'a>(
        &'a self,
        now: &'a Tables,
        revision: u64,
        at: Duration,
    ) -> Vec<(PastTables<'a>, u64, bool)> {
        self.tables.states_at(now, revision, at)
    }

    /// Whether the holder of an address depends on the time.
    pub(crate) fn was_released(&self, address: IpAddr) -> bool {
        self.addresses.was_released(address)
    }

    /// The holder of an address at a time: of those that released it since, else the present one, else
    /// the last one.
    pub(crate) fn address_holder(
        &self,
        engine: &Engine,
        address: IpAddr,
        at: Duration,
    ) -> Option<EndpointId> {
        let holder = self.addresses.holder_at(address, at).cloned();
        let holder = holder.or_else(|| engine.address_owner(address));
        holder.or_else(|| self.addresses.last_holder(address).cloned())
    }
}
