//! Which of the things in the kernel are those that are wanted, by content alone.
//!
//! Classes are matched by their elements and whom they count for, identities by their addresses,
//! policy sets by their points and rows. Whatever is matched keeps the kernel's number; everything
//! else that is wanted gets a new one. Nothing here says what changes, or when.

use crate::content::{class_content, fingerprint};
use crate::decode::Observed;
use crate::flat::{Flat, prefixes};
use crate::planner::Planner;
use crate::{Config, names};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::IpAddr;
use palisade_model::{Family, Prefix};
use palisade_tables::{ClassId, IdentityId, Point, PolicySet, Program, SetId, Tables};

/// The addresses that share an identity: single ones, and ranges by family.
pub(crate) type Members = (Vec<IpAddr>, Vec<(Family, u128, u128)>);

/// A policy set's points, default and rows (by the kernel's numbers): what it is matched by.
type SetContent = (Vec<Point>, u32, BTreeMap<u32, u32>);

/// What is there, what is wanted, and which of them is the same.
pub(crate) struct Diff<'a> {
    pub(crate) config: &'a Config,
    pub(crate) observed: Observed,
    pub(crate) desired: &'a Tables,
    pub(crate) desired_flat: [Flat; 2],
    /// The kernel's numbers of what is wanted: matched or new.
    pub(crate) classes: BTreeMap<ClassId, u32>,
    pub(crate) identities: BTreeMap<IdentityId, u32>,
    pub(crate) sets: BTreeMap<SetId, u32>,
    /// Numbers that were matched.
    pub(crate) kept_classes: BTreeSet<u32>,
    pub(crate) kept_sets: BTreeSet<u32>,
    pub(crate) next_class: u32,
    pub(crate) next_identity: u32,
    pub(crate) next_set: u32,
    /// Identities for addresses under way, by what they had and what they get.
    pub(crate) moving: BTreeMap<(IdentityId, IdentityId), u32>,
    /// What is made for the way: programs and policy sets that allow what both sides allow.
    pub(crate) meets: BTreeMap<(u32, ClassId), u32>,
    pub(crate) programs: Vec<(u32, Arc<Program>)>,
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
    pub(crate) fn new(config: &'a Config, observed: Observed, desired: &'a Tables) -> Self {
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
            let key = names::marks(&[*number]);
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
    pub(crate) fn class_number(&self, class: ClassId) -> u32 {
        self.classes.get(&class).copied().unwrap_or_default()
    }

    pub(crate) fn identity_number(&self, id: IdentityId) -> u32 {
        self.identities.get(&id).copied().unwrap_or_default()
    }

    /// The wanted tables in the kernel's numbers, ranges in place of prefixes.
    pub(crate) fn target(&self) -> Tables {
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
}

/// The next number.
pub(crate) fn take(next: &mut u32) -> u32 {
    let number = *next;
    *next = number.wrapping_add(1);
    number
}
