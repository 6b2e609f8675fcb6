//! The tables in the maps beside the desired ones, in the maps' numbers: what a start and a repair begin with.
//!
//! [`palisade_tables::align`] pairs equal objects: classes by their content, identities by their addresses, policy sets
//! by their points and entries. Paired objects keep the maps' number; all others get a new one. The rest is a
//! [`transition`] as any flush, so no packet gets a verdict that is neither the old nor the new.
//!
//! Never: reads a map, or compares the content of classes; whoever read them says which are equal.

use crate::address_ranges::{AddressRanges, ValueRange, identity_ranges};
use crate::bases::BasePrograms;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::IpAddr;
use palisade_model::{Direction, Family, NumberRange, Prefix, PrefixMap};
use palisade_tables::{
    AlignmentSide, Cell, ClassId, Delta, IdentityId, PolicySetId, Program, Renumbering,
    TableDifferences, Tables, TransitionHints, align, transition,
};

/// The addresses that share an identity: single ones, and ranges by family.
type IdentityMembers = (Vec<IpAddr>, Vec<(Family, u128, u128)>);

/// What a dataplane read of its maps, in their numbers.
#[derive(Debug)]
pub struct StoredTables {
    /// The tables. Every cell of a program counts for a placeholder rule number of its own.
    pub tables: Tables,
    /// The address ranges of each family.
    pub identity_ranges: [AddressRanges<IdentityId>; 2],
    /// The bases of classes that have one.
    pub base_of_class: BTreeMap<u32, u32>,
    /// The program of each base, with rule numbers as the tables' programs.
    pub base_programs: BTreeMap<u32, Program>,
}

/// The stored tables, the desired tables, and the maps' numbers of both.
#[derive(Debug)]
pub struct HeldTables<'a> {
    stored: &'a StoredTables,
    desired: &'a Tables,
    desired_ranges: [AddressRanges<IdentityId>; 2],
    numbers: Renumbering,
}

fn identity_members(
    addresses: &PrefixMap<IdentityId>,
    ranges: &[AddressRanges<IdentityId>; 2],
) -> BTreeMap<IdentityId, IdentityMembers> {
    let mut out: BTreeMap<IdentityId, IdentityMembers> = BTreeMap::new();
    for (prefix, id) in addresses.iter() {
        if prefix.is_host() {
            out.entry(*id).or_default().0.push(prefix.address());
        }
    }
    for family in Family::BOTH {
        for (first, last, id) in ranges[family as usize].ranges() {
            out.entry(id).or_default().1.push((family, first, last));
        }
    }
    out
}

impl<'a> HeldTables<'a> {
    /// Aligns stored and desired tables. `programs` has numbers for the stored and for the desired classes, equal where
    /// the maps have the same for both.
    pub fn align(
        stored: &'a StoredTables,
        desired: &'a Tables,
        programs: &[BTreeMap<ClassId, u32>; 2],
    ) -> Self {
        let desired_ranges = identity_ranges(desired);
        let members = [
            identity_members(&stored.tables.addresses, &stored.identity_ranges),
            identity_members(&desired.addresses, &desired_ranges),
        ];
        let side = |tables, at: usize| AlignmentSide {
            tables,
            members: &members[at],
            programs: &programs[at],
        };
        let numbers = align(&side(&stored.tables, 0), &side(desired, 1));
        HeldTables {
            stored,
            desired,
            desired_ranges,
            numbers,
        }
    }

    /// The maps' numbers of the desired objects.
    pub fn numbers(&self) -> &Renumbering {
        &self.numbers
    }

    /// The tables in the maps and the desired ones, both in the maps' numbers. Both have the same
    /// prefixes wherever both have an identity, and no prefix of several addresses contains another.
    pub fn tables(&self) -> (Tables, Tables) {
        let mut present = self.stored.tables.clone();
        let mut target = self.numbers.renumber(self.desired);
        present.addresses.retain(Prefix::is_host);
        target.addresses.retain(Prefix::is_host);
        for family in Family::BOTH {
            let old = self.stored.identity_ranges[family as usize].ranges();
            let new = self.desired_ranges[family as usize].ranges();
            let number = |id| self.numbers.identities.get(&id).copied().unwrap_or(id);
            let new = new.map(|(first, last, id)| (first, last, number(id)));
            for (first, last, from, to) in overlay_ranges(family, old.collect(), new.collect()) {
                for prefix in (NumberRange { first, last }).prefixes(family) {
                    let known = |id| Some(id).filter(|id| *id != IdentityId::UNKNOWN);
                    present.addresses.extend(known(from).map(|id| (prefix, id)));
                    target.addresses.extend(known(to).map(|id| (prefix, id)));
                }
            }
        }
        // The maps hold no rules.
        present.rules = target.rules.clone();
        for class in &self.numbers.kept_classes {
            if let Some(program) = target.programs.get(class) {
                present.programs.insert(*class, program.clone());
            }
        }
        (present, target)
    }

