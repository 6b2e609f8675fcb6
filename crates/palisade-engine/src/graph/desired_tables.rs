//! Writes the results of a flush into the desired tables.
//!
//! Every entry that may have changed is computed again and compared; differences are recorded. The
//! program and rule tables follow the classes that use them.

use super::Graph;
use crate::applicable_rules::PointChanges;
use crate::budget::COMPILED_PER_WRITTEN;
use crate::identities::IdentityChanges;
use crate::matching::{ClassCache, CompileContext};
use crate::policy_set_index::ChangedPeers;
use crate::sets::{PolicySetChanges, PolicySetRules};
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use palisade_model::Prefix;
use palisade_tables::{ClassId, IdentityId, PolicySetId, Program, RuleId, TableDifferences};

impl Graph {
    /// Writes what changed into the desired tables.
    pub(super) fn write(
        &mut self,
        identities: &IdentityChanges,
        points: &PointChanges,
        sets: &PolicySetChanges,
    ) -> TableDifferences {
        let mut differences = TableDifferences {
            new_identities: identities.added.iter().copied().collect(),
            removed_identities: identities.removed.iter().copied().collect(),
            ..TableDifferences::default()
        };
        differences.addresses = self.write_addresses(&identities.entries);
        let nets = differences.addresses.iter();
        let nets = nets.filter(|(prefix, _)| !prefix.is_host());
        let lengths = nets.map(|(prefix, _)| (prefix.family(), prefix.length()));
        differences.lengths = lengths.chain(self.identities.net_lengths()).collect();
        self.write_points(points, &mut differences);
        for number in &sets.removed {
            self.remove_set(*number, &mut differences);
        }
        for number in &sets.stale {
            self.write_set(*number, &mut differences);
        }
        // Sets to write as a whole: those that are closed, and those that become too large.
        let mut whole: BTreeSet<PolicySetId> = BTreeSet::new();
        for (number, part) in &sets.changed_peers {
            self.write_changed_peers(*number, part, &mut whole, &mut differences);
        }
        self.write_changed_identities(identities, sets, &mut whole, &mut differences);
        for number in whole {
            self.write_set(number, &mut differences);
        }
        self.allocate_host_budget(&mut differences);
        differences
    }

    /// Writes which set judges each point, and the interfaces.
    fn write_points(&mut self, points: &PointChanges, differences: &mut TableDifferences) {
        for (point, to) in &points.points {
            let previous = match to {
                Some(set) => self.desired.points.insert(point.clone(), *set),
                None => self.desired.points.remove(point),
            };
            if previous != *to {
                differences.points.insert(point.clone());
            }
        }
        for (name, ours) in &points.interfaces {
            let changed = if *ours {
                self.desired.interfaces.insert(name.clone())
            } else {
                self.desired.interfaces.remove(name)
            };
            if changed {
                differences.interfaces.insert(name.clone());
            }
        }
        for (name, is_own) in &points.host_interfaces {
            let changed = if *is_own {
                self.desired.host_interfaces.insert(name.clone())
            } else {
                self.desired.host_interfaces.remove(name)
            };
            if changed {
                differences.host_interfaces.insert(name.clone());
            }
        }
    }

    /// Updates the classes of identities that are new, have another key, or are removed. Adds sets to `whole` that
    /// must be written as a whole.
    fn write_changed_identities(
        &mut self,
        identities: &IdentityChanges,
        sets: &PolicySetChanges,
        whole: &mut BTreeSet<PolicySetId>,
        differences: &mut TableDifferences,
    ) {
        let affected: BTreeSet<IdentityId> = identities
            .added
            .union(&identities.rekeyed)
            .copied()
            .collect();
        for identity in &identities.removed {
            for number in self.distinguishing_sets(*identity) {
                self.write_class(number, *identity, None, differences);
            }
        }
        for identity in &affected {
            for number in self.distinguishing_sets(*identity) {
                if !sets.stale.contains(&number) {
                    let one = Vec::from([*identity]);
                    self.write_classes(number, one, whole, differences);
                }
            }
        }
        if !identities.removed.is_empty() || !affected.is_empty() {
            whole.extend(self.classes.usage.closed_sets().map(|(number, _)| number));
            whole.extend(self.sets.omitting_audit().map(|(number, _)| number));
        }
    }

    /// Writes entries of the address table. Returns those that differ, with their old identity.
    fn write_addresses(
        &mut self,
        entries: &[(Prefix, Option<IdentityId>)],
    ) -> Vec<(Prefix, Option<IdentityId>)> {
        let addresses = &mut self.desired.addresses;
        let mut differ = Vec::new();
        if addresses.is_empty() {
            // In one go, so that the map is dense.
            let present = entries
                .iter()
                .filter_map(|(p, entry)| Some((*p, (*entry)?)));
            *addresses = present.collect();
            differ.extend(addresses.keys().map(|prefix| (prefix, None)));
            return differ;
        }
        for (prefix, entry) in entries {
            let previous = match entry {
                Some(identity) => addresses.insert(*prefix, *identity),
                None => addresses.remove(prefix),
            };
            if previous != *entry {
                differ.push((*prefix, previous));
            }
        }
        differ
    }

    /// The sets in which an identity has a class entry, or may get one.
    fn distinguishing_sets(&self, identity: IdentityId) -> Vec<PolicySetId> {
        let key = self.identities.key(identity);
        let mut sets = key.map_or_else(Vec::new, |key| self.sets.distinguishing_sets(key));
        let written = self.classes.sets_by_identity.get(&identity);
        sets.extend(written.into_iter().flatten());
        sets.sort_unstable();
        sets.dedup();
        sets
    }

