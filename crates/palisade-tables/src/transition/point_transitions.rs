//! How points change their policy set.
//!
//! In one write, where verdicts change in one direction only and the classes of the sets do not change
//! meanwhile; otherwise through an interim set of intersections.

use super::class_comparison::{ClassComparison, VerdictChange};
use super::class_transitions::identities_in_set;
use super::host_points;
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

/// How a point gets from one policy set to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PointWay {
    /// It keeps its set.
    Kept,
    /// In one write, when verdicts tighten.
    AtTighten,
    /// In one write, when verdicts loosen.
    AtLoosen,
    /// By this set of intersections.
    Interim(PolicySetId),
}

/// Points by their old and new state.
type PointsByTransition = BTreeMap<(PointState, PointState), Vec<Point>>;

/// The points whose policy set changes.
#[derive(Default)]
pub(super) struct PointTransitions {
    workloads: PointsByTransition,
    host: PointsByTransition,
}

impl PointTransitions {
    /// The distinct changes; one of workloads and one of host interfaces may be equal.
    pub(super) fn transitions(&self) -> impl Iterator<Item = (&PointState, &PointState)> {
        let all = self.workloads.keys().chain(self.host.keys());
        all.map(|(source, target)| (source, target))
    }
}

fn point_state(context: &TransitionContext<'_>, tables: &Tables, point: &Point) -> PointState {
    let Some((name, _)) = point.workload() else {
        return match host_points::set_of(tables, point) {
            Some(set) => PointState::Set(set),
            None => PointState::Open,
        };
    };
    if !tables.interfaces.contains(name) && !(context.hints.is_closed_interface)(name) {
        return PointState::Open;
    }
    let set = tables.points.get(point);
    set.map_or(PointState::Denied, |set| PointState::Set(*set))
}

/// The state of a point in the new tables.
fn new_state(context: &TransitionContext<'_>, point: &Point) -> PointState {
    let is_spoofed = point.direction == Direction::Egress
        && point
            .workload()
            .is_some_and(|(_, address)| (context.hints.is_own_address)(address));
    match point_state(context, context.new, point) {
        PointState::Open if is_spoofed => PointState::Denied,
        state => state,
    }
}

/// The points that change, by their old and new state.
pub(super) fn point_transitions(context: &TransitionContext<'_>) -> PointTransitions {
    let mut transitions = PointTransitions::default();
    let add = |of: &mut PointsByTransition, point: Point| {
        let states = (
            point_state(context, context.old, &point),
            new_state(context, &point),
        );
        of.entry(states).or_default().push(point);
    };
    let listed = context.differences.points.iter();
    for point in listed.filter(|point| point.workload().is_some()) {
        add(&mut transitions.workloads, point.clone());
    }
    for point in host_points::changed_points(context) {
        add(&mut transitions.host, point);
    }
    transitions
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
    let still = |side: &PointState| !matches!(side, PointState::Set(set) if changing.contains(set));
    let mut leave_separately = false;
    for ((source, target), points) in &transitions.host {
        let way = host_point_way(
            context,
            classes,
            interim,
            (*source, *target),
            [still(source), still(target)],
            phased,
        );
        leave_separately |= way != PointWay::Kept && !still(source);
        host_points::write_changes(context, (*source, *target), way, points, phased);
    }
    for ((source, target), points) in &transitions.workloads {
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

/// How points of host interfaces get from one state to another. `stable`: whether no class of the old and of the new set
/// changes meanwhile.
fn host_point_way(
    context: &TransitionContext<'_>,
    classes: &mut ClassComparison<'_>,
    interim: &InterimIdentities,
    (source, target): (PointState, PointState),
    stable: [bool; 2],
    phased: &mut PhasedChanges,
) -> PointWay {
    let relation = verdict_change(context, classes, interim, source, target);
    // Nothing is judged at an open point: to leave that state tightens, to return to it loosens.
    let (tightens, loosens) = match (source, target) {
        (PointState::Set(from), PointState::Set(to)) if from == to => return PointWay::Kept,
        (PointState::Set(_), PointState::Set(_)) => (relation.tightens, relation.loosens),
        (PointState::Set(_), _) => (false, true),
        (_, PointState::Set(_)) => (true, false),
        _ => return PointWay::Kept,
    };
    match stable {
        [true, _] if !tightens => PointWay::AtLoosen,
        [_, true] if !loosens => PointWay::AtTighten,
        _ => {
            let set = classes.ids.allocate_set();
            write_interim_set(context, classes, interim, source, target, set, phased);
            PointWay::Interim(set)
        }
    }
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
