//! The tables of the last seconds, to evaluate a packet with the tables that were in force.
//!
//! Bounded in time, flushes and entries. A past state that is not known is omitted.

use palisade_tables::{PastTables, Tables, UndoRecord};
use std::collections::VecDeque;
use std::time::Duration;

/// How long a flush is remembered.
pub(crate) const RETENTION: Duration = Duration::from_secs(5);
/// The maximum number of remembered flushes.
const MAX_FLUSHES: usize = 64;
/// The maximum number of replaced entries, of all flushes together.
const MAX_ENTRIES: usize = 100_000;
/// How long after the end of a flush a timestamp may still belong to the former tables.
const TIMESTAMP_SLACK: Duration = Duration::from_millis(50);

struct PastFlush {
    began: Duration,
    /// `None`: it is in progress.
    ended: Option<Duration>,
    /// The revision before the flush.
    revision: u64,
    undo: UndoRecord,
}

/// The flushes of the last seconds, oldest first.
#[derive(Default)]
pub(super) struct TableHistory {
    layers: VecDeque<PastFlush>,
    entries: usize,
}

impl TableHistory {
    /// Records a flush that begins: the revision it replaces, and the entries that it replaces, if they are known.
    pub(super) fn begin_flush(&mut self, began: Duration, revision: u64, undo: Option<UndoRecord>) {
        let Some(undo) = undo else {
            return self.clear();
        };
        self.entries += undo.len();
        self.layers.push_back(PastFlush {
            began,
            ended: None,
            revision,
            undo,
        });
    }

    /// The flush that began last is in the kernel.
    pub(super) fn end_flush(&mut self, ended: Duration) {
        if let Some(last) = self.layers.back_mut() {
            last.ended.get_or_insert(ended);
        }
        while let Some(oldest) = self.layers.front() {
            let is_old = oldest.ended.is_some_and(|at| at + RETENTION < ended);
            if !is_old && self.layers.len() <= MAX_FLUSHES && self.entries <= MAX_ENTRIES {
                break;
            }
            self.entries -= oldest.undo.len();
            self.layers.pop_front();
        }
    }

    /// Forgets the flushes that have ended: nothing has been flushed for the time of the retention.
    pub(super) fn forget_ended(&mut self) {
        while let Some(oldest) = self.layers.front().filter(|layer| layer.ended.is_some()) {
            self.entries -= oldest.undo.len();
            self.layers.pop_front();
        }
        self.layers.shrink_to_fit();
    }

    /// Whether a flush is in progress, so that the kernel holds neither all of the former tables nor of the new ones.
    pub(super) fn is_flush_in_progress(&self) -> bool {
        self.layers.back().is_some_and(|last| last.ended.is_none())
    }

