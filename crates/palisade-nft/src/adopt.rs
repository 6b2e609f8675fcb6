//! Start and repair: from whatever the kernel holds to the desired tables.
//!
//! The table that was read is decoded and aligned with the desired tables by content
//! ([`crate::held_tables`]): equal objects keep their number, so unchanged input changes nothing. The rest
//! is a [`transition`] as any flush, so no packet gets a verdict that is neither the old nor the new,
//! whatever state an agent that was killed left behind. Rules that another program changed are restored
//! first, in one step; a table with data that this layout could not have written is replaced in one step.

use crate::decode::{DecodedTable, UNKNOWN_RULE, canonical_host_points, decode, live_generation};
use crate::held_tables::HeldTables;
use crate::names::FIRST_BASE;
use crate::numbers::KernelNumbers;
use crate::planner::{BaseSelection, Planner};
use crate::repair::{repair_step, restore_rules};
use crate::{Config, Ruleset, Transaction};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::IpAddr;
use palisade_model::Direction;
use palisade_tables::{
    Cell, ClassId, Delta, IdentityId, PolicySetId, Program, Renumbering, TableDifferences, Tables,
    TransitionHints, transition,
};

/// Plans the transaction from the kernel's table (`None`: there is none of ours) to `desired`.
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
        return plan(config, observed, desired);
    }
    let Some(last) = live_generation(config, &plain) else {
        return rebuild(config, desired, fresh_generation, Some(observed));
    };
    // Where only our rules were changed, they are restored first; the data are as they were.
    let ours = restore_rules(config, &plain, last);
    if let (Some(mended), Ok(observed)) = (repair_step(&plain, &ours), decode(config, &ours)) {
        let (planner, mut transaction) = plan(config, observed, desired);
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

/// The transition from the held to the desired tables, and the planner that has the desired ones.
fn plan(config: &Config, observed: DecodedTable, desired: &Tables) -> (Planner, Transaction) {
    let canonical = canonical_host_points(desired);
    let mut held = HeldTables::new(config, observed, canonical.as_ref().unwrap_or(desired));
    let (kernel_tables, target) = held.tables();
    let delta = adoption_delta(config, &mut held, &kernel_tables, &target);
    let (mut planner, transaction) = plan_in_kernel_numbers(config, &held, &kernel_tables, &delta);
    planner.load(desired, BaseSelection::Existing);
    (planner, transaction)
}

fn adoption_delta(
    config: &Config,
    held: &mut HeldTables<'_>,
    kernel_tables: &Tables,
    target: &Tables,
) -> Delta {
    // The credits of classes that are not kept are placeholders.
    let mut old = kernel_tables.clone();
    for (class, program) in &mut old.programs {
        if !held.numbers.kept_classes.contains(class) {
            *program = Arc::new(strip_credits(program));
        }
    }
    let mut sets_by_identity: BTreeMap<IdentityId, Vec<PolicySetId>> = BTreeMap::new();
    for (set, identity) in target.classes.keys() {
        sets_by_identity.entry(*identity).or_default().push(*set);
    }
    let own_addresses: BTreeSet<IpAddr> = target
        .points
        .keys()
        .filter(|point| point.direction == Direction::Egress)
        .filter_map(|point| point.workload())
        .filter(|(interface, _)| target.interfaces.contains(*interface))
        .map(|(_, address)| address)
        .collect();
    let differences = TableDifferences::between(&old, target);
    // Nothing tells whether an address has changed hands since the table was written.
    let hints = TransitionHints {
        revision: 0,
        differences: &differences,
        sets_of_identity: &|identity| sets_by_identity.get(&identity).map_or(&[], Vec::as_slice),
        revoke: held.observed.revocation_pending || !differences.is_empty(),
        max_interim_elements: usize::MAX,
        is_closed_interface: &|name| name.starts_with(&*config.interface_prefix),
        is_own_address: &|address| own_addresses.contains(&address),
    };
    transition(&old, target, &hints, &mut held.numbers)
}

/// Plans a delta in the kernel's numbers. Returns an empty planner with the numbers of the desired tables,
/// and the transaction.
fn plan_in_kernel_numbers(
    config: &Config,
    held: &HeldTables<'_>,
    kernel_tables: &Tables,
    delta: &Delta,
) -> (Planner, Transaction) {
    let Renumbering {
        identities,
        sets,
        classes,
        next_identity,
        next_set,
        next_class,
        ..
    } = &held.numbers;
    let mut numbers = KernelNumbers::default();
    for number in 1..next_identity.0 {
        numbers.identities.assign(IdentityId(number), number);
    }
    for number in 1..next_set.0 {
        numbers.sets.assign(PolicySetId(number), number);
    }
    for number in 1..next_class.0 {
        numbers.classes.assign(ClassId(number), number);
    }
    for (class, codes) in &held.observed.source_port_codes {
        let last = codes.last().copied().unwrap_or_default();
        numbers.next_code = numbers.next_code.max(last.wrapping_add(1));
        if *class < FIRST_BASE {
            let codes = codes.clone();
            numbers.source_port_codes.insert(ClassId(*class), codes);
        }
    }
    numbers.bases = held.bases(kernel_tables);
    numbers.places = held.observed.places.clone();
    let generation = held.observed.generation;
    let mut planner = Planner::with_numbers(config.clone(), generation, numbers);
    planner.load(kernel_tables, BaseSelection::Existing);
    let own_addresses = held.observed.own_addresses.clone();
    planner.own_addresses.set_installed(own_addresses);
    planner.revocation_pending = held.observed.revocation_pending;
    planner.add_unused_pairs(held.observed.unused_pairs.iter().copied());
    let mut transaction = planner.plan(delta);
    for step in &mut transaction.steps {
        for counter in &mut step.retiring_counters {
            counter.rules.retain(|rule| rule.0 < UNKNOWN_RULE);
        }
        step.retiring_counters
            .retain(|counter| !counter.rules.is_empty());
    }

    let mut numbers = KernelNumbers {
        next_code: planner.numbers.next_code,
        bases: planner.numbers.bases.with_class_ids(classes),
        places: planner.numbers.places.clone(),
        ..KernelNumbers::default()
    };
    for (id, number) in identities {
        if *id != IdentityId::UNKNOWN {
            numbers.identities.assign(*id, number.0);
        }
    }
    for (set, number) in sets {
        numbers.sets.assign(*set, number.0);
    }
    for (class, number) in classes {
        numbers.classes.assign(*class, number.0);
        if let Some(codes) = planner.numbers.source_port_codes.get(number) {
            numbers.source_port_codes.insert(*class, codes.clone());
        }
    }
    numbers.identities.skip_to(next_identity.0);
    numbers.sets.skip_to(next_set.0);
    numbers.classes.skip_to(next_class.0);
    let planner = Planner::with_numbers(config.clone(), planner.generation, numbers);
    (planner, transaction)
}

/// The program with no rule credited.
fn strip_credits(program: &Program) -> Program {
    let protocols = program.protocols().iter();
    let protocols = protocols.map(|(protocol, map)| {
        let map = map.map(|values| values.map(Cell::without_credits));
        (*protocol, map)
    });
    Program::new(protocols, program.default().without_credits())
}
