//! Ranges of numbers, and sets of them: ports, ICMP types, addresses.
//!
//! A [`RangeSet`] is canonical: equal sets are equal values.

use crate::{Family, Prefix, address_from_number};
use alloc::vec::Vec;
use core::fmt;
use serde::{Deserialize, Serialize};

/// A number of which ranges are made.
pub trait RangeNumber: Copy + Ord {
    /// The next number, if there is one.
    fn checked_next(self) -> Option<Self>;
    /// The number before, if there is one.
    fn checked_previous(self) -> Option<Self>;
}

macro_rules! range_number {
    ($($number:ty),*) => {$(
        impl RangeNumber for $number {
            fn checked_next(self) -> Option<Self> {
                self.checked_add(1)
            }
            fn checked_previous(self) -> Option<Self> {
                self.checked_sub(1)
            }
        }
    )*};
}

range_number!(u16, u128);

/// An inclusive range of numbers, never empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct NumberRange<N> {
    /// The lowest number of the range.
    pub first: N,
    /// The highest number of the range; at least `first`.
    pub last: N,
}

impl<N: RangeNumber> NumberRange<N> {
    /// The range from `first` to `last`, or `None` if `first` is greater than `last`.
    pub fn new(first: N, last: N) -> Option<Self> {
        (first <= last).then_some(NumberRange { first, last })
    }

    /// One number.
    pub fn single(number: N) -> Self {
        NumberRange {
            first: number,
            last: number,
        }
    }

    /// Whether the range contains the number.
    pub fn contains(self, number: N) -> bool {
        self.first <= number && number <= self.last
    }
}

impl<N: PartialEq + fmt::Display> fmt::Display for NumberRange<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.first == self.last {
            write!(f, "{}", self.first)
        } else {
            write!(f, "{}-{}", self.first, self.last)
        }
    }
}

/// A set of numbers, as ascending ranges that are not adjacent.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RangeSet<N>(Vec<NumberRange<N>>);

impl<N> Default for RangeSet<N> {
    fn default() -> Self {
        RangeSet(Vec::new())
    }
}

impl<N: RangeNumber> FromIterator<NumberRange<N>> for RangeSet<N> {
    /// The union of ranges, which may overlap and be in any order.
    fn from_iter<I: IntoIterator<Item = NumberRange<N>>>(ranges: I) -> Self {
        let mut ranges: Vec<NumberRange<N>> = ranges.into_iter().collect();
        ranges.sort_unstable();
        ranges.dedup_by(|next, before| {
            let joins = before
                .last
                .checked_next()
                .is_none_or(|end| next.first <= end);
            if joins {
                before.last = before.last.max(next.last);
            }
            joins
        });
        RangeSet(ranges)
    }
}

impl<N: RangeNumber> From<NumberRange<N>> for RangeSet<N> {
    fn from(range: NumberRange<N>) -> Self {
        RangeSet(alloc::vec![range])
    }
}

impl<N: RangeNumber> RangeSet<N> {
    /// Its ranges, ascending.
    pub fn ranges(&self) -> &[NumberRange<N>] {
        &self.0
    }

    /// Whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether the set contains a number.
    pub fn contains(&self, number: N) -> bool {
        !self.overlapping(NumberRange::single(number)).is_empty()
    }

    /// The ranges of the set that have numbers in `range`, whole.
    pub fn overlapping(&self, range: NumberRange<N>) -> &[NumberRange<N>] {
        let from = self.0.partition_point(|part| part.last < range.first);
        let inside = self.0.get(from..).unwrap_or_default();
        let count = inside.partition_point(|part| part.first <= range.last);
        inside.get(..count).unwrap_or_default()
    }

    /// The part of the set in a range.
    pub fn intersect_range(&self, range: NumberRange<N>) -> Self {
        let clip = |part: &NumberRange<N>| NumberRange {
            first: part.first.max(range.first),
            last: part.last.min(range.last),
        };
        RangeSet(self.overlapping(range).iter().map(clip).collect())
    }

    /// The union of both.
    pub fn union(&self, other: &Self) -> Self {
        self.0.iter().chain(&other.0).copied().collect()
    }

    /// The numbers of this set that are not in the other.
    pub fn subtract(&self, other: &Self) -> Self {
        let mut left = Vec::new();
        for range in &self.0 {
            let mut next = Some(range.first);
            for hole in other.overlapping(*range) {
                let before = next.zip(hole.first.checked_previous());
                left.extend(before.and_then(|(from, to)| NumberRange::new(from, to)));
                next = hole.last.checked_next();
            }
            left.extend(next.and_then(|from| NumberRange::new(from, range.last)));
        }
        RangeSet(left)
    }

