//! The tables in the kernel beside the desired ones, in the kernel's numbers.
//!
//! [`palisade_tables::align`] pairs equal objects: classes by their elements and credits, identities by
//! their addresses, policy sets by their points and entries. Paired objects keep the kernel's number; all
//! others get a new one. Nothing here decides what changes, or when.

use crate::Config;
use crate::address_ranges::{AddressRanges, ValueRange};
use crate::bases::BasePrograms;
use crate::content::{ClassContent, ClassForm, class_content, fingerprint, stored_fingerprint};
use crate::decode::DecodedTable;
use crate::names::LAST_VERDICT;
use crate::planner::{BaseSelection, Planner};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::IpAddr;
use palisade_model::{Family, NumberRange, Prefix};
use palisade_tables::{AlignmentSide, ClassId, IdentityId, Program, Renumbering, Tables, align};

/// The addresses that share an identity: single ones, and ranges by family.
type IdentityMembers = (Vec<IpAddr>, Vec<(Family, u128, u128)>);

/// The decoded table, the desired tables, and the kernel's numbers of both.
pub(crate) struct HeldTables<'a> {
    config: &'a Config,
    pub(crate) observed: DecodedTable,
    pub(crate) desired: &'a Tables,
    desired_ranges: [AddressRanges<IdentityId>; 2],
    pub(crate) numbers: Renumbering,
}

