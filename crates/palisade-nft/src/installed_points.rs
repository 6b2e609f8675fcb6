//! Which interfaces and points a table in the kernel has policy for. It reads what it can of each element, so a damaged
//! table can be asked as well; it never tells what the policy is.

use crate::decode::{installed_host_points, interface_address, parse_interface};
use crate::names;
use crate::{Bytes, ElementKey, Ruleset};
use alloc::collections::BTreeSet;
use palisade_model::{Direction, Family, Str};
use palisade_tables::Point;

/// The interfaces that a table in the kernel applies policy to, and the points with policy.
pub fn installed_points(ruleset: &Ruleset) -> (BTreeSet<Str>, BTreeSet<Point>) {
    let mut points: BTreeSet<Point> = installed_host_points(ruleset).into_iter().collect();
    for (family, direction) in Family::BOTH
        .into_iter()
        .flat_map(|family| Direction::BOTH.map(|direction| (family, direction)))
    {
        let workloads = keys(ruleset, names::point_map(family, direction));
        points.extend(workloads.filter_map(|bytes| {
            let (interface, address) = interface_address(bytes)?;
            Some(Point::of_workload(interface, address, direction))
        }));
        let hairpin = keys(ruleset, names::hairpin_point_map(family, direction));
        points.extend(hairpin.filter_map(|bytes| {
            let (interface, address) = interface_address(bytes)?;
            Some(Point::of_hairpin(interface, address, direction))
        }));
    }
    let interfaces = keys(ruleset, names::IF_OURS).filter_map(|bytes| parse_interface(bytes));
    (interfaces.collect(), points)
}

/// The keys of one value in a set.
fn keys<'r>(ruleset: &'r Ruleset, set: &str) -> impl Iterator<Item = &'r Bytes> {
    let set = ruleset.sets.get(set).into_iter();
    let keys = set.flat_map(|set| set.elements.keys());
    keys.filter_map(|key| match key {
        ElementKey::Exact(bytes) => Some(bytes),
        ElementKey::Range(..) | ElementKey::CatchAll => None,
    })
}
