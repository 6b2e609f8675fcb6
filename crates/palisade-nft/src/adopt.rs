//! Start and repair: from whatever the kernel holds to what it should hold.
//!
//! What was read is matched with what is wanted *by content*: classes by their elements and whom they
//! count for, identities by their addresses, policy sets by their points and rows. What matches keeps
//! its number, so unchanged input changes nothing. The rest gets new numbers and is brought about in
//! the phases of a flush: new things beside the old ones, points to what both old and new allow, the
//! generation, points to the new, and the old away. So no packet gets a verdict that is neither the
//! old nor the new, whatever state an agent that was killed left behind. Rules that somebody changed
//! are put back first, in one step; a table whose data this layout could not have written is replaced
//! whole, in one step.

use crate::bases::BasePrograms;
use crate::decode::{UNKNOWN_RULE, decode, live_generation};
use crate::identity_ranges::{IdentityRange, IdentityRanges, range_to_prefixes};
use crate::names::FIRST_BASE;
use crate::planner::{BaseSelection, KernelNumbers, Planner};
use crate::repair::{repair_step, restore_rules};
use crate::table_match::{TableMatch, allocate_number};
use crate::{Config, Ruleset, Transaction};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;
use palisade_model::{Direction, Family, Prefix};
use palisade_tables::{
    Cell, ClassId, Delta, IdentityId, Phase, Point, PolicySet, Program, TableChange,
};
use palisade_tables::{DeltaStep, PolicySetId, Tables};

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
    let Some(observed) = observed else {
        return rebuild(config, desired, fresh_generation, None);
    };
    let plain = observed.clone().without_counts();
    if let Ok(observed) = decode(config, &plain) {
        return TableMatch::new(config, observed, desired).plan();
    }
    let Some(last) = live_generation(config, &plain) else {
        return rebuild(config, desired, fresh_generation, Some(observed));
    };
    // Where only our rules were changed, they are put back first; then the data are what they were.
    let ours = restore_rules(config, &plain, last);
    if let (Some(mended), Ok(observed)) = (repair_step(&plain, &ours), decode(config, &ours)) {
        let (planner, mut transaction) = TableMatch::new(config, observed, desired).plan();
        transaction.steps.insert(0, mended);
        return (planner, transaction);
    }
    rebuild(
        config,
        desired,
        config.next_generation(last),
        Some(observed),
    )
}

fn rebuild(
    config: &Config,
    desired: &Tables,
    generation: u32,
    replaced: Option<&Ruleset>,
) -> (Planner, Transaction) {
    let mut planner = Planner::new(config.clone(), generation);
    planner.load(desired, BaseSelection::Search);
    let transaction = planner.rebuild(replaced);
    (planner, transaction)
}

