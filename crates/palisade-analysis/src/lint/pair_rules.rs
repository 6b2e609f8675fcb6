//! The tiers, policies and rules of a pair of classes, with the traffic of each rule, and what they allow.
//!
//! This is the oracle's evaluation for all packets of a pair at once. A random test holds what it leads to
//! against the oracle, packet by packet.

use super::classified_state::{ClassPair, ClassifiedState};
use super::rule_traffic::RuleTraffic;
use crate::traffic::TrafficSet;
use palisade_model::{Action, Profile, Str, TierDefault};
use std::cell::Cell;
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

    /// What judges a pair.
    pub(super) fn rules_of(&self, pair: &ClassPair<'_>) -> PairRules {
        let rules = &self.classified.rules;
        let prepared_tiers = self.classified.prepared.tiers();
        let sized = |range: &std::ops::Range<usize>| -> Vec<SizedRule> {
            let from = pair
                .rules
                .partition_point(|rule| (*rule as usize) < range.start);
            let to = pair
                .rules
                .partition_point(|rule| (*rule as usize) < range.end);
            let of_range = pair.rules.get(from..to).unwrap_or_default().iter();
            let sized = |rule: &u32| SizedRule {
                rule: *rule,
                action: rules.all[*rule as usize].rule.action,
                set: self.traffic.of(self.classified, pair, *rule),
            };
            of_range.map(sized).collect()
        };
        let mut tiers: Vec<TierRules> = Vec::new();
        let mut last_tier = None;
        for policy in pair.policies {
            let tier = self.classified.tier_of(*policy);
            if last_tier.replace(tier) != Some(tier) {
                let default = prepared_tiers.get(tier as usize).map(|t| t.tier.default);
                tiers.push(TierRules {
                    denies: default == Some(TierDefault::Deny),
                    policies: Vec::new(),
                });
            }
            let list = rules.policies[*policy as usize].rules(pair.direction);
            if let Some(tier) = tiers.last_mut() {
                tier.policies.push(PolicyRules {
                    policy: *policy,
                    default_deny: list.is_some_and(|list| list.default_deny),
                    rules: sized(&rules.policy_rules[*policy as usize]),
                });
            }
        }
        let classes = &self.classified.ends[pair.family as usize].classes;
        let names = &classes[pair.subject as usize].signature.profiles;
        let is_built_in = |name: &Str| **name == *Profile::ALLOW_ALL;
        let profiles = names.iter().take_while(|name| !is_built_in(name));
        PairRules {
            tiers,
            profiles: profiles
                .map(|name| rules.profile_rules.get(name).map(sized))
                .collect(),
            allows_rest: names.iter().any(is_built_in),
        }
    }
}

impl TierRules {
    /// Whether traffic that none of the tier's rules matches is denied, without the policies of `without`.
    pub(super) fn isolates(&self, without: &[u32]) -> bool {
        let mut judging = self.policies.iter();
        self.denies && judging.any(|p| p.default_deny && !without.contains(&p.policy))
    }
}

impl PairRules {
    /// The number of rules.
    pub(super) fn size(&self) -> usize {
        let tiers = self.tiers.iter();
        tiers
            .flat_map(|tier| &tier.policies)
            .map(|p| 1 + p.rules.len())
            .sum()
    }

    /// The traffic that the subject's policies allow in this direction, without the policies of `without`.
    pub(super) fn allowed(&self, without: &[u32]) -> TrafficSet {
        let mut allowed = TrafficSet::none();
        let mut arriving = TrafficSet::all();
        for tier in &self.tiers {
            let judging = tier.policies.iter();
            let judging = judging.filter(|p| !without.contains(&p.policy));
            let mut passed = TrafficSet::none();
            for SizedRule { action, set, .. } in judging.flat_map(|policy| &policy.rules) {
                match action {
                    Action::Allow => allowed = allowed.union(&arriving.intersect(set)),
                    Action::Pass => passed = passed.union(&arriving.intersect(set)),
                    Action::Deny => {}
                    Action::Log => continue,
                }
                arriving = arriving.subtract(set);
            }
            arriving = match tier.isolates(without) {
                true => passed,
                false => passed.union(&arriving),
            };
        }
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
        match self.allows_rest {
            true => allowed.union(&arriving),
            false => allowed,
        }
    }
}
