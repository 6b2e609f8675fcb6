//! What a flush found, written into the tables that are wanted.
//!
//! Every entry that may have changed is computed again and compared; what differs is noted. Programs
//! and rules of the tables follow the classes that use them.

use super::Graph;
use crate::budget::COMPILED_FOR_ONE;
use crate::identities::IdentityChanges;
use crate::meeting::{Known, Makers};
use crate::points::PointChanges;
use crate::sequencer::Differences;
use crate::sets::{Part, SetChanges};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use palisade_model::Prefix;
use palisade_tables::{ClassId, IdentityId, Program, RuleId, SetId};

impl Graph {
    /// Writes what changed into the tables that are wanted.
    pub(super) fn write(
        &mut self,
        identities: &IdentityChanges,
        points: &PointChanges,
        sets: &SetChanges,
    ) -> Differences {
        let mut differences = Differences {
            fresh: identities.begun.iter().map(|n| IdentityId(*n)).collect(),
            dead: identities.ended.iter().map(|n| IdentityId(*n)).collect(),
            ..Differences::default()
        };
        differences.addresses = self.write_addresses(&identities.entries);
        let nets = differences.addresses.iter();
        let nets = nets.filter(|(prefix, _)| !prefix.is_host());
        let lengths = nets.map(|(prefix, _)| (prefix.family(), prefix.length()));
        differences.lengths = lengths.chain(self.identities.net_lengths()).collect();
        for (point, to) in &points.points {
            if set(&mut self.wanted.points, point.clone(), *to) {
                differences.points.insert(point.clone());
            }
        }
        for (name, ours) in &points.interfaces {
            let changed = match ours {
                true => self.wanted.interfaces.insert(name.clone()),
                false => self.wanted.interfaces.remove(name),
            };
            if changed {
                differences.interfaces.insert(name.clone());
            }
        }
        for number in &sets.ended {
            self.end_set(*number, &mut differences);
        }
        for number in &sets.stale {
            self.write_set(*number, &mut differences);
        }
        // Sets that are to be written whole: those that are closed, and those that grow too large.
        let mut whole: BTreeSet<SetId> = BTreeSet::new();
        for (number, part) in &sets.parts {
            self.write_part(*number, part, &mut whole, &mut differences);
        }
        let concerned: BTreeSet<u32> = identities
            .begun
            .union(&identities.renamed)
            .copied()
            .collect();
        for identity in &identities.ended {
            for number in self.telling(*identity) {
                self.write_class(number, IdentityId(*identity), None, &mut differences);
            }
        }
        for identity in &concerned {
            for number in self.telling(*identity) {
                if !sets.stale.contains(&number) {
                    let one = Vec::from([*identity]);
                    self.write_classes(number, one, &mut whole, &mut differences);
                }
            }
        }
        if !identities.ended.is_empty() || !concerned.is_empty() {
            whole.extend(self.usage.all_closed().map(|(number, _)| number));
        }
        for number in whole {
            self.write_set(number, &mut differences);
        }
        self.share_host(&mut differences);
        differences
    }

    /// Writes entries of the address table, and says which differ from what was there.
    fn write_addresses(
        &mut self,
        entries: &[(Prefix, Option<IdentityId>)],
    ) -> Vec<(Prefix, Option<IdentityId>)> {
        let addresses = &mut self.wanted.addresses;
        let mut differ = Vec::new();
        if addresses.is_empty() {
            // Made in one go, the table is dense; one by one in order, it would be half empty.
            let there = entries
                .iter()
                .filter_map(|(p, entry)| Some((*p, (*entry)?)));
            *addresses = there.collect();
            differ.extend(addresses.keys().map(|prefix| (*prefix, None)));
            return differ;
        }
        for (prefix, entry) in entries {
            let was = match entry {
                Some(identity) => addresses.insert(*prefix, *identity),
                None => addresses.remove(prefix),
            };
            if was != *entry {
                differ.push((*prefix, was));
            }
        }
        differ
    }

    /// The sets in which an identity has a class of its own, or may have one now.
    fn telling(&self, identity: u32) -> BTreeSet<SetId> {
        let key = self.identities.key(identity);
        let mut sets = key.map_or_else(BTreeSet::new, |key| self.sets.telling(key));
        sets.extend(
            self.entries
                .get(&IdentityId(identity))
                .into_iter()
                .flatten(),
        );
        sets
    }

    fn end_set(&mut self, number: SetId, differences: &mut Differences) {
        let Some(gone) = self.wanted.sets.remove(&number) else {
            return;
        };
        self.programs.give(gone.default);
        differences.sets.insert(number);
        for identity in self.listed(number) {
            self.write_class(number, identity, None, differences);
        }
        self.usage.forget(number);
    }

