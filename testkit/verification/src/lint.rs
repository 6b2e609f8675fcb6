//! Finds errors in a ruleset or transaction, before the kernel refuses them or silently accepts them.

use crate::set_lookup::overlaps;
use crate::simulator::CONNTRACK_PRIORITY;
use palisade_model::Str;
use palisade_nft::{
    Chain, CtKey, Element, ElementKey, Expr, Hook, LookupMode, MapValue, MetaKey, NftRule, NftSet,
    Op, Ruleset,
};
use palisade_nft::{NftVerdict, SetDecl, Transaction};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// What the names of sets begin with that only the chains of host interfaces, of the host's own traffic, or of redirects
/// refer to, which come and go.
const OPTIONAL_SETS: [&str; 5] = ["p_place_", "p_hpt", "p_safe", "p_verdict_d", "p_redirect_"];

/// The set that only the agent writes and reads.
const PENDING_REVOCATION_SET: &str = "p_pending";

/// An error and its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LintFinding {
    /// The chain or set.
    pub object: Str,
    /// The error.
    pub problem: LintProblem,
}

/// The kinds of errors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LintProblem {
    /// The name is empty, too long or has characters other than letters, digits and `_`.
    BadName,
    /// A reference to a chain or set that does not exist.
    Missing(Str),
    /// Nothing refers to it.
    Unreferenced,
    /// An expression after one that ends the rule.
    ExprAfterVerdict,
    /// A rule after one that ends the chain for every packet.
    UnreachableRule,
    /// A register that no expression of the rule has loaded.
    RegisterNotLoaded(u8),
    /// A value that does not fit into the registers.
    RegisterOverflow(u8),
    /// Chains that form a loop.
    Loop,
    /// A key or value of the wrong length or type for its set.
    BadElement(ElementKey),
    /// A range that overlaps another.
    Overlap(ElementKey),
    /// A log prefix that is longer than 127 bytes.
    LogPrefixTooLong,
    /// A rate limit of zero, which the kernel refuses.
    ZeroRate,
    /// A rule that answers, which this base chain leads to: the kernel cannot answer in its hook, or nothing is known
    /// of the flow there.
    AnswerFrom(Str),
    /// A rule that leaves packets out of connection tracking, which this base chain leads to: connection tracking has
    /// seen them there, so the rule has no effect.
    NotrackFrom(Str),
    /// An expression that Palisade never writes.
    Unknown(Str),
}

impl fmt::Display for LintFinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.object)?;
        match &self.problem {
            LintProblem::BadName => f.write_str("invalid name"),
            LintProblem::Missing(name) => write!(f, "refers to {name}, which does not exist"),
            LintProblem::Unreferenced => f.write_str("nothing refers to it"),
            LintProblem::ExprAfterVerdict => f.write_str("an expression after the verdict"),
            LintProblem::UnreachableRule => f.write_str("a rule that no packet reaches"),
            LintProblem::RegisterNotLoaded(reg) => {
                write!(f, "register {reg} is read before it is loaded")
            }
            LintProblem::RegisterOverflow(reg) => write!(f, "too long for register {reg}"),
            LintProblem::Loop => f.write_str("chain loop"),
            LintProblem::BadElement(key) => write!(f, "element {key:?} does not fit the set"),
            LintProblem::Overlap(key) => write!(f, "range {key:?} overlaps another"),
            LintProblem::LogPrefixTooLong => f.write_str("a log prefix of more than 127 bytes"),
            LintProblem::ZeroRate => f.write_str("a rate limit of zero"),
            LintProblem::AnswerFrom(base) => write!(f, "answers packets of {base}"),
            LintProblem::NotrackFrom(base) => write!(f, "leaves packets of {base} out too late"),
            LintProblem::Unknown(name) => write!(f, "unsupported expression {name}"),
        }
    }
}

