//! Start and repair: from whatever the kernel holds to what it should hold.
//!
//! What was read is matched with what is wanted *by content*: classes by their elements and whom they
//! count for, identities by their addresses, policy sets by their points and rows. What matches keeps
//! its number, so unchanged input changes nothing. The rest gets new numbers and is brought about in
//! the phases of a flush: new things beside the old ones, points to what both old and new allow, the
//! generation, points to the new, and the old away. So no packet gets a verdict that is neither the
//! old nor the new, whatever state an agent that was killed left behind. A table that this layout
//! could not have written is replaced whole, in one step.

use crate::content::{class_content, fingerprint};
use crate::decode::{Observed, UNKNOWN_RULE, decode, generation};
use crate::flat::{Flat, Run, prefixes};
use crate::names;
use crate::planner::{AllNumbers, Planner};
use crate::{Config, Ruleset, Transaction};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::IpAddr;
use palisade_model::{Family, Prefix};
use palisade_tables::{Cell, Change, ClassId, Delta, IdentityId, Phase, Point, PolicySet, Program};
use palisade_tables::{SetId, Step, Tables};

/// Plans the way from what the kernel holds (`None`: no table of ours) to `desired`.
///
/// `fresh_generation` is used only where the kernel does not say which generation is live: one that
/// no flow can be marked with. Returns the planner for what follows and the transaction, which is
/// empty if nothing differs.
pub fn adopt(
    config: &Config,
    observed: Option<&Ruleset>,
    desired: &Tables,
    fresh_generation: u32,
) -> (Planner, Transaction) {
    let read = observed.map(|ruleset| {
        let plain = ruleset.clone().without_counts();
        decode(config, &plain).map_err(|_| generation(config, &plain))
    });
    match read {
        Some(Ok(observed)) => Diff::new(config, observed, desired).plan(),
        Some(Err(Some(last))) => rebuild(config, desired, config.next_generation(last), true),
        Some(Err(None)) => rebuild(config, desired, fresh_generation, true),
        None => rebuild(config, desired, fresh_generation, false),
    }
}

fn rebuild(
    config: &Config,
    desired: &Tables,
    generation: u32,
    replace: bool,
) -> (Planner, Transaction) {
    let mut planner = Planner::new(config.clone(), generation);
    planner.load(desired);
    let transaction = planner.rebuild(replace);
    (planner, transaction)
}

/// The addresses that share an identity: single ones, and ranges by family.
type Members = (Vec<IpAddr>, Vec<(Family, u128, u128)>);

/// A policy set's points, default and rows (by the kernel's numbers): what it is matched by.
type SetContent = (Vec<Point>, u32, BTreeMap<u32, u32>);

struct Diff<'a> {
    config: &'a Config,
    observed: Observed,
    desired: &'a Tables,
    desired_flat: [Flat; 2],
    /// The kernel's numbers of what is wanted: matched or new.
    classes: BTreeMap<ClassId, u32>,
    identities: BTreeMap<IdentityId, u32>,
    sets: BTreeMap<SetId, u32>,
    /// Numbers that were matched.
    kept_classes: BTreeSet<u32>,
    kept_sets: BTreeSet<u32>,
    next_class: u32,
    next_identity: u32,
    next_set: u32,
    /// Identities for addresses under way, by what they had and what they get.
    moving: BTreeMap<(IdentityId, IdentityId), u32>,
    /// What is made for the way: programs and policy sets that allow what both sides allow.
    meets: BTreeMap<(u32, ClassId), u32>,
    programs: Vec<(u32, Arc<Program>)>,
}

fn members(
    addresses: &BTreeMap<Prefix, IdentityId>,
    flat: &[Flat; 2],
) -> BTreeMap<IdentityId, Members> {
    let mut out: BTreeMap<IdentityId, Members> = BTreeMap::new();
    for (prefix, id) in addresses {
        if prefix.is_host() {
            out.entry(*id).or_default().0.push(prefix.address());
        }
    }
    for family in Family::BOTH {
        for (first, last, id) in flat[family as usize].runs() {
            out.entry(id).or_default().1.push((family, first, last));
        }
    }
    out
}

