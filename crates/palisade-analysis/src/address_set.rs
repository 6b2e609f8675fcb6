//! Sets of addresses of one family, and their shortest list of prefixes.

use palisade_model::{Family, Prefix};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A set of addresses of one family, as ascending inclusive ranges that are not adjacent. Canonical:
/// equal sets are equal values.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct AddressSet {
    family: Family,
    ranges: Vec<(u128, u128)>,
}

/// An address as a number: IPv4 in the low 32 bits.
pub(crate) fn address_to_number(address: IpAddr) -> u128 {
    Prefix::host(address).bounds().0
}

/// The address of a family with this number.
pub(crate) fn address_from_number(family: Family, number: u128) -> IpAddr {
    match family {
        Family::V4 => IpAddr::V4(Ipv4Addr::from(u32::try_from(number).unwrap_or(u32::MAX))),
        Family::V6 => IpAddr::V6(Ipv6Addr::from(number)),
    }
}

impl AddressSet {
    /// The empty set.
    pub fn empty(family: Family) -> Self {
        AddressSet {
            family,
            ranges: Vec::new(),
        }
    }

    /// The union of these ranges, which may overlap and be in any order.
    pub fn from_ranges(family: Family, mut ranges: Vec<(u128, u128)>) -> Self {
        ranges.sort_unstable();
        let mut joined: Vec<(u128, u128)> = Vec::new();
        for (first, last) in ranges {
            match joined.last_mut() {
                Some(before) if first <= before.1.saturating_add(1) => {
                    before.1 = before.1.max(last);
                }
                _ => joined.push((first, last)),
            }
        }
        AddressSet {
            family,
            ranges: joined,
        }
    }

    /// Its ranges, ascending.
    pub fn ranges(&self) -> &[(u128, u128)] {
        &self.ranges
    }

    /// Whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// The lowest address of the set.
    pub fn first(&self) -> Option<IpAddr> {
        let (first, _) = self.ranges.first()?;
        Some(address_from_number(self.family, *first))
    }

    /// Whether the set contains an address.
    pub fn contains(&self, wanted: IpAddr) -> bool {
        let at = address_to_number(wanted);
        Family::of(wanted) == self.family
            && self
                .ranges
                .iter()
                .any(|(first, last)| (*first..=*last).contains(&at))
    }

    /// The part of the set in a range.
    pub(crate) fn intersect_range(&self, first: u128, last: u128) -> AddressSet {
        let from = self.ranges.partition_point(|range| range.1 < first);
        let to = self.ranges.partition_point(|range| range.0 <= last);
        let inside = self.ranges.get(from..to).unwrap_or_default().iter();
        let clipped = inside.map(|(from, to)| (first.max(*from), last.min(*to)));
        AddressSet::from_ranges(self.family, clipped.collect())
    }

    /// The union of both.
    pub fn union(&self, other: &AddressSet) -> AddressSet {
        AddressSet::from_ranges(self.family, [&self.ranges[..], &other.ranges].concat())
    }

    /// The addresses of this set that are not in the other.
    pub fn subtract(&self, other: &AddressSet) -> AddressSet {
        let mut left = Vec::new();
        let mut holes = other.ranges.iter().peekable();
        for (first, last) in &self.ranges {
            let mut next = Some(*first);
            while let (Some(from), Some((hole_first, hole_last))) = (next, holes.peek().copied()) {
                if hole_last < &from {
                    holes.next();
                } else if hole_first > last {
                    break;
                } else {
                    if *hole_first > from {
                        left.push((from, hole_first - 1));
                    }
                    next = hole_last.checked_add(1).filter(|n| n <= last);
                }
            }
            left.extend(next.map(|from| (from, *last)));
        }
        AddressSet::from_ranges(self.family, left)
    }

    /// The intersection of both.
    pub fn intersect(&self, other: &AddressSet) -> AddressSet {
        self.subtract(&self.subtract(other))
    }

    /// The shortest list of prefixes whose union is this set, ascending.
    pub fn prefixes(&self) -> Vec<Prefix> {
        let bits = u32::from(self.family.bits());
        let mut prefixes = Vec::new();
        for (first, last) in &self.ranges {
            let mut next = Some(*first);
            while let Some(from) = next {
                let room = match (last - from).checked_add(1) {
                    Some(count) => count.ilog2(),
                    None => 128,
                };
                let size = from.trailing_zeros().min(bits).min(room);
                let length = u8::try_from(bits - size).unwrap_or(0);
                let prefix = Prefix::new(address_from_number(self.family, from), length);
                prefixes.push(prefix);
                next = prefix.bounds().1.checked_add(1).filter(|n| n <= last);
            }
        }
        prefixes
    }

    /// The union of this set and the ranges of `free` that it encloses. Used for output in which the
    /// addresses of `free` are listed elsewhere, so that they make no holes.
    pub fn fill_gaps(&self, free: &AddressSet) -> AddressSet {
        let touches = |(first, last): &&(u128, u128)| {
            let end = match self.family {
                Family::V4 => u128::from(u32::MAX),
                Family::V6 => u128::MAX,
            };
            let below = *first == 0 || self.contains(address_from_number(self.family, first - 1));
            let above = *last == end || self.contains(address_from_number(self.family, last + 1));
            below && above && !self.is_empty()
        };
        let enclosed = free.ranges.iter().filter(touches).copied().collect();
        self.union(&AddressSet::from_ranges(self.family, enclosed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn region(nets: &[&str]) -> AddressSet {
        let ranges = nets.iter().map(|n| n.parse::<Prefix>().unwrap().bounds());
        let family = nets[0].parse::<Prefix>().unwrap().family();
        AddressSet::from_ranges(family, ranges.collect())
    }

    fn shown(region: &AddressSet) -> Vec<String> {
        region.prefixes().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn prefixes_are_the_shortest_list() {
        assert_eq!(shown(&region(&["0.0.0.0/0"])), ["0.0.0.0/0"]);
        assert_eq!(shown(&region(&["::/0"])), ["::/0"]);
        assert_eq!(
            shown(&region(&["10.0.0.0/9", "10.128.0.0/9"])),
            ["10.0.0.0/8"]
        );
        let rest = region(&["10.0.0.0/8"]).subtract(&region(&["10.0.0.0/10"]));
        assert_eq!(shown(&rest), ["10.64.0.0/10", "10.128.0.0/9"]);
        let edge = region(&["::/0"]).subtract(&region(&["8000::/1"]));
        assert_eq!(shown(&edge), ["::/1"]);
    }

    #[test]
    fn differences_and_intersections() {
        let all = region(&["0.0.0.0/0"]);
        let holes = region(&["0.0.0.0/32", "10.0.0.5/32", "255.255.255.255/32"]);
        let rest = all.subtract(&holes);
        assert_eq!(rest.ranges().len(), 2);
        assert_eq!(rest.union(&holes), all);
        assert_eq!(rest.intersect(&holes), AddressSet::empty(Family::V4));
        assert_eq!(all.intersect(&holes), holes);
        assert_eq!(rest.fill_gaps(&holes), all);
    }
}