    fn remove_set(&mut self, number: PolicySetId, differences: &mut TableDifferences) {
        let Some(gone) = self.desired.sets.remove(&number) else {
            return;
        };
        self.classes.programs.release(gone.default);
        differences.sets.insert(number);
        for identity in self.identities_in_set(number) {
            self.write_class(number, identity, None, differences);
        }
        self.classes.usage.remove(number);
    }

    pub(super) fn identities_in_set(&self, set: PolicySetId) -> Vec<IdentityId> {
        let range = (set, IdentityId(0))..=(set, IdentityId(u32::MAX));
        let entries = self.desired.classes.range(range);
        entries.map(|((_, identity), _)| *identity).collect()
    }

    /// Updates the classes of the identities that match a peer of a changed rule.
    fn write_changed_peers(
        &mut self,
        number: PolicySetId,
        changed_peers: &ChangedPeers,
        whole: &mut BTreeSet<PolicySetId>,
        differences: &mut TableDifferences,
    ) {
        let selectors = changed_peers.selectors.iter();
        let mut identities: Vec<IdentityId> = selectors
            .flat_map(|selector| self.identities.matching(*selector))
            .collect();
        let nets = changed_peers.nets.iter();
        identities.extend(nets.flat_map(|net| self.identities.within(*net)));
        self.write_classes(number, identities, whole, differences);
    }

    /// Updates the classes of these identities in a set. Adds the set to `whole` if it must be
    /// written as a whole.
    fn write_classes(
        &mut self,
        number: PolicySetId,
        mut identities: Vec<IdentityId>,
        whole: &mut BTreeSet<PolicySetId>,
        differences: &mut TableDifferences,
    ) {
        let Some(default) = self.desired.sets.get(&number).map(|set| set.default) else {
            return;
        };
        identities.sort_unstable();
        identities.dedup();
        let mut cache = ClassCache::default();
        for identity in identities {
            let compiled = self.classes.usage.compiled_elements(number) / COMPILED_PER_WRITTEN;
            let too_large = compiled > self.options.budget.set;
            let omits_audit = self.sets.get(number).and_then(PolicySetRules::omits_audit);
            if too_large
                || omits_audit.is_some()
                || self.classes.usage.close_reason(number).is_some()
            {
                whole.insert(number);
                return;
            }
            let mut context = CompileContext {
                policies: self.objects.named_policies(),
                causes: &mut self.classes.causes,
                programs: &mut self.classes.programs,
                denied_encapsulation: self.options.denied_encapsulation,
                unread_dns: self.options.unread_dns,
                max_elements: self.options.budget.set,
            };
            let entry = match (self.identities.key(identity), self.sets.get(number)) {
                (Some(key), Some(set)) => match set.class_of(key, &mut context, &mut cache) {
                    Some(class) => (class != default).then_some(class),
                    None => {
                        whole.insert(number);
                        return;
                    }
                },
                _ => None,
            };
            self.write_class(number, identity, entry, differences);
        }
        if self.classes.usage.required(number) > self.options.budget.set {
            self.recompute_savings();
        }
        if self.classes.usage.required(number) > self.options.budget.set {
            whole.insert(number);
        }
    }

    pub(super) fn write_class(
        &mut self,
        number: PolicySetId,
        identity: IdentityId,
        entry: Option<ClassId>,
        differences: &mut TableDifferences,
    ) {
        let key = (number, identity);
        let previous = match entry {
            Some(class) => self.desired.classes.insert(key, class),
            None => self.desired.classes.remove(&key),
        };
        if previous == entry {
            return;
        }
        if let Some(class) = entry {
            self.classes.programs.acquire(class);
            self.classes
                .usage
                .add_class(number, class, self.classes.programs.elements(class));
        }
        if let Some(class) = previous {
            self.classes
                .usage
                .remove_class(number, class, self.classes.programs.elements(class));
            self.classes.programs.release(class);
        }
        let sets = self.classes.sets_by_identity.entry(identity).or_default();
        match (entry, sets.binary_search(&number)) {
            (Some(_), Err(at)) => sets.insert(at, number),
            (None, Ok(at)) => drop(sets.remove(at)),
            _ => {}
        }
        if sets.is_empty() {
            self.classes.sets_by_identity.remove(&identity);
        }
        differences.classes.insert(key);
    }

    /// Removes unused programs and rules from the tables, and adds new ones.
    pub(super) fn sweep(&mut self, differences: &mut TableDifferences) {
        let gone = self.classes.programs.sweep();
        for class in self.classes.programs.take_created() {
            let Some(program) = self.classes.programs.get(class).cloned() else {
                continue;
            };
            for rule in counted_rules(&program) {
                if let Some(cause) = self.classes.causes.acquire_for_program(rule) {
                    self.desired.rules.insert(rule, cause);
                    differences.rules.insert(rule);
                }
            }
            self.desired.programs.insert(class, program);
            differences.programs.insert(class);
        }
        for (class, program) in gone {
            if self.desired.programs.remove(&class).is_none() {
                continue;
            }
            differences.programs.insert(class);
            for rule in counted_rules(&program) {
                if self.classes.causes.release_from_program(rule) {
                    self.desired.rules.remove(&rule);
                    differences.rules.insert(rule);
                }
            }
        }
        self.classes.causes.sweep();
    }
}

/// All rules that a program counts for.
fn counted_rules(program: &Program) -> Vec<RuleId> {
    let mut hits = Vec::new();
    program.for_each_cell(|cell| hits.extend(cell.counted_rules()));
    hits.sort_unstable();
    hits.dedup();
    hits
}
