//! Denials that answer ([`palisade_model::DenyAction::Reject`]): TCP with a reset, everything else with ICMP "administratively
//! prohibited".
//!
//! What policy denies ends in a chain that answers within a rate and drops the rest. The kernel cannot answer in the
//! postrouting hook, where packets of this host's own stack in flows with NAT are judged, and refuses a rule that does
//! so from there. So what that hook leads to is a copy of the chains, and of the maps of verdicts, in which a denial
//! drops.
//!
//! Promises: a reset is never answered, nor is an ICMP error (the kernel does not); what is dropped without a judgement
//! is not answered; flows of early stages are dropped. Never: changes what is denied.

use crate::names::{self, CODE_VERDICT, DROP_VERDICT};
use crate::rule::{RuleBuilder, chain};
use crate::{
    Chain, CmpOp, Config, Expr, Hook, LookupMode, MapValue, NftRule, NftSet, NftVerdict,
    PayloadBase, RejectAnswer, ct_state, tcp_flag,
};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::vec;
use alloc::vec::Vec;
use palisade_model::{Family, Protocol, Str};

const REJECT: &str = "p_reject";
/// The answers per second of this host; what is beyond is dropped.
const RATE: u32 = 1_000;

/// The map of verdicts of stages that do not answer.
pub(crate) fn dropping_verdicts(config: &Config) -> &'static str {
    if config.is_answering() {
        DROP_VERDICT
    } else {
        CODE_VERDICT
    }
}

/// The chains that answer; none if denials drop.
pub(crate) fn chains(config: &Config) -> Vec<(Str, Chain)> {
    if !config.is_answering() {
        return Vec::new();
    }
    let drop = || NftVerdict::Drop;
    let answer = vec![
        RuleBuilder::new()
            .tcp_flags(tcp_flag::RST, CmpOp::Eq, tcp_flag::RST)
            .verdict(drop()),
        RuleBuilder::new()
            .push(Expr::Limit {
                rate: RATE,
                burst: RATE,
            })
            .goto(REJECT),
        RuleBuilder::new().verdict(drop()),
    ];
    let with = |line: RuleBuilder, answer| line.push(Expr::Reject(answer)).build();
    let tcp = RuleBuilder::new().protocol(Protocol::TCP);
    let reject = vec![
        with(tcp, RejectAnswer::TcpReset),
        with(RuleBuilder::new(), RejectAnswer::AdminProhibited),
    ];
    vec![
        chain(names::ANSWER, None, answer),
        chain(REJECT, None, reject),
    ]
}

/// The rules that accept such answers where the host sends them: they belong to a denied flow, and would be judged with
/// it.
pub(crate) fn own_answer_rules(config: &Config) -> Vec<NftRule> {
    if !config.is_answering() {
        return Vec::new();
    }
    let related = || RuleBuilder::new().state(ct_state::RELATED);
    let prohibited = |family, protocol, message: [u8; 2]| {
        related()
            .family(family)
            .protocol(protocol)
            .payload(PayloadBase::Transport, 0, 2, 0)
            .cmp(0, CmpOp::Eq, &message)
            .verdict(NftVerdict::Accept)
    };
    vec![
        related()
            .tcp_flags(tcp_flag::RST, CmpOp::Eq, tcp_flag::RST)
            .verdict(NftVerdict::Accept),
        prohibited(Family::V4, Protocol::ICMP, [3, 13]),
        prohibited(Family::V6, Protocol::ICMPV6, [1, 1]),
    ]
}

/// A chain or a set, by its name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Target {
    Chain(Str),
    Set(Str),
}

impl Target {
    fn of_rule(rule: &NftRule) -> impl Iterator<Item = Target> {
        rule.exprs.iter().filter_map(|expr| match expr {
            Expr::Verdict(verdict) => Some(Target::Chain(verdict.chain()?.clone())),
            Expr::Lookup {
                set,
                mode: LookupMode::Verdict,
                ..
            } => Some(Target::Set(set.clone())),
            _ => None,
        })
    }
}

/// Where the chains and maps of a table lead.
struct TargetGraph(BTreeMap<Target, Vec<Target>>);

impl TargetGraph {
    fn new(chains: &[(Str, Chain)], sets: &BTreeMap<Str, NftSet>) -> Self {
        let mut all = BTreeMap::new();
        for (name, chain) in chains {
            let targets = chain.rules.iter().flat_map(Target::of_rule).collect();
            all.insert(Target::Chain(name.clone()), targets);
        }
        for (name, set) in sets {
            let verdicts = set
                .elements
                .values()
                .filter_map(|element| match &element.data {
                    Some(MapValue::Verdict(verdict)) => {
                        Some(Target::Chain(verdict.chain()?.clone()))
                    }
                    _ => None,
                });
            all.insert(Target::Set(name.clone()), verdicts.collect());
        }
        TargetGraph(all)
    }

