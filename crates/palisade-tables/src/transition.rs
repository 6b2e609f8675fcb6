//! The one way from old tables to new: a delta in whose every intermediate state no packet gets a
//! verdict that is neither the old nor the new.
//!
//! An address that changes its identity has one identity throughout ([`interim_identities`]), classes go
//! from their old program through the intersection to the new one ([`class_transitions`]), points change
//! their set directly or through a set of intersections ([`point_transitions`]), those of hairpin traffic as those of
//! host interfaces, those of host interfaces row by
//! row ([`host_points`]), and where these have early stages in an order of their own ([`judging_positions`]). A packet
//! looks up interface, point, address, class, default, program, in this order, and may see a step happen between any
//! two of these lookups.
//!
//! Within a step, changes are in an order in which each can be written alone: what is referred to
//! before what refers to it; of a policy set whose default changes, its rows, then the default, then
//! deletions of rows.
//!
//! It decides nothing about policy: both tables are given to it. It is used by the engine for each
//! flush, and by a driver that adopts tables it finds.

mod changed_points;
mod class_comparison;
mod class_transitions;
mod differences;
mod host_points;
mod interim_identities;
mod judging_positions;
mod point_state;
mod point_transitions;

use crate::faults::TransitionFault;
use crate::{
    ClassId, Delta, DeltaStep, IdentityId, Phase, PolicySetId, Program, TableChange, Tables,
};
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use class_comparison::ClassComparison;
use core::net::IpAddr;
pub use differences::TableDifferences;
use foldhash::fast::FixedState;
use interim_identities::InterimIdentities;
use judging_positions::SetPositions;

/// A map whose order is never observed.
type HashMap<K, V> = hashbrown::HashMap<K, V, FixedState>;

/// A set whose order is never observed.
type HashSet<T> = hashbrown::HashSet<T, FixedState>;

/// Unused numbers for what exists during a transition only.
pub trait TransitionIds {
    /// A number that no identity of either tables has.
    fn allocate_identity(&mut self) -> IdentityId;
    /// A number that no policy set of either tables has.
    fn allocate_set(&mut self) -> PolicySetId;
    /// A number that no class of either tables has.
    fn allocate_class(&mut self) -> ClassId;
    /// The class of either tables that has this program, if one is known.
    fn find_class(&self, program: &Program) -> Option<ClassId>;
}

/// What the caller of [`transition`] knows besides the tables.
pub struct TransitionHints<'a> {
    /// The revision of the delta.
    pub revision: u64,
    /// The keys under which the tables may differ. Addresses of the old tables are read from here only.
    pub differences: &'a TableDifferences,
    /// The policy sets in which an identity has an entry in the new tables.
    pub sets_of_identity: &'a dyn Fn(IdentityId) -> &'a [PolicySetId],
    /// Whether established flows are judged again even if no change tightens.
    pub revoke: bool,
    /// How many elements the programs that exist during the transition only may have in all; beyond it
    /// they deny everything.
    pub max_interim_elements: usize,
    /// Whether the dataplane denies packets of an interface that is not in the tables.
    pub is_closed_interface: &'a dyn Fn(&str) -> bool,
    /// Whether an endpoint of the new tables has the address: packets with it from an interface that is not
    /// in the tables are denied as spoofed. May be `false` for all addresses; then such a packet of an
    /// interface that leaves the tables is denied from the end of the delta only.
    pub is_own_address: &'a dyn Fn(IpAddr) -> bool,
}

/// The changes of a transition, by phase.
#[derive(Debug, Default)]
struct PhasedChanges {
    split: Vec<TableChange>,
    /// Points that leave a set before its classes change.
    leave: Vec<TableChange>,
    tighten: Vec<TableChange>,
    /// By [`judging_positions::ChangeTime`].
    shift: [Vec<TableChange>; judging_positions::SHIFT_STEPS],
    /// Points that make packets hairpin traffic, before anything else is allowed there.
    enter: Vec<TableChange>,
    loosen: Vec<TableChange>,
    merge: Vec<TableChange>,
    delete: Vec<TableChange>,
}