fn points_of(tables: &Tables) -> BTreeMap<SetId, Vec<Point>> {
    let mut out: BTreeMap<SetId, Vec<Point>> = BTreeMap::new();
    for (point, set) in &tables.points {
        out.entry(*set).or_default().push(point.clone());
    }
    out
}

impl<'a> Diff<'a> {
    fn new(config: &'a Config, observed: Observed, desired: &'a Tables) -> Self {
        let mut loaded = Planner::new(config.clone(), observed.generation);
        loaded.load(desired);
        let above = |last: Option<u32>| last.unwrap_or(0).wrapping_add(1);
        let tables = &observed.tables;
        let next_class = above(tables.programs.keys().map(|c| c.0).max());
        let ids = tables.addresses.values().copied();
        let rows = tables.classes.keys().map(|(_, id)| *id);
        let next_identity = above(ids.chain(rows).map(|id| id.0).max());
        let next_set = above(tables.sets.keys().map(|s| s.0).max());
        let mut diff = Diff {
            config,
            desired,
            desired_flat: Family::BOTH.map(|family| loaded.flat(family).clone()),
            classes: BTreeMap::new(),
            identities: BTreeMap::new(),
            sets: BTreeMap::new(),
            kept_classes: BTreeSet::new(),
            kept_sets: BTreeSet::new(),
            next_class,
            next_identity,
            next_set,
            moving: BTreeMap::new(),
            meets: BTreeMap::new(),
            programs: Vec::new(),
            observed,
        };
        diff.match_classes();
        diff.match_identities_and_sets();
        diff
    }

    fn match_classes(&mut self) {
        let mut by_print: BTreeMap<String, Vec<u32>> = BTreeMap::new();
        for (number, content) in &self.observed.classes {
            let key = names::marks(&[0, 0, *number, 0]);
            let any = content.elements.get(&(names::ANY, key));
            let print = any.and_then(|element| element.comment.as_deref());
            let print = print.unwrap_or("").into();
            by_print.entry(print).or_default().push(*number);
        }
        for (class, program) in &self.desired.programs {
            let print = fingerprint(self.desired, program);
            let candidates = by_print.entry(print.clone()).or_default();
            let found = candidates.iter().position(|number| {
                let codes = self.observed.residues.get(number);
                let mut codes = codes.into_iter().flatten().copied();
                let mut content = class_content(self.config, *number, program, &print, &mut || {
                    codes.next().unwrap_or_default()
                });
                content.chains.sort_by(|a, b| a.0.cmp(&b.0));
                let there = &self.observed.classes[number];
                let mut chains = there.chains.clone();
                chains.sort_by(|a, b| a.0.cmp(&b.0));
                content.elements == there.elements && content.chains == chains
            });
            let number = match found {
                Some(at) => {
                    let number = candidates.remove(at);
                    self.kept_classes.insert(number);
                    number
                }
                None => {
                    let number = take(&mut self.next_class);
                    self.programs.push((number, program.clone()));
                    number
                }
            };
            self.classes.insert(*class, number);
        }
    }

