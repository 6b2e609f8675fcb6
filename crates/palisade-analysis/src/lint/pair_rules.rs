//! The tiers, policies and rules of a pair of classes, with the traffic of each rule, and what they allow.
//!
//! A rule that decides DNS queries by name decides nothing else, so what is allowed depends on what a query asks for.
//! Patterns of names are not compared: each is as a query of its own.
//!
//! This is the oracle's evaluation for all packets of a pair at once. A random test holds what it leads to
//! against the oracle, packet by packet.

use super::classified_state::{ClassPair, ClassifiedState};
use super::rule_traffic::RuleTraffic;
use crate::traffic::TrafficSet;
use palisade_model::{Action, DomainPattern, Profile, Str, TierDefault};
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::rc::Rc;

/// A rule with its traffic.
#[derive(Clone)]
pub(super) struct SizedRule<'a> {
    /// Its index in `StateRules::all`.
    pub(super) rule: u32,
    pub(super) action: Action,
    /// The names of the DNS queries that it decides, if it decides nothing else.
    pub(super) dns_names: Option<&'a BTreeSet<DomainPattern>>,
    pub(super) set: Rc<TrafficSet>,
}

impl SizedRule<'_> {
    /// Whether it decides all that it matches.
    pub(super) fn decides(&self) -> bool {
        match self.action {
            Action::Log => false,
            Action::Allow => self.dns_names.is_none(),
            Action::Deny | Action::Pass => true,
        }
    }
}

/// A policy that applies to the subject of a pair, with those of its rules that match the peer.
pub(super) struct PolicyRules<'a> {
    pub(super) policy: u32,
    default_deny: bool,
    /// In order of evaluation.
    pub(super) rules: Vec<SizedRule<'a>>,
}

/// The policies of a tier that apply, in order of evaluation.
pub(super) struct TierRules<'a> {
    /// Whether unmatched traffic is denied if one of the policies has default deny.
    denies: bool,
    pub(super) policies: Vec<PolicyRules<'a>>,
}

/// What judges a pair.
pub(super) struct PairRules<'a> {
    pub(super) tiers: Vec<TierRules<'a>>,
    /// The rules of each profile; `None` for one that does not exist. The list ends with the first that
    /// allows everything.
    profiles: Vec<Option<Vec<SizedRule<'a>>>>,
    /// Whether the list of profiles ends with one that allows everything.
    allows_rest: bool,
}

/// Collects the rules of pairs, and counts the work.
pub(super) struct PairRulesBuilder<'c, 'a> {
    pub(super) classified: &'c ClassifiedState<'a>,
    traffic: RuleTraffic,
    steps_left: Cell<u64>,
}

impl<'c, 'a> PairRulesBuilder<'c, 'a> {
    pub(super) fn new(classified: &'c ClassifiedState<'a>, max_steps: u64) -> Self {
        PairRulesBuilder {
            classified,
            traffic: RuleTraffic::default(),
            steps_left: Cell::new(max_steps),
        }
    }

    /// Counts a piece of work; whether there is still some left.
    pub(super) fn count_steps(&self, steps: usize) -> bool {
        let left = self.steps_left.get().saturating_sub(steps as u64);
        self.steps_left.set(left);
        left > 0
    }

