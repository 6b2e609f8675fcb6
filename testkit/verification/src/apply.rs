//! Applies operations to a ruleset as the kernel does, as far as it is visible in the content.
//!
//! It refuses what the kernel refuses (missing or duplicate objects, duplicate elements, overlapping ranges,
//! deleting objects in use) and then leaves the ruleset unchanged, as the kernel does.

use crate::set_lookup::overlaps;
use palisade_model::Str;
use palisade_nft::{Chain, Element, ElementKey, Expr, NftRule, NftSet, NftVerdict, Op, Ruleset};
use std::collections::BTreeMap;
use std::fmt;

/// Why the kernel would refuse a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ApplyError {
    /// The table does not exist yet, or exists already.
    Table,
    /// No such chain.
    NoChain(Str),
    /// The chain exists already.
    ChainExists(Str),
    /// A rule or element still jumps to the chain.
    ChainInUse(Str),
    /// No such set.
    NoSet(Str),
    /// The set exists already.
    SetExists(Str),
    /// A rule still looks up the set.
    SetInUse(Str),
    /// No such element.
    NoElement(Str, ElementKey),
    /// The element exists already, or overlaps another.
    ElementExists(Str, ElementKey),
}

impl fmt::Display for ApplyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ApplyError::Table => f.write_str("the table already exists, or does not exist"),
            ApplyError::NoChain(name) => write!(f, "chain {name} does not exist"),
            ApplyError::ChainExists(name) => write!(f, "chain {name} already exists"),
            ApplyError::ChainInUse(name) => write!(f, "chain {name} is still in use by a jump"),
            ApplyError::NoSet(name) => write!(f, "set {name} does not exist"),
            ApplyError::SetExists(name) => write!(f, "set {name} already exists"),
            ApplyError::SetInUse(name) => write!(f, "set {name} is still in use by a rule"),
            ApplyError::NoElement(set, key) => write!(f, "set {set} has no element {key:?}"),
            ApplyError::ElementExists(set, key) => {
                write!(
                    f,
                    "set {set} already has element {key:?}, or one that overlaps it"
                )
            }
        }
    }
}

impl std::error::Error for ApplyError {}

/// Applies one step atomically to the kernel's content (`None`: no table).
///
/// # Errors
///
/// If the kernel would refuse the step; `kernel` is then unchanged.
pub fn apply(kernel: &mut Option<Ruleset>, table: &Str, ops: &[Op]) -> Result<(), ApplyError> {
    let mut next = kernel.clone();
    for op in ops {
        apply_op(&mut next, table, op)?;
    }
    if let Some(ruleset) = &next {
        check_references(ruleset)?;
    }
    *kernel = next;
    Ok(())
}

fn apply_op(kernel: &mut Option<Ruleset>, table: &Str, op: &Op) -> Result<(), ApplyError> {
    if let Op::AddTable { comment, flags } = op {
        if kernel.is_some() {
            return Err(ApplyError::Table);
        }
        let mut ruleset = Ruleset::empty(table.clone());
        ruleset.comment.clone_from(comment);
        ruleset.flags = *flags;
        *kernel = Some(ruleset);
        return Ok(());
    }
    let Some(ruleset) = kernel else {
        return Err(ApplyError::Table);
    };
    match op {
        Op::DeleteTable => *kernel = None,
        other => apply_to_content(ruleset, other)?,
    }
    Ok(())
}

