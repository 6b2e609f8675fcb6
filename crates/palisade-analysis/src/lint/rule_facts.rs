//! What becomes of each rule over all pairs of classes: whether a flow reaches it, who decides instead, whether
//! it adds something to its policy, where it passes to; and which policies of one order contradict each other.
//!
//! Promises: exact over all flows of all pairs that are given to [`RuleFacts::take_in`]. A rule is reached if a
//! flow that it matches is decided neither by a rule of an earlier tier, nor by one of an earlier order in its
//! tier, nor by an earlier rule of its own policy. Policies of one order are a union: that one of them repeats
//! another is deliberate, so it does not count. Isolation by the default of an earlier tier is not a rule and
//! does not count either: a baseline is meant for pods that no policy isolates yet.

use super::classified_state::ClassPair;
use super::pair_rules::{PairRulesBuilder, SizedRule, TierRules};
use super::peer_implication::peers_are_among;
use crate::rules::StateRules;
use crate::traffic::TrafficSet;
use palisade_model::{Action, Rule};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// The most rules that are remembered as deciding in place of another.
const MAX_DECIDERS: usize = 64;

/// What is known of a rule.
#[derive(Clone, Default)]
pub(super) struct RuleFact {
    /// Whether it matches a flow.
    pub(super) matches: bool,
    /// Whether a flow reaches it.
    pub(super) is_reached: bool,
    /// While it is not reached: the rules that decide its flows.
    pub(super) deciders: BTreeSet<u32>,
    /// Whether one of them is a rule of another policy, or does something else.
    is_decided_differently: bool,
    /// Those of the deciders each of which decides all flows alone; `None` before the first flow.
    pub(super) sole_deciders: Option<BTreeSet<u32>>,
    /// Whether its policy would do something else without it, for a flow that reaches it.
    is_needed: bool,
    /// The later rules of its policy that do the same, if it is not needed.
    pub(super) substitutes: BTreeSet<u32>,
    /// Whether it passes a flow to a later tier.
    pub(super) passes: bool,
    /// Whether a later tier has policies for a flow that it passes.
    pub(super) passes_to_policy: bool,
}

/// The rules of a policy that match a pair, and the traffic that reaches the policy.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct PolicyCase {
    arriving: Rc<TrafficSet>,
    rules: Vec<(u32, Rc<TrafficSet>)>,
}

/// What becomes of each rule.
pub(super) struct RuleFacts<'s, 'a> {
    rules: &'s StateRules<'a>,
    pub(super) facts: Vec<RuleFact>,
    /// What is before the tiers that were walked; pairs share it if they have the same rules so far.
    entries: Vec<Rc<TierEntry>>,
    /// The tiers that were walked, each with what is before the next one.
    walked: BTreeMap<WalkKey, usize>,
    /// By policy, the cases that decide whether a rule adds something.
    cases: BTreeMap<u32, BTreeSet<PolicyCase>>,
    /// For each two policies of one order that contradict each other (the later first), two rules that do.
    pub(super) contradictions: BTreeMap<(u32, u32), (u32, u32)>,
}

/// Traffic that a rule decides.
struct DecidedTraffic {
    rule: u32,
    action: Action,
    set: TrafficSet,
    /// Everything that the rule matches, also what earlier rules decide.
    matched: Rc<TrafficSet>,
}

/// The part of a walk that is before a tier.
struct TierEntry {
    arriving: TrafficSet,
    /// What the rules of earlier tiers decide, tier by tier.
    decided: Vec<Rc<Vec<DecidedTraffic>>>,
    /// What the defaults of earlier tiers deny.
    isolated: TrafficSet,
}

/// Before the tier, whether policies follow it, and the tier's policies and rules.
type WalkKey = (usize, bool, Vec<u32>);

/// What is left behind a tier.
struct TierExit {
    passed: TrafficSet,
    undecided: TrafficSet,
    decided: Vec<DecidedTraffic>,
}

