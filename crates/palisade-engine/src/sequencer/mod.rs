//! The sequencer: from the tables as last written to the tables that are wanted, in steps between
//! which no packet gets a verdict that is neither the old nor the new.
//!
//! Addresses that change identity are carried by one identity throughout ([`interim_identities`]), classes go
//! from their old program through the intersection to the new ([`class_transitions`]), points change set
//! directly or through a set of intersections ([`point_transitions`]). A packet looks up point, address, class,
//! default, program, in this order, and may see a step happen between any two of them.
//!
//! It decides nothing about policy: both tables are given to it.

mod class_comparison;
mod class_transitions;
mod interim_identities;
mod point_transitions;

use crate::faults::{EngineFault, on};
use crate::pool::HashMap;
use crate::program_pool::ProgramPool;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use class_comparison::ClassComparison;
use interim_identities::InterimIdentities;
use palisade_model::{Family, Prefix, Str};
use palisade_tables::{
    ClassId, DeltaStep, IdentityId, Phase, Point, PolicySetId, RuleId, TableChange, Tables,
};

/// The keys under which the two tables may differ; all that is not listed is equal.
#[derive(Debug, Default)]
pub(crate) struct TableDifferences {
    pub(crate) interfaces: BTreeSet<Str>,
    /// Addresses and prefixes in order, with the identity that each had. The tables as written say
    /// nothing of addresses: there are too many to keep them twice.
    pub(crate) addresses: Vec<(Prefix, Option<IdentityId>)>,
    /// The lengths of the prefixes that either table may have besides single addresses.
    pub(crate) lengths: BTreeSet<(Family, u8)>,
    pub(crate) points: BTreeSet<Point>,
    pub(crate) sets: BTreeSet<PolicySetId>,
    pub(crate) classes: BTreeSet<(PolicySetId, IdentityId)>,
    pub(crate) programs: BTreeSet<ClassId>,
    pub(crate) rules: BTreeSet<RuleId>,
    /// Identities that only the wanted tables have.
    pub(crate) new_identities: BTreeSet<IdentityId>,
    /// Identities that only the written tables have.
    pub(crate) removed_identities: BTreeSet<IdentityId>,
}

impl TableDifferences {
    /// Leaves only what differs indeed.
    pub(crate) fn retain_changed(&mut self, old: &Tables, new: &Tables) {
        fn keep<K: Ord, V: PartialEq>(
            keys: &mut BTreeSet<K>,
            old: &BTreeMap<K, V>,
            new: &BTreeMap<K, V>,
        ) {
            keys.retain(|key| old.get(key) != new.get(key));
        }
        self.interfaces
            .retain(|name| old.interfaces.contains(name) != new.interfaces.contains(name));
        keep(&mut self.points, &old.points, &new.points);
        keep(&mut self.sets, &old.sets, &new.sets);
        keep(&mut self.classes, &old.classes, &new.classes);
        keep(&mut self.programs, &old.programs, &new.programs);
        keep(&mut self.rules, &old.rules, &new.rules);
    }
}

/// The changes of a flush, by the place where they are made.
#[derive(Debug, Default)]
pub(crate) struct PhasedChanges {
    split: Vec<TableChange>,
    /// Points that leave a set before its classes change.
    leave: Vec<TableChange>,
    tighten: Vec<TableChange>,
    loosen: Vec<TableChange>,
    merge: Vec<TableChange>,
    delete: Vec<TableChange>,
}

