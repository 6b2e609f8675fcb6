//! The tables of the last seconds: a packet is judged again by those that judged it.
//!
//! Promises: bounded in time, flushes and entries. Where the past is not known, it says so by not
//! having it.

use palisade_tables::{Past, Tables, Undo};
use std::collections::VecDeque;
use std::time::Duration;

/// How long a flush is remembered.
const KEPT: Duration = Duration::from_secs(5);
/// How many are remembered at most.
const FLUSHES: usize = 64;
/// How many replaced entries are remembered at most, of all flushes together.
const ENTRIES: usize = 100_000;
/// A packet that is told of so much later than it was seen is still in time.
const SLACK: Duration = Duration::from_millis(50);

struct Layer {
    began: Duration,
    ended: Duration,
    /// The revision that was in force before.
    revision: u64,
    undo: Undo,
}

/// The flushes of the last seconds, oldest first.
#[derive(Default)]
pub(super) struct History {
    layers: VecDeque<Layer>,
    entries: usize,
}

impl History {
    /// Takes note of a flush between two times; what it replaced of what revision.
    pub(super) fn flushed(
        &mut self,
        (began, ended): (Duration, Duration),
        revision: u64,
        undo: Option<Undo>,
    ) {
        let Some(undo) = undo else {
            return self.forget();
        };
        self.entries += undo.len();
        self.layers.push_back(Layer {
            began,
            ended,
            revision,
            undo,
        });
        while let Some(oldest) = self.layers.front() {
            let old = oldest.ended + KEPT < ended;
            if !old && self.layers.len() <= FLUSHES && self.entries <= ENTRIES {
                break;
            }
            self.entries -= oldest.undo.len();
            self.layers.pop_front();
        }
    }

    /// What was before is not known any more.
    pub(super) fn forget(&mut self) {
        self.layers.clear();
        self.entries = 0;
    }

    /// The states that may have judged a packet at a time, the likeliest first, with their revision
    /// and whether they are past.
    pub(super) fn states<'a>(
        &'a self,
        now: &'a Tables,
        revision: u64,
        at: Duration,
    ) -> Vec<(Past<'a>, u64, bool)> {
        let newest = self.layers.len();
        let state = |index: usize| {
            let undone = self.layers.range(index..).map(|layer| &layer.undo);
            let of = self.layers.get(index).map_or(revision, |l| l.revision);
            (Past::new(now, undone), of, index < newest)
        };
        let began = |index: usize| match index.checked_sub(1) {
            Some(before) => self.layers[before].began <= at,
            None => true,
        };
        let lasted = |index: usize| match self.layers.get(index) {
            Some(next) => at <= next.ended + SLACK,
            None => true,
        };
        let live = |index: &usize| began(*index) && lasted(*index);
        (0..=newest).rev().filter(live).map(state).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use palisade_tables::{Change, Delta, Phase, Step};

    fn undo(name: &str) -> Undo {
        let changes = vec![Change::Interface(name.into(), true)];
        let step = Step {
            phase: Phase::Split,
            changes,
        };
        let steps = vec![step];
        Undo::new(&Delta { revision: 1, steps }, &Tables::default())
    }

    fn seconds(tenths: u64) -> Duration {
        Duration::from_millis(tenths * 100)
    }

    #[test]
    fn a_packet_belongs_to_the_state_of_its_time_and_around_a_flush_to_both() {
        let mut history = History::default();
        history.flushed((seconds(10), seconds(12)), 1, Some(undo("a")));
        history.flushed((seconds(20), seconds(22)), 2, Some(undo("b")));
        let tables = Tables::default();
        let at = |time| -> Vec<(u64, bool)> {
            let states = history.states(&tables, 3, time).into_iter();
            states.map(|(_, revision, past)| (revision, past)).collect()
        };
        assert_eq!(at(seconds(5)), [(1, true)]);
        assert_eq!(at(seconds(11)), [(2, true), (1, true)]);
        assert_eq!(at(seconds(15)), [(2, true)]);
        assert_eq!(at(seconds(21)), [(3, false), (2, true)]);
        assert_eq!(at(seconds(30)), [(3, false)]);
        history.flushed((seconds(40), seconds(41)), 3, None);
        assert_eq!(history.states(&tables, 4, seconds(5)).len(), 1);
    }

    #[test]
    fn only_the_last_is_remembered() {
        let mut history = History::default();
        for _ in 0..FLUSHES + 3 {
            history.flushed((seconds(1), seconds(1)), 1, Some(undo("a")));
        }
        assert_eq!((history.layers.len(), history.entries), (FLUSHES, FLUSHES));
        history.flushed((seconds(90), seconds(90)), 1, Some(undo("a")));
        assert_eq!((history.layers.len(), history.entries), (1, 1));
    }
}
