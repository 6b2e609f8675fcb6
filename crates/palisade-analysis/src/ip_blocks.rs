//! Writes a part of the outside as the fewest networks with exceptions, for display.
//!
//! Addresses that workloads hold may be covered or not, because other rows list them. The networks
//! contain every wanted address, and no unwanted address except those that workloads hold.

use palisade_model::{Family, NumberRange, Prefix, RangeSet, address_from_number};
use std::fmt;

/// A network with exceptions.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct IpBlock {
    /// The network.
    pub cidr: Prefix,
    /// The excluded parts of the network.
    pub except: Vec<Prefix>,
}

/// The shortest cover of the wanted addresses of one prefix.
#[derive(Clone, Debug, Default)]
struct ShortestCover {
    /// The cover if no enclosing network covers the prefix.
    outside: Vec<IpBlock>,
    /// If an enclosing network covers the prefix: the exceptions to it, and the networks inside
    /// those exceptions that are wanted.
    inside: (Vec<Prefix>, Vec<IpBlock>),
}

/// The fewest networks for `wanted`. `workload_addresses` may be covered or not.
pub(crate) fn shortest_ip_blocks(
    family: Family,
    wanted: &RangeSet<u128>,
    workload_addresses: &RangeSet<u128>,
) -> Vec<IpBlock> {
    let all = Prefix::all(family);
    let everything = RangeSet::from(NumberRange::from(all));
    let unwanted = everything.subtract(wanted).subtract(workload_addresses);
    let unwanted = fill_gaps(family, &unwanted, workload_addresses);
    let wanted = fill_gaps(family, wanted, workload_addresses);
    let mut shown = shortest_cover(all, &wanted, &unwanted).outside;
    shown.sort_by_key(|network| network.cidr);
    shown
}

/// The union of a set and the ranges of `free` that it encloses.
fn fill_gaps(family: Family, set: &RangeSet<u128>, free: &RangeSet<u128>) -> RangeSet<u128> {
    let (_, end) = Prefix::all(family).bounds();
    let is_enclosed = |range: &&NumberRange<u128>| {
        let below = range.first == 0 || set.contains(range.first - 1);
        let above = range.last == end || set.contains(range.last + 1);
        below && above && !set.is_empty()
    };
    let enclosed = free.ranges().iter().filter(is_enclosed).copied();
    set.union(&enclosed.collect())
}

fn shortest_cover(at: Prefix, wanted: &RangeSet<u128>, unwanted: &RangeSet<u128>) -> ShortestCover {
    let whole = |all, except| IpBlock { cidr: all, except };
    match (overlaps(wanted, at), overlaps(unwanted, at)) {
        (false, false) => return ShortestCover::default(),
        (true, false) => {
            return ShortestCover {
                outside: vec![whole(shrink_prefix(at, wanted), Vec::new())],
                inside: Default::default(),
            };
        }
        (false, true) => {
            return ShortestCover {
                outside: Vec::new(),
                inside: (vec![shrink_prefix(at, unwanted)], Vec::new()),
            };
        }
        (true, true) => {}
    }
    let mut parts = ShortestCover::default();
    for half in halves(at) {
        let half = shortest_cover(half, wanted, unwanted);
        parts.outside.extend(half.outside);
        parts.inside.0.extend(half.inside.0);
        parts.inside.1.extend(half.inside.1);
    }
    let (inside, outside) = (parts.inside, parts.outside);
    let (cost_inside, cost_outside) = (inside.0.len() + cost(&inside.1), cost(&outside));
    ShortestCover {
        outside: if cost_inside + 1 < cost_outside {
            let mut networks = vec![whole(at, inside.0.clone())];
            networks.extend(inside.1.clone());
            networks
        } else {
            outside.clone()
        },
        inside: if cost_outside + 1 < cost_inside {
            (vec![at], outside)
        } else {
            inside
        },
    }
}

/// The smallest prefix with the same ranges: parts with workload addresses only are left out.
fn shrink_prefix(mut at: Prefix, set: &RangeSet<u128>) -> Prefix {
    loop {
        let mut taken = halves(at).filter(|half| overlaps(set, *half));
        match (taken.next(), taken.next()) {
            (Some(half), None) => at = half,
            _ => return at,
        }
    }
}

fn cost(networks: &[IpBlock]) -> usize {
    networks.iter().map(|n| 1 + n.except.len()).sum()
}

