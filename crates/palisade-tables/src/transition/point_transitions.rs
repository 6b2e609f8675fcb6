//! How points change their policy set.
//!
//! In one write, where verdicts change in one direction only and the classes of the sets do not change
//! meanwhile; otherwise through an interim set of intersections.

use super::class_comparison::{ClassComparison, VerdictChange};
use super::class_transitions::identities_in_set;
use super::interim_identities::InterimIdentities;
use super::{PhasedChanges, TransitionContext, class_of};
use crate::{ClassId, IdentityId, Point, PolicySet, PolicySetId, TableChange, Tables};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use palisade_model::Direction;

/// What judges the packets of a point.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum PointState {
    /// None, and the interface is not managed: everything passes.
    Open,
    /// None, and the interface is managed or closed by the dataplane: everything is denied.
    Denied,
    /// A policy set.
    Set(PolicySetId),
}

/// The points whose policy set changes.
pub(super) struct PointTransitions {
    points_by_transition: BTreeMap<(PointState, PointState), Vec<Point>>,
}

impl PointTransitions {
    /// The distinct changes.
    pub(super) fn transitions(&self) -> impl Iterator<Item = (&PointState, &PointState)> {
        self.points_by_transition
            .keys()
            .map(|(source, target)| (source, target))
    }
}

fn point_state(context: &TransitionContext<'_>, tables: &Tables, point: &Point) -> PointState {
    let name = &point.interface;
    if !tables.interfaces.contains(name) && !(context.hints.is_closed_interface)(name) {
        return PointState::Open;
    }
    let set = tables.points.get(point);
    set.map_or(PointState::Denied, |set| PointState::Set(*set))
}

/// The state of a point in the new tables.
fn new_state(context: &TransitionContext<'_>, point: &Point) -> PointState {
    let is_spoofed =
        point.direction == Direction::Egress && (context.hints.is_own_address)(point.address);
    match point_state(context, context.new, point) {
        PointState::Open if is_spoofed => PointState::Denied,
        state => state,
    }
}

/// The points that change, by their old and new state.
pub(super) fn point_transitions(context: &TransitionContext<'_>) -> PointTransitions {
    let mut points_by_transition: BTreeMap<(PointState, PointState), Vec<Point>> = BTreeMap::new();
    for point in &context.differences.points {
        let transition = (
            point_state(context, context.old, point),
            new_state(context, point),
        );
        points_by_transition
            .entry(transition)
            .or_default()
            .push(point.clone());
    }
    PointTransitions {
        points_by_transition,
    }
}

/// Writes the changes. Returns whether points that leave a set must leave it before classes change.
pub(super) fn write_changes(
    context: &TransitionContext<'_>,
    classes: &mut ClassComparison<'_>,
    interim: &InterimIdentities,
    transitions: &PointTransitions,
    changing: &BTreeSet<PolicySetId>,
    phased: &mut PhasedChanges,
) -> bool {
    let mut leave_separately = false;
    for ((source, target), points) in &transitions.points_by_transition {
        let put = |changes: &mut Vec<TableChange>, set: Option<PolicySetId>| {
            changes.extend(points.iter().map(|p| TableChange::Point(p.clone(), set)));
        };
        // A point on an interface that is not judged may have an entry, which no packet reaches.
        let put_unreached = |changes: &mut Vec<TableChange>| {
            for point in points {
                let set = context.new.points.get(point).copied();
                changes.push(TableChange::Point(point.clone(), set));
            }
        };
        let still =
            |side: &PointState| !matches!(side, PointState::Set(set) if changing.contains(set));
        let relation = verdict_change(context, classes, interim, *source, *target);
        match (*source, *target) {
            (PointState::Denied, PointState::Set(to)) => put(&mut phased.loosen, Some(to)),
            (PointState::Set(_), PointState::Denied) => put(&mut phased.leave, None),
            (PointState::Open, PointState::Set(to)) if still(target) => {
                put(&mut phased.split, Some(to))
            }
            (PointState::Set(_), PointState::Open) if still(source) => {
                put_unreached(&mut phased.delete);
            }
            (PointState::Set(_), PointState::Set(to)) if !relation.tightens && still(source) => {
                put(&mut phased.loosen, Some(to));
            }
            (PointState::Set(_), PointState::Set(to)) if !relation.loosens && still(target) => {
                put(&mut phased.leave, Some(to));
                leave_separately |= !still(source);
            }
            (PointState::Open | PointState::Denied, PointState::Open | PointState::Denied) => {
                put_unreached(&mut phased.split);
            }
            (source, target) => {
                let interim_set = classes.ids.allocate_set();
                write_interim_set(
                    context,
                    classes,
                    interim,
                    source,
                    target,
                    interim_set,
                    phased,
                );
                match source {
                    PointState::Set(_) => {
                        put(&mut phased.leave, Some(interim_set));
                        leave_separately |= !still(&source);
                    }
                    _ => put(&mut phased.split, Some(interim_set)),
                }
                match target {
                    PointState::Set(to) => put(&mut phased.loosen, Some(to)),
                    _ => put_unreached(&mut phased.delete),
                }
            }
        }
    }
    leave_separately
}

