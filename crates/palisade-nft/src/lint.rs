//! What is wrong with a ruleset or a transaction before the kernel says so, or does not say it.

use crate::names;
use crate::{CtKey, Datum, Element, Expr, Key, LookupTo, MetaKey, Op, Rule, Ruleset, Set};
use crate::{SetDecl, Transaction, Verdict};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::fmt;
use palisade_model::Str;

/// Something wrong, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The chain or set.
    pub object: Str,
    /// What.
    pub problem: Problem,
}

/// What can be wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Problem {
    /// The name is empty, too long or has other characters than letters, digits and `_`.
    BadName,
    /// A chain or set that is not there.
    Missing(Str),
    /// Nothing refers to it.
    Unreferenced,
    /// An expression after one that ends the rule.
    AfterVerdict,
    /// A rule after one that ends the chain for every packet.
    AfterEnd,
    /// A register that nothing in the rule has loaded.
    NotLoaded(u8),
    /// A value that does not fit into the registers.
    NoRoom(u8),
    /// Chains that lead back to themselves.
    Loop,
    /// A key or value of the wrong length or kind for its set.
    BadElement(Key),
    /// A range that overlaps another.
    Overlap(Key),
    /// A log prefix that is longer than 127 bytes.
    BadPrefix,
    /// A limit that nothing passes, which the kernel refuses.
    NoRate,
    /// An expression that is never written.
    Unknown(Str),
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.object)?;
        match &self.problem {
            Problem::BadName => f.write_str("not a legal name"),
            Problem::Missing(name) => write!(f, "refers to {name}, which is not there"),
            Problem::Unreferenced => f.write_str("nothing refers to it"),
            Problem::AfterVerdict => f.write_str("an expression after the verdict"),
            Problem::AfterEnd => f.write_str("a rule that no packet reaches"),
            Problem::NotLoaded(reg) => write!(f, "register {reg} is read before it is loaded"),
            Problem::NoRoom(reg) => write!(f, "too long for register {reg}"),
            Problem::Loop => f.write_str("leads back to itself"),
            Problem::BadElement(key) => write!(f, "element {key:?} does not fit the set"),
            Problem::Overlap(key) => write!(f, "range {key:?} overlaps another"),
            Problem::BadPrefix => f.write_str("a log prefix of more than 127 bytes"),
            Problem::NoRate => f.write_str("a limit of nothing"),
            Problem::Unknown(name) => write!(f, "expression {name} is never written"),
        }
    }
}

/// Checks a whole table.
pub fn lint(ruleset: &Ruleset) -> Vec<Finding> {
    let mut lint = Lint::default();
    let decls: BTreeMap<&Str, &SetDecl> = ruleset.sets.iter().map(|(n, s)| (n, &s.decl)).collect();
    let mut used: BTreeSet<&Str> = BTreeSet::new();
    for (name, chain) in &ruleset.chains {
        lint.name(name);
        for (index, rule) in chain.rules.iter().enumerate() {
            lint.rule(name, rule, &|set| decls.get(set).copied());
            used.extend(references(rule));
            let ends = matches!(rule.exprs.as_slice(), [.., Expr::Verdict(v)]
                if is_end(v) && !rule.exprs.iter().any(can_break));
            if ends && index + 1 < chain.rules.len() {
                lint.add(name, Problem::AfterEnd);
            }
        }
    }
    for (name, set) in &ruleset.sets {
        lint.name(name);
        for (key, element) in &set.elements {
            lint.element(name, &set.decl, key, element);
            used.extend(element_chain(element));
        }
        lint.overlaps(name, set);
    }
    for (name, chain) in &ruleset.chains {
        if chain.base.is_none() && !used.contains(name) {
            lint.add(name, Problem::Unreferenced);
        }
    }
    for name in ruleset.sets.keys() {
        // Written and read by the agent alone.
        if !used.contains(name) && &**name != names::PENDING {
            lint.add(name, Problem::Unreferenced);
        }
    }
    for name in &used {
        if !ruleset.chains.contains_key(*name) && !ruleset.sets.contains_key(*name) {
            lint.add(name, Problem::Missing((*name).clone()));
        }
    }
    lint.loops(ruleset);
    lint.findings
}