/// The input of every part of a transition.
struct TransitionContext<'a> {
    old: &'a Tables,
    new: &'a Tables,
    differences: &'a TableDifferences,
    hints: &'a TransitionHints<'a>,
    /// The identities whose entry in a set is not the same in both, in order.
    changed_sets: Vec<(IdentityId, PolicySetId)>,
    /// Identities whose class changes in a set that both tables have.
    unstable: BTreeSet<IdentityId>,
    /// Whether the default of a set that both tables have changes.
    defaults_change: bool,
    positions: SetPositions,
}

impl TransitionContext<'_> {
    fn is_in_both(&self, set: PolicySetId) -> bool {
        self.old.sets.contains_key(&set) && self.new.sets.contains_key(&set)
    }

    /// Sets that both tables have.
    fn sets_in_both(&self) -> impl Iterator<Item = PolicySetId> {
        let sets = self.old.sets.keys().copied();
        sets.filter(|set| self.new.sets.contains_key(set))
    }

    /// The sets that may distinguish one of these identities from the unknown identity, in either tables.
    fn distinguishing_sets(&self, a: IdentityId, b: IdentityId) -> Vec<PolicySetId> {
        let sets_of = |identity: IdentityId| {
            let listed = (self.hints.sets_of_identity)(identity).iter().copied();
            let first = self
                .changed_sets
                .partition_point(|(other, _)| *other < identity);
            let changed = self.changed_sets.iter().skip(first);
            let changed = changed.take_while(move |(other, _)| *other == identity);
            listed.chain(changed.map(|(_, set)| *set))
        };
        let mut sets: Vec<PolicySetId> = sets_of(a).chain(sets_of(b)).collect();
        sets.sort_unstable();
        sets.dedup();
        sets
    }

    /// Whether the default class of a set that both tables have is not the same in both.
    fn default_changes(&self, set: PolicySetId) -> bool {
        self.differences.sets.contains(&set) && self.is_in_both(set)
    }
}

/// The class of an identity in a set that exists.
fn class_of(tables: &Tables, set: PolicySetId, identity: IdentityId) -> ClassId {
    tables.class(set, identity).unwrap_or(ClassId(u32::MAX))
}

/// The delta that leads from `old` to `new`.
///
/// Whatever exists during the transition only has a number from `ids` and is removed by the last step.
pub fn transition<'a>(
    old: &'a Tables,
    new: &'a Tables,
    hints: &'a TransitionHints<'a>,
    ids: &'a mut dyn TransitionIds,
) -> Delta {
    let differences = hints.differences;
    let mut context = TransitionContext {
        old,
        new,
        differences,
        hints,
        changed_sets: Vec::new(),
        unstable: BTreeSet::new(),
        defaults_change: false,
        positions: SetPositions::new(old, new),
    };
    context.defaults_change = differences.sets.iter().any(|set| context.is_in_both(*set));
    let changed = differences.classes.iter();
    context.changed_sets = changed.clone().map(|(set, id)| (*id, *set)).collect();
    context.changed_sets.sort_unstable();
    let unstable = changed.filter(|(set, _)| context.is_in_both(*set));
    context.unstable = unstable.map(|(_, identity)| *identity).collect();
    let mut classes = ClassComparison::new(old, new, hints.max_interim_elements, ids);
    let mut phased = PhasedChanges::default();
    let points = changed_points::changed_points(&context);
    let interim = InterimIdentities::assign(&context, &mut classes, &points);
    let changing = class_transitions::write_changes(&context, &mut classes, &interim, &mut phased);
    let leave_separately = point_transitions::write_changes(
        &context,
        &mut classes,
        &interim,
        &points,
        &changing,
        &mut phased,
    );
    interim.write_changes(&context, &mut phased);
    host_points::write_interfaces(&context, &mut phased);
    write_interfaces(&context, &mut phased);
    write_programs_and_rules(&context, &classes, &mut phased);
    Delta {
        revision: hints.revision,
        steps: assemble(phased, leave_separately, hints.revoke),
    }
}

fn write_interfaces(context: &TransitionContext<'_>, phased: &mut PhasedChanges) {
    for name in &context.differences.interfaces {
        if context.new.interfaces.contains(name) {
            let change = TableChange::Interface(name.clone(), true);
            phased.tighten.push(change);
        } else {
            phased
                .loosen
                .push(TableChange::Interface(name.clone(), false));
        }
    }
}