/// Checks a whole table.
pub fn lint(ruleset: &Ruleset) -> Vec<LintFinding> {
    let mut lint = Linter::default();
    let decls: BTreeMap<&Str, &SetDecl> = ruleset.sets.iter().map(|(n, s)| (n, &s.decl)).collect();
    let mut used: BTreeSet<&Str> = BTreeSet::new();
    for (name, chain) in &ruleset.chains {
        lint.check_name(name);
        for (index, rule) in chain.rules.iter().enumerate() {
            lint.check_rule(name, rule, &|set| decls.get(set).copied());
            used.extend(references(rule));
            let ends = matches!(rule.exprs.as_slice(), [.., Expr::Verdict(v)]
                if ends_evaluation(v) && !rule.exprs.iter().any(can_break));
            if ends && index + 1 < chain.rules.len() {
                lint.add(name, LintProblem::UnreachableRule);
            }
        }
    }
    for (name, set) in &ruleset.sets {
        lint.check_name(name);
        for (key, element) in &set.elements {
            lint.check_element(name, &set.decl, key, element);
            used.extend(element_chain(element));
        }
        lint.check_overlaps(name, set);
    }
    for (name, chain) in &ruleset.chains {
        if chain.base_chain.is_none() && !used.contains(name) {
            lint.add(name, LintProblem::Unreferenced);
        }
    }
    for name in ruleset.sets.keys() {
        let is_optional = OPTIONAL_SETS.iter().any(|prefix| name.starts_with(prefix));
        if !used.contains(name) && &**name != PENDING_REVOCATION_SET && !is_optional {
            lint.add(name, LintProblem::Unreferenced);
        }
    }
    check_hooks(&mut lint, ruleset);
    for name in &used {
        if !ruleset.chains.contains_key(*name) && !ruleset.sets.contains_key(*name) {
            lint.add(name, LintProblem::Missing((*name).clone()));
        }
    }
    lint.check_loops(ruleset);
    lint.findings
}

/// Checks a transaction's operations, at a cost that depends on them alone: what they create must be
/// well-formed. `decl` returns the declarations of existing sets.
pub fn lint_transaction(
    transaction: &Transaction,
    decl: impl Fn(&str) -> Option<SetDecl>,
) -> Vec<LintFinding> {
    let mut lint = Linter::default();
    let mut declarations: BTreeMap<Str, SetDecl> = BTreeMap::new();
    for op in transaction.steps.iter().flat_map(|step| &step.ops) {
        if let Op::AddSet { set, decl } = op {
            declarations.insert(set.clone(), decl.clone());
        }
        let mut used: Vec<&Str> = Vec::new();
        match op {
            Op::AddElement { set, .. } => used.push(set),
            Op::AddRule { rule, .. } => used.extend(references(rule)),
            _ => {}
        }
        for set in used {
            if !declarations.contains_key(set)
                && let Some(decl) = decl(set)
            {
                declarations.insert(set.clone(), decl);
            }
        }
    }
    for op in transaction.steps.iter().flat_map(|step| &step.ops) {
        match op {
            Op::AddChain { chain, .. } => lint.check_name(chain),
            Op::AddSet { set, .. } => lint.check_name(set),
            Op::AddRule { chain, rule } => {
                lint.check_rule(chain, rule, &|set| declarations.get(set))
            }
            Op::AddElement { set, key, element } => match declarations.get(set) {
                Some(decl) => lint.check_element(set, decl, key, element),
                None => lint.add(set, LintProblem::Missing(set.clone())),
            },
            _ => {}
        }
    }
    lint.findings
}

#[derive(Default)]
struct Linter {
    findings: Vec<LintFinding>,
}

fn ends_evaluation(verdict: &NftVerdict) -> bool {
    !matches!(verdict, NftVerdict::Jump(_) | NftVerdict::Continue)
}

/// Whether the expression may end the rule.
fn can_break(expr: &Expr) -> bool {
    !matches!(
        expr,
        Expr::Meta { .. }
            | Expr::Bitwise { .. }
            | Expr::Immediate { .. }
            | Expr::Counter(_)
            | Expr::Log { .. }
            | Expr::Masquerade
            | Expr::Notrack
            | Expr::Reject(_)
            | Expr::Verdict(_)
    )
}