    /// The bases in the maps, with numbers from `first_number` on. Each counts for the rules of a kept class that refers
    /// to it, if there is one. `present` is the first of [`HeldTables::tables`].
    pub fn bases(&self, present: &Tables, first_number: u32) -> BasePrograms {
        let mut bases = BasePrograms::new(first_number);
        let mut programs: BTreeMap<u32, &Arc<Program>> = BTreeMap::new();
        for (class, base) in &self.stored.base_of_class {
            let class = ClassId(*class);
            if self.numbers.kept_classes.contains(&class)
                && let Some(program) = present.programs.get(&class)
            {
                programs.entry(*base).or_insert(program);
            }
        }
        for (number, shape) in &self.stored.base_programs {
            let program = match programs.get(number) {
                Some(program) => program.restrict_to(shape),
                None => shape.clone(),
            };
            bases.assign(*number, Arc::new(program));
        }
        for (class, base) in &self.stored.base_of_class {
            bases.add_reference(ClassId(*class), *base);
        }
        bases
    }

    /// The transition from the tables in the maps to the desired ones, both as [`HeldTables::tables`] gives them.
    /// Established flows are judged again if anything differs, or if `must_revoke`. Interfaces with this prefix are
    /// always recognized.
    pub fn delta(
        &mut self,
        present: &Tables,
        target: &Tables,
        must_revoke: bool,
        prefix: &str,
    ) -> Delta {
        // The rules of classes that are not kept are placeholders.
        let mut old = present.clone();
        for (class, program) in &mut old.programs {
            if !self.numbers.kept_classes.contains(class) {
                *program = Arc::new(strip_causes(program));
            }
        }
        let mut sets_by_identity: BTreeMap<IdentityId, Vec<PolicySetId>> = BTreeMap::new();
        for (set, identity) in target.classes.keys() {
            sets_by_identity.entry(*identity).or_default().push(*set);
        }
        let local_addresses: BTreeSet<IpAddr> = target
            .points
            .keys()
            .filter(|point| point.direction == Direction::Egress)
            .filter_map(|point| point.workload())
            .filter(|(interface, _)| target.interfaces.contains(*interface))
            .map(|(_, address)| address)
            .collect();
        let differences = TableDifferences::between(&old, target);
        // Nothing tells whether an address has changed hands since the tables were written.
        let hints = TransitionHints {
            revision: 0,
            differences: &differences,
            sets_of_identity: &|identity| {
                sets_by_identity.get(&identity).map_or(&[], Vec::as_slice)
            },
            revoke: must_revoke || !differences.is_empty(),
            max_interim_elements: usize::MAX,
            is_closed_interface: &|name| name.starts_with(prefix),
            is_own_address: &|address| local_addresses.contains(&address),
        };
        transition(&old, target, &hints, &mut self.numbers)
    }
}

/// The program without the rules that its cells count for.
fn strip_causes(program: &Program) -> Program {
    let protocols = program.protocols().iter();
    let protocols = protocols.map(|(protocol, map)| {
        let map = map.map(|values| values.map(Cell::without_causes));
        (*protocol, map)
    });
    Program::new(protocols, program.default().without_causes())
}
/// The ranges of two tables, cut at the ends of each other's: first, last, old identity, new identity.
fn overlay_ranges(
    family: Family,
    old: Vec<ValueRange<IdentityId>>,
    new: Vec<ValueRange<IdentityId>>,
) -> Vec<(u128, u128, IdentityId, IdentityId)> {
    let top = Prefix::all(family).bounds().1;
    let mut cuts: BTreeSet<u128> = BTreeSet::new();
    for (first, last, _) in old.iter().chain(&new) {
        cuts.insert(*first);
        if *last < top {
            cuts.insert(last + 1);
        }
    }
    let identity_at = |ranges: &[ValueRange<IdentityId>], at: u128| {
        let after = ranges.partition_point(|(first, ..)| *first <= at);
        let range = after.checked_sub(1).map(|i| ranges[i]);
        range
            .filter(|(_, last, _)| at <= *last)
            .map_or(IdentityId::UNKNOWN, |(.., id)| id)
    };
    let cuts: Vec<u128> = cuts.into_iter().collect();
    let mut out = Vec::new();
    for (i, first) in cuts.iter().enumerate() {
        let last = cuts.get(i + 1).map_or(top, |next| next - 1);
        let (from, to) = (identity_at(&old, *first), identity_at(&new, *first));
        if from != IdentityId::UNKNOWN || to != IdentityId::UNKNOWN {
            out.push((*first, last, from, to));
        }
    }
    out
}
