//! The sequencer: from the tables as last written to the tables that are wanted, in steps between
//! which no packet gets a verdict that is neither the old nor the new.
//!
//! Addresses that change identity are carried by one identity throughout ([`carriers`]), classes go
//! from their old program through the intersection to the new ([`trajectories`]), points change set
//! directly or through a set of intersections ([`points`]). A packet looks up point, address, class,
//! default, program, in this order, and may see a step happen between any two of them.
//!
//! It decides nothing about policy: both tables are given to it.

mod carriers;
mod classes;
mod points;
mod trajectories;

use crate::classes::Programs;
use crate::faults::{Fault, on};
use crate::pool::HashMap;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use carriers::Carriers;
use classes::Classes;
use palisade_model::{Family, Prefix, Str};
use palisade_tables::{Change, ClassId, IdentityId, Phase, Point, RuleId, SetId, Step, Tables};

/// The keys under which the two tables may differ; all that is not listed is equal.
#[derive(Debug, Default)]
pub(crate) struct Differences {
    pub(crate) interfaces: BTreeSet<Str>,
    /// Addresses and prefixes in order, with the identity that each had. The tables as written say
    /// nothing of addresses: there are too many to keep them twice.
    pub(crate) addresses: Vec<(Prefix, Option<IdentityId>)>,
    /// The lengths of the prefixes that either table may have besides single addresses.
    pub(crate) lengths: BTreeSet<(Family, u8)>,
    pub(crate) points: BTreeSet<Point>,
    pub(crate) sets: BTreeSet<SetId>,
    pub(crate) classes: BTreeSet<(SetId, IdentityId)>,
    pub(crate) programs: BTreeSet<ClassId>,
    pub(crate) rules: BTreeSet<RuleId>,
    /// Identities that only the wanted tables have.
    pub(crate) fresh: BTreeSet<IdentityId>,
    /// Identities that only the written tables have.
    pub(crate) dead: BTreeSet<IdentityId>,
}

impl Differences {
    /// Leaves only what differs indeed.
    pub(crate) fn settle(&mut self, old: &Tables, new: &Tables) {
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
pub(crate) struct Script {
    split: Vec<Change>,
    /// Points that leave a set before its classes change.
    leave: Vec<Change>,
    tighten: Vec<Change>,
    loosen: Vec<Change>,
    merge: Vec<Change>,
    delete: Vec<Change>,
}

/// What every part of the sequencer looks at.
pub(crate) struct Case<'a> {
    pub(crate) old: &'a Tables,
    pub(crate) new: &'a Tables,
    pub(crate) differences: &'a Differences,
    /// The sets in which each identity has an entry in the new tables.
    entries: &'a HashMap<IdentityId, Vec<SetId>>,
    /// The sets in which the entry of each identity is not the same in both.
    changed: BTreeMap<IdentityId, Vec<SetId>>,
    /// Identities whose class changes in a set that both tables have.
    unstable: BTreeSet<IdentityId>,
    /// Whether the default of a set that both tables have changes.
    defaults_change: bool,
}

impl Case<'_> {
    fn survives(&self, set: SetId) -> bool {
        self.old.sets.contains_key(&set) && self.new.sets.contains_key(&set)
    }

    /// Sets that both tables have.
    fn surviving(&self) -> impl Iterator<Item = SetId> {
        let sets = self.old.sets.keys().copied();
        sets.filter(|set| self.new.sets.contains_key(set))
    }

    /// The sets that may tell one of these identities from nobody, in either tables.
    fn telling(&self, a: IdentityId, b: IdentityId) -> Vec<SetId> {
        let of = |identity: IdentityId| {
            let listed = self.entries.get(&identity).into_iter().flatten();
            listed.chain(self.changed.get(&identity).into_iter().flatten())
        };
        let mut sets: Vec<SetId> = of(a).chain(of(b)).copied().collect();
        sets.sort_unstable();
        sets.dedup();
        sets
    }

    /// Whether the default class of a set that both tables have is not the same in both.
    fn default_changes(&self, set: SetId) -> bool {
        self.differences.sets.contains(&set) && self.survives(set)
    }
}

/// The class of an identity in a set that exists.
fn class(tables: &Tables, set: SetId, identity: IdentityId) -> ClassId {
    tables.class(set, identity).unwrap_or(ClassId(u32::MAX))
}

