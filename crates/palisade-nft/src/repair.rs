//! In-place repair: one atomic step that restores what another program changed, and nothing else.
//!
//! Promises: unchanged objects and their counters stay as they are. Never: changes a table's properties (its
//! comment and flags, declarations of sets, hooks of chains); if they differ there is no repair step, and
//! the table is rebuilt.

use crate::host_chains;
use crate::redirect;
use crate::skeleton::{pending_revocation, skeleton};
use crate::source_ports::SourcePortChain;
use crate::{Chain, Config, Op, Planner, Ruleset, Transaction, TxStep};
use alloc::vec::Vec;
use palisade_model::Str;
use palisade_tables::Phase;

impl Planner {
    /// Plans the repair of a changed table to the content planned last. The generation is raised afterwards,
    /// since flows may have been wrongly accepted meanwhile.
    ///
    /// `None` if the table must be rebuilt; an empty transaction if nothing differs. Counts must be zero
    /// ([`Ruleset::without_counts`]).
    pub fn repair(&mut self, observed: &Ruleset) -> Option<Transaction> {
        let table = self.config().table.clone();
        if *observed == self.ruleset() {
            let steps = Vec::new();
            return Some(Transaction::new(table, steps));
        }
        let before = self.revocation_pending;
        self.revocation_pending = true;
        let Some(repair) = repair_step(observed, &self.ruleset()) else {
            self.revocation_pending = before;
            return None;
        };
        let revoke = TxStep {
            phase: Phase::Revoke,
            retiring_counters: Vec::new(),
            ops: self.revoke(),
            needs_grace_period: true,
        };
        let steps = [repair, revoke].into();
        Some(Transaction::new(table, steps))
    }
}

/// The target of the repair of a table whose rules another program changed, or that another version wrote:
/// its own elements, our rules, and a pending revocation. Unknown sets are dropped.
pub(crate) fn restore_rules(config: &Config, observed: &Ruleset, generation: u32) -> Ruleset {
    let mut ours = skeleton(config, generation);
    for stage in host_chains::stages_of(&observed.chains) {
        ours.chains.extend(host_chains::chains(config, stage));
    }
    if redirect::is_among(&observed.chains) {
        ours.chains.extend(redirect::chains(config));
        ours.chains.extend(redirect::own_chains(config));
    }
    for (name, set) in &mut ours.sets {
        let observed_set = observed.sets.get(name).filter(|s| s.decl == set.decl);
        let data = observed_set.into_iter().flat_map(|s| &s.elements);
        for (key, element) in data {
            let entry = set.elements.entry(key.clone());
            entry.or_insert_with(|| element.clone());
        }
    }
    let (set, key, element) = pending_revocation();
    if let Some(set) = ours.sets.get_mut(set) {
        set.elements.insert(key, element);
    }
    for (name, chain) in &observed.chains {
        if SourcePortChain::parse(name).is_some() {
            ours.chains.insert(name.clone(), chain.clone());
        }
    }
    ours
}

/// Whether a table becomes another one without a change of its properties.
fn is_repairable(observed: &Ruleset, wanted: &Ruleset) -> bool {
    observed.comment == wanted.comment
        && observed.flags == wanted.flags
        && observed.foreign.is_empty()
        && wanted.sets.iter().all(|(name, set)| {
            let observed_set = observed.sets.get(name);
            observed_set.is_none_or(|s| s.decl == set.decl)
        })
        && wanted.chains.iter().all(|(name, chain)| {
            let observed_chain = observed.chains.get(name);
            observed_chain.is_none_or(|c| c.base_chain == chain.base_chain)
        })
}

/// The step from one content of a table to another; `None` if there is none.
pub(crate) fn repair_step(observed: &Ruleset, wanted: &Ruleset) -> Option<TxStep> {
    if !is_repairable(observed, wanted) {
        return None;
    }
    let mut ops = Vec::new();
    for (name, set) in &wanted.sets {
        if !observed.sets.contains_key(name) {
            let (set, decl) = (name.clone(), set.decl.clone());
            ops.push(Op::AddSet { set, decl });
        }
    }
    let rewritten = empty_chains(observed, wanted, &mut ops);
    let foreign = |name: &&Str| !wanted.chains.contains_key(*name);
    for chain in observed.chains.keys().filter(foreign) {
        let chain = chain.clone();
        ops.push(Op::FlushChain { chain });
    }
    ops.extend(deleted_elements(observed, wanted));
    for chain in observed.chains.keys().filter(foreign) {
        let chain = chain.clone();
        ops.push(Op::DeleteChain { chain });
    }
    // The kernel deletes an anonymous set together with its rule.
    let foreign = |name: &&Str| !wanted.sets.contains_key(*name) && !name.starts_with("__");
    for set in observed.sets.keys().filter(foreign) {
        ops.push(Op::DeleteSet { set: set.clone() });
    }
    ops.extend(added_elements(observed, wanted));
    for (name, chain) in rewritten {
        for rule in &chain.rules {
            let (chain, rule) = (name.clone(), rule.clone());
            ops.push(Op::AddRule { chain, rule });
        }
    }
    Some(TxStep {
        phase: Phase::Tighten,
        retiring_counters: Vec::new(),
        ops,
        needs_grace_period: true,
    })
}

/// Makes every chain that differs exist without rules; returns these chains, whose rules are to be added.
fn empty_chains<'a>(
    observed: &Ruleset,
    wanted: &'a Ruleset,
    ops: &mut Vec<Op>,
) -> Vec<(&'a Str, &'a Chain)> {
    let mut emptied = Vec::new();
    for (name, chain) in &wanted.chains {
        match observed.chains.get(name) {
            None => {
                let (chain, base_chain) = (name.clone(), chain.base_chain);
                ops.push(Op::AddChain { chain, base_chain });
            }
            Some(observed_chain) if observed_chain == chain => continue,
            Some(_) => {
                let chain = name.clone();
                ops.push(Op::FlushChain { chain });
            }
        }
        emptied.push((name, chain));
    }
    emptied
}

/// Deletes the elements of wanted sets that differ.
fn deleted_elements(observed: &Ruleset, wanted: &Ruleset) -> Vec<Op> {
    let mut ops = Vec::new();
    for (name, observed_set) in &observed.sets {
        let Some(set) = wanted.sets.get(name) else {
            continue;
        };
        for (key, element) in &observed_set.elements {
            if set.elements.get(key) != Some(element) {
                let (set, key) = (name.clone(), key.clone());
                ops.push(Op::DeleteElement { set, key });
            }
        }
    }
    ops
}

/// Adds the elements that are missing or differ.
fn added_elements(observed: &Ruleset, wanted: &Ruleset) -> Vec<Op> {
    let mut ops = Vec::new();
    for (name, set) in &wanted.sets {
        let observed_set = observed.sets.get(name);
        for (key, element) in &set.elements {
            if observed_set.and_then(|s| s.elements.get(key)) != Some(element) {
                let (set, key, element) = (name.clone(), key.clone(), element.clone());
                ops.push(Op::AddElement { set, key, element });
            }
        }
    }
    ops
}
