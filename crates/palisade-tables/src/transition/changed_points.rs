//! The points whose policy set changes, by what judges them before and after.

use super::TransitionContext;
use super::host_points;
use super::judging_positions::JudgingPosition;
use super::point_state::PointState;
use crate::{Point, Tables};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use palisade_model::Direction;

/// Points by their old and new state.
pub(super) type PointsByTransition = BTreeMap<(PointState, PointState), Vec<Point>>;

/// The points whose policy set changes.
#[derive(Default)]
pub(super) struct PointTransitions {
    pub(super) workloads: PointsByTransition,
    pub(super) host: BTreeMap<JudgingPosition, PointsByTransition>,
}

impl PointTransitions {
    /// The distinct changes; one of workloads and one of host interfaces may be equal.
    pub(super) fn transitions(&self) -> impl Iterator<Item = (&PointState, &PointState)> {
        let host = self.host.values().flat_map(BTreeMap::keys);
        let all = self.workloads.keys().chain(host);
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
pub(super) fn changed_points(context: &TransitionContext<'_>) -> PointTransitions {
    let mut transitions = PointTransitions::default();
    let add = |by_states: &mut PointsByTransition, point: Point| {
        let states = (
            point_state(context, context.old, &point),
            new_state(context, &point),
        );
        by_states.entry(states).or_default().push(point);
    };
    let listed = context.differences.points.iter();
    for point in listed.filter(|point| point.workload().is_some()) {
        add(&mut transitions.workloads, point.clone());
    }
    for point in host_points::changed_points(context) {
        let position = context.positions.of_point(&point);
        add(transitions.host.entry(position).or_default(), point);
    }
    transitions
}
