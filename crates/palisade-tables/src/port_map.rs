//! Total functions from a 16-bit number (a port, or an ICMP type and code) to a value.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use palisade_model::PortRange;

/// The number of distinct values up to which they are searched linearly, without a map.
const SMALL_VALUE_COUNT: usize = 8;

/// A total function over 0–65535, in canonical form: `entries` are sorted, disjoint, not mergeable
/// and differ from `default`; `default` is the value of most numbers (on a tie, the value whose first
/// range starts lowest). Equal functions are equal values.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PortMap<T> {
    entries: Vec<(PortRange, T)>,
    default: T,
}

impl<T: Clone + Ord> PortMap<T> {
    /// The function with one value for every number.
    pub fn constant(value: T) -> Self {
        PortMap {
            entries: Vec::new(),
            default: value,
        }
    }

    /// The function with these values, each up to and including the number at which it ends. The ends
    /// ascend. If the last is less than 65535, its value continues to 65535.
    ///
    /// Returns `None` for an empty list.
    pub fn from_segments(segments: impl IntoIterator<Item = (u16, T)>) -> Option<Self> {
        let mut merged: Vec<(PortRange, T)> = Vec::new();
        let mut next: u32 = 0;
        for (end, value) in segments {
            if u32::from(end) < next {
                continue;
            }
            match merged.last_mut() {
                Some((range, last)) if *last == value => range.last = end,
                _ => merged.push((
                    PortRange {
                        first: next as u16,
                        last: end,
                    },
                    value,
                )),
            }
            next = u32::from(end) + 1;
        }
        if let Some((range, _)) = merged.last_mut() {
            range.last = u16::MAX;
        }
        let default = Self::most_common_value(&merged)?;
        merged.retain(|(_, value)| *value != default);
        Some(PortMap {
            entries: merged,
            default,
        })
    }

    fn most_common_value(segments: &[(PortRange, T)]) -> Option<T> {
        // For each value: how many numbers have it, and the index of its first segment.
        let mut few: Vec<(&T, (u32, usize))> = Vec::new();
        let mut many: BTreeMap<&T, (u32, usize)> = BTreeMap::new();
        for (at, (range, value)) in segments.iter().enumerate() {
            let size = u32::from(range.last) - u32::from(range.first) + 1;
            if many.is_empty() {
                if let Some((_, (total, _))) = few.iter_mut().find(|(seen, _)| *seen == value) {
                    *total += size;
                    continue;
                }
                if few.len() < SMALL_VALUE_COUNT {
                    few.push((value, (size, at)));
                    continue;
                }
                many.extend(few.drain(..));
            }
            many.entry(value).or_insert((0, at)).0 += size;
        }
        let totals = few.into_iter().chain(many);
        let most = totals.max_by_key(|(_, (total, first))| (*total, core::cmp::Reverse(*first)))?;
        Some(most.0.clone())
    }

    /// The value of a number.
    pub fn get(&self, number: u16) -> &T {
        let after = self
            .entries
            .partition_point(|(range, _)| range.first <= number);
        match after.checked_sub(1).map(|i| &self.entries[i]) {
            Some((range, value)) if range.contains(number) => value,
            _ => &self.default,
        }
    }

    /// The ranges whose value differs from the default, sorted and disjoint.
    pub fn entries(&self) -> &[(PortRange, T)] {
        &self.entries
    }

    /// The value of all numbers without an entry.
    pub fn default(&self) -> &T {
        &self.default
    }

    /// The value, if all numbers have the same.
    pub fn as_constant(&self) -> Option<&T> {
        self.entries.is_empty().then_some(&self.default)
    }

    /// Every maximal run of numbers with one value, clipped to `range`.
    pub fn runs_within(&self, range: PortRange) -> impl Iterator<Item = (PortRange, &T)> {
        let mut next = Some(range.first);
        core::iter::from_fn(move || {
            let first = next.filter(|first| *first <= range.last)?;
            let after = self
                .entries
                .partition_point(|(range, _)| range.first <= first);
            let here = after.checked_sub(1).and_then(|at| self.entries.get(at));
            let (last, value) = match here {
                Some((range, value)) if range.last >= first => (range.last, value),
                _ => {
                    let end = self.entries.get(after).map(|(range, _)| range.first - 1);
                    (end.unwrap_or(u16::MAX), &self.default)
                }
            };
            let last = last.min(range.last);
            next = last.checked_add(1);
            Some((PortRange { first, last }, value))
        })
    }