    fn match_identities_and_sets(&mut self) {
        let there = members(&self.observed.tables.addresses, &self.observed.flat);
        let wanted = members(&self.desired.addresses, &self.desired_flat);
        let mut by_members: BTreeMap<&Members, IdentityId> =
            there.iter().map(|(id, members)| (members, *id)).collect();
        self.identities.insert(IdentityId::NOBODY, 0);
        for (id, members) in &wanted {
            if *id == IdentityId::NOBODY {
                continue;
            }
            let found = by_members
                .remove(members)
                .filter(|number| *number != IdentityId::NOBODY);
            let number = match found {
                Some(number) => number.0,
                None => take(&mut self.next_identity),
            };
            self.identities.insert(*id, number);
        }
        // Identities without an address cannot be told apart by members, and no packet has one: sets
        // are matched without them, and they by their rows in the sets then matched.
        let observed = &self.observed.tables;
        let mut rows: BTreeMap<SetId, BTreeMap<u32, u32>> = BTreeMap::new();
        for ((set, id), class) in &observed.classes {
            if there.contains_key(id) {
                rows.entry(*set).or_default().insert(id.0, class.0);
            }
        }
        let points = points_of(observed);
        let mut by_content: BTreeMap<SetContent, Vec<u32>> = BTreeMap::new();
        for (set, PolicySet { default }) in &observed.sets {
            let points = points.get(set).cloned().unwrap_or_default();
            let rows = rows.remove(set).unwrap_or_default();
            let content = (points, default.0, rows);
            by_content.entry(content).or_default().push(set.0);
        }
        let points = points_of(self.desired);
        let mut rows: BTreeMap<SetId, BTreeMap<u32, u32>> = BTreeMap::new();
        for ((set, id), class) in &self.desired.classes {
            if wanted.contains_key(id) {
                let row = (self.identities[id], self.class_number(*class));
                rows.entry(*set).or_default().insert(row.0, row.1);
            }
        }
        for (set, PolicySet { default }) in &self.desired.sets {
            let points = points.get(set).cloned().unwrap_or_default();
            let rows = rows.remove(set).unwrap_or_default();
            let content = (points, self.class_number(*default), rows);
            let number = match by_content.get_mut(&content).and_then(Vec::pop) {
                Some(number) => {
                    self.kept_sets.insert(number);
                    number
                }
                None => take(&mut self.next_set),
            };
            self.sets.insert(*set, number);
        }
        self.match_empty(&there, &wanted);
    }

    /// Matches identities without addresses by their rows.
    fn match_empty(
        &mut self,
        there: &BTreeMap<IdentityId, Members>,
        wanted: &BTreeMap<IdentityId, Members>,
    ) {
        let mut found: BTreeMap<u32, BTreeMap<u32, u32>> = BTreeMap::new();
        for ((set, id), class) in &self.observed.tables.classes {
            if !there.contains_key(id) {
                found.entry(id.0).or_default().insert(set.0, class.0);
            }
        }
        let mut by_rows: BTreeMap<BTreeMap<u32, u32>, Vec<u32>> = BTreeMap::new();
        for (id, rows) in found {
            by_rows.entry(rows).or_default().push(id);
        }
        let mut empty: BTreeMap<IdentityId, BTreeMap<u32, u32>> = BTreeMap::new();
        for ((set, id), class) in &self.desired.classes {
            if !wanted.contains_key(id) && *id != IdentityId::NOBODY {
                let row = (self.sets[set], self.class_number(*class));
                empty.entry(*id).or_default().insert(row.0, row.1);
            }
        }
        for (id, rows) in empty {
            let matched = by_rows.get_mut(&rows).and_then(Vec::pop);
            let number = matched.unwrap_or_else(|| take(&mut self.next_identity));
            self.identities.insert(id, number);
        }
    }

    /// The number of a wanted class; 0, which no class has, if it has no program.
    fn class_number(&self, class: ClassId) -> u32 {
        self.classes.get(&class).copied().unwrap_or_default()
    }

    fn identity_number(&self, id: IdentityId) -> u32 {
        self.identities.get(&id).copied().unwrap_or_default()
    }