fn identity_members(
    addresses: &BTreeMap<Prefix, IdentityId>,
    ranges: &[AddressRanges<IdentityId>; 2],
) -> BTreeMap<IdentityId, IdentityMembers> {
    let mut out: BTreeMap<IdentityId, IdentityMembers> = BTreeMap::new();
    for (prefix, id) in addresses {
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
    pub(crate) fn new(config: &'a Config, observed: DecodedTable, desired: &'a Tables) -> Self {
        let mut loaded = Planner::new(config.clone(), observed.generation);
        loaded.load(desired, BaseSelection::Existing);
        let desired_ranges = Family::BOTH.map(|family| loaded.identity_ranges(family).clone());
        let mut held = HeldTables {
            config,
            observed,
            desired,
            desired_ranges,
            numbers: Renumbering::default(),
        };
        let tables = &held.observed.tables;
        let members = [
            identity_members(&tables.addresses, &held.observed.identity_ranges),
            identity_members(&desired.addresses, &held.desired_ranges),
        ];
        let programs = held.equal_programs();
        let side = |tables, at: usize| AlignmentSide {
            tables,
            members: &members[at],
            programs: &programs[at],
        };
        held.numbers = align(&side(tables, 0), &side(desired, 1));
        held
    }

    /// Numbers for the held and the wanted classes, equal where they have equal elements and chains and
    /// credit the same rules.
    fn equal_programs(&self) -> [BTreeMap<ClassId, u32>; 2] {
        let mut wanted = BTreeMap::new();
        // One class of each content, by fingerprint: two of one fingerprint may differ in what they report.
        let mut known: BTreeMap<String, Vec<(u32, &Program)>> = BTreeMap::new();
        let mut next = 0;
        let normalized = |program: &Program, print: &str| {
            let mut code = LAST_VERDICT;
            class_content(
                self.config,
                1,
                program,
                ClassForm::Whole(print),
                &mut || {
                    code += 1;
                    code
                },
            )
        };
        for (class, program) in &self.desired.programs {
            let digest = fingerprint(self.desired, program);
            let same = known.entry(digest.clone()).or_default();
            let equal = |other: &Program| {
                let (a, b) = (normalized(program, &digest), normalized(other, &digest));
                a.elements == b.elements && a.chains == b.chains
            };
            let found = same.iter().find(|(_, other)| equal(other));
            let number = match found {
                Some((number, _)) => *number,
                None => {
                    let number = {
                        next += 1;
                        next
                    };
                    same.push((number, program));
                    number
                }
            };
            wanted.insert(*class, number);
        }
        let mut held = BTreeMap::new();
        for (number, stored) in &self.observed.classes {
            let digest = stored_fingerprint(*number, stored).unwrap_or("");
            let mut known = known.get(digest).into_iter().flatten();
            let equal =
                |program: &Program| self.is_stored_program(*number, stored, program, digest);
            if let Some((program, _)) = known.find(|(_, program)| equal(program)) {
                held.insert(ClassId(*number), *program);
            }
        }
        [held, wanted]
    }

    /// Whether a class in the kernel, with its base, is written as a program of this fingerprint would be.
    fn is_stored_program(
        &self,
        number: u32,
        stored: &ClassContent,
        program: &Program,
        digest: &str,
    ) -> bool {
        let Some(base) = self.observed.base_of_class.get(&number) else {
            return self.is_same_content(number, stored, program, ClassForm::Whole(digest));
        };
        let bases = &self.observed;
        let held = bases.bases.get(base).zip(bases.base_programs.get(base));
        held.is_some_and(|(held, shape)| {
            let shared = program.restrict_to(shape);
            program.refines(&shared)
                && self.is_same_content(*base, held, &shared, ClassForm::Base)
                && self.is_same_content(
                    number,
                    stored,
                    program,
                    ClassForm::Refining(digest, *base, &shared),
                )
        })
    }

    fn is_same_content(
        &self,
        number: u32,
        stored: &ClassContent,
        program: &Program,
        form: ClassForm<'_>,
    ) -> bool {
        let codes = self.observed.source_port_codes.get(&number);
        let mut codes = codes.into_iter().flatten().copied();
        let mut content = class_content(self.config, number, program, form, &mut || {
            codes.next().unwrap_or_default()
        });
        content.chains.sort_by(|a, b| a.0.cmp(&b.0));
        let mut chains = stored.chains.clone();
        chains.sort_by(|a, b| a.0.cmp(&b.0));
        content.elements == stored.elements && content.chains == chains
    }

    /// The tables in the kernel and the desired ones, both in the kernel's numbers. Both have the same
    /// prefixes wherever both have an identity, and no prefix of several addresses contains another.
    pub(crate) fn tables(&self) -> (Tables, Tables) {
        let mut held = self.observed.tables.clone();
        let mut target = self.numbers.renumber(self.desired);
        held.addresses.retain(|prefix, _| prefix.is_host());
        target.addresses.retain(|prefix, _| prefix.is_host());
        for family in Family::BOTH {
            let old = self.observed.identity_ranges[family as usize].ranges();
            let new = self.desired_ranges[family as usize].ranges();
            let number = |id| self.numbers.identities.get(&id).copied().unwrap_or(id);
            let new = new.map(|(first, last, id)| (first, last, number(id)));
            for (first, last, from, to) in overlay_ranges(family, old.collect(), new.collect()) {
                for prefix in (NumberRange { first, last }).prefixes(family) {
                    let known = |id| Some(id).filter(|id| *id != IdentityId::UNKNOWN);
                    held.addresses.extend(known(from).map(|id| (prefix, id)));
                    target.addresses.extend(known(to).map(|id| (prefix, id)));
                }
            }
        }
        // The kernel holds no credits, only fingerprints of them.
        held.rules = target.rules.clone();
        for class in &self.numbers.kept_classes {
            if let Some(program) = target.programs.get(class) {
                held.programs.insert(*class, program.clone());
            }
        }
        (held, target)
    }

    /// The bases in the kernel. Each is credited as a kept class that refers to it, if there is one.
    pub(crate) fn bases(&self, held: &Tables) -> BasePrograms {
        let mut bases = BasePrograms::default();
        let observed = &self.observed;
        let mut credited: BTreeMap<u32, &Arc<Program>> = BTreeMap::new();
        for (class, base) in &observed.base_of_class {
            let class = ClassId(*class);
            if self.numbers.kept_classes.contains(&class)
                && let Some(program) = held.programs.get(&class)
            {
                credited.entry(*base).or_insert(program);
            }
        }
        for (number, shape) in &observed.base_programs {
            let program = match credited.get(number) {
                Some(program) => program.restrict_to(shape),
                None => shape.clone(),
            };
            let codes = observed.source_port_codes.get(number).cloned();
            bases.assign(*number, Arc::new(program), codes.unwrap_or_default());
        }
        for (class, base) in &observed.base_of_class {
            bases.add_reference(ClassId(*class), *base);
        }
        bases
    }
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
