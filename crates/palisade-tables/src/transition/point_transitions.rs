//! How points change their policy set.
//!
//! In one write, where verdicts change in one direction only and the classes of the sets do not change
//! meanwhile; otherwise through an interim set of intersections.

use super::changed_points::PointTransitions;
use super::class_comparison::{ClassComparison, VerdictChange};
use super::class_transitions::identities_in_set;
use super::host_points;
use super::interim_identities::InterimIdentities;
use super::judging_positions::{ChangeTime, JudgingPosition};
use super::point_state::PointState;
use super::{PhasedChanges, TransitionContext, class_of};
use crate::{ClassId, IdentityId, Point, PointInterface, PolicySet, PolicySetId, TableChange};
use alloc::collections::BTreeSet;
use alloc::vec::Vec;

/// The sets that a point has one after the other: when it gets each, and `None` where it has none.
pub(super) type PointWrites = Vec<(ChangeTime, Option<PolicySetId>)>;

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
    let host = transitions.host.iter();
    let host = host.flat_map(|(position, by_states)| {
        by_states
            .iter()
            .map(move |(states, points)| (*position, states, points))
    });
    for (position, (source, target), points) in host {
        let mut sets = HostSetTransition {
            context,
            interim,
            source: *source,
            target: *target,
            is_stable: [*source, *target].map(|state| is_stable(state, changing)),
        };
        let writes = sets.writes(position, classes, phased);
        leave_separately |= position == JudgingPosition::Alone
            && !writes.is_empty()
            && !is_stable(*source, changing);
        host_points::write_changes(context, (*source, *target), &writes, points, phased);
    }
    let mut workloads = WorkloadPoints {
        context,
        interim,
        changing,
        denying_set: None,
    };
    for (states, points) in &transitions.workloads {
        leave_separately |= workloads.write_changes(*states, points, classes, phased);
    }
    leave_separately
}

/// How points of workloads change their set.
struct WorkloadPoints<'a, 't> {
    context: &'a TransitionContext<'t>,
    interim: &'a InterimIdentities,
    /// The sets in which a class changes.
    changing: &'a BTreeSet<PolicySetId>,
    /// The set that denies everything, once a point needs it.
    denying_set: Option<PolicySetId>,
}

impl WorkloadPoints<'_, '_> {
    /// Writes the changes of points that go from one state to another. Returns whether they must leave their set
    /// before its classes change.
    fn write_changes(
        &mut self,
        (source, target): (PointState, PointState),
        points: &[Point],
        classes: &mut ClassComparison<'_>,
        phased: &mut PhasedChanges,
    ) -> bool {
        let changing = self.changing;
        let is_stable = |state: PointState| is_stable(state, changing);
        let put = |changes: &mut Vec<TableChange>, set: Option<PolicySetId>| {
            changes.extend(points.iter().map(|p| TableChange::Point(p.clone(), set)));
        };
        let relation = verdict_change(self.context, classes, self.interim, (source, target));
        match (source, target) {
            (PointState::Denied, PointState::Set(to)) => {
                self.enter_through_denial(points, classes, phased);
                put(&mut phased.loosen, Some(to));
            }
            (PointState::Set(_), PointState::Denied) => put(&mut phased.leave, None),
            (PointState::Open, PointState::Set(to)) if is_stable(target) => {
                put(&mut phased.split, Some(to))
            }
            (PointState::Set(_), PointState::Open) if is_stable(source) => {
                self.put_unreached(points, &mut phased.delete);
            }
            (PointState::Set(_), PointState::Set(to))
                if !relation.tightens && is_stable(source) =>
            {
                put(&mut phased.loosen, Some(to));
            }
            (PointState::Set(_), PointState::Set(to)) if !relation.loosens && is_stable(target) => {
                put(&mut phased.leave, Some(to));
                return !is_stable(source);
            }
            (PointState::Open | PointState::Denied, PointState::Open | PointState::Denied) => {
                self.put_unreached(points, &mut phased.split);
            }
            (source, target) => {
                let interim_set = classes.ids.allocate_set();
                write_interim_set(
                    self.context,
                    self.interim,
                    (source, target),
                    interim_set,
                    &mut |ends| both_allow(classes, ends),
                    phased,
                );
                match target {
                    PointState::Set(to) => put(&mut phased.loosen, Some(to)),
                    _ => self.put_unreached(points, &mut phased.delete),
                }
                if source.set().is_some() {
                    put(&mut phased.leave, Some(interim_set));
                    return !is_stable(source);
                }
                put(&mut phased.split, Some(interim_set));
            }
        }
        false
    }

    /// A point on an interface that is not judged may have an entry, which no packet reaches.
    fn put_unreached(&self, points: &[Point], changes: &mut Vec<TableChange>) {
        for point in points {
            let set = self.context.new.points.get(point).copied();
            changes.push(TableChange::Point(point.clone(), set));
        }
    }