    /// The wanted tables in the kernel's numbers, ranges in place of prefixes.
    fn target(&self) -> Tables {
        let desired = self.desired;
        let mut tables = Tables {
            judge_host_traffic: desired.judge_host_traffic,
            interfaces: desired.interfaces.clone(),
            rules: desired.rules.clone(),
            ..Tables::default()
        };
        let id = |id: &IdentityId| IdentityId(self.identity_number(*id));
        let class = |class: &ClassId| ClassId(self.class_number(*class));
        for (prefix, identity) in &desired.addresses {
            if prefix.is_host() {
                tables.addresses.insert(*prefix, id(identity));
            }
        }
        for family in Family::BOTH {
            for (first, last, identity) in self.desired_flat[family as usize].runs() {
                for prefix in prefixes(family, first, last) {
                    tables.addresses.insert(prefix, id(&identity));
                }
            }
        }
        for (point, set) in &desired.points {
            tables.points.insert(point.clone(), SetId(self.sets[set]));
        }
        for (set, PolicySet { default }) in &desired.sets {
            let default = class(default);
            tables
                .sets
                .insert(SetId(self.sets[set]), PolicySet { default });
        }
        for ((set, identity), of) in &desired.classes {
            let row = (SetId(self.sets[set]), id(identity));
            tables.classes.insert(row, class(of));
        }
        for (of, program) in &desired.programs {
            tables.programs.insert(class(of), program.clone());
        }
        tables
    }

    /// The number of an address under way from one identity to another.
    fn moving(&mut self, from: IdentityId, to: IdentityId) -> IdentityId {
        if from.0 == self.identity_number(to) {
            return from;
        }
        let next = &mut self.next_identity;
        let number = self.moving.entry((from, to)).or_insert_with(|| take(next));
        IdentityId(*number)
    }

    /// The changes of the first phase that give every address that moves an identity of its own.
    fn split_addresses(&mut self) -> Vec<Change> {
        let mut hosts: BTreeSet<Prefix> = BTreeSet::new();
        let both = [&self.observed.tables.addresses, &self.desired.addresses];
        for addresses in both {
            hosts.extend(addresses.keys().filter(|prefix| prefix.is_host()));
        }
        let mut out = Vec::new();
        for host in hosts {
            let address = host.address();
            let from = self.observed.tables.identity(address);
            let to = self.desired.identity(address);
            let id = self.moving(from, to);
            if id != from {
                out.push(Change::Address(host, Some(id)));
            }
        }
        for family in Family::BOTH {
            let at = family as usize;
            let old = &self.observed.flat[at];
            let pieces = overlay(family, old, &self.desired_flat[at]);
            for (first, last, from, to) in pieces {
                let id = self.moving(from, to);
                if id != from {
                    for prefix in prefixes(family, first, last) {
                        out.push(Change::Address(prefix, Some(id)));
                    }
                }
            }
        }
        out
    }

    /// A class that allows what a class in the kernel and a wanted one both allow.
    fn meet(&mut self, old: ClassId, new: ClassId) -> ClassId {
        let number = self.class_number(new);
        if old.0 == number {
            return old;
        }
        if let Some(number) = self.meets.get(&(old.0, new)) {
            return ClassId(*number);
        }
        let programs = &self.observed.tables.programs;
        let both = programs.get(&old).zip(self.desired.programs.get(&new));
        let met = both.map(|(old, new)| {
            let old = without_credit(old);
            let meet = old.intersect(new);
            (old.allows_no_more_than(new), meet == **new, meet)
        });
        let class = match met {
            None => ClassId(number),
            Some((_, true, _)) => ClassId(number),
            Some((true, ..)) => old,
            Some((.., meet)) => {
                let known = self.programs.iter().find(|(_, p)| **p == meet);
                match known.map(|(number, _)| *number) {
                    Some(number) => ClassId(number),
                    None => {
                        let number = take(&mut self.next_class);
                        self.programs.push((number, Arc::new(meet)));
                        ClassId(number)
                    }
                }
            }
        };
        self.meets.insert((old.0, new), class.0);
        class
    }