/// Checks a transaction's operations, at the cost of the operations alone: what they make must be
/// well-formed. `decl` tells the declarations of sets that are there already.
pub fn lint_transaction(
    transaction: &Transaction,
    decl: impl Fn(&str) -> Option<SetDecl>,
) -> Vec<Finding> {
    let mut lint = Lint::default();
    let mut made: BTreeMap<Str, SetDecl> = BTreeMap::new();
    for op in transaction.steps.iter().flat_map(|step| &step.ops) {
        if let Op::AddSet { set, decl } = op {
            made.insert(set.clone(), decl.clone());
        }
        let mut used: Vec<&Str> = Vec::new();
        match op {
            Op::AddElement { set, .. } => used.push(set),
            Op::AddRule { rule, .. } => used.extend(references(rule)),
            _ => {}
        }
        for set in used {
            if !made.contains_key(set)
                && let Some(decl) = decl(set)
            {
                made.insert(set.clone(), decl);
            }
        }
    }
    for op in transaction.steps.iter().flat_map(|step| &step.ops) {
        match op {
            Op::AddChain { chain, .. } => lint.name(chain),
            Op::AddSet { set, .. } => lint.name(set),
            Op::AddRule { chain, rule } => lint.rule(chain, rule, &|set| made.get(set)),
            Op::AddElement { set, key, element } => match made.get(set) {
                Some(decl) => lint.element(set, decl, key, element),
                None => lint.add(set, Problem::Missing(set.clone())),
            },
            _ => {}
        }
    }
    lint.findings
}

#[derive(Default)]
struct Lint {
    findings: Vec<Finding>,
}

fn is_end(verdict: &Verdict) -> bool {
    !matches!(verdict, Verdict::Jump(_) | Verdict::Continue)
}

/// Whether a packet may not come past the expression.
fn can_break(expr: &Expr) -> bool {
    !matches!(
        expr,
        Expr::Meta { .. }
            | Expr::Bitwise { .. }
            | Expr::Immediate { .. }
            | Expr::Counter(_)
            | Expr::Log { .. }
            | Expr::Masquerade
            | Expr::Verdict(_)
    )
}

fn references(rule: &Rule) -> impl Iterator<Item = &Str> {
    rule.exprs.iter().filter_map(|expr| match expr {
        Expr::Lookup { set, .. } => Some(set),
        Expr::Verdict(verdict) => verdict.chain(),
        _ => None,
    })
}

fn element_chain(element: &Element) -> Option<&Str> {
    match &element.data {
        Some(Datum::Verdict(verdict)) => verdict.chain(),
        _ => None,
    }
}

impl Lint {
    fn add(&mut self, object: &Str, problem: Problem) {
        let object = object.clone();
        self.findings.push(Finding { object, problem });
    }