    /// New points where packets may become hairpin traffic first deny everything.
    fn enter_through_denial(
        &mut self,
        points: &[Point],
        classes: &mut ClassComparison<'_>,
        phased: &mut PhasedChanges,
    ) {
        for point in points {
            if is_at_hairpin_points(self.context, point) {
                let set = *self
                    .denying_set
                    .get_or_insert_with(|| denying(classes, phased));
                let change = TableChange::Point(point.clone(), Some(set));
                phased.enter.push(change);
            }
        }
    }
}

/// Whether no class of a point's set changes.
fn is_stable(state: PointState, changing: &BTreeSet<PolicySetId>) -> bool {
    !state.set().is_some_and(|set| changing.contains(&set))
}

/// Whether the interface of a workload's point has points of hairpin traffic. A new point there makes packets hairpin
/// traffic, which may be denied so: first it denies everything, so that a packet that was not found to be hairpin traffic
/// before is not judged as any other.
fn is_at_hairpin_points(context: &TransitionContext<'_>, point: &Point) -> bool {
    point.workload().is_some_and(|(interface, _)| {
        let hairpin = PointInterface::Hairpin(interface.clone());
        host_points::points_of(context.new, &hairpin)
            .next()
            .is_some()
    })
}

/// Writes a set that denies everything, and exists during the transition only.
fn denying(classes: &mut ClassComparison<'_>, phased: &mut PhasedChanges) -> PolicySetId {
    let set = classes.ids.allocate_set();
    let default = classes.denied();
    let whole = TableChange::Set(set, Some(PolicySet { default }));
    phased.split.push(whole);
    phased.delete.push(TableChange::Set(set, None));
    set
}

/// How points of host interfaces get from one state to another.
struct HostSetTransition<'a, 't> {
    context: &'a TransitionContext<'t>,
    interim: &'a InterimIdentities,
    source: PointState,
    target: PointState,
    /// Whether no class of the old and of the new set changes meanwhile.
    is_stable: [bool; 2],
}

impl HostSetTransition<'_, '_> {
    fn writes(
        &mut self,
        position: JudgingPosition,
        classes: &mut ClassComparison<'_>,
        phased: &mut PhasedChanges,
    ) -> PointWrites {
        let is_kept = match (self.source, self.target) {
            (PointState::Set(from), PointState::Set(to)) => from == to,
            (PointState::Set(_), _) | (_, PointState::Set(_)) => false,
            _ => true,
        };
        match position {
            _ if is_kept => Vec::new(),
            JudgingPosition::Alone => self.writes_alone(classes, phased),
            JudgingPosition::Early(stage) => self.writes_of_early_stage(stage, classes, phased),
            JudgingPosition::Last => self.writes_of_last_stage(classes, phased),
        }
    }

    /// In one write, where verdicts change in one direction only and the classes of the sets do not change meanwhile;
    /// else through a set of intersections.
    fn writes_alone(
        &mut self,
        classes: &mut ClassComparison<'_>,
        phased: &mut PhasedChanges,
    ) -> PointWrites {
        let states = (self.source, self.target);
        let last = self.target.set();
        let relation = verdict_change(self.context, classes, self.interim, states);
        // Nothing is judged at an open point: to leave that state tightens, to return to it loosens.
        let (tightens, loosens) = match states {
            (PointState::Set(_), PointState::Set(_)) => (relation.tightens, relation.loosens),
            (PointState::Set(_), _) => (false, true),
            _ => (true, false),
        };
        match self.is_stable {
            [true, _] if !tightens => alloc::vec![(ChangeTime::Loosen, last)],
            [_, true] if !loosens => alloc::vec![(ChangeTime::LeaveToTighten, last)],
            _ => {
                let set = self.interim_set(classes, phased, both_allow);
                alloc::vec![
                    (ChangeTime::LeaveToTighten, Some(set)),
                    (ChangeTime::Loosen, last)
                ]
            }
        }
    }

    fn writes_of_last_stage(
        &mut self,
        classes: &mut ClassComparison<'_>,
        phased: &mut PhasedChanges,
    ) -> PointWrites {
        let last = (ChangeTime::Switch, self.target.set());
        if self.is_stable[0] {
            alloc::vec![last]
        } else {
            let finally = |_: &mut ClassComparison<'_>, (first, last): ClassEnds| last.or(first);
            let set = self.interim_set(classes, phased, finally);
            alloc::vec![(ChangeTime::LeaveToSwitch, Some(set)), last]
        }
    }