    /// The entries without the numbers that entries of `other` cover.
    pub fn entries_outside<U>(&self, other: &PortMap<U>) -> Vec<(PortRange, &T)> {
        let mut out = Vec::new();
        let mut theirs = other.entries.iter().map(|(range, _)| range).peekable();
        for (range, value) in &self.entries {
            let mut next = u32::from(range.first);
            while theirs.next_if(|other| other.last < range.first).is_some() {}
            while let Some(other) = theirs.peek().filter(|other| other.first <= range.last) {
                if u32::from(other.first) > next {
                    let (first, last) = (next as u16, other.first - 1);
                    out.push((PortRange { first, last }, value));
                }
                next = u32::from(other.last) + 1;
                if other.last > range.last {
                    break;
                }
                theirs.next();
            }
            if next <= u32::from(range.last) {
                let (first, last) = (next as u16, range.last);
                out.push((PortRange { first, last }, value));
            }
        }
        out
    }

    /// Every maximal run of numbers with one value, in order; together they cover 0–65535.
    pub fn runs(&self) -> impl Iterator<Item = (PortRange, &T)> {
        let mut entries = self.entries.iter().peekable();
        let mut next = Some(0);
        core::iter::from_fn(move || {
            let first = next?;
            let (last, value) = match entries.peek() {
                Some((range, _)) if range.first == first => {
                    let (range, value) = entries.next()?;
                    (range.last, value)
                }
                Some((range, _)) => (range.first - 1, &self.default),
                None => (u16::MAX, &self.default),
            };
            next = last.checked_add(1);
            Some((PortRange { first, last }, value))
        })
    }

    /// Whether `holds` is true for the values of both at every number.
    pub fn all_zipped<U: Clone + Ord>(
        &self,
        other: &PortMap<U>,
        mut holds: impl FnMut(&T, &U) -> bool,
    ) -> bool {
        let (mut a, mut b) = (self.runs(), other.runs());
        let (mut mine, mut theirs) = (a.next(), b.next());
        while let (Some((ra, va)), Some((rb, vb))) = (mine, theirs) {
            if !holds(va, vb) {
                return false;
            }
            if ra.last <= rb.last {
                mine = a.next();
            }
            if rb.last <= ra.last {
                theirs = b.next();
            }
        }
        true
    }

    /// [`PortMap::runs`] as a list.
    pub fn segments(&self) -> Vec<(PortRange, &T)> {
        self.runs().collect()
    }

    /// The function that applies `f` to the value of this one.
    pub fn map<U: Clone + Ord>(&self, mut f: impl FnMut(&T) -> U) -> PortMap<U> {
        let segments = self.segments();
        let mapped = segments
            .into_iter()
            .map(|(range, value)| (range.last, f(value)));
        PortMap::from_segments(mapped).unwrap_or_else(|| PortMap::constant(f(&self.default)))
    }

    /// The function that applies `f` to the value of this one, where `f` never gives the same for two
    /// values: the form stays canonical.
    pub(crate) fn map_injective<U>(&self, mut f: impl FnMut(&T) -> U) -> PortMap<U> {
        let entries = self.entries.iter();
        PortMap {
            entries: entries.map(|(range, value)| (*range, f(value))).collect(),
            default: f(&self.default),
        }
    }