    /// What is reached from these, with them.
    fn reached(&self, from: impl Iterator<Item = Target>) -> BTreeSet<Target> {
        let mut reached = BTreeSet::new();
        let mut queue: Vec<Target> = from.collect();
        while let Some(next) = queue.pop() {
            if reached.insert(next.clone()) {
                queue.extend(self.0.get(&next).into_iter().flatten().cloned());
            }
        }
        reached
    }

    /// What leads to the verdicts of codes.
    fn judging(&self) -> BTreeSet<Target> {
        let mut judging = BTreeSet::from([Target::Set(CODE_VERDICT.into())]);
        loop {
            let before = judging.len();
            for (source, targets) in &self.0 {
                if targets.iter().any(|target| judging.contains(target)) {
                    judging.insert(source.clone());
                }
            }
            if judging.len() == before {
                return judging;
            }
        }
    }
}

/// The name of the copy in which denials drop.
fn copy_name(name: &Str) -> Str {
    if **name == *CODE_VERDICT {
        DROP_VERDICT.into()
    } else {
        format!("{name}_d").into()
    }
}

/// Leads the postrouting hook to copies of chains and maps in which denials drop: copies of what other hooks lead to as
/// well; what only that hook leads to is changed. The copy of a chain stands before it, so that the chains can be deleted
/// in their order as before; copies of maps are added to `sets`.
pub(crate) fn separate_postrouting(
    config: &Config,
    chains: Vec<(Str, Chain)>,
    sets: &mut BTreeMap<Str, NftSet>,
) -> Vec<(Str, Chain)> {
    if !config.is_answering() {
        return chains;
    }
    let graph = TargetGraph::new(&chains, sets);
    let roots = |is_postrouting: bool| {
        let base = chains.iter().filter(move |(_, chain)| {
            let hook = chain.base_chain.map(|base| base.hook);
            hook.is_some_and(|hook| (hook == Hook::Postrouting) == is_postrouting)
        });
        base.map(|(name, _)| Target::Chain(name.clone()))
    };
    let postrouting = graph.reached(roots(true));
    let elsewhere = graph.reached(roots(false));
    let judging = graph.judging();
    let affected: BTreeSet<&Target> = postrouting.intersection(&judging).collect();
    let is_copied = |target: &Target| {
        affected.contains(target)
            && (elsewhere.contains(target) || *target == Target::Set(CODE_VERDICT.into()))
    };
    let mut separated = Vec::new();
    for (name, chain) in &chains {
        let target = Target::Chain(name.clone());
        if !affected.contains(&target) {
            separated.push((name.clone(), chain.clone()));
            continue;
        }
        let mut dropping = chain.clone();
        let exprs = dropping.rules.iter_mut().flat_map(|rule| &mut rule.exprs);
        exprs.for_each(|expr| rename_target(expr, &is_copied));
        if is_copied(&target) {
            separated.push((copy_name(name), dropping));
            separated.push((name.clone(), chain.clone()));
        } else {
            separated.push((name.clone(), dropping))
        }
    }
    let copied: Vec<Str> = sets
        .keys()
        .filter(|name| ***name != *CODE_VERDICT && is_copied(&Target::Set((*name).clone())))
        .cloned()
        .collect();
    for name in copied {
        if let Some(mut set) = sets.get(&name).cloned() {
            for element in set.elements.values_mut() {
                if let Some(MapValue::Verdict(verdict)) = &mut element.data {
                    rename_chain(verdict, &is_copied);
                }
            }
            sets.insert(copy_name(&name), set);
        }
    }
    separated
}

fn rename_target(expr: &mut Expr, is_copied: &impl Fn(&Target) -> bool) {
    match expr {
        Expr::Verdict(verdict) => rename_chain(verdict, is_copied),
        Expr::Lookup {
            set,
            mode: LookupMode::Verdict,
            ..
        } if is_copied(&Target::Set(set.clone())) => *set = copy_name(set),
        _ => {}
    }
}

fn rename_chain(verdict: &mut NftVerdict, is_copied: &impl Fn(&Target) -> bool) {
    if let NftVerdict::Jump(chain) | NftVerdict::Goto(chain) = verdict
        && is_copied(&Target::Chain(chain.clone()))
    {
        *chain = copy_name(chain);
    }
}