/// What every part of the sequencer looks at.
pub(crate) struct TransitionContext<'a> {
    pub(crate) old: &'a Tables,
    pub(crate) new: &'a Tables,
    pub(crate) differences: &'a TableDifferences,
    /// The sets in which each identity has an entry in the new tables.
    sets_by_identity: &'a HashMap<IdentityId, Vec<PolicySetId>>,
    /// The sets in which the entry of each identity is not the same in both.
    changed_sets: BTreeMap<IdentityId, Vec<PolicySetId>>,
    /// Identities whose class changes in a set that both tables have.
    unstable: BTreeSet<IdentityId>,
    /// Whether the default of a set that both tables have changes.
    defaults_change: bool,
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

    /// The sets that may tell one of these identities from nobody, in either tables.
    fn distinguishing_sets(&self, a: IdentityId, b: IdentityId) -> Vec<PolicySetId> {
        let of = |identity: IdentityId| {
            let listed = self.sets_by_identity.get(&identity).into_iter().flatten();
            listed.chain(self.changed_sets.get(&identity).into_iter().flatten())
        };
        let mut sets: Vec<PolicySetId> = of(a).chain(of(b)).copied().collect();
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

/// The steps that lead from `old` to `new`, in which `entries` lists the sets where each identity has
/// an entry. What is made for the time between takes about `room` elements at most. `handed` says that
/// an address changed hands.
#[allow(
    clippy::too_many_arguments,
    reason = "each is another room's, and they are lent apart"
)]
pub(crate) fn plan_steps(
    old: &Tables,
    new: &Tables,
    differences: &TableDifferences,
    sets_by_identity: &HashMap<IdentityId, Vec<PolicySetId>>,
    identities: &mut impl FnMut() -> IdentityId,
    sets: &mut impl FnMut() -> PolicySetId,
    programs: &mut ProgramPool,
    max_elements: usize,
    address_moved: bool,
) -> Vec<DeltaStep> {
    let mut context = TransitionContext {
        old,
        new,
        differences,
        sets_by_identity,
        changed_sets: BTreeMap::new(),
        unstable: BTreeSet::new(),
        defaults_change: false,
    };
    context.defaults_change = differences.sets.iter().any(|set| context.is_in_both(*set));
    for (set, identity) in &differences.classes {
        context
            .changed_sets
            .entry(*identity)
            .or_default()
            .push(*set);
    }
    let changed = differences.classes.iter();
    let kept = changed.filter(|(set, _)| context.is_in_both(*set));
    context.unstable = kept.map(|(_, identity)| *identity).collect();
    let mut classes = ClassComparison::new(old, new, programs, max_elements);
    let mut phased = PhasedChanges::default();
    let transitions = point_transitions::point_transitions(&context);
    let interim = InterimIdentities::assign(&context, &mut classes, &transitions, identities);
    let changing = class_transitions::write_changes(&context, &mut classes, &interim, &mut phased);
    let leave_separately = point_transitions::write_changes(
        &context,
        &mut classes,
        &interim,
        &transitions,
        &changing,
        sets,
        &mut phased,
    );
    interim.write_changes(&context, &mut phased);
    write_interfaces(&context, &mut phased);
    write_programs_and_rules(&context, &classes, &mut phased);
    assemble(phased, leave_separately, address_moved)
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

/// What programs stand for comes first and goes last.
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
            Some(credit) => begin.push(TableChange::Rule(*rule, Some(credit.clone()))),
            None => last.push(TableChange::Rule(*rule, None)),
        }
    }
    begin.append(&mut first);
    begin.append(&mut phased.split);
    phased.split = begin;
    phased.delete.append(&mut last);
}

fn assemble(phased: PhasedChanges, leave_separately: bool, address_moved: bool) -> Vec<DeltaStep> {
    let PhasedChanges {
        split,
        mut leave,
        mut tighten,
        loosen,
        merge,
        delete,
    } = phased;
    if !leave_separately {
        leave.append(&mut tighten);
    }
    let revoke = !leave.is_empty() || !tighten.is_empty() || address_moved;
    let mut steps = Vec::new();
    let mut push = |phase, mut changes: Vec<TableChange>| {
        changes.sort_by_key(|change| change_rank(phase, change));
        if !changes.is_empty() {
            steps.push(DeltaStep { phase, changes });
        }
    };
    push(Phase::Split, split);
    push(Phase::Tighten, leave);
    push(Phase::Tighten, tighten);
    push(Phase::Loosen, loosen);
    push(Phase::Merge, merge);
    push(Phase::Delete, delete);
    if revoke && !on(EngineFault::RevokeForgotten) {
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

/// Where a change stands in its step: what is referred to comes before what refers to it, and goes
/// after.
fn change_rank(phase: Phase, change: &TableChange) -> i8 {
    let place = match change {
        TableChange::Rule(..) => 0,
        TableChange::Program(..) => 1,
        TableChange::Class(..) if !matches!(phase, Phase::Split | Phase::Delete) => 2,
        TableChange::Set(..) => 3,
        TableChange::Class(..) => 4,
        TableChange::Address(..) => 5,
        TableChange::Point(..) => 6,
        TableChange::Interface(..) => 7,
    };
    if phase == Phase::Delete {
        -place
    } else {
        place
    }
}

/// The orders that the faults ask for.
fn apply_order_fault(steps: &mut [DeltaStep]) {
    use Phase::{Delete, Loosen, Merge, Revoke, Split, Tighten};
    let order: [Phase; 6] = if on(EngineFault::SplitAfterLoosen) {
        [Tighten, Revoke, Loosen, Split, Merge, Delete]
    } else if on(EngineFault::TightenAfterLoosen) {
        [Split, Loosen, Tighten, Revoke, Merge, Delete]
    } else if on(EngineFault::MergeBeforeLoosen) {
        [Split, Tighten, Revoke, Merge, Loosen, Delete]
    } else if on(EngineFault::DeleteFirst) {
        [Delete, Split, Tighten, Revoke, Loosen, Merge]
    } else {
        return;
    };
    steps.sort_by_key(|step| order.iter().position(|phase| *phase == step.phase));
}
