//! Start and repair: from whatever the kernel holds to the desired tables.
//!
//! The table that was read is decoded and aligned with the desired tables by content
//! ([`HeldTables`]): equal objects keep their number, so unchanged input changes nothing. The rest
//! is a [transition](palisade_tables::transition) as any flush, so no packet gets a verdict that is neither the old nor the new,
//! whatever state an agent that was killed left behind. Rules that another program changed are restored
//! first, in one step; a table with data that this layout could not have written is replaced in one step.

use crate::decode::{DecodedTable, UNKNOWN_RULE, canonical_host_points, decode, live_generation};
use crate::held_classes::HeldClasses;
use crate::kernel_numbers::KernelNumbers;
use crate::names::FIRST_BASE;
use crate::planner::{BaseSearch, Planner};
use crate::repair::{repair_step, restore_rules};
use crate::{Config, Ruleset, Transaction};
use palisade_layout::HeldTables;
use palisade_tables::{ClassId, Delta, Tables};

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
        return plan(config, &observed, desired);
    }
    let Some(last) = live_generation(config, &plain) else {
        return rebuild(config, desired, fresh_generation, Some(observed));
    };
    // Where only our rules were changed, they are restored first; the data are as they were.
    let ours = restore_rules(config, &plain, last);
    if let (Some(mended), Ok(observed)) = (repair_step(&plain, &ours), decode(config, &ours)) {
        let (planner, mut transaction) = plan(config, &observed, desired);
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
    planner.load(desired, BaseSearch::Search);
    let transaction = planner.rebuild(replaced);
    (planner, transaction)
}

/// The transition from the stored to the desired tables, and the planner that has the desired ones.
fn plan(config: &Config, stored: &DecodedTable, desired: &Tables) -> (Planner, Transaction) {
    let canonical = canonical_host_points(desired);
    let aligned = canonical.as_ref().unwrap_or(desired);
    let classes = HeldClasses {
        config,
        stored,
        desired: aligned,
    };
    let programs = classes.equal_programs();
    let mut held_tables = HeldTables::align(&stored.layout, aligned, &programs);
    let (kernel_tables, target) = held_tables.tables();
    let must_revoke = stored.revocation_pending;
    let delta = held_tables.delta(
        &kernel_tables,
        &target,
        must_revoke,
        &config.interface_prefix,
    );
    let (mut planner, transaction) =
        plan_in_kernel_numbers(config, stored, &held_tables, &kernel_tables, &delta);
    planner.load(desired, BaseSearch::Existing);
    (planner, transaction)
}

/// Plans a delta in the kernel's numbers. Returns an empty planner with the numbers of the desired tables,
/// and the transaction.
fn plan_in_kernel_numbers(
    config: &Config,
    stored: &DecodedTable,
    held_tables: &HeldTables<'_>,
    kernel_tables: &Tables,
    delta: &Delta,
) -> (Planner, Transaction) {
    let mut numbers = KernelNumbers::default();
    numbers.objects.assign_held(held_tables.numbers());
    for (number, codes) in &stored.source_port_codes {
        let last = codes.last().copied().unwrap_or_default();
        numbers.next_code = numbers.next_code.max(last.wrapping_add(1));
        let codes = codes.clone();
        if *number < FIRST_BASE {
            let class = ClassId(*number);
            numbers.source_port_codes.insert(class, codes);
        } else {
            numbers.base_codes.insert(*number, codes);
        }
    }
    for number in stored.classes.keys() {
        // A class that has none in the kernel gets none.
        let redirects = stored.numbers(*number).redirects;
        let last = redirects.iter().max().copied().unwrap_or_default();
        numbers.next_redirect = numbers.next_redirect.max(last + 1);
        numbers.redirects.insert(ClassId(*number), redirects.into());
    }
    numbers.bases = held_tables.bases(kernel_tables, FIRST_BASE);
    for (name, number) in &stored.interface_numbers {
        numbers.objects.interfaces.assign(name.clone(), *number);
    }
    let mut planner = Planner::with_numbers(config.clone(), stored.generation, numbers);
    planner.load(kernel_tables, BaseSearch::Existing);
    planner
        .local_addresses
        .set_installed(stored.local_addresses.clone());
    planner.revocation_pending = stored.revocation_pending;
    planner.add_unused_pairs(stored.unused_pairs.iter().copied());
    let mut transaction = planner.plan(delta);
    for step in &mut transaction.steps {
        for counter in &mut step.retiring_counters {
            counter.rules.retain(|rule| rule.0 < UNKNOWN_RULE);
        }
        step.retiring_counters
            .retain(|counter| !counter.rules.is_empty());
    }
    let numbers = desired_numbers(&planner, held_tables);
    let planner = Planner::with_numbers(config.clone(), planner.generation, numbers);
    (planner, transaction)
}

/// The numbers of the desired tables, after a delta that was planned in the kernel's numbers.
fn desired_numbers(planner: &Planner, held_tables: &HeldTables<'_>) -> KernelNumbers {
    let classes = &held_tables.numbers().classes;
    let mut numbers = KernelNumbers {
        next_code: planner.numbers.next_code,
        next_redirect: planner.numbers.next_redirect,
        bases: planner.numbers.bases.with_class_ids(classes),
        ..KernelNumbers::default()
    };
    numbers.objects.assign_desired(held_tables.numbers());
    numbers.objects.interfaces = planner.numbers.objects.interfaces.clone();
    for (class, number) in classes {
        if let Some(codes) = planner.numbers.source_port_codes.get(number) {
            numbers.source_port_codes.insert(*class, codes.clone());
        }
        if let Some(redirects) = planner.numbers.redirects.get(number) {
            numbers.redirects.insert(*class, redirects.clone());
        }
    }
    for (base, codes) in &planner.numbers.base_codes {
        if numbers.bases.program(*base).is_some() {
            numbers.base_codes.insert(*base, codes.clone());
        }
    }
    numbers
}