/// The steps that lead from `old` to `new`, in which `entries` lists the sets where each identity has
/// an entry. What is made for the time between takes about `room` elements at most. `handed` says that
/// an address changed hands.
#[allow(
    clippy::too_many_arguments,
    reason = "each is another room's, and they are lent apart"
)]
pub(crate) fn steps(
    old: &Tables,
    new: &Tables,
    differences: &Differences,
    entries: &HashMap<IdentityId, Vec<SetId>>,
    identities: &mut impl FnMut() -> IdentityId,
    sets: &mut impl FnMut() -> SetId,
    programs: &mut Programs,
    room: usize,
    handed: bool,
) -> Vec<Step> {
    let mut case = Case {
        old,
        new,
        differences,
        entries,
        changed: BTreeMap::new(),
        unstable: BTreeSet::new(),
        defaults_change: false,
    };
    case.defaults_change = differences.sets.iter().any(|set| case.survives(*set));
    for (set, identity) in &differences.classes {
        case.changed.entry(*identity).or_default().push(*set);
    }
    let changed = differences.classes.iter();
    let kept = changed.filter(|(set, _)| case.survives(*set));
    case.unstable = kept.map(|(_, identity)| *identity).collect();
    let mut classes = Classes::new(old, new, programs, room);
    let mut script = Script::default();
    let moves = points::moves(&case);
    let carriers = Carriers::assign(&case, &mut classes, &moves, identities);
    let changing = trajectories::write(&case, &mut classes, &carriers, &mut script);
    let apart = points::write(
        &case,
        &mut classes,
        &carriers,
        &moves,
        &changing,
        sets,
        &mut script,
    );
    carriers.write(&case, &mut script);
    interfaces(&case, &mut script);
    programs_and_rules(&case, &classes, &mut script);
    assemble(script, apart, handed)
}

fn interfaces(case: &Case<'_>, script: &mut Script) {
    for name in &case.differences.interfaces {
        if case.new.interfaces.contains(name) {
            let change = Change::Interface(name.clone(), true);
            script.tighten.push(change);
        } else {
            script.loosen.push(Change::Interface(name.clone(), false));
        }
    }
}

/// What programs stand for comes first and goes last.
fn programs_and_rules(case: &Case<'_>, classes: &Classes<'_>, script: &mut Script) {
    let mut first = Vec::new();
    let mut last = Vec::new();
    for class in &case.differences.programs {
        match case.new.programs.get(class) {
            Some(program) => first.push(Change::Program(*class, Some(program.clone()))),
            None => last.push(Change::Program(*class, None)),
        }
    }
    for (class, program) in &classes.between {
        first.push(Change::Program(*class, Some(program.clone())));
        last.push(Change::Program(*class, None));
    }
    let mut begin = Vec::new();
    for rule in &case.differences.rules {
        match case.new.rules.get(rule) {
            Some(credit) => begin.push(Change::Rule(*rule, Some(credit.clone()))),
            None => last.push(Change::Rule(*rule, None)),
        }
    }
    begin.append(&mut first);
    begin.append(&mut script.split);
    script.split = begin;
    script.delete.append(&mut last);
}

fn assemble(script: Script, apart: bool, handed: bool) -> Vec<Step> {
    let Script {
        split,
        mut leave,
        mut tighten,
        loosen,
        merge,
        delete,
    } = script;
    if !apart {
        leave.append(&mut tighten);
    }
    let revoke = !leave.is_empty() || !tighten.is_empty() || handed;
    let mut steps = Vec::new();
    let mut push = |phase, mut changes: Vec<Change>| {
        changes.sort_by_key(|change| place(phase, change));
        if !changes.is_empty() {
            steps.push(Step { phase, changes });
        }
    };
    push(Phase::Split, split);
    push(Phase::Tighten, leave);
    push(Phase::Tighten, tighten);
    push(Phase::Loosen, loosen);
    push(Phase::Merge, merge);
    push(Phase::Delete, delete);
    if revoke && !on(Fault::RevokeForgotten) {
        let at = steps.partition_point(|step| step.phase < Phase::Revoke);
        steps.insert(
            at,
            Step {
                phase: Phase::Revoke,
                changes: Vec::new(),
            },
        );
    }
    misorder(&mut steps);
    steps
}

/// Where a change stands in its step: what is referred to comes before what refers to it, and goes
/// after.
fn place(phase: Phase, change: &Change) -> i8 {
    let place = match change {
        Change::Rule(..) => 0,
        Change::Program(..) => 1,
        Change::Class(..) if !matches!(phase, Phase::Split | Phase::Delete) => 2,
        Change::Set(..) => 3,
        Change::Class(..) => 4,
        Change::Address(..) => 5,
        Change::Point(..) => 6,
        Change::Interface(..) => 7,
    };
    if phase == Phase::Delete {
        -place
    } else {
        place
    }
}

/// The orders that the faults ask for.
fn misorder(steps: &mut [Step]) {
    use Phase::{Delete, Loosen, Merge, Revoke, Split, Tighten};
    let order: [Phase; 6] = if on(Fault::SplitAfterLoosen) {
        [Tighten, Revoke, Loosen, Split, Merge, Delete]
    } else if on(Fault::TightenAfterLoosen) {
        [Split, Loosen, Tighten, Revoke, Merge, Delete]
    } else if on(Fault::MergeBeforeLoosen) {
        [Split, Tighten, Revoke, Merge, Loosen, Delete]
    } else if on(Fault::DeleteFirst) {
        [Delete, Split, Tighten, Revoke, Loosen, Merge]
    } else {
        return;
    };
    steps.sort_by_key(|step| order.iter().position(|phase| *phase == step.phase));
}