    fn plan(mut self) -> (Planner, Transaction) {
        let target = self.target();
        let addresses = self.split_addresses();
        // Every identity that a packet can have until addresses move on, with what it was and is.
        let mut universe: Vec<(IdentityId, IdentityId, IdentityId)> = Vec::new();
        for (id, number) in &self.identities {
            universe.push((IdentityId(*number), IdentityId(*number), *id));
        }
        for ((from, to), number) in &self.moving {
            universe.push((IdentityId(*number), *from, *to));
        }
        let mut rows: Vec<Change> = Vec::new();
        let mut sets: Vec<Change> = Vec::new();
        self.rows_for_moving(&universe, &target, &mut sets, &mut rows);
        let (tighten, loosen) = self.points(&universe, &target, &mut sets, &mut rows);

        let mut split: Vec<Change> = Vec::new();
        let rules = self.desired.rules.iter();
        split.extend(rules.map(|(id, credit)| Change::Rule(*id, Some(credit.clone()))));
        let programs = self.programs.iter();
        split.extend(programs.map(|(c, p)| Change::Program(ClassId(*c), Some(p.clone()))));
        split.extend(sets);
        split.extend(rows);
        let revoke = self.observed.pending
            || !(tighten.is_empty() && loosen.is_empty() && addresses.is_empty());
        split.extend(addresses);

        let mut steps = Vec::new();
        let mut state = self.observed.tables.clone();
        let mut step = |state: &mut Tables, phase, changes: Vec<Change>| {
            for change in &changes {
                state.apply(change);
            }
            if !changes.is_empty() || phase == Phase::Revoke {
                steps.push(Step { phase, changes });
            }
        };
        step(&mut state, Phase::Split, split);
        step(&mut state, Phase::Tighten, tighten);
        if revoke {
            step(&mut state, Phase::Revoke, Vec::new());
        }
        step(&mut state, Phase::Loosen, loosen);
        let merge = address_changes(&state, &target);
        step(&mut state, Phase::Merge, merge);
        let delete = self.deletions(&state, &target);
        step(&mut state, Phase::Delete, delete);
        self.finish(&Delta { revision: 0, steps })
    }

    /// Gives identities under way the class they had in every set that stays in use, and writes the
    /// rows of wanted sets that are new.
    fn rows_for_moving(
        &mut self,
        universe: &[(IdentityId, IdentityId, IdentityId)],
        target: &Tables,
        sets: &mut Vec<Change>,
        rows: &mut Vec<Change>,
    ) {
        let observed = &self.observed.tables;
        let used: BTreeSet<SetId> = observed.points.values().copied().collect();
        for set in used {
            for ((from, _), number) in &self.moving {
                if let Some(class) = observed.classes.get(&(set, *from)) {
                    rows.push(Change::Class(set, IdentityId(*number), Some(*class)));
                }
            }
        }
        for (set, number) in &self.sets {
            let id = SetId(*number);
            if !self.kept_sets.contains(number) {
                sets.push(Change::Set(id, target.sets.get(&id).copied()));
                for (number, _, to) in universe {
                    if let Some(class) = self.desired.classes.get(&(*set, *to)) {
                        let class = ClassId(self.class_number(*class));
                        rows.push(Change::Class(id, *number, Some(class)));
                    }
                }
            }
        }
        // Rows of matched sets that differ are those of identities that no packet has.
        for ((set, id), class) in &target.classes {
            let known = observed.classes.get(&(*set, *id)) == Some(class);
            if self.kept_sets.contains(&set.0) && !known {
                rows.push(Change::Class(*set, *id, Some(*class)));
            }
        }
    }