impl TableMatch<'_> {
    /// The number of an address under way from one identity to another.
    fn transition_identity(&mut self, from: IdentityId, to: IdentityId) -> IdentityId {
        if from.0 == self.identity_number(to) {
            return from;
        }
        let next = &mut self.next_identity;
        let number = self
            .transition_identities
            .entry((from, to))
            .or_insert_with(|| allocate_number(next));
        IdentityId(*number)
    }

    /// The changes of the first phase that give every address that moves an identity of its own.
    fn split_addresses(&mut self) -> Vec<TableChange> {
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
            let id = self.transition_identity(from, to);
            // One that had no entry needs it even if it stays what it was: the range around it may move.
            if id != from || !self.observed.tables.addresses.contains_key(&host) {
                out.push(TableChange::Address(host, Some(id)));
            }
        }
        for family in Family::BOTH {
            let at = family as usize;
            let old = &self.observed.identity_ranges[at];
            let pieces = overlay_ranges(family, old, &self.desired_ranges[at]);
            for (first, last, from, to) in pieces {
                let id = self.transition_identity(from, to);
                if id != from {
                    for prefix in range_to_prefixes(family, first, last) {
                        out.push(TableChange::Address(prefix, Some(id)));
                    }
                }
            }
        }
        out
    }

    /// A class that allows what a class in the kernel and a wanted one both allow.
    fn intersect_classes(&mut self, old: ClassId, new: ClassId) -> ClassId {
        let number = self.class_number(new);
        if old.0 == number {
            return old;
        }
        if let Some(number) = self.intersections.get(&(old.0, new)) {
            return ClassId(*number);
        }
        let programs = &self.observed.tables.programs;
        let both = programs.get(&old).zip(self.desired.programs.get(&new));
        let intersection = both.map(|(old, new)| {
            let old = strip_credits(old);
            let meet = old.intersect(new);
            (old.is_subset_of(new), meet == **new, meet)
        });
        let class = match intersection {
            None => ClassId(number),
            Some((_, true, _)) => ClassId(number),
            Some((true, ..)) => old,
            Some((.., meet)) => {
                let known = self.new_programs.iter().find(|(_, p)| **p == meet);
                match known.map(|(number, _)| *number) {
                    Some(number) => ClassId(number),
                    None => {
                        let number = allocate_number(&mut self.next_class);
                        self.new_programs.push((number, Arc::new(meet)));
                        ClassId(number)
                    }
                }
            }
        };
        self.intersections.insert((old.0, new), class.0);
        class
    }

    fn plan(mut self) -> (Planner, Transaction) {
        let target = self.target_tables();
        let addresses = self.split_addresses();
        // Every identity that a packet can have until addresses move on, with what it was and is.
        let mut identity_moves: Vec<(IdentityId, IdentityId, IdentityId)> = Vec::new();
        for (id, number) in &self.identities {
            identity_moves.push((IdentityId(*number), IdentityId(*number), *id));
        }
        for ((from, to), number) in &self.transition_identities {
            identity_moves.push((IdentityId(*number), *from, *to));
        }
        let mut rows: Vec<TableChange> = Vec::new();
        let mut sets: Vec<TableChange> = Vec::new();
        self.transition_rows(&identity_moves, &target, &mut sets, &mut rows);
        let (tighten, loosen) = self.point_changes(&identity_moves, &target, &mut sets, &mut rows);

        let mut split: Vec<TableChange> = Vec::new();
        let rules = self.desired.rules.iter();
        split.extend(rules.map(|(id, credit)| TableChange::Rule(*id, Some(credit.clone()))));
        let programs = self.new_programs.iter();
        split.extend(programs.map(|(c, p)| TableChange::Program(ClassId(*c), Some(p.clone()))));
        split.extend(sets);
        split.extend(rows);
        let revoke = self.observed.revocation_pending
            || !(tighten.is_empty() && loosen.is_empty() && addresses.is_empty());
        split.extend(addresses);

        let mut steps = Vec::new();
        let mut state = self.observed.tables.clone();
        let mut step = |state: &mut Tables, phase, changes: Vec<TableChange>| {
            for change in &changes {
                state.apply(change);
            }
            if !changes.is_empty() || phase == Phase::Revoke {
                steps.push(DeltaStep { phase, changes });
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
        self.into_transaction(&Delta { revision: 0, steps })
    }

    /// Gives identities under way the class they had in every set that stays in use, and writes the
    /// rows of wanted sets that are new.
    fn transition_rows(
        &mut self,
        identity_moves: &[(IdentityId, IdentityId, IdentityId)],
        target: &Tables,
        sets: &mut Vec<TableChange>,
        rows: &mut Vec<TableChange>,
    ) {
        let observed = &self.observed.tables;
        let used: BTreeSet<PolicySetId> = observed.points.values().copied().collect();
        for set in used {
            for ((from, _), number) in &self.transition_identities {
                if let Some(class) = observed.classes.get(&(set, *from)) {
                    rows.push(TableChange::Class(set, IdentityId(*number), Some(*class)));
                }
            }
        }
        for (set, number) in &self.sets {
            let id = PolicySetId(*number);
            if !self.matched_sets.contains(number) {
                sets.push(TableChange::Set(id, target.sets.get(&id).copied()));
                for (number, _, to) in identity_moves {
                    if let Some(class) = self.desired.classes.get(&(*set, *to)) {
                        let class = ClassId(self.class_number(*class));
                        rows.push(TableChange::Class(id, *number, Some(class)));
                    }
                }
            }
        }
        // Rows of matched sets that differ are those of identities that no packet has.
        for ((set, id), class) in &target.classes {
            let known = observed.classes.get(&(*set, *id)) == Some(class);
            if self.matched_sets.contains(&set.0) && !known {
                rows.push(TableChange::Class(*set, *id, Some(*class)));
            }
        }
    }

    /// The changes of points and interfaces that only tighten, and those that only loosen.
    fn point_changes(
        &mut self,
        identity_moves: &[(IdentityId, IdentityId, IdentityId)],
        target: &Tables,
        sets: &mut Vec<TableChange>,
        rows: &mut Vec<TableChange>,
    ) -> (Vec<TableChange>, Vec<TableChange>) {
        let (mut tighten, mut loosen) = (Vec::new(), Vec::new());
        let there = self.observed.tables.interfaces.clone();
        // One that does not begin with our prefix was open: to make it ours tightens, points included.
        let prefix = self.config.interface_prefix.clone();
        let was_open = |name: &str| !there.contains(name) && !name.starts_with(&*prefix);
        // And the reverse: its points go only after it is open.
        let opens = |name: &str| !target.interfaces.contains(name) && !name.starts_with(&*prefix);
        for name in target.interfaces.difference(&there) {
            let change = TableChange::Interface(name.clone(), true);
            match was_open(name) {
                true => tighten.push(change),
                false => loosen.push(change),
            }
        }
        let wanted = self.desired.points.clone();
        let old = self.observed.tables.points.clone();
        let mut intersected_sets: BTreeMap<(PolicySetId, PolicySetId), PolicySetId> =
            BTreeMap::new();
        for (point, set) in &wanted {
            let to = PolicySetId(self.sets[set]);
            let change = TableChange::Point(point.clone(), Some(to));
            match old.get(point) {
                Some(from) if *from == to => {}
                Some(from) => {
                    let between = match intersected_sets.get(&(*from, *set)) {
                        Some(set) => *set,
                        None => {
                            let meet = self.intersect_sets(*from, *set, identity_moves, sets, rows);
                            intersected_sets.insert((*from, *set), meet);
                            meet
                        }
                    };
                    tighten.push(TableChange::Point(point.clone(), Some(between)));
                    loosen.push(change);
                }
                None if was_open(&point.interface) => tighten.push(change),
                None => loosen.push(change),
            }
        }
        // But what it sends from an address that becomes another's is spoofed from then on: that must
        // be so before it is open.
        let lost = |point: &Point| {
            point.direction == Direction::Egress && target.is_local_address(point.address)
        };
        let gone = |point: &&Point| {
            !wanted.contains_key(*point) && (!opens(&point.interface) || lost(point))
        };
        for point in old.keys().filter(gone) {
            tighten.push(TableChange::Point(point.clone(), None));
        }
        for name in there.difference(&target.interfaces) {
            loosen.push(TableChange::Interface(name.clone(), false));
        }
        (tighten, loosen)
    }

    /// A policy set that allows what an old and a wanted one both allow.
    fn intersect_sets(
        &mut self,
        from: PolicySetId,
        to: PolicySetId,
        identity_moves: &[(IdentityId, IdentityId, IdentityId)],
        sets: &mut Vec<TableChange>,
        rows: &mut Vec<TableChange>,
    ) -> PolicySetId {
        let id = PolicySetId(allocate_number(&mut self.next_set));
        let class = |diff: &mut Self, was, is| {
            let old = diff.observed.tables.class(from, was);
            let new = diff.desired.class(to, is);
            old.zip(new)
                .map(|(old, new)| diff.intersect_classes(old, new))
        };
        let default = class(self, IdentityId(u32::MAX), IdentityId(u32::MAX));
        let Some(default) = default else { return id };
        sets.push(TableChange::Set(id, Some(PolicySet { default })));
        for (number, was, is) in identity_moves {
            if *number == IdentityId::UNKNOWN {
                continue;
            }
            if let Some(class) = class(self, *was, *is).filter(|class| *class != default) {
                rows.push(TableChange::Class(id, *number, Some(class)));
            }
        }
        id
    }

    /// What is in the tables and not wanted, in an order in which it can go.
    fn deletions(&self, state: &Tables, target: &Tables) -> Vec<TableChange> {
        let mut out = Vec::new();
        for point in state.points.keys() {
            if !target.points.contains_key(point) {
                out.push(TableChange::Point(point.clone(), None));
            }
        }
        for (set, id) in state.classes.keys() {
            if !target.classes.contains_key(&(*set, *id)) {
                out.push(TableChange::Class(*set, *id, None));
            }
        }
        for set in state.sets.keys().filter(|s| !target.sets.contains_key(s)) {
            out.push(TableChange::Set(*set, None));
        }
        for class in state.programs.keys() {
            if !target.programs.contains_key(class) {
                out.push(TableChange::Program(*class, None));
            }
        }
        out
    }

    /// Turns the delta into a transaction, and the numbers into those of the engine.
    fn into_transaction(self, delta: &Delta) -> (Planner, Transaction) {
        let mut numbers = KernelNumbers::default();
        for number in 1..self.next_identity {
            numbers.identities.assign(IdentityId(number), number);
        }
        for number in 1..self.next_set {
            numbers.sets.assign(PolicySetId(number), number);
        }
        for number in 1..self.next_class {
            numbers.classes.assign(ClassId(number), number);
        }
        for (class, codes) in &self.observed.source_port_codes {
            let last = codes.last().copied().unwrap_or_default();
            numbers.next_code = numbers.next_code.max(last.wrapping_add(1));
            if *class < FIRST_BASE {
                numbers
                    .source_port_codes
                    .insert(ClassId(*class), codes.clone());
            }
        }
        let kernel_tables = self.credited_tables();
        self.adopt_bases(&kernel_tables, &mut numbers.bases);
        let generation = self.observed.generation;
        let mut kernel_planner = Planner::with_numbers(self.config.clone(), generation, numbers);
        kernel_planner.load(&kernel_tables, BaseSelection::Existing);
        kernel_planner
            .own_addresses
            .set_installed(self.observed.own_addresses);
        kernel_planner.revocation_pending = self.observed.revocation_pending;
        kernel_planner.add_unused_pairs(self.observed.unused_pairs.iter().copied());
        let mut transaction = kernel_planner.plan(delta);
        for harvest in transaction
            .steps
            .iter_mut()
            .flat_map(|s| &mut s.retiring_counters)
        {
            harvest.rules.retain(|rule| rule.0 < UNKNOWN_RULE);
        }
        for step in &mut transaction.steps {
            step.retiring_counters
                .retain(|harvest| !harvest.rules.is_empty());
        }

        let mut numbers = KernelNumbers {
            next_code: kernel_planner.numbers.next_code,
            bases: kernel_planner.numbers.bases.with_class_ids(&self.classes),
            ..KernelNumbers::default()
        };
        for (id, number) in &self.identities {
            if *id != IdentityId::UNKNOWN {
                numbers.identities.assign(*id, *number);
            }
        }
        for (set, number) in &self.sets {
            numbers.sets.assign(*set, *number);
        }
        for (class, number) in &self.classes {
            numbers.classes.assign(*class, *number);
            if let Some(codes) = kernel_planner
                .numbers
                .source_port_codes
                .get(&ClassId(*number))
            {
                numbers.source_port_codes.insert(*class, codes.clone());
            }
        }
        numbers.identities.skip_to(self.next_identity);
        numbers.sets.skip_to(self.next_set);
        numbers.classes.skip_to(self.next_class);
        let config = self.config.clone();
        let mut planner = Planner::with_numbers(config, kernel_planner.generation, numbers);
        planner.load(self.desired, BaseSelection::Existing);
        (planner, transaction)
    }

    /// The tables in the kernel; what was matched is credited as it is wanted.
    fn credited_tables(&self) -> Tables {
        let mut tables = self.observed.tables.clone();
        for (class, number) in &self.classes {
            if self.matched_classes.contains(number)
                && let Some(program) = self.desired.programs.get(class)
            {
                tables.programs.insert(ClassId(*number), program.clone());
            }
        }
        tables
    }

    /// Takes over the bases in the kernel. Each is credited as a class that was matched is, if one
    /// refers to it.
    fn adopt_bases(&self, held: &Tables, bases: &mut BasePrograms) {
        let observed = &self.observed;
        let mut credited: BTreeMap<u32, &Arc<Program>> = BTreeMap::new();
        for (class, base) in &observed.base_of_class {
            if self.matched_classes.contains(class)
                && let Some(program) = held.programs.get(&ClassId(*class))
            {
                credited.entry(*base).or_insert(program);
            }
        }
        for (number, shape) in &observed.base_programs {
            let program = match credited.get(number) {
                Some(program) => program.restrict_to(shape),
                None => shape.clone(),
            };
            let residues = observed.source_port_codes.get(number).cloned();
            bases.assign(*number, Arc::new(program), residues.unwrap_or_default());
        }
        for (class, base) in &observed.base_of_class {
            bases.add_reference(ClassId(*class), *base);
        }
    }
}

/// The program with no rule credited.
fn strip_credits(program: &Program) -> Program {
    let cell = |cell: &Cell| Cell {
        verdict: cell.verdict,
        hits: Vec::new(),
        log: cell.log,
    };
    let protocols = program.protocols().iter();
    let protocols = protocols.map(|(protocol, map)| (*protocol, map.map(|v| v.map(cell))));
    Program::new(protocols, cell(program.default()))
}

/// Where two states' ranges agree with themselves: every piece that somebody holds in one of them.
fn overlay_ranges(
    family: Family,
    old: &IdentityRanges,
    new: &IdentityRanges,
) -> Vec<(u128, u128, IdentityId, IdentityId)> {
    let top = Prefix::all(family).bounds().1;
    let mut cuts: BTreeSet<u128> = BTreeSet::new();
    for (first, last, _) in old.ranges().chain(new.ranges()) {
        cuts.insert(first);
        if last < top {
            cuts.insert(last + 1);
        }
    }
    let (old, new): (Vec<IdentityRange>, Vec<IdentityRange>) =
        (old.ranges().collect(), new.ranges().collect());
    let holder = |runs: &[IdentityRange], at: u128| {
        let after = runs.partition_point(|(first, ..)| *first <= at);
        let run = after.checked_sub(1).map(|i| runs[i]);
        run.filter(|(_, last, _)| at <= *last)
            .map_or(IdentityId::UNKNOWN, |(.., id)| id)
    };
    let cuts: Vec<u128> = cuts.into_iter().collect();
    let mut out = Vec::new();
    for (i, first) in cuts.iter().enumerate() {
        let last = cuts.get(i + 1).map_or(top, |next| next - 1);
        let (from, to) = (holder(&old, *first), holder(&new, *first));
        if from != IdentityId::UNKNOWN || to != IdentityId::UNKNOWN {
            out.push((*first, last, from, to));
        }
    }
    out
}

/// The changes from one state's addresses to another's.
fn address_changes(state: &Tables, target: &Tables) -> Vec<TableChange> {
    let mut out = Vec::new();
    for (prefix, id) in &target.addresses {
        if state.addresses.get(prefix) != Some(id) {
            out.push(TableChange::Address(*prefix, Some(*id)));
        }
    }
    for prefix in state.addresses.keys() {
        if !target.addresses.contains_key(prefix) {
            out.push(TableChange::Address(*prefix, None));
        }
    }
    out
}
