//! The masquerade table.
//!
//! Promises: only what `palisade_nft::Masquerade` plans is executed; an unneeded table is removed. Never:
//! changes the policy table.

use palisade_nft::{AttributedCounter, Config, Masquerade, Ruleset};
use palisade_sys::grace::GracePeriod;
use palisade_sys::nfnetlink::Nfnetlink;
use palisade_tables::CounterValue;

use super::netlink::Executor;
use crate::driver::MasqueradePolicy;
use crate::error::DriverError;

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
        let needed = !wanted.addresses.is_empty();
        let plan = match (&ruleset, needed) {
            (None, false) => return Ok((None, 0)),
            (Some(_), false) => wanted.plan_removal(),
            (ruleset, true) => wanted.plan(ruleset.as_ref(), flags),
        };
        let writes = plan.steps.iter().map(|step| step.ops.len()).sum();
        executor.execute(&plan, &mut |_: &AttributedCounter, _: CounterValue| {})?;
        Ok((needed.then(|| wanted.ruleset(flags)), writes))
    })
}

/// Removes the table if it exists.
pub(crate) fn remove<N: Nfnetlink, G: GracePeriod>(
    executor: &mut Executor<N, G>,
    config: &Config,
) -> Result<(), DriverError> {
    sync(executor, config, &MasqueradePolicy::default(), None).map(drop)
}
