//! Which of the things in the kernel are those that are wanted, by content alone.
//!
//! [`crate::align`] pairs them: classes by their elements and whom they count for, identities by their
//! addresses, policy sets by their points and rows. Whatever is paired keeps the kernel's number;
//! everything else that is wanted gets a new one. Nothing here says what changes, or when.

use crate::Config;
use crate::align::{AlignmentSide, align};
use crate::content::{ClassContent, ClassForm, class_content, fingerprint, stored_fingerprint};
use crate::decode::DecodedTable;
use crate::identity_ranges::{IdentityRanges, range_to_prefixes};
use crate::names::LAST_VERDICT;
use crate::planner::{BaseSelection, Planner};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::IpAddr;
use palisade_model::{Family, Prefix};
use palisade_tables::{ClassId, IdentityId, PolicySet, PolicySetId, Program, Tables};

/// The addresses that share an identity: single ones, and ranges by family.
pub(crate) type IdentityMembers = (Vec<IpAddr>, Vec<(Family, u128, u128)>);

/// What is there, what is wanted, and which of them is the same.
pub(crate) struct TableMatch<'a> {
    pub(crate) config: &'a Config,
    pub(crate) observed: DecodedTable,
    pub(crate) desired: &'a Tables,
    pub(crate) desired_ranges: [IdentityRanges; 2],
    /// The kernel's numbers of what is wanted: matched or new.
    pub(crate) classes: BTreeMap<ClassId, u32>,
    pub(crate) identities: BTreeMap<IdentityId, u32>,
    pub(crate) sets: BTreeMap<PolicySetId, u32>,
    /// Numbers that were matched.
    pub(crate) matched_classes: BTreeSet<u32>,
    pub(crate) matched_sets: BTreeSet<u32>,
    pub(crate) next_class: u32,
    pub(crate) next_identity: u32,
    pub(crate) next_set: u32,
    /// Identities for addresses under way, by what they had and what they get.
    pub(crate) transition_identities: BTreeMap<(IdentityId, IdentityId), u32>,
    /// What is made for the way: programs and policy sets that allow what both sides allow.
    pub(crate) intersections: BTreeMap<(u32, ClassId), u32>,
    pub(crate) new_programs: Vec<(u32, Arc<Program>)>,
}

fn identity_members(
    addresses: &BTreeMap<Prefix, IdentityId>,
    flat: &[IdentityRanges; 2],
) -> BTreeMap<IdentityId, IdentityMembers> {
    let mut out: BTreeMap<IdentityId, IdentityMembers> = BTreeMap::new();
    for (prefix, id) in addresses {
        if prefix.is_host() {
            out.entry(*id).or_default().0.push(prefix.address());
        }
    }
    for family in Family::BOTH {
        for (first, last, id) in flat[family as usize].ranges() {
            out.entry(id).or_default().1.push((family, first, last));
        }
    }
    out
}

impl<'a> TableMatch<'a> {
    pub(crate) fn new(config: &'a Config, observed: DecodedTable, desired: &'a Tables) -> Self {
        let mut loaded = Planner::new(config.clone(), observed.generation);
        loaded.load(desired, BaseSelection::Existing);
        let above = |last: Option<u32>| last.unwrap_or(0).wrapping_add(1);
        let tables = &observed.tables;
        let next_class = above(tables.programs.keys().map(|c| c.0).max());
        let ids = tables.addresses.values().copied();
        let rows = tables.classes.keys().map(|(_, id)| *id);
        let next_identity = above(ids.chain(rows).map(|id| id.0).max());
        let next_set = above(tables.sets.keys().map(|s| s.0).max());
        let mut table_match = TableMatch {
            config,
            desired,
            desired_ranges: Family::BOTH.map(|family| loaded.identity_ranges(family).clone()),
            classes: BTreeMap::new(),
            identities: BTreeMap::new(),
            sets: BTreeMap::new(),
            matched_classes: BTreeSet::new(),
            matched_sets: BTreeSet::new(),
            next_class,
            next_identity,
            next_set,
            transition_identities: BTreeMap::new(),
            intersections: BTreeMap::new(),
            new_programs: Vec::new(),
            observed,
        };
        table_match.assign_numbers();
        table_match
    }

