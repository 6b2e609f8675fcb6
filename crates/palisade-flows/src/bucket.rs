//! A bucket as it is passed from the aggregate to the store and to queries: a copy that changes no more.

use crate::dictionary::EntryNumber;
use crate::row::{RowCounts, RowKey};
use std::sync::Arc;

/// A bucket at some time.
#[derive(Debug, Default)]
pub struct BucketSnapshot {
    /// Its number.
    pub(crate) number: u64,
    /// When it begins, in seconds since the epoch.
    pub(crate) start: u64,
    /// The number of the dictionary that `texts` are of.
    pub(crate) generation: u64,
    /// The texts that the rows name, from the first on.
    pub(crate) texts: Vec<Arc<[u8]>>,
    /// The rows, in order.
    pub(crate) rows: Vec<(RowKey, RowCounts)>,
    /// How many events were lost.
    pub(crate) lost: u64,
    /// How many were counted in rows from which something was left out.
    pub(crate) folded: u64,
}

impl BucketSnapshot {
    /// The number of its rows.
    pub fn rows(&self) -> usize {
        self.rows.len()
    }

    /// The text of a number.
    pub(crate) fn text(&self, number: EntryNumber) -> Option<&[u8]> {
        let text = self.texts.get((number as usize).checked_sub(1)?)?;
        Some(text)
    }

    /// When its last event happened, or else its begin.
    pub(crate) fn last(&self) -> u64 {
        let last = self.rows.iter().map(|(_, counts)| counts.last).max();
        last.unwrap_or(self.start)
    }

    /// The number of flows and packets.
    pub(crate) fn count(&self) -> u64 {
        let counts = self.rows.iter().map(|(_, counts)| counts.count);
        counts.fold(0, u64::saturating_add)
    }
}