    fn writes_of_early_stage(
        &mut self,
        stage: usize,
        classes: &mut ClassComparison<'_>,
        phased: &mut PhasedChanges,
    ) -> PointWrites {
        let (add, remove) = (ChangeTime::Add(stage), ChangeTime::Remove(stage));
        let mut times = Vec::new();
        let states = (self.source, self.target);
        for identity in affected_identities(self.context, self.interim, states) {
            let ends = class_ends(self.context, self.interim, states, identity);
            let [first, last] = early_ends(classes, ends);
            let (added, switched) = (classes.addition(first, last), classes.switch(first, last));
            for (time, from, to) in [
                (add, first, added),
                (ChangeTime::Switch, added, switched),
                (remove, switched, last),
            ] {
                if !classes.verdict_change(from, to).is_same() && !times.contains(&time) {
                    times.push(time);
                }
            }
        }
        let last = self.target.set();
        // Where nothing was judged, or nothing will be, every row of the interface is written in one step: a row under
        // a longer prefix stands for its addresses as long as the one above it decides others.
        let alone = match states {
            (PointState::Set(_), PointState::Set(_)) => ChangeTime::Switch,
            (PointState::Set(_), _) => remove,
            _ => add,
        };
        let leave = match states.0 {
            PointState::Set(_) => ChangeTime::LeaveToAdd(stage),
            _ => add,
        };
        match (times.as_slice(), self.is_stable) {
            ([], [true, true]) => alloc::vec![(alone, last)],
            ([time], [true, true]) => alloc::vec![(*time, last)],
            _ => {
                let added = |classes: &mut ClassComparison<'_>, ends: ClassEnds| {
                    let [first, last] = early_ends(classes, ends);
                    Some(classes.addition(first, last))
                };
                let switched = |classes: &mut ClassComparison<'_>, ends: ClassEnds| {
                    let [first, last] = early_ends(classes, ends);
                    Some(classes.switch(first, last))
                };
                let added = self.interim_set(classes, phased, added);
                let switched = self.interim_set(classes, phased, switched);
                alloc::vec![
                    (leave, Some(added)),
                    (ChangeTime::Switch, Some(switched)),
                    (remove, last),
                ]
            }
        }
    }

    /// Writes a set that exists during the transition only, with the class of each identity by its first and last one.
    fn interim_set(
        &mut self,
        classes: &mut ClassComparison<'_>,
        phased: &mut PhasedChanges,
        class: impl Fn(&mut ClassComparison<'_>, ClassEnds) -> Option<ClassId>,
    ) -> PolicySetId {
        let set = classes.ids.allocate_set();
        write_interim_set(
            self.context,
            self.interim,
            (self.source, self.target),
            set,
            &mut |ends| class(classes, ends),
            phased,
        );
        set
    }
}

/// The first and the last class of an identity; `None` where nothing is judged.
type ClassEnds = (Option<ClassId>, Option<ClassId>);

fn class_ends(
    context: &TransitionContext<'_>,
    interim: &InterimIdentities,
    (source, target): (PointState, PointState),
    identity: IdentityId,
) -> ClassEnds {
    let first = source.set();
    let last = target.set();
    (
        first.map(|set| interim.initial_class(context, set, identity)),
        last.map(|set| interim.final_class(context, set, identity)),
    )
}

/// The class that allows what both allow.
fn both_allow(classes: &mut ClassComparison<'_>, ends: ClassEnds) -> Option<ClassId> {
    match ends {
        (Some(first), Some(last)) => Some(classes.intersection(first, last)),
        (first, last) => first.or(last),
    }
}

/// The same at an early stage, where what is not judged is not decided.
fn early_ends(classes: &mut ClassComparison<'_>, (first, last): ClassEnds) -> [ClassId; 2] {
    [first, last].map(|class| class.unwrap_or_else(|| classes.undecided()))
}

/// The identities that either side may distinguish from the unknown identity.
fn affected_identities(
    context: &TransitionContext<'_>,
    interim: &InterimIdentities,
    (source, target): (PointState, PointState),
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
    states: (PointState, PointState),
) -> VerdictChange {
    let mut all = VerdictChange::SAME;
    if states.0.set().is_none() || states.1.set().is_none() {
        return all;
    }
    for identity in affected_identities(context, interim, states) {
        if let (Some(first), Some(last)) = class_ends(context, interim, states, identity) {
            all = all.union(classes.verdict_change(first, last));
        }
    }
    all
}

/// Writes a set that exists during the transition only, with the class of each identity by its first and last one.
fn write_interim_set(
    context: &TransitionContext<'_>,
    interim: &InterimIdentities,
    states: (PointState, PointState),
    interim_set: PolicySetId,
    class: &mut dyn FnMut(ClassEnds) -> Option<ClassId>,
    phased: &mut PhasedChanges,
) {
    let mut class_of_identity = |identity: IdentityId| -> ClassId {
        class(class_ends(context, interim, states, identity))
            .unwrap_or_else(|| class_of(context.new, interim_set, identity))
    };
    let default = class_of_identity(IdentityId::UNKNOWN);
    phased
        .split
        .push(TableChange::Set(interim_set, Some(PolicySet { default })));
    for identity in affected_identities(context, interim, states) {
        let class = class_of_identity(identity);
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
