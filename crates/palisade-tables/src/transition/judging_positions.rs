//! The order in which the policy sets of host interfaces change where tables have early stages.
//!
//! At such an interface the first stage that denies or allows decides, and the others are not asked. So a verdict is no
//! minimum of its judgements, and what both sides of each allow can be neither the old verdict nor the new one. Instead
//! decisions move in this order, between the tightening and the loosening of everything else:
//!
//! 1. *Add*, the first stage first: what a stage did not decide and will decide. Before, a packet got there only if no
//!    earlier stage decides it, before or after; so it gets its new verdict.
//! 2. *Switch*: what a stage decides before and after, and the last stage as a whole. The stage that decides a packet
//!    is the same before this step and after it.
//! 3. *Remove*, the last stage first: what a stage decided and will not decide.
//!
//! After each step, and if a step happens between any two stages of a packet, the first decision that it meets is one
//! of the old tables that no earlier stage of them precedes, or the same of the new ones. Everything else allows
//! meanwhile only what it allows before and after, so the verdict of the whole packet is the old or the new one as
//! well.
//!
//! It decides nothing about classes ([`super::class_transitions`]) or points ([`super::point_transitions`]).

use super::{HashMap, PhasedChanges};
use crate::faults::TransitionFault;
use crate::{Point, PointInterface, PolicySetId, TableChange, Tables};
use core::net::{IpAddr, Ipv6Addr};
use core::ops::Bound;
use palisade_model::{Direction, PolicyStage, Prefix, Str};

/// Where a policy set stands in the judgement of a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum JudgingPosition {
    /// No other stage stands before or after it.
    #[default]
    Alone,
    /// An early stage, by its index.
    Early(usize),
    /// The stage after the early ones.
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
            ChangeTime::LeaveToAdd(stage) => 2 * stage,
            ChangeTime::Add(stage) => 2 * stage + 1,
            ChangeTime::LeaveToSwitch => 4,
            ChangeTime::Switch => 5,
            ChangeTime::Remove(stage) => 7 - stage,
        };
        &mut phased.shift[at]
    }
}

impl JudgingPosition {
    /// The position of a point.
    pub(super) fn of_point(point: &Point) -> JudgingPosition {
        match (point.stage, point.direction) {
            _ if !point.is_host() => JudgingPosition::Alone,
            (PolicyStage::Untracked, _) => JudgingPosition::Early(0),
            (PolicyStage::PreDnat, _) => JudgingPosition::Early(1),
            (PolicyStage::Normal, _) | (PolicyStage::Forward, Direction::Ingress) => {
                JudgingPosition::Last
            }
            (PolicyStage::Forward, Direction::Egress) => JudgingPosition::Alone,
        }
    }
}

/// The positions of the policy sets of a transition.
#[derive(Debug, Default)]
pub(super) struct SetPositions {
    /// `None` where neither tables have an early stage.
    host_sets: Option<HashMap<PolicySetId, JudgingPosition>>,
}

impl SetPositions {
    /// Those of the sets that either tables have at points of host interfaces. Reads nothing but one point of each
    /// interface where there is no early stage.
    pub(super) fn new(old: &Tables, new: &Tables) -> SetPositions {
        let both = [old, new];
        let is_layered = both.into_iter().any(has_early_stage);
        if !is_layered || TransitionFault::StagesChangeAlone.is_injected() {
            return SetPositions::default();
        }
        let points = both.into_iter().flat_map(host_points);
        let positions = points.map(|(point, set)| (*set, JudgingPosition::of_point(point)));
        SetPositions {
            host_sets: Some(positions.collect()),
        }
    }

    /// Whether any set is of an early stage.
    pub(super) fn is_layered(&self) -> bool {
        self.host_sets.is_some()
    }

    /// The position of a set.
    pub(super) fn of_set(&self, set: PolicySetId) -> JudgingPosition {
        let position = self.host_sets.as_ref().and_then(|sets| sets.get(&set));
        position.copied().unwrap_or_default()
    }

    /// The position of a point; where nothing is layered, every point stands alone.
    pub(super) fn of_point(&self, point: &Point) -> JudgingPosition {
        if self.is_layered() {
            JudgingPosition::of_point(point)
        } else {
            JudgingPosition::Alone
        }
    }
}

/// The first point that an interface of the host can have.
fn first_point(interface: PointInterface) -> Point {
    Point {
        stage: PolicyStage::Untracked,
        ..last_point(interface)
    }
}

/// A point after all those of an interface.
fn last_point(interface: PointInterface) -> Point {
    Point {
        interface,
        stage: PolicyStage::Normal,
        direction: Direction::Egress.max(Direction::Ingress),
        local: Prefix::host(IpAddr::V6(Ipv6Addr::from_bits(u128::MAX))),
    }
}

/// The points of host interfaces; they come after those of workloads.
fn host_points(tables: &Tables) -> impl Iterator<Item = (&Point, &PolicySetId)> {
    let mut first = first_point(PointInterface::Host(Str::default()));
    first.direction = Direction::Egress.min(Direction::Ingress);
    first.local = Prefix::all(palisade_model::Family::V4);
    tables
        .points
        .range((Bound::Included(first), Bound::Unbounded))
}

fn has_early_stage(tables: &Tables) -> bool {
    let mut next = host_points(tables).next();
    while let Some((point, _)) = next {
        if point.stage.is_early() {
            return true;
        }
        let after = last_point(point.interface.clone());
        let mut rest = tables
            .points
            .range((Bound::Excluded(after), Bound::Unbounded));
        next = rest.next();
    }
    false
}