    /// Takes the kernel's numbers for what is there already, and new ones for the rest.
    fn assign_numbers(&mut self) {
        let there = identity_members(
            &self.observed.tables.addresses,
            &self.observed.identity_ranges,
        );
        let wanted = identity_members(&self.desired.addresses, &self.desired_ranges);
        let [held_programs, wanted_programs] = self.equal_programs();
        let aligned = align(
            &AlignmentSide {
                tables: &self.observed.tables,
                members: &there,
                programs: &held_programs,
            },
            &AlignmentSide {
                tables: self.desired,
                members: &wanted,
                programs: &wanted_programs,
            },
        );
        for (class, program) in &self.desired.programs {
            let number = match aligned.classes.get(class) {
                Some(held) => {
                    self.matched_classes.insert(held.0);
                    held.0
                }
                None => {
                    let number = allocate_number(&mut self.next_class);
                    self.new_programs.push((number, program.clone()));
                    number
                }
            };
            self.classes.insert(*class, number);
        }
        for set in self.desired.sets.keys() {
            let number = match aligned.sets.get(set) {
                Some(held) => {
                    self.matched_sets.insert(held.0);
                    held.0
                }
                None => allocate_number(&mut self.next_set),
            };
            self.sets.insert(*set, number);
        }
        self.identities.insert(IdentityId::UNKNOWN, 0);
        let in_rows = self.desired.classes.keys().map(|(_, id)| id);
        for id in wanted.keys().chain(in_rows) {
            if !self.identities.contains_key(id) {
                let held = aligned.identities.get(id).map(|held| held.0);
                let number = held.unwrap_or_else(|| allocate_number(&mut self.next_identity));
                self.identities.insert(*id, number);
            }
        }
    }

    /// Numbers for the classes that are there and for those that are wanted, equal where they have
    /// equal elements and chains and count for the same rules.
    fn equal_programs(&self) -> [BTreeMap<ClassId, u32>; 2] {
        let mut wanted = BTreeMap::new();
        // One class of each content, by fingerprint: two may differ in what they report.
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
                    let number = allocate_number(&mut next);
                    same.push((number, program));
                    number
                }
            };
            wanted.insert(*class, number);
        }
        let mut held = BTreeMap::new();
        for (number, there) in &self.observed.classes {
            let digest = stored_fingerprint(*number, there).unwrap_or("");
            let mut known = known.get(digest).into_iter().flatten();
            let equal = |program: &Program| self.is_stored_program(*number, there, program, digest);
            if let Some((program, _)) = known.find(|(_, program)| equal(program)) {
                held.insert(ClassId(*number), *program);
            }
        }
        [held, wanted]
    }

    /// Whether a class in the kernel, as it is written there, says what a program of this fingerprint
    /// does; and so does its base.
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

    /// The number of a wanted class; 0, which no class has, if it has no program.
    pub(crate) fn class_number(&self, class: ClassId) -> u32 {
        self.classes.get(&class).copied().unwrap_or_default()
    }

    pub(crate) fn identity_number(&self, id: IdentityId) -> u32 {
        self.identities.get(&id).copied().unwrap_or_default()
    }

    /// The wanted tables in the kernel's numbers, ranges in place of prefixes.
    pub(crate) fn target_tables(&self) -> Tables {
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
            for (first, last, identity) in self.desired_ranges[family as usize].ranges() {
                for prefix in range_to_prefixes(family, first, last) {
                    tables.addresses.insert(prefix, id(&identity));
                }
            }
        }
        for (point, set) in &desired.points {
            tables
                .points
                .insert(point.clone(), PolicySetId(self.sets[set]));
        }
        for (set, PolicySet { default }) in &desired.sets {
            let default = class(default);
            tables
                .sets
                .insert(PolicySetId(self.sets[set]), PolicySet { default });
        }
        for ((set, identity), of) in &desired.classes {
            let row = (PolicySetId(self.sets[set]), id(identity));
            tables.classes.insert(row, class(of));
        }
        for (of, program) in &desired.programs {
            tables.programs.insert(class(of), program.clone());
        }
        tables
    }
}

/// The next number.
pub(crate) fn allocate_number(next: &mut u32) -> u32 {
    let number = *next;
    *next = number.wrapping_add(1);
    number
}
