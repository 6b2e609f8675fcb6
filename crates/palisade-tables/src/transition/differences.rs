//! The keys in which two tables differ.
//!
//! The list may name keys that are equal in both; it never lacks one that differs.

use crate::{ClassId, IdentityId, Point, PolicySetId, RuleId, Tables};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use palisade_model::{Family, Prefix, Str};

/// The keys under which two tables may differ; every other entry is equal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TableDifferences {
    /// Managed interfaces.
    pub interfaces: BTreeSet<Str>,
    /// Interfaces of the host with points of their own.
    pub host_interfaces: BTreeSet<Str>,
    /// Addresses and prefixes in order, each with its old identity.
    pub addresses: Vec<(Prefix, Option<IdentityId>)>,
    /// The lengths of all prefixes in either table that hold more than one address.
    pub lengths: BTreeSet<(Family, u8)>,
    /// Points.
    pub points: BTreeSet<Point>,
    /// Policy sets.
    pub sets: BTreeSet<PolicySetId>,
    /// Entries of policy sets.
    pub classes: BTreeSet<(PolicySetId, IdentityId)>,
    /// Programs.
    pub programs: BTreeSet<ClassId>,
    /// Rule numbers.
    pub rules: BTreeSet<RuleId>,
    /// Identities that only the new tables have.
    pub new_identities: BTreeSet<IdentityId>,
    /// Identities that only the old tables have.
    pub removed_identities: BTreeSet<IdentityId>,
}

impl TableDifferences {
    /// Compares two whole tables.
    pub fn between(old: &Tables, new: &Tables) -> TableDifferences {
        fn keys<K: Ord + Clone, V>(old: &BTreeMap<K, V>, new: &BTreeMap<K, V>) -> BTreeSet<K> {
            old.keys().chain(new.keys()).cloned().collect()
        }
        let identities = |tables: &Tables| -> BTreeSet<IdentityId> {
            let rows = tables.classes.keys().map(|(_, identity)| *identity);
            let identities = tables.addresses.values().copied().chain(rows);
            identities
                .filter(|identity| *identity != IdentityId::UNKNOWN)
                .collect()
        };
        let prefixes = old.addresses.keys().chain(new.addresses.keys());
        let prefixes: BTreeSet<Prefix> = prefixes.collect();
        let lengths = prefixes.iter().filter(|prefix| !prefix.is_host());
        let (had, has) = (identities(old), identities(new));
        let mut differences = TableDifferences {
            interfaces: old.interfaces.union(&new.interfaces).cloned().collect(),
            host_interfaces: old
                .host_interfaces
                .union(&new.host_interfaces)
                .cloned()
                .collect(),
            lengths: lengths.map(|p| (p.family(), p.length())).collect(),
            addresses: prefixes
                .into_iter()
                .map(|prefix| (prefix, old.addresses.get(&prefix).copied()))
                .filter(|(prefix, before)| new.addresses.get(prefix) != before.as_ref())
                .collect(),
            points: keys(&old.points, &new.points),
            sets: keys(&old.sets, &new.sets),
            classes: keys(&old.classes, &new.classes),
            programs: keys(&old.programs, &new.programs),
            rules: keys(&old.rules, &new.rules),
            new_identities: has.difference(&had).copied().collect(),
            removed_identities: had.difference(&has).copied().collect(),
        };
        differences.retain_changed(old, new);
        retain_keys(&mut differences.programs, &old.programs, &new.programs);
        retain_keys(&mut differences.rules, &old.rules, &new.rules);
        differences
    }

    /// Whether no entry differs.
    pub fn is_empty(&self) -> bool {
        let lengths = self.lengths.clone();
        *self
            == TableDifferences {
                lengths,
                ..TableDifferences::default()
            }
    }

    /// Keeps the interfaces of both kinds, points, sets and entries of sets under which the tables differ.
    pub fn retain_changed(&mut self, old: &Tables, new: &Tables) {
        self.interfaces
            .retain(|name| old.interfaces.contains(name) != new.interfaces.contains(name));
        self.host_interfaces.retain(|name| {
            old.host_interfaces.contains(name) != new.host_interfaces.contains(name)
        });
        retain_keys(&mut self.points, &old.points, &new.points);
        retain_keys(&mut self.sets, &old.sets, &new.sets);
        retain_keys(&mut self.classes, &old.classes, &new.classes);
    }
}

/// Keeps the keys under which the maps differ.
fn retain_keys<K: Ord, V: PartialEq>(
    keys: &mut BTreeSet<K>,
    old: &BTreeMap<K, V>,
    new: &BTreeMap<K, V>,
) {
    keys.retain(|key| old.get(key) != new.get(key));
}