    /// The changes of points and interfaces that only tighten, and those that only loosen.
    fn points(
        &mut self,
        universe: &[(IdentityId, IdentityId, IdentityId)],
        target: &Tables,
        sets: &mut Vec<Change>,
        rows: &mut Vec<Change>,
    ) -> (Vec<Change>, Vec<Change>) {
        let (mut tighten, mut loosen) = (Vec::new(), Vec::new());
        let there = self.observed.tables.interfaces.clone();
        // One that does not begin with our prefix was open: to make it ours tightens, points included.
        let prefix = self.config.interface_prefix.clone();
        let was_open = |name: &str| !there.contains(name) && !name.starts_with(&*prefix);
        // And the reverse: its points go only after it is open.
        let opens = |name: &str| !target.interfaces.contains(name) && !name.starts_with(&*prefix);
        for name in target.interfaces.difference(&there) {
            let change = Change::Interface(name.clone(), true);
            match was_open(name) {
                true => tighten.push(change),
                false => loosen.push(change),
            }
        }
        let wanted = self.desired.points.clone();
        let old = self.observed.tables.points.clone();
        let mut met: BTreeMap<(SetId, SetId), SetId> = BTreeMap::new();
        for (point, set) in &wanted {
            let to = SetId(self.sets[set]);
            let change = Change::Point(point.clone(), Some(to));
            match old.get(point) {
                Some(from) if *from == to => {}
                Some(from) => {
                    let between = match met.get(&(*from, *set)) {
                        Some(set) => *set,
                        None => {
                            let meet = self.meet_sets(*from, *set, universe, sets, rows);
                            met.insert((*from, *set), meet);
                            meet
                        }
                    };
                    tighten.push(Change::Point(point.clone(), Some(between)));
                    loosen.push(change);
                }
                None if was_open(&point.interface) => tighten.push(change),
                None => loosen.push(change),
            }
        }
        let gone = |point: &&Point| !wanted.contains_key(*point) && !opens(&point.interface);
        for point in old.keys().filter(gone) {
            tighten.push(Change::Point(point.clone(), None));
        }
        for name in there.difference(&target.interfaces) {
            loosen.push(Change::Interface(name.clone(), false));
        }
        (tighten, loosen)
    }

    /// A policy set that allows what an old and a wanted one both allow.
    fn meet_sets(
        &mut self,
        from: SetId,
        to: SetId,
        universe: &[(IdentityId, IdentityId, IdentityId)],
        sets: &mut Vec<Change>,
        rows: &mut Vec<Change>,
    ) -> SetId {
        let id = SetId(take(&mut self.next_set));
        let class = |diff: &mut Self, was, is| {
            let old = diff.observed.tables.class(from, was);
            let new = diff.desired.class(to, is);
            old.zip(new).map(|(old, new)| diff.meet(old, new))
        };
        let default = class(self, IdentityId(u32::MAX), IdentityId(u32::MAX));
        let Some(default) = default else { return id };
        sets.push(Change::Set(id, Some(PolicySet { default })));
        for (number, was, is) in universe {
            if *number == IdentityId::NOBODY {
                continue;
            }
            if let Some(class) = class(self, *was, *is).filter(|class| *class != default) {
                rows.push(Change::Class(id, *number, Some(class)));
            }
        }
        id
    }

    /// What is in the tables and not wanted, in an order in which it can go.
    fn deletions(&self, state: &Tables, target: &Tables) -> Vec<Change> {
        let mut out = Vec::new();
        for point in state.points.keys() {
            if !target.points.contains_key(point) {
                out.push(Change::Point(point.clone(), None));
            }
        }
        for (set, id) in state.classes.keys() {
            if !target.classes.contains_key(&(*set, *id)) {
                out.push(Change::Class(*set, *id, None));
            }
        }
        for set in state.sets.keys().filter(|s| !target.sets.contains_key(s)) {
            out.push(Change::Set(*set, None));
        }
        for class in state.programs.keys() {
            if !target.programs.contains_key(class) {
                out.push(Change::Program(*class, None));
            }
        }
        out
    }

