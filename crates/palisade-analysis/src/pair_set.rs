//! Sets of pairs of small numbers: source and destination ports, or ICMP types and codes.
//!
//! A [`PairSet`] is canonical: equal sets are equal values.

use palisade_model::{NumberRange, RangeSet};
use std::collections::{BTreeMap, BTreeSet};

/// A set of pairs (x, y).
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PairSet {
    /// Ascending ranges of x, each with its set of y. Adjacent ranges have different sets.
    rows: Vec<(NumberRange<u16>, RangeSet<u16>)>,
}

/// The ranges between cuts, covering 0 to `max`. A cut is the first number of a range.
pub(crate) fn ranges_between_cuts(cuts: &BTreeSet<u32>, max: u16) -> Vec<NumberRange<u16>> {
    let mut starts: Vec<u16> = cuts
        .iter()
        .filter_map(|cut| (*cut).try_into().ok())
        .collect();
    starts.retain(|start| *start <= max);
    if starts.first() != Some(&0) {
        starts.insert(0, 0);
    }
    let ends = starts.iter().skip(1).map(|start| start - 1).chain([max]);
    let ranges = starts.iter().zip(ends);
    ranges
        .map(|(first, last)| NumberRange {
            first: *first,
            last,
        })
        .collect()
}

impl PairSet {
    /// The empty set.
    pub fn empty() -> Self {
        PairSet::default()
    }

    /// Every pair up to these bounds, inclusive.
    pub fn full(max_x: u16, max_y: u16) -> Self {
        let all = |last| NumberRange { first: 0, last };
        PairSet {
            rows: vec![(all(max_x), all(max_y).into())],
        }
    }

    /// Every pair of an x and a y of these sets.
    pub(crate) fn from_product(xs: &RangeSet<u16>, ys: &RangeSet<u16>) -> Self {
        Self::from_rows(xs.ranges().iter().map(|x| (*x, ys.clone())))
    }

    /// Joins adjacent ranges of x with equal sets of y; without those that have none.
    fn from_rows(all: impl IntoIterator<Item = (NumberRange<u16>, RangeSet<u16>)>) -> Self {
        let mut rows: Vec<(NumberRange<u16>, RangeSet<u16>)> = Vec::new();
        for (x, row) in all {
            match rows.last_mut() {
                _ if row.is_empty() => {}
                Some((last, same)) if *same == row && last.last.checked_add(1) == Some(x.first) => {
                    last.last = x.last;
                }
                _ => rows.push((x, row)),
            }
        }
        PairSet { rows }
    }

    /// The union of the cells of a grid for which `inside` is true at their lowest pair.
    pub(crate) fn from_grid(
        xs: &[NumberRange<u16>],
        ys: &[NumberRange<u16>],
        mut inside: impl FnMut(u16, u16) -> bool,
    ) -> Self {
        Self::from_rows(xs.iter().map(|x| {
            let row = ys.iter().copied().filter(|y| inside(x.first, y.first));
            (*x, row.collect())
        }))
    }

    /// Whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Whether the set contains a pair.
    pub fn contains(&self, x: u16, y: u16) -> bool {
        self.row(x).is_some_and(|row| row.contains(y))
    }

    /// The set of y at this x.
    fn row(&self, x: u16) -> Option<&RangeSet<u16>> {
        let mut rows = self.rows.iter();
        rows.find(|(xs, _)| xs.contains(x)).map(|(_, row)| row)
    }

    /// The set whose y at each x are those of this set and of the other, combined.
    fn combine(
        &self,
        other: &PairSet,
        rows: impl Fn(&RangeSet<u16>, &RangeSet<u16>) -> RangeSet<u16>,
    ) -> PairSet {
        let mut cuts = BTreeSet::new();
        for (x, _) in self.rows.iter().chain(&other.rows) {
            cuts.extend([u32::from(x.first), u32::from(x.last) + 1]);
        }
        let none = RangeSet::default();
        let xs = ranges_between_cuts(&cuts, u16::MAX).into_iter();
        PairSet::from_rows(xs.map(|x| {
            let [a, b] = [self, other].map(|set| set.row(x.first).unwrap_or(&none));
            (x, rows(a, b))
        }))
    }

    /// The union of both.
    pub(crate) fn union(&self, other: &PairSet) -> PairSet {
        if self == other || other.is_empty() {
            return self.clone();
        }
        self.combine(other, RangeSet::union)
    }

    /// The intersection of both.
    pub fn intersect(&self, other: &PairSet) -> PairSet {
        if self == other {
            return self.clone();
        }
        if self.is_empty() || other.is_empty() {
            return PairSet::empty();
        }
        self.combine(other, RangeSet::intersect)
    }

    /// The pairs of this set that are not in the other.
    pub fn subtract(&self, other: &PairSet) -> PairSet {
        if self == other || self.is_empty() {
            return PairSet::empty();
        }
        if other.is_empty() {
            return self.clone();
        }
        self.combine(other, RangeSet::subtract)
    }

    /// The set as (all x with the same set of y, that set), in order of the x.
    pub fn groups(&self) -> Vec<(RangeSet<u16>, RangeSet<u16>)> {
        let mut by_row: BTreeMap<&RangeSet<u16>, Vec<NumberRange<u16>>> = BTreeMap::new();
        for (x, row) in &self.rows {
            by_row.entry(row).or_default().push(*x);
        }
        let groups = by_row.into_iter();
        let mut groups: Vec<_> = groups
            .map(|(ys, xs)| (xs.into_iter().collect(), ys.clone()))
            .collect();
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
                rows: vec![(x, y.into())],
            }
        };
        let sets = cells.iter().map(one);
        sets.fold(PairSet::empty(), |a, b| a.union(&b))
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
        let s = |ranges: &[(u16, u16)]| -> RangeSet<u16> {
            let range = |(first, last): &(u16, u16)| NumberRange {
                first: *first,
                last: *last,
            };
            ranges.iter().map(range).collect()
        };
        assert_eq!(
            rest.groups(),
            vec![
                (s(&[(0, 2), (4, 255)]), s(&[(0, 255)])),
                (s(&[(3, 3)]), s(&[(0, 3), (5, 255)])),
            ]
        );
        assert_eq!(rest.intersect(&hole), PairSet::empty());
    }
}
