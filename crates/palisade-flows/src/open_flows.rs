//! The flows that have begun and not ended, so that the end of a flow is not counted as another flow.
//!
//! Promises: bounded. A flow that had to be forgotten is remembered as a number: its end is not counted again.
//!
//! Never: keeps what a flow carried.

use crate::row::RowKey;
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use palisade_api::{FlowRecord, FlowState};
use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;

/// The greatest number of flows of each of the two generations, 48 bytes each: what fills a table of 32,768 places.
const MAX_OF_GENERATION: usize = 28_672;

/// Flows by the digest of their tuple, which is distributed well already.
type FlowMap = HashMap<u128, RowKey, FixedState>;

/// What distinguishes a flow from all others that are open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct FlowTuple {
    ends: [(IpAddr, Option<u16>); 2],
    sent_to: Option<(IpAddr, Option<u16>)>,
    protocol: u8,
    icmp: Option<(u8, u8)>,
}

impl FlowTuple {
    /// The tuple of a flow; `None` if an address is no address.
    pub(crate) fn of(record: &FlowRecord, protocol: u8) -> Option<Self> {
        let ends = [&record.source, &record.destination];
        let [source, destination] = ends.map(|end| Some((end.address.parse().ok()?, end.port)));
        let translation = record.translation.as_ref();
        let sent_to = translation.and_then(|translation| translation.original_destination);
        Some(FlowTuple {
            ends: [source?, destination?],
            sent_to: sent_to.map(|sent| (sent.address, sent.port)),
            protocol,
            icmp: record.icmp.map(|icmp| (icmp.kind, icmp.code)),
        })
    }
}

/// The flows that have begun and not ended, each with the row where it was counted.
#[derive(Default)]
pub(crate) struct OpenFlowRows {
    /// The secrets of digests: nobody outside can make two flows that have the same.
    secrets: [RandomState; 2],
    young: FlowMap,
    old: FlowMap,
    /// How many flows were counted and then forgotten, and have not ended as far as it is known.
    forgotten: u64,
}

/// How a flow is to be counted.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum FlowCount {
    /// It is not counted yet.
    New,
    /// It was counted in this row.
    In(RowKey),
    /// It was counted in a row that is known no longer.
    Somewhere,
}

impl OpenFlowRows {
    /// How a flow was counted before this event of it; it is forgotten if it ends.
    pub(crate) fn count_of(&mut self, state: FlowState, tuple: Option<&FlowTuple>) -> FlowCount {
        if state == FlowState::Began {
            return FlowCount::New;
        }
        let row = tuple.and_then(|tuple| {
            let digest = self.digest(tuple);
            let row = self.young.remove(&digest);
            row.or_else(|| self.old.remove(&digest))
        });
        if let Some(row) = row {
            return FlowCount::In(row);
        }
        if self.forgotten == 0 {
            return FlowCount::New;
        }
        self.forgotten -= 1;
        FlowCount::Somewhere
    }

    /// Remembers a flow that has begun, and was counted in this row.
    pub(crate) fn insert(&mut self, tuple: Option<FlowTuple>, row: RowKey) {
        let Some(tuple) = tuple else {
            self.forgotten += 1;
            return;
        };
        if self.young.len() >= MAX_OF_GENERATION {
            self.forgotten += self.old.len() as u64;
            self.old = std::mem::take(&mut self.young);
        }
        let digest = self.digest(&tuple);
        // One with the same tuple has ended unseen.
        self.old.remove(&digest);
        self.young.insert(digest, row);
    }

    /// What stands for a tuple.
    fn digest(&self, tuple: &FlowTuple) -> u128 {
        let [high, low] = self.secrets.each_ref().map(|secret| secret.hash_one(tuple));
        u128::from(high) << 64 | u128::from(low)
    }

    /// Changes the row of every flow.
    pub(crate) fn map_rows(&mut self, mut map: impl FnMut(&mut RowKey)) {
        let rows = self.young.values_mut().chain(self.old.values_mut());
        rows.for_each(&mut map);
    }
}