fn apply_to_content(ruleset: &mut Ruleset, op: &Op) -> Result<(), ApplyError> {
    let require_chain = |chains: &mut BTreeMap<Str, Chain>, name: &Str| -> Result<(), ApplyError> {
        if chains.contains_key(name) {
            Ok(())
        } else {
            Err(ApplyError::NoChain(name.clone()))
        }
    };
    match op {
        Op::AddTable { .. } | Op::DeleteTable => {}
        Op::AddSet { set, decl } => {
            let new = NftSet {
                decl: decl.clone(),
                elements: BTreeMap::new(),
            };
            if ruleset.sets.insert(set.clone(), new).is_some() {
                return Err(ApplyError::SetExists(set.clone()));
            }
        }
        Op::DeleteSet { set } => {
            if ruleset.sets.remove(set).is_none() {
                return Err(ApplyError::NoSet(set.clone()));
            }
        }
        Op::AddChain {
            chain,
            base_chain: base,
        } => {
            let new = Chain {
                base_chain: *base,
                rules: [].into(),
            };
            if ruleset.chains.insert(chain.clone(), new).is_some() {
                return Err(ApplyError::ChainExists(chain.clone()));
            }
        }
        Op::DeleteChain { chain } => {
            if refers_to_chain(ruleset, chain) {
                return Err(ApplyError::ChainInUse(chain.clone()));
            }
            if ruleset.chains.remove(chain).is_none() {
                return Err(ApplyError::NoChain(chain.clone()));
            }
        }
        Op::AddRule { chain, rule } => {
            require_chain(&mut ruleset.chains, chain)?;
            if let Some(chain) = ruleset.chains.get_mut(chain) {
                chain.rules.push(rule.clone());
            }
        }
        Op::FlushChain { chain } => {
            require_chain(&mut ruleset.chains, chain)?;
            if let Some(chain) = ruleset.chains.get_mut(chain) {
                chain.rules.clear();
            }
        }
        Op::AddElement { set, key, element } => add_element(ruleset, set, key, element)?,
        Op::DeleteElement { set, key } => {
            let of = ruleset.sets.get_mut(set);
            let of = of.ok_or_else(|| ApplyError::NoSet(set.clone()))?;
            if of.elements.remove(key).is_none() {
                return Err(ApplyError::NoElement(set.clone(), key.clone()));
            }
        }
    }
    Ok(())
}

fn add_element(
    ruleset: &mut Ruleset,
    name: &Str,
    key: &ElementKey,
    element: &Element,
) -> Result<(), ApplyError> {
    let set = ruleset.sets.get_mut(name);
    let set = set.ok_or_else(|| ApplyError::NoSet(name.clone()))?;
    if set.elements.contains_key(key) || overlaps(set, key) {
        return Err(ApplyError::ElementExists(name.clone(), key.clone()));
    }
    set.elements.insert(key.clone(), element.clone());
    Ok(())
}

/// Whether a rule or an element jumps to the chain.
fn refers_to_chain(ruleset: &Ruleset, chain: &Str) -> bool {
    let to = |verdict: &NftVerdict| verdict.chain() == Some(chain);
    let rules = ruleset.chains.values().flat_map(|c| &c.rules);
    let mut exprs = rules.flat_map(|rule: &NftRule| &rule.exprs);
    let mut elements = ruleset.sets.values().flat_map(|s| s.elements.values());
    exprs.any(|expr| matches!(expr, Expr::Verdict(v) if to(v)))
        || elements.any(|e| matches!(&e.data, Some(palisade_nft::MapValue::Verdict(v)) if to(v)))
}

/// After a batch every referenced object must exist.
fn check_references(ruleset: &Ruleset) -> Result<(), ApplyError> {
    let verdict = |verdict: &NftVerdict| match verdict.chain() {
        Some(chain) if !ruleset.chains.contains_key(chain) => {
            Err(ApplyError::ChainInUse(chain.clone()))
        }
        _ => Ok(()),
    };
    for expr in ruleset
        .chains
        .values()
        .flat_map(|c| &c.rules)
        .flat_map(|rule| &rule.exprs)
    {
        match expr {
            Expr::Verdict(v) => verdict(v)?,
            Expr::Lookup { set, .. } if !ruleset.sets.contains_key(set) => {
                return Err(ApplyError::SetInUse(set.clone()));
            }
            _ => {}
        }
    }
    Ok(())
}
