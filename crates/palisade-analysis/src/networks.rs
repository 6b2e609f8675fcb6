//! A part of the outside in as few networks as there can be, for people: networks with exceptions.
//!
//! Addresses that workloads hold are neither asked for nor to be kept out, because other rows speak
//! of them. What is written holds every wanted address and no other that no workload holds.

use crate::region::{Region, address};
use palisade_model::{Family, Prefix};
use std::fmt;

/// A network without some of its parts.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Network {
    /// The network.
    pub all: Prefix,
    /// What of it is not meant.
    pub except: Vec<Prefix>,
}

/// The shortest way to write what lies inside one prefix.
#[derive(Clone, Debug, Default)]
struct Shortest {
    /// Where nothing around says that it is meant.
    outside: Vec<Network>,
    /// Where a network around it is meant: what to take out, and what of that to add again.
    inside: (Vec<Prefix>, Vec<Network>),
}

/// The wanted part of a family in the fewest networks; `held` may be covered or not, as it suits.
pub(crate) fn networks(family: Family, wanted: &Region, held: &Region) -> Vec<Network> {
    let all = Prefix::all(family);
    let everything = Region::of_ranges(family, vec![all.bounds()]);
    let unwanted = everything.without(wanted).without(held).smoothed(held);
    let wanted = wanted.smoothed(held);
    let mut shown = shortest(all, wanted.ranges(), unwanted.ranges()).outside;
    shown.sort_by_key(|network| network.all);
    shown
}

fn shortest(at: Prefix, wanted: &[(u128, u128)], unwanted: &[(u128, u128)]) -> Shortest {
    let (wanted, unwanted) = (within(wanted, at), within(unwanted, at));
    let whole = |all, except| Network { all, except };
    match (wanted.is_empty(), unwanted.is_empty()) {
        (true, true) => return Shortest::default(),
        (false, true) => {
            return Shortest {
                outside: vec![whole(tight(at, wanted), Vec::new())],
                inside: Default::default(),
            };
        }
        (true, false) => {
            return Shortest {
                outside: Vec::new(),
                inside: (vec![tight(at, unwanted)], Vec::new()),
            };
        }
        (false, false) => {}
    }
    let mut parts = Shortest::default();
    for half in halves(at) {
        let half = shortest(half, wanted, unwanted);
        parts.outside.extend(half.outside);
        parts.inside.0.extend(half.inside.0);
        parts.inside.1.extend(half.inside.1);
    }
    let (inside, outside) = (parts.inside, parts.outside);
    let (cost_inside, cost_outside) = (inside.0.len() + cost(&inside.1), cost(&outside));
    Shortest {
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

/// The smallest prefix with the same ranges: no network is named that only workloads live in.
fn tight(mut at: Prefix, ranges: &[(u128, u128)]) -> Prefix {
    loop {
        let mut taken = halves(at).filter(|half| !within(ranges, *half).is_empty());
        match (taken.next(), taken.next()) {
            (Some(half), None) => at = half,
            _ => return at,
        }
    }
}

fn cost(networks: &[Network]) -> usize {
    networks.iter().map(|n| 1 + n.except.len()).sum()
}

/// Those of ascending ranges that have addresses in a prefix.
fn within(ranges: &[(u128, u128)], at: Prefix) -> &[(u128, u128)] {
    let (first, last) = at.bounds();
    let from = ranges.partition_point(|range| range.1 < first);
    let to = ranges.partition_point(|range| range.0 <= last);
    ranges.get(from..to).unwrap_or_default()
}

fn halves(of: Prefix) -> impl Iterator<Item = Prefix> {
    let length = of.length() + 1;
    let (first, last) = of.bounds();
    let middle = first + (last - first) / 2 + 1;
    let numbers = (length <= of.family().bits()).then_some([first, middle]);
    let halves = numbers.into_iter().flatten();
    halves.map(move |number| Prefix::new(address(of.family(), number), length))
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.all.fmt(f)?;
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

    fn region(family: Family, nets: &[&str]) -> Region {
        let ranges = nets.iter().map(|n| n.parse::<Prefix>().unwrap().bounds());
        Region::of_ranges(family, ranges.collect())
    }

    fn shown(networks: Vec<Network>) -> Vec<String> {
        networks.iter().map(ToString::to_string).collect()
    }

    /// (family, wanted, of that not, held, what is written)
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
            // Beside the one exception there is an address that a workload holds.
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
        for (family, all, except, held, expected) in cases {
            let held = region(family, held);
            let wanted = region(family, all)
                .without(&region(family, except))
                .without(&held);
            let shown = shown(networks(family, &wanted, &held)).join("; ");
            assert_eq!(shown, expected, "{all:?} without {except:?}");
        }
    }

    #[test]
    fn what_is_added_again_is_a_network_of_its_own() {
        let all = region(Family::V4, &["0.0.0.0/0"]).without(&region(Family::V4, &["10.0.0.0/8"]));
        let wanted = all.or(&region(Family::V4, &["10.1.0.0/16"]));
        let shown = shown(networks(Family::V4, &wanted, &Region::empty(Family::V4)));
        assert_eq!(shown, ["0.0.0.0/0 except 10.0.0.0/8", "10.1.0.0/16"]);
    }
}