impl TierEntry {
    /// What is before the next tier.
    fn next(&self, tier: &TierRules<'_>, exit: TierExit) -> TierEntry {
        // What is passed can still reach the rules of later tiers.
        let ends = |d: &DecidedTraffic| d.action != Action::Pass;
        let mut decided = self.decided.clone();
        decided.push(Rc::new(exit.decided.into_iter().filter(ends).collect()));
        if tier.isolates(&[]) {
            TierEntry {
                arriving: exit.passed,
                decided,
                isolated: self.isolated.union(&exit.undecided),
            }
        } else {
            TierEntry {
                arriving: exit.passed.union(&exit.undecided),
                decided,
                isolated: self.isolated.clone(),
            }
        }
    }
}

/// Whether a rule decides all that it matches.
fn decides_all(rule: &Rule) -> bool {
    match rule.action {
        Action::Log => false,
        Action::Allow => rule.dns_names.is_none(),
        Action::Deny | Action::Pass => true,
    }
}

impl<'s, 'a> RuleFacts<'s, 'a> {
    pub(super) fn new(rules: &'s StateRules<'a>) -> Self {
        RuleFacts {
            rules,
            facts: vec![RuleFact::default(); rules.all.len()],
            entries: vec![Rc::new(TierEntry {
                arriving: TrafficSet::all(),
                decided: Vec::new(),
                isolated: TrafficSet::none(),
            })],
            walked: BTreeMap::new(),
            cases: BTreeMap::new(),
            contradictions: BTreeMap::new(),
        }
    }

    /// Takes in a pair; whether there is work left to do.
    pub(super) fn take_in(
        &mut self,
        pair: &ClassPair<'_>,
        builder: &PairRulesBuilder<'_, '_>,
    ) -> bool {
        let tiers = builder.classified.tiers_of(pair);
        let mut before = 0;
        for (at, policies) in tiers.iter().enumerate() {
            let has_later = at + 1 < tiers.len();
            let tier_key = builder.classified.policies_key(pair, policies);
            let key = (before, has_later, tier_key);
            if let Some(next) = self.walked.get(&key) {
                before = *next;
                continue;
            }
            let tier = builder.tier_rules(pair, policies);
            if !builder.count_steps(tier.size()) {
                return false;
            }
            let entry = Rc::clone(&self.entries[before]);
            let exit = self.walk_tier(&tier, &entry, has_later);
            if has_later {
                before = self.entries.len();
                self.entries.push(Rc::new(entry.next(&tier, exit)));
            }
            self.walked.insert(key, before);
        }
        true
    }

    fn walk_tier(&mut self, tier: &TierRules<'_>, entry: &TierEntry, has_later: bool) -> TierExit {
        let mut exit = TierExit {
            passed: TrafficSet::none(),
            undecided: entry.arriving.clone(),
            decided: Vec::new(),
        };
        let rules = self.rules;
        let groups = tier.policies.chunk_by(|a, b| {
            let precedence = |policy: u32| rules.policies[policy as usize].precedence;
            precedence(a.policy) == precedence(b.policy)
        });
        for group in groups {
            let arriving = Rc::new(exit.undecided.clone());
            let mut of_group: Vec<(u32, Vec<DecidedTraffic>)> = Vec::new();
            for policy in group {
                let mut own: Vec<DecidedTraffic> = Vec::new();
                let mut left = TrafficSet::clone(&arriving);
                for rule in &policy.rules {
                    let hit = left.intersect(&rule.set);
                    let decided = entry.decided.iter().map(|tier| tier.as_slice());
                    let before: Vec<&[DecidedTraffic]> =
                        decided.chain([exit.decided.as_slice(), &own]).collect();
                    self.record_reach(policy.policy, rule, &hit, &before, &entry.isolated);
                    if !rule.decides() || hit.is_empty() {
                        continue;
                    }
                    left = left.subtract(&rule.set);
                    // Of policies with one order the names decide in the end.
                    let part = exit.undecided.intersect(&rule.set);
                    if rule.action == Action::Pass && !part.is_empty() {
                        exit.passed = exit.passed.union(&part);
                        let fact = &mut self.facts[rule.rule as usize];
                        fact.passes = true;
                        fact.passes_to_policy |= has_later;
                    }
                    exit.undecided = exit.undecided.subtract(&rule.set);
                    own.push(DecidedTraffic {
                        rule: rule.rule,
                        action: rule.action,
                        set: hit,
                        matched: Rc::clone(&rule.set),
                    });
                }
                self.keep_case(policy.policy, &arriving, &policy.rules);
                if !own.is_empty() {
                    of_group.push((policy.policy, own));
                }
            }
            self.compare_group(&of_group);
            exit.decided
                .extend(of_group.into_iter().flat_map(|(_, own)| own));
        }
        exit
    }