    /// The rules of some policies of one tier that apply to the subject of a pair.
    pub(super) fn tier_rules(&self, pair: &ClassPair<'_>, policies: &[u32]) -> TierRules<'a> {
        let classified = self.classified;
        let tier = policies.first().map(|policy| classified.tier_of(*policy));
        let tier = tier.and_then(|tier| classified.prepared.tiers().get(tier as usize));
        let policies = policies.iter().map(|policy| {
            let rules = classified.rules.policies[*policy as usize].rules(pair.direction);
            PolicyRules {
                policy: *policy,
                default_deny: rules.is_some_and(|list| list.default_deny),
                rules: self.sized_rules(pair, &classified.rules.policy_rules[*policy as usize]),
            }
        });
        TierRules {
            denies: tier.is_some_and(|tier| tier.tier.default == TierDefault::Deny),
            policies: policies.collect(),
        }
    }

    fn sized_rules(&self, pair: &ClassPair<'_>, range: &Range<usize>) -> Vec<SizedRule<'a>> {
        let rules = self.classified.rules_within(pair, range).iter();
        let sized = rules.map(|rule| {
            let written = self.classified.rules.all[*rule as usize].rule;
            SizedRule {
                rule: *rule,
                action: written.action,
                dns_names: written.dns_names.as_ref(),
                set: self.traffic.of(self.classified, pair, *rule),
            }
        });
        sized.collect()
    }

    /// What judges a pair.
    pub(super) fn rules_of(&self, pair: &ClassPair<'_>) -> PairRules<'a> {
        let classified = self.classified;
        let tiers = classified.tiers_of(pair).into_iter();
        let classes = &classified.ends[pair.family as usize].classes;
        let names = &classes[pair.subject as usize].signature.profiles;
        let is_built_in = |name: &Str| **name == *Profile::ALLOW_ALL;
        let profiles = names.iter().take_while(|name| !is_built_in(name));
        let rules_of = |name: &Str| {
            let range = classified.rules.profile_rules.get(name);
            range.map(|range| self.sized_rules(pair, range))
        };
        PairRules {
            tiers: tiers
                .map(|policies| self.tier_rules(pair, policies))
                .collect(),
            profiles: profiles.map(rules_of).collect(),
            allows_rest: names.iter().any(is_built_in),
        }
    }
}

impl TierRules<'_> {
    /// The number of policies and rules.
    pub(super) fn size(&self) -> usize {
        self.policies
            .iter()
            .map(|policy| 1 + policy.rules.len())
            .sum()
    }

    /// Whether traffic that none of the tier's rules matches is denied, without the policies of `without`.
    pub(super) fn isolates(&self, without: &[u32]) -> bool {
        let mut policies = self.policies.iter();
        self.denies && policies.any(|p| p.default_deny && !without.contains(&p.policy))
    }
}

impl<'a> PairRules<'a> {
    /// The number of policies and rules.
    pub(super) fn size(&self) -> usize {
        self.tiers.iter().map(TierRules::size).sum()
    }

    /// What the first tiers decide, without the policies of `without`.
    pub(super) fn walk(&self, tiers: usize, without: &[u32]) -> WalkedTraffic<'a> {
        let mut walked = WalkedTraffic::new();
        for tier in self.tiers.iter().take(tiers) {
            let policies = tier.policies.iter();
            let policies = policies.filter(|p| !without.contains(&p.policy));
            let mut passed = TrafficSet::none();
            for rule in policies.flat_map(|policy| &policy.rules) {
                if rule.action == Action::Pass {
                    passed = passed.union(&walked.arriving.intersect(&rule.set));
                }
                walked.take_in(rule);
            }
            walked.arriving = if tier.isolates(without) {
                passed
            } else {
                passed.union(&walked.arriving)
            };
        }
        walked
    }

    /// The traffic that the subject's policies allow in this direction, without the policies of `without`.
    pub(super) fn allowed(&self, without: &[u32]) -> QueriedTraffic<'a> {
        let mut walked = self.walk(self.tiers.len(), without);
        for profile in &self.profiles {
            let Some(rules) = profile else {
                return walked.into_allowed(false);
            };
            rules.iter().for_each(|rule| walked.take_in(rule));
        }
        walked.into_allowed(self.allows_rest)
    }
}

/// What some tiers decide.
#[derive(PartialEq, Eq)]
pub(super) struct WalkedTraffic<'a> {
    /// What is allowed whatever is asked for.
    allowed: TrafficSet,
    /// What is allowed if it asks for a name of the pattern.
    queries: BTreeMap<&'a DomainPattern, TrafficSet>,
    /// What reaches a rule that decides queries by name.
    redirected: TrafficSet,
    /// What arrives at the next tier.
    arriving: TrafficSet,
}

impl<'a> WalkedTraffic<'a> {
    fn new() -> Self {
        WalkedTraffic {
            allowed: TrafficSet::none(),
            queries: BTreeMap::new(),
            redirected: TrafficSet::none(),
            arriving: TrafficSet::all(),
        }
    }

    /// Takes in the next rule. What it passes is no part of what arrives at rules of its tier.
    fn take_in(&mut self, rule: &SizedRule<'a>) {
        if rule.action == Action::Log {
            return;
        }
        let reached = self.arriving.intersect(&rule.set);
        match (rule.action, rule.dns_names) {
            (Action::Allow, Some(names)) => {
                for name in names {
                    let allowed = self.queries.entry(name).or_default();
                    *allowed = allowed.union(&reached);
                }
                self.redirected = self.redirected.union(&reached);
                return;
            }
            (Action::Allow, None) => self.allowed = self.allowed.union(&reached),
            _ => {}
        }
        self.arriving = self.arriving.subtract(&rule.set);
    }

    /// What is allowed if nothing else decides what arrives, and if that is `allows_rest`.
    fn into_allowed(self, allows_rest: bool) -> QueriedTraffic<'a> {
        let others = if allows_rest {
            self.allowed.union(&self.arriving)
        } else {
            self.allowed
        };
        let queries = self.queries.into_iter();
        let queries = queries.map(|(pattern, set)| (pattern, set.union(&others)));
        QueriedTraffic {
            queries: queries.filter(|(_, set)| *set != others).collect(),
            redirected: self.redirected,
            others,
        }
    }
}

/// The traffic that is allowed, by what it asks for.
#[derive(PartialEq, Eq)]
pub(super) struct QueriedTraffic<'a> {
    /// What is allowed whatever is asked for, and what is no query.
    pub(super) others: TrafficSet,
    /// What is allowed if it asks for a name of the pattern, where that is more.
    pub(super) queries: BTreeMap<&'a DomainPattern, TrafficSet>,
    /// What reaches a rule that decides queries by name.
    pub(super) redirected: TrafficSet,
}

impl QueriedTraffic<'_> {
    /// Everything.
    pub(super) fn all() -> Self {
        QueriedTraffic {
            others: TrafficSet::all(),
            queries: BTreeMap::new(),
            redirected: TrafficSet::none(),
        }
    }

    /// What is allowed if it asks for a name of the pattern; `None` for another name.
    pub(super) fn of(&self, pattern: Option<&DomainPattern>) -> &TrafficSet {
        let queries = pattern.and_then(|pattern| self.queries.get(pattern));
        queries.unwrap_or(&self.others)
    }
}