    pub(super) fn listed(&self, set: SetId) -> Vec<IdentityId> {
        let range = (set, IdentityId(0))..=(set, IdentityId(u32::MAX));
        let entries = self.wanted.classes.range(range);
        entries.map(|((_, identity), _)| *identity).collect()
    }

    /// The classes that changed rules may change.
    fn write_part(
        &mut self,
        number: SetId,
        part: &Part,
        whole: &mut BTreeSet<SetId>,
        differences: &mut Differences,
    ) {
        let selectors = part.selectors.iter();
        let mut identities: Vec<u32> = selectors
            .flat_map(|selector| self.identities.matching(*selector))
            .collect();
        let nets = part.nets.iter();
        identities.extend(nets.flat_map(|net| self.identities.within(*net)));
        self.write_classes(number, identities, whole, differences);
    }

    /// The classes of these identities in a set; `whole` takes the set in where it has to be written
    /// whole.
    fn write_classes(
        &mut self,
        number: SetId,
        mut identities: Vec<u32>,
        whole: &mut BTreeSet<SetId>,
        differences: &mut Differences,
    ) {
        let Some(default) = self.wanted.sets.get(&number).map(|set| set.default) else {
            return;
        };
        identities.sort_unstable();
        identities.dedup();
        let mut known = Known::default();
        for identity in identities {
            let compiled = self.usage.compiled(number) / COMPILED_FOR_ONE;
            let too_large = compiled > self.budget.set;
            if too_large || self.usage.closed(number).is_some() {
                whole.insert(number);
                return;
            }
            let mut makers = Makers {
                policies: &self.policies,
                credits: &mut self.credits,
                programs: &mut self.programs,
                denied_encapsulation: self.denied_encapsulation,
                most: self.budget.set,
            };
            let entry = match (self.identities.key(identity), self.sets.get(number)) {
                (Some(key), Some(set)) => match set.class(key, &mut makers, &mut known) {
                    Some(class) => (class != default).then_some(class),
                    None => {
                        whole.insert(number);
                        return;
                    }
                },
                _ => None,
            };
            self.write_class(number, IdentityId(identity), entry, differences);
        }
        if self.usage.of(number) > self.budget.set {
            self.find_savings();
        }
        if self.usage.of(number) > self.budget.set {
            whole.insert(number);
        }
    }

    pub(super) fn write_class(
        &mut self,
        number: SetId,
        identity: IdentityId,
        entry: Option<ClassId>,
        differences: &mut Differences,
    ) {
        let key = (number, identity);
        let was = self.wanted.classes.get(&key).copied();
        if was == entry {
            return;
        }
        if let Some(class) = entry {
            self.programs.take(class);
            self.usage
                .take(number, class, self.programs.elements(class));
        }
        if let Some(class) = was {
            self.usage
                .give(number, class, self.programs.elements(class));
            self.programs.give(class);
        }
        set(&mut self.wanted.classes, key, entry);
        let sets = self.entries.entry(identity).or_default();
        match (entry, sets.binary_search(&number)) {
            (Some(_), Err(at)) => sets.insert(at, number),
            (None, Ok(at)) => drop(sets.remove(at)),
            _ => {}
        }
        if sets.is_empty() {
            self.entries.remove(&identity);
        }
        differences.classes.insert(key);
    }

    /// Brings programs and rules of the tables in line with the classes.
    pub(super) fn sweep(&mut self, differences: &mut Differences) {
        let gone = self.programs.sweep();
        for class in self.programs.take_begun() {
            let Some(program) = self.programs.get(class).cloned() else {
                continue;
            };
            for rule in hits(&program) {
                if let Some(credit) = self.credits.hit(rule) {
                    self.wanted.rules.insert(rule, credit);
                    differences.rules.insert(rule);
                }
            }
            self.wanted.programs.insert(class, program);
            differences.programs.insert(class);
        }
        for (class, program) in gone {
            if self.wanted.programs.remove(&class).is_none() {
                continue;
            }
            differences.programs.insert(class);
            for rule in hits(&program) {
                if self.credits.miss(rule) {
                    self.wanted.rules.remove(&rule);
                    differences.rules.insert(rule);
                }
            }
        }
        self.credits.sweep();
    }
}

/// Every rule that a program credits.
fn hits(program: &Program) -> Vec<RuleId> {
    let mut hits = Vec::new();
    program.for_each_cell(|cell| hits.extend(&cell.hits));
    hits.sort_unstable();
    hits.dedup();
    hits
}

/// Puts a value, or takes it away. Returns whether that changes anything.
fn set<K: Ord, V: PartialEq + Copy>(map: &mut BTreeMap<K, V>, key: K, value: Option<V>) -> bool {
    let was = match value {
        Some(value) => map.insert(key, value),
        None => map.remove(&key),
    };
    was != value
}