    /// Records whether flows reach a rule: `hit` are those that do.
    fn record_reach(
        &mut self,
        policy: u32,
        rule: &SizedRule<'_>,
        hit: &TrafficSet,
        before: &[&[DecidedTraffic]],
        isolated: &TrafficSet,
    ) {
        let own_rules = &self.rules.policy_rules[policy as usize];
        let fact = &mut self.facts[rule.rule as usize];
        if rule.set.is_empty() || fact.is_reached {
            return;
        }
        fact.matches = true;
        if !hit.is_empty() || isolated.overlaps(&rule.set) {
            fact.is_reached = true;
            fact.deciders.clear();
            fact.sole_deciders = None;
            return;
        }
        let mut sole = BTreeSet::new();
        // One that decides a flow is enough, where several policies of one order do.
        let mut rest = TrafficSet::clone(&rule.set);
        for other in before.iter().copied().flatten() {
            if rest.is_empty() {
                break;
            }
            if !rest.overlaps(&other.set) {
                continue;
            }
            rest = rest.subtract(&other.set);
            if fact.deciders.len() < MAX_DECIDERS {
                fact.deciders.insert(other.rule);
            }
            fact.is_decided_differently |=
                other.action != rule.action || !own_rules.contains(&(other.rule as usize));
            if rule.set.subtract(&other.matched).is_empty() {
                sole.insert(other.rule);
            }
        }
        fact.sole_deciders = Some(match fact.sole_deciders.take() {
            None => sole,
            Some(before) => before.intersection(&sole).copied().collect(),
        });
    }