    /// The function that applies `f` to the values of both at each number.
    pub fn zip<U: Clone + Ord, V: Clone + Ord>(
        &self,
        other: &PortMap<U>,
        mut f: impl FnMut(&T, &U) -> V,
    ) -> PortMap<V> {
        let (a, b) = (self.segments(), other.segments());
        let (mut i, mut j) = (0, 0);
        let mut out = Vec::with_capacity(a.len() + b.len());
        while let (Some((ra, va)), Some((rb, vb))) = (a.get(i), b.get(j)) {
            let end = ra.last.min(rb.last);
            out.push((end, f(va, vb)));
            i += usize::from(ra.last == end);
            j += usize::from(rb.last == end);
        }
        PortMap::from_segments(out)
            .unwrap_or_else(|| PortMap::constant(f(&self.default, &other.default)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    #[test]
    fn canonical_whatever_the_cut() {
        let a = PortMap::from_segments(vec![(79, 0), (80, 1), (90, 0), (u16::MAX, 0)]).unwrap();
        let b = PortMap::from_segments(vec![(10, 0), (79, 0), (80, 1), (u16::MAX, 0)]).unwrap();
        assert_eq!(a, b);
        assert_eq!(a.entries(), [(PortRange::single(80), 1)]);
        assert_eq!((*a.get(80), *a.get(79), *a.get(81)), (1, 0, 0));
        assert_eq!(
            PortMap::from_segments(vec![(u16::MAX, 3)]).unwrap(),
            PortMap::constant(3)
        );
        assert_eq!(PortMap::<u8>::from_segments(vec![]), None);
    }

    #[test]
    fn default_is_the_value_of_most() {
        let map = PortMap::from_segments(vec![(99, 'a'), (199, 'b'), (299, 'a'), (u16::MAX, 'c')])
            .unwrap();
        assert_eq!(*map.default(), 'c');
        assert_eq!(map.segments().len(), 4);
        let tie = PortMap::from_segments(vec![(0x7fff, 'x'), (0xffff, 'y')]).unwrap();
        assert_eq!(*tie.default(), 'x');
    }

    #[test]
    fn what_is_beside_another_is_what_it_does_not_cover() {
        let a =
            PortMap::from_segments(vec![(9, 0), (99, 1), (199, 0), (299, 2), (0xffff, 0)]).unwrap();
        let range = |first, last| PortRange { first, last };
        for (cuts, beside) in [
            (
                vec![(0xffff, 0)],
                vec![(range(10, 99), &1), (range(200, 299), &2)],
            ),
            (
                vec![
                    (4, 0),
                    (19, 7),
                    (49, 0),
                    (59, 7),
                    (249, 0),
                    (250, 7),
                    (0xffff, 0),
                ],
                vec![
                    (range(20, 49), &1),
                    (range(60, 99), &1),
                    (range(200, 249), &2),
                    (range(251, 299), &2),
                ],
            ),
            (
                vec![(49, 0), (219, 7), (0xffff, 0)],
                vec![(range(10, 49), &1), (range(220, 299), &2)],
            ),
            (
                vec![(9, 0), (99, 7), (0xffff, 0)],
                vec![(range(200, 299), &2)],
            ),
        ] {
            let b = PortMap::from_segments(cuts).unwrap();
            let covered = |n| b.entries().iter().any(|(range, _)| range.contains(n));
            assert_eq!(a.entries_outside(&b), beside);
            for (range, value) in a.entries_outside(&b) {
                for n in range.first..=range.last {
                    assert!(a.get(n) == value && !covered(n));
                }
            }
            let port_count: u32 = a
                .entries_outside(&b)
                .iter()
                .map(|(range, _)| u32::from(range.last) - u32::from(range.first) + 1)
                .sum();
            let plain = (0..=0xffff)
                .filter(|n| *a.get(*n) != 0 && !covered(*n))
                .count();
            assert_eq!(port_count as usize, plain);
        }
    }

    #[test]
    fn zip_and_map_agree_with_points() {
        let a = PortMap::from_segments(vec![(9, 1), (19, 2), (0xffff, 3)]).unwrap();
        let b = PortMap::from_segments(vec![(4, 10), (14, 20), (0xffff, 30)]).unwrap();
        let sum = a.zip(&b, |x, y| x + y);
        for n in [0, 4, 5, 9, 10, 14, 15, 19, 20, 0xffff] {
            assert_eq!(*sum.get(n), a.get(n) + b.get(n));
            assert_eq!(*a.map(|x| x % 2).get(n), a.get(n) % 2);
        }
        assert_eq!(a.map_injective(|x| 9 - x), a.map(|x| 9 - x));
        let mut seen = Vec::new();
        assert!(a.all_zipped(&b, |x, y| {
            seen.push((*x, *y));
            true
        }));
        assert_eq!(seen, [(1, 10), (1, 20), (2, 20), (2, 30), (3, 30)]);
        assert!(!a.all_zipped(&b, |x, _| *x < 3));
    }
}
