//! The tiers, policies and rules of a pair of classes, with the traffic of each rule, and what they allow.
//!
//! This is the oracle's evaluation for all packets of a pair at once. A random test holds what it leads to
//! against the oracle, packet by packet.

use super::classified_state::{ClassPair, ClassifiedState};
use super::rule_traffic::RuleTraffic;
use crate::traffic::TrafficSet;
use palisade_model::{Action, Profile, Str, TierDefault};
use std::cell::Cell;
use std::ops::Range;
use std::rc::Rc;

/// A rule with its traffic.
#[derive(Clone)]
pub(super) struct SizedRule {
    /// Its index in `StateRules::all`.
    pub(super) rule: u32,
    pub(super) action: Action,
    pub(super) set: Rc<TrafficSet>,
}

/// A policy that applies to the subject of a pair, with those of its rules that match the peer.
pub(super) struct PolicyRules {
    pub(super) policy: u32,
    default_deny: bool,
    /// In order of evaluation.
    pub(super) rules: Vec<SizedRule>,
}

/// The policies of a tier that apply, in order of evaluation.
pub(super) struct TierRules {
    /// Whether unmatched traffic is denied if one of the policies has default deny.
    denies: bool,
    pub(super) policies: Vec<PolicyRules>,
}

/// What judges a pair.
pub(super) struct PairRules {
    pub(super) tiers: Vec<TierRules>,
    /// The rules of each profile; `None` for one that does not exist. The list ends with the first that
    /// allows everything.
    profiles: Vec<Option<Vec<SizedRule>>>,
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
    pub(super) fn tier_rules(&self, pair: &ClassPair<'_>, policies: &[u32]) -> TierRules {
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

    fn sized_rules(&self, pair: &ClassPair<'_>, range: &Range<usize>) -> Vec<SizedRule> {
        let rules = self.classified.rules_within(pair, range).iter();
        let sized = rules.map(|rule| SizedRule {
            rule: *rule,
            action: self.classified.rules.all[*rule as usize].rule.action,
            set: self.traffic.of(self.classified, pair, *rule),
        });
        sized.collect()
    }

    /// What judges a pair.
    pub(super) fn rules_of(&self, pair: &ClassPair<'_>) -> PairRules {
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

impl TierRules {
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

impl PairRules {
    /// The number of policies and rules.
    pub(super) fn size(&self) -> usize {
        self.tiers.iter().map(TierRules::size).sum()
    }

    /// What the first tiers decide, without the policies of `without`.
    pub(super) fn walk(&self, tiers: usize, without: &[u32]) -> WalkedTraffic {
        let mut allowed = TrafficSet::none();
        let mut arriving = TrafficSet::all();
        for tier in self.tiers.iter().take(tiers) {
            let policies = tier.policies.iter();
            let policies = policies.filter(|p| !without.contains(&p.policy));
            let mut passed = TrafficSet::none();
            for SizedRule { action, set, .. } in policies.flat_map(|policy| &policy.rules) {
                match action {
                    Action::Allow => allowed = allowed.union(&arriving.intersect(set)),
                    Action::Pass => passed = passed.union(&arriving.intersect(set)),
                    Action::Deny => {}
                    Action::Log => continue,
                }
                arriving = arriving.subtract(set);
            }
            arriving = if tier.isolates(without) {
                passed
            } else {
                passed.union(&arriving)
            };
        }
        WalkedTraffic { allowed, arriving }
    }

    /// The traffic that the subject's policies allow in this direction, without the policies of `without`.
    pub(super) fn allowed(&self, without: &[u32]) -> TrafficSet {
        let WalkedTraffic {
            mut allowed,
            mut arriving,
        } = self.walk(self.tiers.len(), without);
        for profile in &self.profiles {
            let Some(rules) = profile else {
                return allowed;
            };
            for SizedRule { action, set, .. } in rules {
                match action {
                    Action::Allow => allowed = allowed.union(&arriving.intersect(set)),
                    Action::Deny | Action::Pass => {}
                    Action::Log => continue,
                }
                arriving = arriving.subtract(set);
            }
        }
        if self.allows_rest {
            allowed.union(&arriving)
        } else {
            allowed
        }
    }
}

/// What some tiers decide.
#[derive(PartialEq, Eq)]
pub(super) struct WalkedTraffic {
    allowed: TrafficSet,
    /// What arrives at the next tier.
    arriving: TrafficSet,
}