    /// Keeps what decides whether a rule of a policy adds something to it.
    fn keep_case(&mut self, policy: u32, arriving: &Rc<TrafficSet>, rules: &[SizedRule<'_>]) {
        let deciding: Vec<&SizedRule<'_>> = rules.iter().filter(|rule| rule.decides()).collect();
        let mut left = TrafficSet::clone(arriving);
        let hits: Vec<TrafficSet> = deciding
            .iter()
            .map(|rule| {
                let hit = left.intersect(&rule.set);
                left = left.subtract(&rule.set);
                hit
            })
            .collect();
        // What later rules do the same with, gathered from behind: a policy may have thousands of rules.
        let mut later: BTreeMap<Action, TrafficSet> = BTreeMap::new();
        let mut is_open = false;
        for (rule, hit) in deciding.into_iter().zip(hits).rev() {
            let same = later.entry(rule.action).or_default();
            let fact = &mut self.facts[rule.rule as usize];
            fact.is_needed |= !hit.subtract(same).is_empty();
            is_open |= !fact.is_needed && arriving.overlaps(&rule.set);
            *same = same.union(&rule.set);
        }
        if is_open {
            let case = PolicyCase {
                arriving: Rc::clone(arriving),
                rules: rules.iter().map(|r| (r.rule, Rc::clone(&r.set))).collect(),
            };
            self.cases.entry(policy).or_default().insert(case);
        }
    }

    /// Finds policies of one order that decide a flow differently.
    fn compare_group(&mut self, group: &[(u32, Vec<DecidedTraffic>)]) {
        let mut actions = group.iter().flat_map(|(_, own)| own).map(|d| d.action);
        let first = actions.next();
        if group.len() < 2 || actions.all(|action| Some(action) == first) {
            return;
        }
        let mut by_action: BTreeMap<Action, TrafficSet> = BTreeMap::new();
        for (at, (later, own)) in group.iter().enumerate() {
            let contradicts = |a: &DecidedTraffic| {
                let mut others = by_action.iter().filter(|(action, _)| **action != a.action);
                others.any(|(_, set)| set.overlaps(&a.set))
            };
            if own.iter().any(contradicts) {
                self.find_contradictions(*later, own, &group[..at]);
            }
            for DecidedTraffic { action, set, .. } in own {
                let all = by_action.entry(*action).or_default();
                *all = all.union(set);
            }
        }
    }

    fn find_contradictions(
        &mut self,
        later: u32,
        own: &[DecidedTraffic],
        before: &[(u32, Vec<DecidedTraffic>)],
    ) {
        let object = |policy: u32| &self.rules.policies[policy as usize].id.object;
        for (earlier, others) in before {
            // The parts of one object have an order of their own.
            if object(later) == object(*earlier)
                || self.contradictions.contains_key(&(later, *earlier))
            {
                continue;
            }
            let mut pairs = own.iter().flat_map(|a| others.iter().map(move |b| (a, b)));
            let pair = pairs.find(|(a, b)| a.action != b.action && a.set.overlaps(&b.set));
            if let Some((a, b)) = pair {
                let rules = (a.rule, b.rule);
                self.contradictions.insert((later, *earlier), rules);
            }
        }
    }

    /// Whether no flow reaches a rule, and surely by intention of nobody: where rules of its policy do the same
    /// first, they must match its peers by their text, and not only the objects that there are.
    pub(super) fn is_surely_unreached(&self, rule: u32) -> bool {
        let fact = &self.facts[rule as usize];
        let text = |rule: u32| self.rules.all[rule as usize].rule;
        let deciders: Vec<&Rule> = fact.deciders.iter().map(|rule| text(*rule)).collect();
        fact.matches
            && !fact.is_reached
            && (fact.is_decided_differently || peers_are_among(text(rule), &deciders))
    }

    /// Finds the rules that add nothing to their policy, once all pairs are taken in, given those that are
    /// reported because no flow reaches them. Without all of both, every flow is decided alike.
    pub(super) fn find_redundant(&mut self, unreached: &BTreeSet<u32>) -> BTreeSet<u32> {
        let mut redundant = BTreeSet::new();
        for (policy, cases) in std::mem::take(&mut self.cases) {
            let range = self.rules.policy_rules[policy as usize].clone();
            for rule in range.filter_map(|rule| u32::try_from(rule).ok()) {
                let fact = &self.facts[rule as usize];
                let decides = decides_all(self.rules.all[rule as usize].rule);
                if !fact.is_reached || fact.is_needed || !decides {
                    continue;
                }
                let removed = |other: u32| unreached.contains(&other) || redundant.contains(&other);
                let mut substitutes = BTreeSet::new();
                let mut cases = cases.iter();
                if cases.all(|case| self.is_replaced(rule, case, &removed, &mut substitutes))
                    && !substitutes.is_empty()
                {
                    self.facts[rule as usize].substitutes = substitutes;
                    redundant.insert(rule);
                }
            }
        }
        redundant
    }

    /// Whether later rules do the same as a rule with its flows of a case, without the removed rules.
    fn is_replaced(
        &self,
        rule: u32,
        case: &PolicyCase,
        removed: &dyn Fn(u32) -> bool,
        substitutes: &mut BTreeSet<u32>,
    ) -> bool {
        let text = |rule: u32| self.rules.all[rule as usize].rule;
        let Some(at) = case.rules.iter().position(|(other, _)| *other == rule) else {
            return true;
        };
        let mut rest = case.arriving.intersect(&case.rules[at].1);
        for (other, set) in &case.rules[..at] {
            if !removed(*other) && decides_all(text(*other)) {
                rest = rest.subtract(set);
            }
        }
        for (other, set) in case.rules.iter().skip(at + 1) {
            if rest.is_empty() {
                break;
            }
            if removed(*other) || !rest.overlaps(set) {
                continue;
            }
            // A log rule behind it would log what the rule keeps from it, and one of DNS queries read it.
            if text(*other).action != text(rule).action || !decides_all(text(*other)) {
                return false;
            }
            if peers_are_among(text(rule), &[text(*other)]) {
                substitutes.insert(*other);
                rest = rest.subtract(set);
            }
        }
        rest.is_empty()
    }
}
