//! One-packet flows of one pair, and what became of each packet, outside of gaps and in them.

use std::ops::{AddAssign, Range};

use palisade_testkit::lab::Spray;

use crate::gaps::Gap;

/// Packets that are sent while a gap begins or ends count for it.
const ON_THE_WAY: u64 = 2;
/// What was sent so many packets ago has come in, if ever.
pub(crate) const ARRIVED: u64 = 64;

/// What should not be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Amiss {
    /// Allowed packets that did not come in.
    pub(crate) lost: u64,
    /// Denied packets that came in.
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
    /// Whether edits turn the pair's own verdict.
    pub(crate) turning: bool,
    /// From which number on it is allowed, or denied.
    verdicts: Vec<(u64, bool)>,
    gaps: Vec<(Gap, Range<u64>)>,
    open: Option<(Gap, u64)>,
    /// Up to here it has been looked at whether all came in.
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

    /// What its packets get now.
    pub(crate) fn allowed(&self) -> bool {
        self.verdicts.last().is_some_and(|(_, allowed)| *allowed)
    }

    pub(crate) fn gap_begins(&mut self, gap: Gap) {
        // What is on its way already may be judged only in the gap.
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

    /// What is amiss outside of gaps that was not told yet: what passed at once, what was lost when it
    /// should have come in.
    pub(crate) fn news(&mut self) -> Amiss {
        let sent = self.spray.sent();
        let until = sent.saturating_sub(ARRIVED).max(self.checked);
        let lost = self.outside(self.checked..until).lost;
        let passed = self.outside(self.checked..sent).passed;
        self.checked = until;
        Amiss { lost, passed }
    }

    /// What is amiss of these packets, but for those in gaps.
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

    /// Each gap that is over, with what was amiss in it.
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

/// While the verdict is the same before and after: what passed, with what was stopped between.
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

/// While the verdict turns once: as `passed`, the packets with the old one; as `lost`, those that got
/// neither the old before nor the new after the best place for the turn.
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