/// Programs and causes are added first and removed last.
fn write_programs_and_rules(
    context: &TransitionContext<'_>,
    classes: &ClassComparison<'_>,
    phased: &mut PhasedChanges,
) {
    let mut first = Vec::new();
    let mut last = Vec::new();
    for class in &context.differences.programs {
        match context.new.programs.get(class) {
            Some(program) => first.push(TableChange::Program(*class, Some(program.clone()))),
            None => last.push(TableChange::Program(*class, None)),
        }
    }
    for (class, program) in &classes.interim_programs {
        first.push(TableChange::Program(*class, Some(program.clone())));
        last.push(TableChange::Program(*class, None));
    }
    let mut begin = Vec::new();
    for rule in &context.differences.rules {
        match context.new.rules.get(rule) {
            Some(cause) => begin.push(TableChange::Rule(*rule, Some(cause.clone()))),
            None => last.push(TableChange::Rule(*rule, None)),
        }
    }
    begin.append(&mut first);
    begin.append(&mut phased.split);
    phased.split = begin;
    phased.delete.append(&mut last);
}

fn assemble(phased: PhasedChanges, leave_separately: bool, revoke: bool) -> Vec<DeltaStep> {
    let PhasedChanges {
        split,
        mut leave,
        mut tighten,
        mut shift,
        enter,
        loosen,
        merge,
        delete,
    } = phased;
    if !leave_separately {
        leave.append(&mut tighten);
    }
    if TransitionFault::StagesRemovedFirst.is_injected() {
        shift.reverse();
    }
    let shifts = shift.iter().any(|changes| !changes.is_empty());
    let revoke = !leave.is_empty() || !tighten.is_empty() || shifts || revoke;
    let mut steps = Vec::new();
    let mut push = |phase, mut changes: Vec<TableChange>| {
        changes.sort_by_key(|change| (change_rank(phase, change), host_points::rank(change)));
        if !changes.is_empty() {
            steps.push(DeltaStep { phase, changes });
        }
    };
    push(Phase::Split, split);
    push(Phase::Tighten, leave);
    push(Phase::Tighten, tighten);
    for changes in shift {
        push(Phase::Shift, changes);
    }
    push(Phase::Loosen, enter);
    push(Phase::Loosen, loosen);
    push(Phase::Merge, merge);
    push(Phase::Delete, delete);
    if revoke && !TransitionFault::RevokeForgotten.is_injected() {
        let at = steps.partition_point(|step| step.phase < Phase::Revoke);
        steps.insert(
            at,
            DeltaStep {
                phase: Phase::Revoke,
                changes: Vec::new(),
            },
        );
    }
    apply_order_fault(&mut steps);
    steps
}

/// The position of a change in its step: an entry is added before those that refer to it, and removed
/// after them.
fn change_rank(phase: Phase, change: &TableChange) -> i8 {
    let rank = match change {
        TableChange::Rule(..) => 0,
        TableChange::Program(..) => 1,
        TableChange::Class(..) if !matches!(phase, Phase::Split | Phase::Delete) => 2,
        TableChange::Set(..) => 3,
        TableChange::Class(..) => 4,
        TableChange::Address(..) => 5,
        TableChange::Point(..) => 6,
        TableChange::Interface(..) | TableChange::HostInterface(..) => 7,
    };
    if phase == Phase::Delete { -rank } else { rank }
}

/// Reorders the phases where a fault requires it.
fn apply_order_fault(steps: &mut [DeltaStep]) {
    use Phase::{Delete, Loosen, Merge, Revoke, Shift, Split, Tighten};
    let order: [Phase; 7] = if TransitionFault::SplitAfterLoosen.is_injected() {
        [Tighten, Shift, Revoke, Loosen, Split, Merge, Delete]
    } else if TransitionFault::TightenAfterLoosen.is_injected() {
        [Split, Loosen, Tighten, Shift, Revoke, Merge, Delete]
    } else if TransitionFault::MergeBeforeLoosen.is_injected() {
        [Split, Tighten, Shift, Revoke, Merge, Loosen, Delete]
    } else if TransitionFault::DeleteFirst.is_injected() {
        [Delete, Split, Tighten, Shift, Revoke, Loosen, Merge]
    } else {
        return;
    };
    steps.sort_by_key(|step| order.iter().position(|phase| *phase == step.phase));
}
