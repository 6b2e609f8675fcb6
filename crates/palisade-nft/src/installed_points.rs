//! Which interfaces and points a table in the kernel has policy for. It reads keys only, so a damaged table can be
//! asked as well; it never tells what the policy is.

use crate::decode::{parse_address, parse_interface};
use crate::names;
use crate::{ElementKey, Ruleset};
use alloc::collections::BTreeSet;
use core::net::IpAddr;
use palisade_model::{Direction, Family, Str};

/// The interfaces that a table in the kernel applies policy to, and the points with policy.
pub fn installed_points(ruleset: &Ruleset) -> (BTreeSet<Str>, BTreeSet<(Str, IpAddr)>) {
    let keys = |name: &str| {
        let set = ruleset.sets.get(name).into_iter();
        set.flat_map(|set| set.elements.keys())
            .filter_map(|key| match key {
                ElementKey::Exact(bytes) => Some(bytes),
                _ => None,
            })
    };
    let mut points = BTreeSet::new();
    for family in Family::BOTH {
        for direction in Direction::BOTH {
            points.extend(
                keys(names::point_map(family, direction)).filter_map(|bytes| {
                    let (name, rest) = bytes.split_at_checked(16)?;
                    Some((parse_interface(name)?, parse_address(rest)?))
                }),
            );
        }
    }
    let interfaces = keys(names::IF_OURS).filter_map(|bytes| parse_interface(bytes));
    (interfaces.collect(), points)
}