    /// The tables before and after the flush that replaced this revision, if it is remembered.
    pub(super) fn flush_of<'a>(
        &'a self,
        now: &'a Tables,
        replaced: u64,
    ) -> Option<(PastTables<'a>, PastTables<'a>)> {
        let index = (self.layers.iter()).position(|layer| layer.revision == replaced)?;
        let tables_from = |index: usize| {
            let undone = self.layers.range(index..).map(|layer| &layer.undo);
            PastTables::new(now, undone)
        };
        Some((tables_from(index), tables_from(index + 1)))
    }

    /// Forgets all past states.
    pub(crate) fn clear(&mut self) {
        self.layers.clear();
        self.entries = 0;
    }

    /// The states that may have evaluated a packet at a time, the most likely first, with their
    /// revision and whether they are past.
    pub(crate) fn states_at<'a>(
        &'a self,
        now: &'a Tables,
        revision: u64,
        at: Duration,
    ) -> Vec<(PastTables<'a>, u64, bool)> {
        let newest = self.layers.len();
        let state = |index: usize| {
            let undone = self.layers.range(index..).map(|layer| &layer.undo);
            let layer_revision = self.layers.get(index).map_or(revision, |l| l.revision);
            (PastTables::new(now, undone), layer_revision, index < newest)
        };
        let began = |index: usize| match index.checked_sub(1) {
            Some(before) => self.layers[before].began <= at,
            None => true,
        };
        let ended_after = |index: usize| match self.layers.get(index) {
            Some(next) => next.ended.is_none_or(|ended| at <= ended + TIMESTAMP_SLACK),
            None => true,
        };
        let live = |index: &usize| began(*index) && ended_after(*index);
        (0..=newest).rev().filter(live).map(state).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use palisade_tables::{Delta, DeltaStep, Phase, TableChange};

    fn undo(name: &str) -> UndoRecord {
        let changes = vec![TableChange::Interface(name.into(), true)];
        let step = DeltaStep {
            phase: Phase::Split,
            changes,
        };
        let steps = vec![step];
        UndoRecord::new(&Delta { revision: 1, steps }, &Tables::default())
    }

    fn seconds(tenths: u64) -> Duration {
        Duration::from_millis(tenths * 100)
    }

    impl TableHistory {
        fn record_flush(
            &mut self,
            (began, ended): (Duration, Duration),
            revision: u64,
            undo: Option<UndoRecord>,
        ) {
            self.begin_flush(began, revision, undo);
            self.end_flush(ended);
        }
    }

    #[test]
    fn a_packet_belongs_to_the_state_of_its_time_and_around_a_flush_to_both() {
        let mut history = TableHistory::default();
        history.record_flush((seconds(10), seconds(12)), 1, Some(undo("a")));
        history.record_flush((seconds(20), seconds(22)), 2, Some(undo("b")));
        let tables = Tables::default();
        let at = |time| -> Vec<(u64, bool)> {
            let states = history.states_at(&tables, 3, time).into_iter();
            states.map(|(_, revision, past)| (revision, past)).collect()
        };
        assert_eq!(at(seconds(5)), [(1, true)]);
        assert_eq!(at(seconds(11)), [(2, true), (1, true)]);
        assert_eq!(at(seconds(15)), [(2, true)]);
        assert_eq!(at(seconds(21)), [(3, false), (2, true)]);
        assert_eq!(at(seconds(30)), [(3, false)]);
        history.begin_flush(seconds(32), 3, Some(undo("c")));
        assert!(history.is_flush_in_progress());
        let during: Vec<u64> = (history.states_at(&tables, 4, seconds(33)).iter())
            .map(|(_, revision, _)| *revision)
            .collect();
        assert_eq!(during, [4, 3], "neither has ended");
        let flush = history.flush_of(&tables, 2).unwrap();
        assert_ne!(format!("{:?}", flush.0), format!("{:?}", flush.1));
        assert!(history.flush_of(&tables, 7).is_none());
        history.record_flush((seconds(40), seconds(41)), 3, None);
        assert_eq!(history.states_at(&tables, 4, seconds(5)).len(), 1);
    }

    #[test]
    fn what_has_ended_is_forgotten_and_a_flush_in_progress_is_not() {
        let mut history = TableHistory::default();
        history.record_flush((seconds(10), seconds(12)), 1, Some(undo("a")));
        history.begin_flush(seconds(20), 2, Some(undo("b")));
        history.forget_ended();
        assert_eq!(history.layers.len(), 1);
        assert_eq!(history.entries, 1);
        assert!(history.is_flush_in_progress());
        history.end_flush(seconds(21));
        history.forget_ended();
        assert!(history.layers.is_empty() && history.entries == 0);
    }

    #[test]
    fn only_the_last_is_remembered() {
        let mut history = TableHistory::default();
        for _ in 0..MAX_FLUSHES + 3 {
            history.record_flush((seconds(1), seconds(1)), 1, Some(undo("a")));
        }
        assert_eq!(
            (history.layers.len(), history.entries),
            (MAX_FLUSHES, MAX_FLUSHES)
        );
        history.record_flush((seconds(90), seconds(90)), 1, Some(undo("a")));
        assert_eq!((history.layers.len(), history.entries), (1, 1));
    }
}