    /// The intersection of both.
    pub fn intersect(&self, other: &Self) -> Self {
        self.subtract(&self.subtract(other))
    }
}

/// The addresses of a prefix, as numbers.
impl From<Prefix> for NumberRange<u128> {
    fn from(prefix: Prefix) -> Self {
        let (first, last) = prefix.bounds();
        NumberRange { first, last }
    }
}

impl NumberRange<u128> {
    /// The shortest list of prefixes of a family that covers exactly this range, ascending.
    pub fn prefixes(self, family: Family) -> impl Iterator<Item = Prefix> {
        let bits = u32::from(family.bits());
        let mut rest = Some(self);
        core::iter::from_fn(move || {
            let NumberRange { first, last } = rest?;
            let room = (last - first).checked_add(1).map_or(128, u128::ilog2);
            let size = first.trailing_zeros().min(bits).min(room);
            let length = u8::try_from(bits - size).unwrap_or(0);
            let prefix = Prefix::new(address_from_number(family, first), length);
            let next = prefix.bounds().1.checked_next();
            rest = next.and_then(|next| NumberRange::new(next, last));
            Some(prefix)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::{String, ToString};

    fn ports(ranges: &[(u16, u16)]) -> RangeSet<u16> {
        let range = |(first, last): &(u16, u16)| NumberRange::new(*first, *last).unwrap();
        ranges.iter().map(range).collect()
    }

    fn nets(nets: &[&str]) -> RangeSet<u128> {
        let range = |net: &&str| NumberRange::from(net.parse::<Prefix>().unwrap());
        nets.iter().map(range).collect()
    }

    fn shown(set: &RangeSet<u128>, family: Family) -> Vec<String> {
        let prefixes = set.ranges().iter().flat_map(|range| range.prefixes(family));
        prefixes.map(|prefix| prefix.to_string()).collect()
    }

    #[test]
    fn unions_join_what_overlaps_or_is_adjacent() {
        assert_eq!(
            ports(&[(5, 9), (1, 4), (20, 30), (25, 26)]),
            ports(&[(1, 9), (20, 30)])
        );
        assert_eq!(ports(&[(9, 65535), (0, 8)]).ranges().len(), 1);
        assert_eq!(ports(&[(0, 65535), (7, 65535)]).ranges().len(), 1);
        assert_eq!(ports(&[(1, 2)]).union(&ports(&[(4, 5)])).ranges().len(), 2);
    }

    #[test]
    fn every_operation_is_that_of_its_numbers() {
        // All pairs of sets of the numbers 0 to 3 and of the last four.
        let sets: Vec<RangeSet<u16>> = (0..256u16)
            .map(|bits| {
                let numbers = (0..8u16).filter(|bit| bits >> bit & 1 == 1);
                let number = |bit| if bit < 4 { bit } else { u16::MAX - 7 + bit };
                numbers
                    .map(|bit| NumberRange::single(number(bit)))
                    .collect()
            })
            .collect();
        for (a, left) in sets.iter().enumerate() {
            for (b, right) in sets.iter().enumerate() {
                assert_eq!(left.union(right), sets[a | b]);
                assert_eq!(left.intersect(right), sets[a & b]);
                assert_eq!(left.subtract(right), sets[a & !b]);
            }
            assert_eq!(
                [0, 3, 65532].map(|n| left.contains(n)),
                [0, 3, 4].map(|bit| a >> bit & 1 == 1)
            );
            let middle = NumberRange {
                first: 2,
                last: u16::MAX - 2,
            };
            assert_eq!(left.intersect_range(middle), sets[a & 0b0011_1100]);
        }
    }

    #[test]
    fn prefixes_are_the_shortest_list() {
        assert_eq!(shown(&nets(&["0.0.0.0/0"]), Family::V4), ["0.0.0.0/0"]);
        assert_eq!(shown(&nets(&["::/0"]), Family::V6), ["::/0"]);
        assert_eq!(
            shown(&nets(&["10.0.0.0/9", "10.128.0.0/9"]), Family::V4),
            ["10.0.0.0/8"]
        );
        let rest = nets(&["10.0.0.0/8"]).subtract(&nets(&["10.0.0.0/10"]));
        assert_eq!(shown(&rest, Family::V4), ["10.64.0.0/10", "10.128.0.0/9"]);
        let edge = nets(&["::/0"]).subtract(&nets(&["8000::/1"]));
        assert_eq!(shown(&edge, Family::V6), ["::/1"]);
    }
}