/// Finds the rules that a hook leads to in which they fail: those that answer where the kernel cannot, and those that
/// leave packets out of connection tracking where it has seen them.
fn check_hooks(lint: &mut Linter, ruleset: &Ruleset) {
    let rules = ruleset.chains.values().flat_map(|chain| &chain.rules);
    let has_notrack = rules
        .flat_map(|rule| &rule.exprs)
        .any(|expr| *expr == Expr::Notrack);
    for (base, chain) in &ruleset.chains {
        let Some(base_chain) = chain.base_chain else {
            continue;
        };
        let (hook, priority) = (base_chain.hook, base_chain.priority);
        let can_answer = !matches!(hook, Hook::Prerouting | Hook::Postrouting);
        let is_before_conntrack =
            matches!(hook, Hook::Prerouting | Hook::Output) && priority < CONNTRACK_PRIORITY;
        if can_answer && (is_before_conntrack || !has_notrack) {
            continue;
        }
        for (name, chain) in reachable_chains(ruleset, base) {
            for expr in chain.rules.iter().flat_map(|rule| &rule.exprs) {
                match expr {
                    Expr::Reject(_) if !can_answer => {
                        lint.add(name, LintProblem::AnswerFrom(base.clone()));
                    }
                    Expr::Notrack if !is_before_conntrack => {
                        lint.add(name, LintProblem::NotrackFrom(base.clone()));
                    }
                    _ => {}
                }
            }
        }
    }
}

/// A chain, and every chain that its packets can come to.
fn reachable_chains<'a>(ruleset: &'a Ruleset, base: &'a Str) -> BTreeMap<&'a Str, &'a Chain> {
    let mut chains = BTreeMap::new();
    let mut queue = vec![base];
    while let Some(name) = queue.pop() {
        let Some(chain) = ruleset.chains.get(name) else {
            continue;
        };
        if chains.insert(name, chain).is_some() {
            continue;
        }
        for expr in chain.rules.iter().flat_map(|rule| &rule.exprs) {
            match expr {
                Expr::Verdict(verdict) => queue.extend(verdict.chain()),
                Expr::Lookup {
                    set,
                    mode: LookupMode::Verdict,
                    ..
                } => {
                    let set = ruleset.sets.get(set).into_iter();
                    let elements = set.flat_map(|set| set.elements.values());
                    queue.extend(elements.filter_map(element_chain));
                }
                _ => {}
            }
        }
    }
    chains
}

fn references(rule: &NftRule) -> impl Iterator<Item = &Str> {
    rule.exprs.iter().filter_map(|expr| match expr {
        Expr::Lookup { set, .. } => Some(set),
        Expr::Verdict(verdict) => verdict.chain(),
        _ => None,
    })
}

fn element_chain(element: &Element) -> Option<&Str> {
    match &element.data {
        Some(MapValue::Verdict(verdict)) => verdict.chain(),
        _ => None,
    }
}

impl Linter {
    fn add(&mut self, object: &Str, problem: LintProblem) {
        let object = object.clone();
        self.findings.push(LintFinding { object, problem });
    }

