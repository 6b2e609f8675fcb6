//! The order in which the policy sets of host interfaces change where tables have early passes.
//!
//! At such an interface the first pass that denies or allows decides, and the others are not asked. So a verdict is no
//! minimum of its judgements, and what both sides of each allow can be neither the old verdict nor the new one. Instead
//! decisions move in this order, between the tightening and the loosening of everything else:
//!
//! 1. *Add*, the first pass first: what a pass did not decide and will decide. Before, a packet got there only if no
//!    earlier pass decides it, before or after; so it gets its new verdict.
//! 2. *Switch*: what a pass decides before and after, and the last pass as a whole. The pass that decides a packet is
//!    the same before this step and after it.
//! 3. *Remove*, the last pass first: what a pass decided and will not decide.
//!
//! After each step, and if a step happens between any two passes of a packet, the first decision that it meets is one of
//! the old tables that no earlier pass of them precedes, or the same of the new ones. Everything else allows meanwhile
//! only what it allows before and after, so the verdict of the whole packet is the old or the new one as well.
//!
//! It decides nothing about classes ([`super::class_transitions`]) or points ([`super::point_transitions`]).

use super::{HashMap, PhasedChanges};
use crate::faults::TransitionFault;
use crate::{Point, PointInterface, PolicySetId, TableChange, Tables};
use core::net::{IpAddr, Ipv6Addr};
use core::ops::Bound;
use palisade_model::{Direction, Pass, Prefix, Str};

/// The place of a policy set in the judgement of a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Stage {
    /// No other pass stands before or after it.
    #[default]
    Alone,
    /// An early pass, by its position.
    Early(usize),
    /// The pass after the early ones.
    Last,
}

/// When a change of a class or a point is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ChangeTime {
    /// Points leave their set before classes change.
    LeaveToTighten,
    Tighten,
    Loosen,
    /// Points leave their set before classes change.
    LeaveToAdd(usize),
    Add(usize),
    LeaveToSwitch,
    Switch,
    Remove(usize),
}

/// The steps of [`crate::Phase::Shift`].
pub(super) const SHIFT_STEPS: usize = 8;

impl ChangeTime {
    /// The changes that are written at this time.
    pub(super) fn changes(self, phased: &mut PhasedChanges) -> &mut alloc::vec::Vec<TableChange> {
        let at = match self {
            ChangeTime::LeaveToTighten => return &mut phased.leave,
            ChangeTime::Tighten => return &mut phased.tighten,
            ChangeTime::Loosen => return &mut phased.loosen,
            ChangeTime::LeaveToAdd(pass) => 2 * pass,
            ChangeTime::Add(pass) => 2 * pass + 1,
            ChangeTime::LeaveToSwitch => 4,
            ChangeTime::Switch => 5,
            ChangeTime::Remove(pass) => 7 - pass,
        };
        &mut phased.shift[at]
    }
}

impl Stage {
    /// The stage of a point.
    pub(super) fn of_point(point: &Point) -> Stage {
        match (point.pass, point.direction) {
            _ if !point.is_host() => Stage::Alone,
            (Pass::Untracked, _) => Stage::Early(0),
            (Pass::PreDnat, _) => Stage::Early(1),
            (Pass::Normal, _) | (Pass::Forward, Direction::Ingress) => Stage::Last,
            (Pass::Forward, Direction::Egress) => Stage::Alone,
        }
    }
}

/// The stages of the policy sets of a transition.
#[derive(Debug, Default)]
pub(super) struct SetStages {
    /// `None` where neither tables have an early pass.
    host_sets: Option<HashMap<PolicySetId, Stage>>,
}

impl SetStages {
    /// Those of the sets that either tables have at points of host interfaces. Reads nothing but one point of each
    /// interface where there is no early pass.
    pub(super) fn new(old: &Tables, new: &Tables) -> SetStages {
        let both = [old, new];
        let is_layered = both.into_iter().any(has_early_pass);
        if !is_layered || TransitionFault::PassesChangeAlone.is_injected() {
            return SetStages::default();
        }
        let points = both.into_iter().flat_map(host_points);
        let stages = points.map(|(point, set)| (*set, Stage::of_point(point)));
        SetStages {
            host_sets: Some(stages.collect()),
        }
    }

    /// Whether any set is of an early pass.
    pub(super) fn is_layered(&self) -> bool {
        self.host_sets.is_some()
    }

    /// The stage of a set.
    pub(super) fn of_set(&self, set: PolicySetId) -> Stage {
        let known = self.host_sets.as_ref().and_then(|sets| sets.get(&set));
        known.copied().unwrap_or_default()
    }

    /// The stage of a point; where nothing is layered, every point stands alone.
    pub(super) fn of_point(&self, point: &Point) -> Stage {
        if self.is_layered() {
            Stage::of_point(point)
        } else {
            Stage::Alone
        }
    }
}

/// The first point that a place of the host can have.
fn first_point(place: PointInterface) -> Point {
    Point {
        pass: Pass::Untracked,
        ..last_point(place)
    }
}

/// A point after all those of a place.
fn last_point(place: PointInterface) -> Point {
    Point {
        place,
        pass: Pass::Normal,
        direction: Direction::Egress.max(Direction::Ingress),
        own: Prefix::host(IpAddr::V6(Ipv6Addr::from_bits(u128::MAX))),
    }
}

/// The points of host interfaces; they come after those of workloads.
fn host_points(tables: &Tables) -> impl Iterator<Item = (&Point, &PolicySetId)> {
    let mut first = first_point(PointInterface::Host(Str::default()));
    first.direction = Direction::Egress.min(Direction::Ingress);
    first.own = Prefix::all(palisade_model::Family::V4);
    tables
        .points
        .range((Bound::Included(first), Bound::Unbounded))
}

fn has_early_pass(tables: &Tables) -> bool {
    let mut next = host_points(tables).next();
    while let Some((point, _)) = next {
        if point.pass.is_early() {
            return true;
        }
        let after = last_point(point.place.clone());
        let mut rest = tables
            .points
            .range((Bound::Excluded(after), Bound::Unbounded));
        next = rest.next();
    }
    false
}
