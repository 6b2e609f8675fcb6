//! One-packet flows of one pair, and the result of each packet, outside of gaps and inside.

use std::ops::{AddAssign, Range};

use palisade_testkit::lab::Spray;

use super::gaps::Gap;

/// Packets sent while a gap begins or ends belong to the gap.
const ON_THE_WAY: u64 = 2;
/// A packet sent this many packets ago has arrived, or never will.
pub(crate) const ARRIVED: u64 = 64;

/// Wrong results.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Amiss {
    /// Allowed packets that did not arrive.
    pub(crate) lost: u64,
    /// Denied packets that arrived.
    pub(crate) passed: u64,
}

impl AddAssign for Amiss {
    fn add_assign(&mut self, other: Self) {
        self.lost += other.lost;
        self.passed += other.passed;
    }
}

/// One-packet flows of one pair.
pub(crate) struct Line {
    pub(crate) name: String,
    pub(crate) spray: Spray,
    /// Whether edits change the pair's own verdict.
    pub(crate) turning: bool,
    /// The packet numbers from which on it is allowed, or denied.
    verdicts: Vec<(u64, bool)>,
    gaps: Vec<(Gap, Range<u64>)>,
    open: Option<(Gap, u64)>,
    /// Packets up to this number have been checked for loss.
    checked: u64,
}

impl Line {
    pub(crate) fn new(name: &str, allowed: bool, turning: bool, spray: Spray) -> Self {
        Line {
            name: name.to_owned(),
            spray,
            turning,
            verdicts: vec![(0, allowed)],
            gaps: Vec::new(),
            open: None,
            checked: 0,
        }
    }

    /// The present verdict of its packets.
    pub(crate) fn allowed(&self) -> bool {
        self.verdicts.last().is_some_and(|(_, allowed)| *allowed)
    }

    pub(crate) fn gap_begins(&mut self, gap: Gap) {
        // Packets in flight may be evaluated during the gap.
        self.open = Some((gap, self.spray.sent().saturating_sub(ON_THE_WAY)));
    }

    pub(crate) fn gap_ends(&mut self) {
        if let Some((gap, from)) = self.open.take() {
            let until = self.spray.sent() + ON_THE_WAY;
            if gap == Gap::OwnPolicy {
                self.verdicts.push((until, !self.allowed()));
            }
            self.gaps.push((gap, from..until));
        }
    }

    /// Wrong results outside of gaps since the last call: passed packets at once, lost packets once they
    /// should have arrived.
    pub(crate) fn news(&mut self) -> Amiss {
        let sent = self.spray.sent();
        let until = sent.saturating_sub(ARRIVED).max(self.checked);
        let lost = self.outside(self.checked..until).lost;
        let passed = self.outside(self.checked..sent).passed;
        self.checked = until;
        Amiss { lost, passed }
    }

    /// Wrong results of these packets, except in gaps.
    pub(crate) fn outside(&self, numbers: Range<u64>) -> Amiss {
        let open = self.open.map(|(gap, from)| (gap, from..u64::MAX));
        let gaps: Vec<Range<u64>> = self
            .gaps
            .iter()
            .cloned()
            .chain(open)
            .map(|gap| gap.1)
            .collect();
        let mut amiss = Amiss::default();
        for (number, came) in numbers.clone().zip(self.spray.arrivals(numbers)) {
            if gaps.iter().any(|gap| gap.contains(&number)) {
                continue;
            }
            match (self.allowed_at(number), came) {
                (true, false) => amiss.lost += 1,
                (false, true) => amiss.passed += 1,
                _ => {}
            }
        }
        amiss
    }

    /// Each closed gap, with its wrong results.
    pub(crate) fn in_gaps(&self) -> impl Iterator<Item = (Gap, Amiss)> + '_ {
        self.gaps.iter().map(|(gap, range)| {
            let range = range.start..range.end.min(self.spray.sent());
            let came = self.spray.arrivals(range.clone());
            let amiss = match gap {
                Gap::OwnPolicy => turned(&came, self.allowed_at(range.start)),
                _ => steady(&came, self.allowed_at(range.start)),
            };
            (*gap, amiss)
        })
    }

    fn allowed_at(&self, number: u64) -> bool {
        let before = self.verdicts.partition_point(|(from, _)| *from <= number);
        self.verdicts[before - 1].1
    }
}

/// With the same verdict before and after: passed packets, with the denied ones between them.
fn steady(came: &[bool], allowed: bool) -> Amiss {
    if allowed {
        let lost = came.iter().filter(|came| !**came).count() as u64;
        return Amiss { lost, passed: 0 };
    }
    let first = came.iter().position(|came| *came);
    let last = came.iter().rposition(|came| *came);
    let passed = first.zip(last).map_or(0, |(first, last)| last - first + 1);
    Amiss {
        lost: 0,
        passed: passed as u64,
    }
}

/// With one change of the verdict: as `passed`, packets with the old verdict; as `lost`, packets that got
/// neither the old verdict before nor the new one after the best position of the change.
fn turned(came: &[bool], before: bool) -> Amiss {
    let wrong = |at: usize| {
        let old = came[..at].iter().filter(|came| **came != before).count();
        old + came[at..].iter().filter(|came| **came == before).count()
    };
    let turn = (0..=came.len()).min_by_key(|at| wrong(*at)).unwrap_or(0);
    Amiss {
        lost: wrong(turn) as u64,
        passed: turn as u64,
    }
}

#[test]
fn a_verdict_turns_once() {
    let amiss = |lost, passed| Amiss { lost, passed };
    let bits = |text: &str| text.chars().map(|c| c == '1').collect::<Vec<_>>();
    assert_eq!(turned(&bits("111000"), true), amiss(0, 3));
    assert_eq!(turned(&bits("000111"), false), amiss(0, 3));
    assert_eq!(turned(&bits("110100"), true), amiss(1, 2));
    assert_eq!(turned(&bits("1111"), true), amiss(0, 4));
    assert_eq!(steady(&bits("0101100"), false), amiss(0, 4));
    assert_eq!(steady(&bits("1101"), true), amiss(1, 0));
}