    fn check_name(&mut self, name: &Str) {
        // The kernel allows 255 bytes; these characters need no quotes in nft.
        let legal = (1..=255).contains(&name.len())
            && name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
            && name.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'_');
        if !legal {
            self.add(name, LintProblem::BadName);
        }
    }

    fn check_rule<'a>(
        &mut self,
        chain: &Str,
        rule: &NftRule,
        decl: &dyn Fn(&Str) -> Option<&'a SetDecl>,
    ) {
        let mut loaded = [false; 16];
        let mut ended = false;
        for expr in &rule.exprs {
            if ended {
                self.add(chain, LintProblem::ExprAfterVerdict);
            }
            let (reads, writes) = registers(expr, decl);
            for (register, len) in reads.into_iter().chain(writes) {
                let end = usize::from(register) + len.div_ceil(4);
                if end > loaded.len() {
                    self.add(chain, LintProblem::RegisterOverflow(register));
                    return;
                }
            }
            if let Some((register, len)) = reads {
                let at = usize::from(register);
                if loaded[at..at + len.div_ceil(4)].contains(&false) {
                    self.add(chain, LintProblem::RegisterNotLoaded(register));
                }
            }
            if let Some((register, len)) = writes {
                let at = usize::from(register);
                loaded[at..at + len.div_ceil(4)].fill(true);
            }
            match expr {
                Expr::Verdict(_) | Expr::Masquerade | Expr::Reject(_) => ended = true,
                // The verdict of a map may be `continue`.
                Expr::Lookup { set, .. } if decl(set).is_none() => {
                    self.add(chain, LintProblem::Missing(set.clone()));
                }
                Expr::Unknown(name) => self.add(chain, LintProblem::Unknown(name.clone())),
                Expr::Log { prefix, .. } if prefix.len() > 127 => {
                    self.add(chain, LintProblem::LogPrefixTooLong);
                }
                Expr::Limit { rate: 0, .. } => self.add(chain, LintProblem::ZeroRate),
                _ => {}
            }
        }
    }

    fn check_element(&mut self, name: &Str, decl: &SetDecl, key: &ElementKey, element: &Element) {
        let len = decl.key_len();
        let key_fits = match key {
            ElementKey::Exact(bytes) => !decl.interval && bytes.len() == len,
            ElementKey::Range(first, last) => {
                decl.interval
                    && first.len() == len
                    && last.len() == len
                    && decl
                        .fields()
                        .all(|(at, len)| first[at..at + len] <= last[at..at + len])
            }
            ElementKey::CatchAll => true,
        };
        let data_fits = match (&decl.value_type, &element.data) {
            (None, None)
            | (Some(palisade_nft::MapValueType::Verdict), Some(MapValue::Verdict(_))) => true,
            (Some(palisade_nft::MapValueType::Value(field)), Some(MapValue::Value(value))) => {
                value.len() == field.len()
            }
            _ => false,
        };
        if !key_fits || !data_fits || element.counter.is_some() != decl.counter {
            self.add(name, LintProblem::BadElement(key.clone()));
        }
    }

    fn check_overlaps(&mut self, name: &Str, set: &NftSet) {
        if !set.decl.interval {
            return;
        }
        let mut so_far = NftSet {
            decl: set.decl.clone(),
            elements: BTreeMap::new(),
        };
        // Ranges of several fields are grouped by their first two fields, which are always single values.
        let mut group: Option<&[u8]> = None;
        for (key, element) in &set.elements {
            let ElementKey::Range(first, _) = key else {
                continue;
            };
            let at = first.get(..8);
            if set.decl.key.len() > 1 && group != at {
                so_far.elements.clear();
                group = at;
            }
            if overlaps(&so_far, key) {
                self.add(name, LintProblem::Overlap(key.clone()));
            }
            so_far.elements.insert(key.clone(), element.clone());
        }
    }

    /// Finds loops of chains, through verdict maps as well.
    fn check_loops(&mut self, ruleset: &Ruleset) {
        let mut next: BTreeMap<&Str, BTreeSet<&Str>> = BTreeMap::new();
        for (name, chain) in &ruleset.chains {
            let to = next.entry(name).or_default();
            for expr in chain.rules.iter().flat_map(|rule| &rule.exprs) {
                match expr {
                    Expr::Verdict(verdict) => to.extend(verdict.chain()),
                    Expr::Lookup {
                        set,
                        mode: LookupMode::Verdict,
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
        // Removes chains without targets until none is left, or only a loop.
        while let Some(end) = next.iter().find(|(_, to)| to.is_empty()).map(|(n, _)| *n) {
            next.remove(end);
            next.values_mut().for_each(|to| {
                to.remove(end);
            });
        }
        next.retain(|_, to| to.iter().any(|to| ruleset.chains.contains_key(*to)));
        if let Some(name) = next.keys().next() {
            self.add(name, LintProblem::Loop);
        }
    }
}

type RegisterSpan = Option<(u8, usize)>;

/// The registers that an expression reads, and those that it loads: first register and length in bytes.
fn registers<'a>(
    expr: &Expr,
    decl: &dyn Fn(&Str) -> Option<&'a SetDecl>,
) -> (RegisterSpan, RegisterSpan) {
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
        Expr::Lookup {
            set,
            sreg,
            mode: to,
        } => {
            let Some(decl) = decl(set) else {
                return (None, None);
            };
            let read = Some((sreg.0, decl.key_len()));
            let write = match (to, &decl.value_type) {
                (LookupMode::Register(dreg), Some(palisade_nft::MapValueType::Value(field))) => {
                    Some((dreg.0, field.len()))
                }
                _ => None,
            };
            (read, write)
        }
        Expr::Immediate { dreg, value } => (None, Some((dreg.0, value.len()))),
        Expr::Tproxy {
            family, address, ..
        } => (Some((address.0, usize::from(family.bits() / 8))), None),
        Expr::Counter(_)
        | Expr::Limit { .. }
        | Expr::Log { .. }
        | Expr::Masquerade
        | Expr::Notrack
        | Expr::Reject(_)
        | Expr::Verdict(_)
        | Expr::Unknown(_) => (None, None),
    }
}