    /// Turns the delta into a transaction, and the numbers into those of the engine.
    fn finish(self, delta: &Delta) -> (Planner, Transaction) {
        let mut numbers = AllNumbers::default();
        for number in 1..self.next_identity {
            numbers.identities.assign(IdentityId(number), number);
        }
        for number in 1..self.next_set {
            numbers.sets.assign(SetId(number), number);
        }
        for number in 1..self.next_class {
            numbers.classes.assign(ClassId(number), number);
        }
        for (class, codes) in &self.observed.residues {
            let last = codes.last().copied().unwrap_or_default();
            numbers.next_residue = numbers.next_residue.max(last.wrapping_add(1));
            numbers.residues.insert(ClassId(*class), codes.clone());
        }
        let generation = self.observed.generation;
        let mut there = Planner::with_numbers(self.config.clone(), generation, numbers);
        there.load(&self.observed.tables);
        there.pending = self.observed.pending;
        there.retire(self.observed.retired.iter().copied());
        let mut transaction = there.plan(delta);
        for harvest in transaction.steps.iter_mut().flat_map(|s| &mut s.harvest) {
            harvest.rules.retain(|rule| rule.0 < UNKNOWN_RULE);
        }
        for step in &mut transaction.steps {
            step.harvest.retain(|harvest| !harvest.rules.is_empty());
        }

        let mut numbers = AllNumbers {
            next_residue: there.numbers.next_residue,
            ..AllNumbers::default()
        };
        for (id, number) in &self.identities {
            if *id != IdentityId::NOBODY {
                numbers.identities.assign(*id, *number);
            }
        }
        for (set, number) in &self.sets {
            numbers.sets.assign(*set, *number);
        }
        for (class, number) in &self.classes {
            numbers.classes.assign(*class, *number);
            if let Some(codes) = there.numbers.residues.get(&ClassId(*number)) {
                numbers.residues.insert(*class, codes.clone());
            }
        }
        numbers.identities.skip_to(self.next_identity);
        numbers.sets.skip_to(self.next_set);
        numbers.classes.skip_to(self.next_class);
        let config = self.config.clone();
        let mut planner = Planner::with_numbers(config, there.generation, numbers);
        planner.load(self.desired);
        (planner, transaction)
    }
}

fn take(next: &mut u32) -> u32 {
    let number = *next;
    *next = number.wrapping_add(1);
    number
}

/// The program with no rule credited.
fn without_credit(program: &Program) -> Program {
    let cell = |cell: &Cell| Cell {
        verdict: cell.verdict,
        hits: Vec::new(),
    };
    let protocols = program.protocols().iter();
    let protocols = protocols.map(|(protocol, map)| (*protocol, map.map(|v| v.map(cell))));
    Program::new(protocols.collect(), cell(program.default()))
}

/// Where two states' ranges agree with themselves: every piece that somebody holds in one of them.
fn overlay(family: Family, old: &Flat, new: &Flat) -> Vec<(u128, u128, IdentityId, IdentityId)> {
    let top = Prefix::all(family).bounds().1;
    let mut cuts: BTreeSet<u128> = BTreeSet::new();
    for (first, last, _) in old.runs().chain(new.runs()) {
        cuts.insert(first);
        if last < top {
            cuts.insert(last + 1);
        }
    }
    let (old, new): (Vec<Run>, Vec<Run>) = (old.runs().collect(), new.runs().collect());
    let holder = |runs: &[Run], at: u128| {
        let after = runs.partition_point(|(first, ..)| *first <= at);
        let run = after.checked_sub(1).map(|i| runs[i]);
        run.filter(|(_, last, _)| at <= *last)
            .map_or(IdentityId::NOBODY, |(.., id)| id)
    };
    let cuts: Vec<u128> = cuts.into_iter().collect();
    let mut out = Vec::new();
    for (i, first) in cuts.iter().enumerate() {
        let last = cuts.get(i + 1).map_or(top, |next| next - 1);
        let (from, to) = (holder(&old, *first), holder(&new, *first));
        if from != IdentityId::NOBODY || to != IdentityId::NOBODY {
            out.push((*first, last, from, to));
        }
    }
    out
}

/// The changes from one state's addresses to another's.
fn address_changes(state: &Tables, target: &Tables) -> Vec<Change> {
    let mut out = Vec::new();
    for (prefix, id) in &target.addresses {
        if state.addresses.get(prefix) != Some(id) {
            out.push(Change::Address(*prefix, Some(*id)));
        }
    }
    for prefix in state.addresses.keys() {
        if !target.addresses.contains_key(prefix) {
            out.push(Change::Address(*prefix, None));
        }
    }
    out
}
