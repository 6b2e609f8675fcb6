//! Sets of pairs of small numbers: source and destination ports, or ICMP types and codes.
//!
//! A [`PairSet`] is canonical: equal sets are equal values.

use std::collections::{BTreeMap, BTreeSet};

/// An inclusive range of numbers, never empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NumberRange {
    /// The lowest number of the range.
    pub first: u16,
    /// The highest number of the range.
    pub last: u16,
}

impl NumberRange {
    /// Whether the range contains a number.
    pub fn contains(self, number: u16) -> bool {
        self.first <= number && number <= self.last
    }
}

/// Numbers as ascending ranges that are not adjacent.
pub type NumberRanges = Vec<NumberRange>;

/// A set of pairs (x, y).
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PairSet {
    /// Ascending ranges of x, each with its set of y. Adjacent ranges have different sets.
    rows: Vec<(NumberRange, NumberRanges)>,
}

/// The ranges between cuts, covering 0 to `max`. A cut is the first number of a range.
pub(crate) fn ranges_between_cuts(cuts: &BTreeSet<u32>, max: u16) -> NumberRanges {
    let max = u32::from(max);
    let mut starts: Vec<u32> = cuts.iter().copied().filter(|c| *c <= max).collect();
    if starts.first() != Some(&0) {
        starts.insert(0, 0);
    }
    let ends = starts.iter().skip(1).map(|s| s - 1).chain([max]);
    let pairs = starts.iter().zip(ends);
    pairs
        .map(|(first, last)| number_range(*first, last))
        .collect()
}

fn number_range(first: u32, last: u32) -> NumberRange {
    let clip = |n| u16::try_from(n).unwrap_or(u16::MAX);
    NumberRange {
        first: clip(first),
        last: clip(last),
    }
}

/// Merges adjacent ranges of an ascending list.
fn merge_adjacent(spans: impl IntoIterator<Item = NumberRange>) -> NumberRanges {
    let mut out: NumberRanges = Vec::new();
    for next in spans {
        match out.last_mut() {
            Some(last) if u32::from(last.last) + 1 == u32::from(next.first) => {
                last.last = next.last;
            }
            _ => out.push(next),
        }
    }
    out
}

fn add_cuts(spans: &[NumberRange], cuts: &mut BTreeSet<u32>) {
    for span in spans {
        cuts.insert(u32::from(span.first));
        cuts.insert(u32::from(span.last) + 1);
    }
}

fn contains_number(spans: &[NumberRange], number: u16) -> bool {
    spans.iter().any(|span| span.contains(number))
}

impl PairSet {
    /// The empty set.
    pub fn empty() -> Self {
        PairSet::default()
    }

    /// Every pair up to these bounds, inclusive.
    pub fn full(max_x: u16, max_y: u16) -> Self {
        let all = |max| NumberRange {
            first: 0,
            last: max,
        };
        PairSet {
            rows: vec![(all(max_x), vec![all(max_y)])],
        }
    }

    /// The union of the cells of a grid for which `inside` is true at their lowest pair.
    pub(crate) fn from_grid(
        xs: &[NumberRange],
        ys: &[NumberRange],
        mut inside: impl FnMut(u16, u16) -> bool,
    ) -> Self {
        let mut rows: Vec<(NumberRange, NumberRanges)> = Vec::new();
        for x in xs {
            let in_row = ys.iter().copied().filter(|y| inside(x.first, y.first));
            let row = merge_adjacent(in_row.collect::<Vec<_>>());
            match rows.last_mut() {
                _ if row.is_empty() => {}
                Some((last, same))
                    if *same == row && u32::from(last.last) + 1 == u32::from(x.first) =>
                {
                    last.last = x.last;
                }
                _ => rows.push((*x, row)),
            }
        }
        PairSet { rows }
    }

    /// Whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Whether the set contains a pair.
    pub fn contains(&self, x: u16, y: u16) -> bool {
        let mut rows = self.rows.iter();
        rows.any(|(xs, ys)| xs.contains(x) && contains_number(ys, y))
    }

    /// The pairs for which `keep` is true, given whether this set and the other contain the pair.
    fn combine(&self, other: &PairSet, keep: impl Fn(bool, bool) -> bool) -> PairSet {
        let (mut xs, mut ys) = (BTreeSet::new(), BTreeSet::new());
        for (x, row) in self.rows.iter().chain(&other.rows) {
            add_cuts(&[*x], &mut xs);
            add_cuts(row, &mut ys);
        }
        let (xs, ys) = (
            ranges_between_cuts(&xs, u16::MAX),
            ranges_between_cuts(&ys, u16::MAX),
        );
        PairSet::from_grid(&xs, &ys, |x, y| {
            keep(self.contains(x, y), other.contains(x, y))
        })
    }

    /// The intersection of both.
    pub fn intersect(&self, other: &PairSet) -> PairSet {
        if self == other {
            return self.clone();
        }
        self.combine(other, |a, b| a && b)
    }

    /// The pairs of this set that are not in the other.
    pub fn subtract(&self, other: &PairSet) -> PairSet {
        if self == other || self.is_empty() {
            return PairSet::empty();
        }
        self.combine(other, |a, b| a && !b)
    }

    /// The set as (all x with the same set of y, that set), in order of the x.
    pub fn groups(&self) -> Vec<(NumberRanges, NumberRanges)> {
        let mut by_row: BTreeMap<&NumberRanges, NumberRanges> = BTreeMap::new();
        for (x, row) in &self.rows {
            by_row.entry(row).or_default().push(*x);
        }
        let groups = by_row.into_iter().map(|(ys, xs)| (xs, ys.clone()));
        let mut groups: Vec<_> = groups.collect();
        groups.sort();
        groups
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Box = ((u16, u16), (u16, u16));

    fn plane(cells: &[Box]) -> PairSet {
        let one = |((a, b), (c, d)): &Box| {
            let x = NumberRange {
                first: *a,
                last: *b,
            };
            let y = NumberRange {
                first: *c,
                last: *d,
            };
            PairSet {
                rows: vec![(x, vec![y])],
            }
        };
        let either = |a: PairSet, b: &PairSet| a.combine(b, |a, b| a || b);
        cells
            .iter()
            .map(one)
            .fold(PairSet::empty(), |a, b| either(a, &b))
    }

    #[test]
    fn equal_sets_are_equal_values() {
        let left = plane(&[((0, 9), (1, 5)), ((10, 20), (1, 5)), ((0, 20), (6, 6))]);
        assert_eq!(left, plane(&[((0, 20), (1, 6))]));
        assert_eq!(left.subtract(&left), PairSet::empty());
        assert_eq!(
            plane(&[((0, 65535), (0, 65535))]),
            PairSet::full(65535, 65535)
        );
    }

    #[test]
    fn a_hole_splits_and_groups_join() {
        let all = PairSet::full(255, 255);
        let hole = plane(&[((3, 3), (4, 4))]);
        let rest = all.subtract(&hole);
        assert!(!rest.contains(3, 4) && rest.contains(3, 5) && rest.contains(4, 4));
        let s = |first, last| NumberRange { first, last };
        assert_eq!(
            rest.groups(),
            vec![
                (vec![s(0, 2), s(4, 255)], vec![s(0, 255)]),
                (vec![s(3, 3)], vec![s(0, 3), s(5, 255)]),
            ]
        );
        assert_eq!(rest.intersect(&hole), PairSet::empty());
    }
}
