//! The table that translates workloads' addresses, and what of workloads both tables hold.
//!
//! Promises: only what `palisade_nft::Masquerade` plans is executed; a table that nobody needs is
//! removed. Never: judges, or touches the table that does.

use palisade_nft::{Config, Count, Harvest, Masquerade, Ruleset, masqueraded, points};
use palisade_sys::grace::GracePeriod;
use palisade_sys::nfnetlink::Nfnetlink;

use crate::driver::{Error, Held};
use crate::netlink::Executor;

/// The table beside the one that judges.
pub(crate) fn table_of(config: &Config) -> palisade_model::Str {
    nobody(config).table_name()
}

fn nobody(config: &Config) -> Masquerade {
    Masquerade {
        table: config.table.clone(),
        interface_prefix: config.interface_prefix.clone(),
        near: Vec::new(),
        addresses: Default::default(),
    }
}

/// Writes what differs from `held`, which is read where it is not known, in a table with these flags. Returns what the kernel
/// holds then, and how much was written.
pub(crate) fn bring_in_line<N: Nfnetlink, G: GracePeriod>(
    executor: &mut Executor<N, G>,
    wanted: &Masquerade,
    held: Option<Option<Ruleset>>,
    flags: u32,
) -> Result<(Option<Ruleset>, usize), Error> {
    let sets = held.iter().flatten().flat_map(|known| &known.sets);
    let sets = sets.map(|(name, set)| (name.clone(), set.decl.clone()));
    executor.on_table(wanted.table_name(), sets.collect(), |executor| {
        let held = match held {
            Some(known) => known,
            None => executor.read_back()?,
        };
        let needed = !wanted.addresses.is_empty();
        let plan = match (&held, needed) {
            (None, false) => return Ok((None, 0)),
            (Some(_), false) => wanted.removal(),
            (held, true) => wanted.plan(held.as_ref(), flags),
        };
        let writes = plan.steps.iter().map(|step| step.ops.len()).sum();
        executor.execute(&plan, &mut |_: &Harvest, _: Count| {})?;
        Ok((needed.then(|| wanted.ruleset(flags)), writes))
    })
}

/// Removes the table if it is there.
pub(crate) fn remove<N: Nfnetlink, G: GracePeriod>(
    executor: &mut Executor<N, G>,
    config: &Config,
) -> Result<(), Error> {
    bring_in_line(executor, &nobody(config), None, config.table_flags()).map(drop)
}

/// What of workloads these tables hold.
pub(crate) fn held(judging: Option<&Ruleset>, translating: Option<&Option<Ruleset>>) -> Held {
    let (interfaces, points) = judging.map(points).unwrap_or_default();
    let translating = translating.and_then(Option::as_ref);
    Held {
        interfaces,
        points,
        masqueraded: translating.map(masqueraded).unwrap_or_default(),
    }
}
