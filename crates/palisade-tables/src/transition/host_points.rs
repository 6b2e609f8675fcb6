//! How the points of host interfaces change.
//!
//! The longest prefix decides, so a point that is added first repeats the set of the point above it, and a point
//! that is removed first gets the set of the one that will be above it: a row never appears or disappears at the
//! moment in which verdicts change. An interface that gets points of its own first has copies of those of
//! [`PointInterface::AnyHost`]; one that loses them goes back by the same way.

use super::judging_positions::ChangeTime;
use super::point_state::PointState;
use super::{PhasedChanges, TransitionContext};
use crate::{Point, PointInterface, PolicySetId, TableChange, Tables};
use alloc::collections::BTreeSet;
use core::ops::Bound;
use palisade_model::{Direction, Family, PolicyStage, Prefix, Str};

/// The set that decides for the addresses of a point of a host interface, whether the tables have the point or only
/// one above it. `None` where nothing is judged.
pub(super) fn set_of(tables: &Tables, point: &Point) -> Option<PolicySetId> {
    let interface = match &point.interface {
        PointInterface::Host(name) if !tables.host_interfaces.contains(name) => {
            &PointInterface::AnyHost
        }
        interface => interface,
    };
    let mut above = Point {
        interface: interface.clone(),
        ..point.clone()
    };
    loop {
        if let Some(set) = tables.points.get(&above) {
            return Some(*set);
        }
        above.local = above.local.parent()?;
    }
}

/// The points of an interface, in either family.
pub(super) fn points_of<'a>(
    tables: &'a Tables,
    interface: &PointInterface,
) -> impl Iterator<Item = &'a Point> {
    let first = Point {
        interface: interface.clone(),
        stage: PolicyStage::Untracked,
        direction: Direction::BOTH
            .into_iter()
            .min()
            .unwrap_or(Direction::Ingress),
        local: Prefix::all(Family::V4),
    };
    let interface = interface.clone();
    let from = tables
        .points
        .range((Bound::Included(first), Bound::Unbounded));
    from.map(|(point, _)| point)
        .take_while(move |point| point.interface == interface)
}

/// The points of host interfaces and of hairpin traffic, at which nothing is judged without a set, whose set may change, with those that exist during the transition only.
pub(super) fn changed_points(context: &TransitionContext<'_>) -> BTreeSet<Point> {
    let differences = context.differences;
    let listed = differences.points.iter();
    let mut points: BTreeSet<Point> = listed
        .filter(|point| point.workload().is_none())
        .cloned()
        .collect();
    for name in &differences.host_interfaces {
        let interface = PointInterface::Host(name.clone());
        for tables in [context.old, context.new] {
            for from in [&interface, &PointInterface::AnyHost] {
                points.extend(points_of(tables, from).map(|point| Point {
                    interface: interface.clone(),
                    ..point.clone()
                }));
            }
        }
    }
    points
}

/// Writes the changes of points that go from one state to another.
pub(super) fn write_changes(
    context: &TransitionContext<'_>,
    (source, target): (PointState, PointState),
    writes: &[(ChangeTime, Option<PolicySetId>)],
    points: &[Point],
    phased: &mut PhasedChanges,
) {
    for point in points {
        let put = |set| TableChange::Point(point.clone(), set);
        if let (Some(from), false) = (source.set(), context.old.points.contains_key(point)) {
            phased.split.push(put(Some(from)));
        }
        for (time, set) in writes {
            time.changes(phased).push(put(*set));
        }
        if target.set().is_some() && !context.new.points.contains_key(point) {
            phased.delete.push(put(None));
        }
    }
}

/// The order of the changes of points of host interfaces among themselves: a longer prefix is written before the one
/// above it, and removed after it.
pub(super) fn rank(change: &TableChange) -> i16 {
    match change {
        TableChange::Point(point, set) if point.is_host() => {
            let length = i16::from(point.local.length());
            if set.is_some() { -length } else { length }
        }
        _ => 0,
    }
}

/// Writes which interfaces have points of their own.
pub(super) fn write_interfaces(context: &TransitionContext<'_>, phased: &mut PhasedChanges) {
    for name in &context.differences.host_interfaces {
        let is_own = context.new.host_interfaces.contains(name);
        let change = TableChange::HostInterface(Str::clone(name), is_own);
        if is_own {
            phased.split.push(change)
        } else {
            phased.merge.push(change)
        }
    }
}