/// Whether the set has addresses in a prefix.
fn overlaps(set: &RangeSet<u128>, at: Prefix) -> bool {
    !set.overlapping(at.into()).is_empty()
}

fn halves(prefix: Prefix) -> impl Iterator<Item = Prefix> {
    let length = prefix.length() + 1;
    let (first, last) = prefix.bounds();
    let middle = first + (last - first) / 2 + 1;
    let numbers = (length <= prefix.family().bits()).then_some([first, middle]);
    let halves = numbers.into_iter().flatten();
    halves.map(move |number| Prefix::new(address_from_number(prefix.family(), number), length))
}

impl fmt::Display for IpBlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.cidr.fmt(f)?;
        for (at, except) in self.except.iter().enumerate() {
            let before = if at == 0 { " except " } else { " and " };
            write!(f, "{before}{except}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn region(nets: &[&str]) -> RangeSet<u128> {
        let range = |net: &&str| NumberRange::from(net.parse::<Prefix>().unwrap());
        nets.iter().map(range).collect()
    }

    fn shown(networks: Vec<IpBlock>) -> Vec<String> {
        networks.iter().map(ToString::to_string).collect()
    }

    /// (family, wanted, exceptions of that, workload addresses, expected output)
    type Case<'a> = (Family, &'a [&'a str], &'a [&'a str], &'a [&'a str], &'a str);

    #[test]
    fn the_shortest_way_is_taken() {
        let cases: [Case<'_>; 9] = [
            (Family::V4, &[], &[], &[], ""),
            (
                Family::V4,
                &["0.0.0.0/0"],
                &[],
                &["10.0.0.1/32"],
                "0.0.0.0/0",
            ),
            (
                Family::V4,
                &["0.0.0.0/0"],
                &["128.0.0.0/1"],
                &[],
                "0.0.0.0/1",
            ),
            (
                Family::V4,
                &["0.0.0.0/0"],
                &["10.0.0.0/8"],
                &[],
                "0.0.0.0/0 except 10.0.0.0/8",
            ),
            (
                Family::V6,
                &["::/0"],
                &["fd00:1::/64"],
                &[],
                "::/0 except fd00:1::/64",
            ),
            // The address adjacent to the exception is held by a workload.
            (
                Family::V6,
                &["fd00:1::/64"],
                &["fd00:1::2/128"],
                &["fd00:1::1/128"],
                "fd00:1::/64 except fd00:1::2/128",
            ),
            (
                Family::V4,
                &["10.0.0.0/8"],
                &["10.1.0.0/16", "10.9.0.0/16"],
                &["10.1.0.9/32"],
                "10.0.0.0/8 except 10.1.0.0/16 and 10.9.0.0/16",
            ),
            (
                Family::V4,
                &["10.0.0.0/8", "192.168.0.0/16"],
                &["192.168.7.0/24"],
                &[],
                "10.0.0.0/8; 192.168.0.0/16 except 192.168.7.0/24",
            ),
            (
                Family::V4,
                &["10.0.0.1/32"],
                &[],
                &["10.0.0.0/32"],
                "10.0.0.1/32",
            ),
        ];
        for (family, all, except, taken, expected) in cases {
            let taken = region(taken);
            let wanted = region(all).subtract(&region(except)).subtract(&taken);
            let shown = shown(shortest_ip_blocks(family, &wanted, &taken)).join("; ");
            assert_eq!(shown, expected, "{all:?} without {except:?}");
        }
    }

    #[test]
    fn what_is_added_again_is_a_network_of_its_own() {
        let all = region(&["0.0.0.0/0"]).subtract(&region(&["10.0.0.0/8"]));
        let wanted = all.union(&region(&["10.1.0.0/16"]));
        let shown = shown(shortest_ip_blocks(
            Family::V4,
            &wanted,
            &RangeSet::default(),
        ));
        assert_eq!(shown, ["0.0.0.0/0 except 10.0.0.0/8", "10.1.0.0/16"]);
    }

    #[test]
    fn gaps_that_workloads_hold_are_filled() {
        let all = region(&["0.0.0.0/0"]);
        let holes = region(&["0.0.0.0/32", "10.0.0.5/32", "255.255.255.255/32"]);
        assert_eq!(fill_gaps(Family::V4, &all.subtract(&holes), &holes), all);
    }
}
