//! The masquerade table, and the workload state that both tables hold.
//!
//! Promises: only what `palisade_nft::Masquerade` plans is executed; an unneeded table is removed. Never:
//! changes the policy table.

use palisade_nft::{
    Config, CounterValue, CreditedCounter, Masquerade, Ruleset, installed_points,
    masqueraded_addresses,
};
use palisade_sys::grace::GracePeriod;
use palisade_sys::nfnetlink::Nfnetlink;

use crate::driver::{Error, InstalledWorkloads};
use crate::netlink::Executor;

/// The masquerade table's name.
pub(crate) fn table_name(config: &Config) -> palisade_model::Str {
    empty_masquerade(config).table_name()
}

fn empty_masquerade(config: &Config) -> Masquerade {
    Masquerade {
        table: config.table.clone(),
        interface_prefix: config.interface_prefix.clone(),
        exempt_prefixes: Vec::new(),
        addresses: Default::default(),
    }
}

/// Writes what differs from `held`, which is read if it is not known, into a table with these flags. Returns
/// the table as it is in the kernel then, and the number of objects and elements written.
pub(crate) fn sync<N: Nfnetlink, G: GracePeriod>(
    executor: &mut Executor<N, G>,
    wanted: &Masquerade,
    observed: Option<Option<Ruleset>>,
    flags: u32,
) -> Result<(Option<Ruleset>, usize), Error> {
    let sets = observed.iter().flatten().flat_map(|known| &known.sets);
    let sets = sets.map(|(name, set)| (name.clone(), set.decl.clone()));
    executor.with_table(wanted.table_name(), sets.collect(), |executor| {
        let held = match observed {
            Some(known) => known,
            None => executor.read_back()?,
        };
        let needed = !wanted.addresses.is_empty();
        let plan = match (&held, needed) {
            (None, false) => return Ok((None, 0)),
            (Some(_), false) => wanted.plan_removal(),
            (held, true) => wanted.plan(held.as_ref(), flags),
        };
        let writes = plan.steps.iter().map(|step| step.ops.len()).sum();
        executor.execute(&plan, &mut |_: &CreditedCounter, _: CounterValue| {})?;
        Ok((needed.then(|| wanted.ruleset(flags)), writes))
    })
}

/// Removes the table if it exists.
pub(crate) fn remove<N: Nfnetlink, G: GracePeriod>(
    executor: &mut Executor<N, G>,
    config: &Config,
) -> Result<(), Error> {
    sync(
        executor,
        &empty_masquerade(config),
        None,
        config.table_flags(),
    )
    .map(drop)
}

/// The workload state that these tables hold.
pub(crate) fn installed_workloads(
    policy_table: Option<&Ruleset>,
    masquerade_table: Option<&Option<Ruleset>>,
) -> InstalledWorkloads {
    let (interfaces, points) = policy_table.map(installed_points).unwrap_or_default();
    let translating = masquerade_table.and_then(Option::as_ref);
    InstalledWorkloads {
        interfaces,
        points,
        masqueraded_addresses: translating.map(masqueraded_addresses).unwrap_or_default(),
    }
}
