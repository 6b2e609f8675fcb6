//! The masquerade table.
//!
//! Promises: only what `palisade_nft::Masquerade` plans is executed; an unneeded table is removed. Never:
//! changes the policy table.

use palisade_nft::{AttributedCounter, Config, Masquerade, Ruleset, Transaction};
use palisade_sys::grace::GracePeriod;
use palisade_sys::nfnetlink::Nfnetlink;
use palisade_tables::CounterValue;

use super::netlink::Executor;
use super::preview::{count_writes, preview_of, take_over};
use crate::driver::{MasqueradePolicy, PlanPreview};
use crate::error::DriverError;
use std::collections::BTreeMap;

/// The masquerade table's name.
pub(crate) fn table_name(config: &Config) -> palisade_model::Str {
    masquerade(config, &MasqueradePolicy::default()).table_name()
}

fn masquerade(config: &Config, policy: &MasqueradePolicy) -> Masquerade {
    Masquerade {
        table: config.table.clone(),
        interface_prefix: config.interface_prefix.clone(),
        exempt_prefixes: policy.exempt_prefixes.clone(),
        addresses: policy.addresses.clone(),
    }
}

/// Writes what differs from `observed`, which is read if it is not known. Returns the table as it is in the
/// kernel then, and the number of objects and elements written.
pub(crate) fn sync<N: Nfnetlink, G: GracePeriod>(
    executor: &mut Executor<N, G>,
    config: &Config,
    policy: &MasqueradePolicy,
    observed: Option<Option<Ruleset>>,
) -> Result<(Option<Ruleset>, usize), DriverError> {
    let wanted = masquerade(config, policy);
    let flags = config.table_flags();
    let sets = observed.iter().flatten().flat_map(|ruleset| &ruleset.sets);
    let sets = sets.map(|(name, set)| (name.clone(), set.decl.clone()));
    executor.with_table(wanted.table_name(), sets.collect(), |executor| {
        let ruleset = match observed {
            Some(ruleset) => ruleset,
            None => executor.read_back()?,
        };
        let Some(transaction) = plan(&wanted, ruleset.as_ref(), flags) else {
            return Ok((None, 0));
        };
        executor.execute(
            &transaction,
            &mut |_: &AttributedCounter, _: CounterValue| {},
        )?;
        let is_needed = !wanted.addresses.is_empty();
        let content = is_needed.then(|| wanted.ruleset(flags));
        Ok((content, count_writes(&transaction)))
    })
}

/// What [`sync`] would write now.
pub(crate) fn preview<N: Nfnetlink, G: GracePeriod>(
    executor: &mut Executor<N, G>,
    config: &Config,
    policy: &MasqueradePolicy,
) -> Result<PlanPreview, DriverError> {
    let wanted = masquerade(config, policy);
    executor.with_table(wanted.table_name(), BTreeMap::new(), |executor| {
        let mut observed = executor.read_back()?;
        if let Some(observed) = &mut observed {
            take_over(observed, config);
        }
        let transaction = plan(&wanted, observed.as_ref(), config.table_flags());
        Ok(
            transaction.map_or_else(PlanPreview::default, |transaction| {
                preview_of(&transaction, observed.as_ref())
            }),
        )
    })
}

/// What has to be written; `None`: there is no table, and none is needed.
fn plan(wanted: &Masquerade, observed: Option<&Ruleset>, flags: u32) -> Option<Transaction> {
    match (observed, wanted.addresses.is_empty()) {
        (None, true) => None,
        (Some(_), true) => Some(wanted.plan_removal()),
        (observed, false) => Some(wanted.plan(observed, flags)),
    }
}

/// Removes the table if it exists.
pub(crate) fn remove<N: Nfnetlink, G: GracePeriod>(
    executor: &mut Executor<N, G>,
    config: &Config,
) -> Result<(), DriverError> {
    sync(executor, config, &MasqueradePolicy::default(), None).map(drop)
}