    fn name(&mut self, name: &Str) {
        // The kernel takes 255 bytes; the characters are those that nft needs no quotes for.
        let legal = (1..=255).contains(&name.len())
            && name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
            && name.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'_');
        if !legal {
            self.add(name, Problem::BadName);
        }
    }

    fn rule<'a>(&mut self, chain: &Str, rule: &Rule, decl: &dyn Fn(&Str) -> Option<&'a SetDecl>) {
        let mut loaded = [false; 16];
        let mut ended = false;
        for expr in &rule.exprs {
            if ended {
                self.add(chain, Problem::AfterVerdict);
            }
            let (reads, writes) = registers(expr, decl);
            for (register, len) in reads.into_iter().chain(writes) {
                let end = usize::from(register) + len.div_ceil(4);
                if end > loaded.len() {
                    self.add(chain, Problem::NoRoom(register));
                    return;
                }
            }
            if let Some((register, len)) = reads {
                let at = usize::from(register);
                if loaded[at..at + len.div_ceil(4)].contains(&false) {
                    self.add(chain, Problem::NotLoaded(register));
                }
            }
            if let Some((register, len)) = writes {
                let at = usize::from(register);
                loaded[at..at + len.div_ceil(4)].fill(true);
            }
            match expr {
                Expr::Verdict(_) | Expr::Masquerade => ended = true,
                // What a verdict map says may be to go on.
                Expr::Lookup { set, .. } if decl(set).is_none() => {
                    self.add(chain, Problem::Missing(set.clone()));
                }
                Expr::Unknown(name) => self.add(chain, Problem::Unknown(name.clone())),
                Expr::Log { prefix, .. } if prefix.len() > 127 => {
                    self.add(chain, Problem::BadPrefix);
                }
                Expr::Limit { rate: 0, .. } => self.add(chain, Problem::NoRate),
                _ => {}
            }
        }
    }

    fn element(&mut self, name: &Str, decl: &SetDecl, key: &Key, element: &Element) {
        let len = decl.key_len();
        let key_fits = match key {
            Key::Exact(bytes) => !decl.interval && bytes.len() == len,
            Key::Range(first, last) => {
                decl.interval
                    && first.len() == len
                    && last.len() == len
                    && decl
                        .fields()
                        .all(|(at, len)| first[at..at + len] <= last[at..at + len])
            }
            Key::CatchAll => true,
        };
        let data_fits = match (&decl.data, &element.data) {
            (None, None) | (Some(crate::Data::Verdict), Some(Datum::Verdict(_))) => true,
            (Some(crate::Data::Value(field)), Some(Datum::Value(value))) => {
                value.len() == field.len()
            }
            _ => false,
        };
        if !key_fits || !data_fits || element.counter.is_some() != decl.counter {
            self.add(name, Problem::BadElement(key.clone()));
        }
    }

    fn overlaps(&mut self, name: &Str, set: &Set) {
        if !set.decl.interval {
            return;
        }
        let mut so_far = Set {
            decl: set.decl.clone(),
            elements: BTreeMap::new(),
        };
        // Ranges of several fields are told apart by their first two, which are always one value each.
        let mut group: Option<&[u8]> = None;
        for (key, element) in &set.elements {
            let Key::Range(first, _) = key else { continue };
            let at = first.get(..8);
            if set.decl.key.len() > 1 && group != at {
                so_far.elements.clear();
                group = at;
            }
            if so_far.overlaps(key) {
                self.add(name, Problem::Overlap(key.clone()));
            }
            so_far.elements.insert(key.clone(), element.clone());
        }
    }

    /// Finds chains that lead back to themselves, through verdict maps as well.
    fn loops(&mut self, ruleset: &Ruleset) {
        let mut next: BTreeMap<&Str, BTreeSet<&Str>> = BTreeMap::new();
        for (name, chain) in &ruleset.chains {
            let to = next.entry(name).or_default();
            for expr in chain.rules.iter().flat_map(|rule| &rule.exprs) {
                match expr {
                    Expr::Verdict(verdict) => to.extend(verdict.chain()),
                    Expr::Lookup {
                        set,
                        to: LookupTo::Verdict,
                        ..
                    } => {
                        let set = ruleset.sets.get(set);
                        let elements = set.into_iter().flat_map(|s| s.elements.values());
                        to.extend(elements.filter_map(element_chain));
                    }
                    _ => {}
                }
            }
        }
        // Chains that lead nowhere are taken away until none is left, or a loop.
        while let Some(end) = next.iter().find(|(_, to)| to.is_empty()).map(|(n, _)| *n) {
            next.remove(end);
            next.values_mut().for_each(|to| {
                to.remove(end);
            });
        }
        next.retain(|_, to| to.iter().any(|to| ruleset.chains.contains_key(*to)));
        if let Some(name) = next.keys().next() {
            self.add(name, Problem::Loop);
        }
    }
}

type Span = Option<(u8, usize)>;

/// The registers that an expression reads, and those that it loads: the first, and the bytes.
fn registers<'a>(expr: &Expr, decl: &dyn Fn(&Str) -> Option<&'a SetDecl>) -> (Span, Span) {
    let meta = |key: MetaKey| key.len() as usize;
    let ct = |key: CtKey| key.len() as usize;
    match expr {
        Expr::Meta { key, dreg } => (None, Some((dreg.0, meta(*key)))),
        Expr::Payload { len, dreg, .. } => (None, Some((dreg.0, *len as usize))),
        Expr::CtLoad { key, dreg } => (None, Some((dreg.0, ct(*key)))),
        Expr::MetaSet { key, sreg } => (Some((sreg.0, meta(*key))), None),
        Expr::CtSet { key, sreg } => (Some((sreg.0, ct(*key))), None),
        Expr::Bitwise {
            sreg, dreg, mask, ..
        } => (Some((sreg.0, mask.len())), Some((dreg.0, mask.len()))),
        Expr::Cmp { sreg, value, .. } => (Some((sreg.0, value.len())), None),
        Expr::Lookup { set, sreg, to } => {
            let Some(decl) = decl(set) else {
                return (None, None);
            };
            let read = Some((sreg.0, decl.key_len()));
            let write = match (to, &decl.data) {
                (LookupTo::Register(dreg), Some(crate::Data::Value(field))) => {
                    Some((dreg.0, field.len()))
                }
                _ => None,
            };
            (read, write)
        }
        Expr::Immediate { dreg, value } => (None, Some((dreg.0, value.len()))),
        Expr::Counter(_)
        | Expr::Limit { .. }
        | Expr::Log { .. }
        | Expr::Masquerade
        | Expr::Verdict(_)
        | Expr::Unknown(_) => (None, None),
    }
}