/// The identities that either side may distinguish from the unknown identity.
fn affected_identities(
    context: &TransitionContext<'_>,
    interim: &InterimIdentities,
    source: PointState,
    target: PointState,
) -> BTreeSet<IdentityId> {
    let mut identities = interim.transitional.clone();
    if let PointState::Set(set) = source {
        identities.extend(identities_in_set(context.old, set));
    }
    if let PointState::Set(set) = target {
        identities.extend(identities_in_set(context.new, set));
    }
    identities.insert(IdentityId::UNKNOWN);
    identities.retain(|identity| interim.is_in_use(context, *identity));
    identities
}

/// How verdicts change with the change from one set to another.
fn verdict_change(
    context: &TransitionContext<'_>,
    classes: &mut ClassComparison<'_>,
    interim: &InterimIdentities,
    source: PointState,
    target: PointState,
) -> VerdictChange {
    let (PointState::Set(from), PointState::Set(to)) = (source, target) else {
        return VerdictChange::SAME;
    };
    let mut all = VerdictChange::SAME;
    for identity in affected_identities(context, interim, source, target) {
        let first = interim.initial_class(context, from, identity);
        let last = interim.final_class(context, to, identity);
        all = all.union(classes.verdict_change(first, last));
    }
    all
}

/// Writes an interim set that allows what both sides allow.
fn write_interim_set(
    context: &TransitionContext<'_>,
    classes: &mut ClassComparison<'_>,
    interim: &InterimIdentities,
    source: PointState,
    target: PointState,
    interim_set: PolicySetId,
    phased: &mut PhasedChanges,
) {
    let mut intersection = |identity: IdentityId| -> ClassId {
        match (source, target) {
            (PointState::Set(from), PointState::Set(to)) => {
                let first = interim.initial_class(context, from, identity);
                let last = interim.final_class(context, to, identity);
                classes.intersection(first, last)
            }
            (PointState::Set(from), _) => interim.initial_class(context, from, identity),
            (_, PointState::Set(to)) => interim.final_class(context, to, identity),
            _ => class_of(context.new, interim_set, identity),
        }
    };
    let default = intersection(IdentityId::UNKNOWN);
    phased
        .split
        .push(TableChange::Set(interim_set, Some(PolicySet { default })));
    for identity in affected_identities(context, interim, source, target) {
        let class = intersection(identity);
        if class != default {
            let entry = TableChange::Class(interim_set, identity, Some(class));
            phased.split.push(entry);
            phased
                .delete
                .push(TableChange::Class(interim_set, identity, None));
        }
    }
    phased.delete.push(TableChange::Set(interim_set, None));
}
