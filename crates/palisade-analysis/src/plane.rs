//! Sets of pairs of small numbers: source and destination ports, or ICMP types and codes.
//!
//! A [`Plane`] is canonical: equal sets are equal values.

use std::collections::{BTreeMap, BTreeSet};

/// An inclusive range of numbers, never empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span {
    /// The lowest number inside.
    pub first: u16,
    /// The highest number inside.
    pub last: u16,
}

impl Span {
    /// Whether the number lies inside.
    pub fn contains(self, number: u16) -> bool {
        self.first <= number && number <= self.last
    }
}

/// Numbers as ascending spans with gaps between them.
pub type Spans = Vec<Span>;

/// A set of pairs (x, y).
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Plane {
    /// Ascending ranges of x, each with the y that belong to it; neighbours that touch differ.
    rows: Vec<(Span, Spans)>,
}

/// The spans between cuts, covering 0 to `max`. A cut is the first number of a span.
pub(crate) fn spans_between(cuts: &BTreeSet<u32>, max: u16) -> Spans {
    let max = u32::from(max);
    let mut starts: Vec<u32> = cuts.iter().copied().filter(|c| *c <= max).collect();
    if starts.first() != Some(&0) {
        starts.insert(0, 0);
    }
    let ends = starts.iter().skip(1).map(|s| s - 1).chain([max]);
    let pairs = starts.iter().zip(ends);
    pairs.map(|(first, last)| span(*first, last)).collect()
}

fn span(first: u32, last: u32) -> Span {
    let clip = |n| u16::try_from(n).unwrap_or(u16::MAX);
    Span {
        first: clip(first),
        last: clip(last),
    }
}

/// Joins ascending spans that touch.
fn joined(spans: impl IntoIterator<Item = Span>) -> Spans {
    let mut out: Spans = Vec::new();
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

fn starts(spans: &[Span], cuts: &mut BTreeSet<u32>) {
    for span in spans {
        cuts.insert(u32::from(span.first));
        cuts.insert(u32::from(span.last) + 1);
    }
}

fn holds(spans: &[Span], number: u16) -> bool {
    spans.iter().any(|span| span.contains(number))
}

impl Plane {
    /// No pair.
    pub fn empty() -> Self {
        Plane::default()
    }

    /// Every pair up to these bounds.
    pub fn full(max_x: u16, max_y: u16) -> Self {
        let all = |max| Span {
            first: 0,
            last: max,
        };
        Plane {
            rows: vec![(all(max_x), vec![all(max_y)])],
        }
    }

    /// The pairs of a grid whose cells (told by one of their pairs) are inside.
    pub(crate) fn of_cells(
        xs: &[Span],
        ys: &[Span],
        mut inside: impl FnMut(u16, u16) -> bool,
    ) -> Self {
        let mut rows: Vec<(Span, Spans)> = Vec::new();
        for x in xs {
            let in_row = ys.iter().copied().filter(|y| inside(x.first, y.first));
            let row = joined(in_row.collect::<Vec<_>>());
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
        Plane { rows }
    }

    /// Whether no pair is inside.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Whether a pair is inside.
    pub fn contains(&self, x: u16, y: u16) -> bool {
        let mut rows = self.rows.iter();
        rows.any(|(xs, ys)| xs.contains(x) && holds(ys, y))
    }

    /// The pairs for which `keep` says so, told whether each set has them.
    fn combined(&self, other: &Plane, keep: impl Fn(bool, bool) -> bool) -> Plane {
        let (mut xs, mut ys) = (BTreeSet::new(), BTreeSet::new());
        for (x, row) in self.rows.iter().chain(&other.rows) {
            starts(&[*x], &mut xs);
            starts(row, &mut ys);
        }
        let (xs, ys) = (spans_between(&xs, u16::MAX), spans_between(&ys, u16::MAX));
        Plane::of_cells(&xs, &ys, |x, y| {
            keep(self.contains(x, y), other.contains(x, y))
        })
    }

    /// The pairs in both.
    pub fn and(&self, other: &Plane) -> Plane {
        if self == other {
            return self.clone();
        }
        self.combined(other, |a, b| a && b)
    }

    /// The pairs in this and not in the other.
    pub fn without(&self, other: &Plane) -> Plane {
        if self == other || self.is_empty() {
            return Plane::empty();
        }
        self.combined(other, |a, b| a && !b)
    }

    /// The set as (all x that have the same y, those y), in order of the x.
    pub fn groups(&self) -> Vec<(Spans, Spans)> {
        let mut by_row: BTreeMap<&Spans, Spans> = BTreeMap::new();
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

    fn plane(cells: &[Box]) -> Plane {
        let one = |((a, b), (c, d)): &Box| {
            let x = Span {
                first: *a,
                last: *b,
            };
            let y = Span {
                first: *c,
                last: *d,
            };
            Plane {
                rows: vec![(x, vec![y])],
            }
        };
        let either = |a: Plane, b: &Plane| a.combined(b, |a, b| a || b);
        cells
            .iter()
            .map(one)
            .fold(Plane::empty(), |a, b| either(a, &b))
    }

    #[test]
    fn equal_sets_are_equal_values() {
        let left = plane(&[((0, 9), (1, 5)), ((10, 20), (1, 5)), ((0, 20), (6, 6))]);
        assert_eq!(left, plane(&[((0, 20), (1, 6))]));
        assert_eq!(left.without(&left), Plane::empty());
        assert_eq!(
            plane(&[((0, 65535), (0, 65535))]),
            Plane::full(65535, 65535)
        );
    }

    #[test]
    fn a_hole_splits_and_groups_join() {
        let all = Plane::full(255, 255);
        let hole = plane(&[((3, 3), (4, 4))]);
        let rest = all.without(&hole);
        assert!(!rest.contains(3, 4) && rest.contains(3, 5) && rest.contains(4, 4));
        let s = |first, last| Span { first, last };
        assert_eq!(
            rest.groups(),
            vec![
                (vec![s(0, 2), s(4, 255)], vec![s(0, 255)]),
                (vec![s(3, 3)], vec![s(0, 3), s(5, 255)]),
            ]
        );
        assert_eq!(rest.and(&hole), Plane::empty());
    }
}
