//! The net edits of one atomic step: repeated writes of an element become one, and an element that ends
//! unchanged is not written.

use crate::content::{ClassContent, to_attributed_counters};
use crate::{AttributedCounter, Chain, Element, ElementKey, NftRule, Op};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use palisade_model::Str;

/// An element before and after the step.
type ElementEdit = (Option<Element>, Option<Element>);

/// An element of a map.
pub(crate) type MapElement = (&'static str, ElementKey, Element);

/// Edits of elements and chains.
#[derive(Clone, Debug, Default)]
pub(crate) struct EditBatch {
    edits: BTreeMap<(&'static str, ElementKey), ElementEdit>,
    pub(crate) new_chains: Vec<(Str, Chain)>,
    pub(crate) deleted_chains: Vec<Str>,
    /// Chains of the skeleton that have rules from this step on, and those that have none any more.
    filled_chains: Vec<(Str, Chain)>,
    emptied_chains: Vec<Str>,
    pub(crate) retiring_counters: Vec<AttributedCounter>,
}

impl EditBatch {
    /// Records that an element changes from `before` to `after`.
    pub(crate) fn edit(
        &mut self,
        set: &'static str,
        key: ElementKey,
        before: Option<Element>,
        after: Option<Element>,
    ) {
        let entry = self.edits.entry((set, key));
        let entry = entry.or_insert((before, None));
        entry.1 = after;
    }

    /// Adds the content of a new class or base.
    pub(crate) fn add_content(&mut self, content: ClassContent) {
        for ((set, key), element) in content.elements {
            self.edit(set, key, None, Some(element));
        }
        self.new_chains.extend(content.chains);
    }

    /// Adds chains; those that others refer to last. Chains that the step deleted stay.
    pub(crate) fn add_chains(&mut self, chains: Vec<(Str, Chain)>) {
        for (name, chain) in chains.into_iter().rev() {
            match self
                .deleted_chains
                .iter()
                .position(|deleted| *deleted == name)
            {
                Some(at) => drop(self.deleted_chains.remove(at)),
                None => self.new_chains.push((name, chain)),
            }
        }
    }

    /// Deletes chains; those that refer to others first. Chains that the step added are never created.
    pub(crate) fn delete_chains(&mut self, chains: Vec<(Str, Chain)>) {
        for (name, _) in chains {
            match self.new_chains.iter().position(|(new, _)| *new == name) {
                Some(at) => drop(self.new_chains.remove(at)),
                None => self.deleted_chains.push(name),
            }
        }
    }

    /// Adds the rules of chains that exist without rules.
    pub(crate) fn fill_chains(&mut self, chains: Vec<(Str, Chain)>) {
        for (name, chain) in chains {
            match self
                .emptied_chains
                .iter()
                .position(|emptied| *emptied == name)
            {
                Some(at) => drop(self.emptied_chains.remove(at)),
                None => self.filled_chains.push((name, chain)),
            }
        }
    }

    /// Deletes the rules of chains that stay. Rules that the step added are never created.
    pub(crate) fn empty_chains(&mut self, chains: Vec<(Str, Chain)>) {
        for (name, _) in chains {
            match self
                .filled_chains
                .iter()
                .position(|(filled, _)| *filled == name)
            {
                Some(at) => drop(self.filled_chains.remove(at)),
                None => self.emptied_chains.push(name),
            }
        }
    }

    /// Deletes the content of a class or base; its counters retire.
    pub(crate) fn delete_content(&mut self, content: ClassContent) {
        for ((set, key), element) in content.elements {
            self.edit(set, key, Some(element), None);
        }
        let chains = content.chains.into_iter().rev();
        self.deleted_chains.extend(chains.map(|(name, _)| name));
        let retiring = to_attributed_counters(content.counters);
        self.retiring_counters.extend(retiring);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.new_chains.is_empty()
            && self.deleted_chains.is_empty()
            && self.filled_chains.is_empty()
            && self.emptied_chains.is_empty()
            && self.edits.values().all(|(before, after)| before == after)
    }

    /// The elements after the step, for a table that was empty before.
    pub(crate) fn into_elements(mut self) -> (Vec<MapElement>, Vec<(Str, Chain)>) {
        self.new_chains.append(&mut self.filled_chains);
        let elements = self
            .edits
            .into_iter()
            .filter_map(|((set, key), (_, after))| Some((set, key, after?)))
            .collect();
        (elements, self.new_chains)
    }

    /// The operations, in an order that the kernel accepts: objects are created before and deleted after
    /// their references, and ranges are deleted before others replace them.
    pub(crate) fn into_ops(self) -> (Vec<AttributedCounter>, Vec<Op>) {
        let mut ops = Vec::new();
        for (chain, content) in self.new_chains {
            push_chain(&mut ops, chain, content);
        }
        for (chain, content) in self.filled_chains {
            push_rules(&mut ops, &chain, content.rules);
        }
        for chain in self.emptied_chains {
            ops.push(Op::FlushChain { chain });
        }
        let edits = self.edits.into_iter();
        let edits = edits.filter(|(_, (before, after))| before != after);
        let mut adds = Vec::new();
        for ((set, key), (before, after)) in edits {
            let set = Str::from(set);
            if before.is_some() {
                let (set, key) = (set.clone(), key.clone());
                ops.push(Op::DeleteElement { set, key });
            }
            if let Some(element) = after {
                adds.push(Op::AddElement { set, key, element });
            }
        }
        ops.append(&mut adds);
        for chain in self.deleted_chains {
            ops.push(Op::DeleteChain { chain });
        }
        (self.retiring_counters, ops)
    }
}

/// Creates a chain with its rules.
pub(crate) fn push_chain(ops: &mut Vec<Op>, chain: Str, content: Chain) {
    let base = content.base_chain;
    ops.push(Op::AddChain {
        chain: chain.clone(),
        base_chain: base,
    });
    push_rules(ops, &chain, content.rules);
}

fn push_rules(ops: &mut Vec<Op>, chain: &Str, rules: Vec<NftRule>) {
    for rule in rules {
        let chain = chain.clone();
        ops.push(Op::AddRule { chain, rule });
    }
}
