//! Whether a policy changes anything: with the policy and without it, the connections are compared, over all
//! flows between two endpoints, and between an endpoint and the outside.
//!
//! A connection needs both ends, so what one end allows counts only where the other end allows it too. The
//! search ends at the first difference; nearly every policy has one in the first pair.

use super::classified_state::{ClassPair, ClassifiedState, PairLister};
use super::pair_rules::{PairRulesBuilder, QueriedTraffic};
use crate::rules::to_u32;
use palisade_model::{Direction, DomainPattern, Family};
use std::collections::BTreeSet;
use std::ops::ControlFlow;

/// What a policy changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PolicyEffect {
    /// A connection.
    Something,
    /// No connection.
    Nothing,
    /// Not known: the search was given up.
    Unknown,
}

/// Compares connections with and without policies.
pub(super) struct EffectSearch<'s, 'c, 'a> {
    classified: &'c ClassifiedState<'a>,
    lister: &'s PairLister<'c, 'a>,
    builder: &'s PairRulesBuilder<'c, 'a>,
    /// For each policy, the classes that it selects.
    selected: Vec<Vec<(Family, u32)>>,
}

/// What an end allows, with the policies and without them.
struct AllowedTraffic<'a> {
    with: QueriedTraffic<'a>,
    without: QueriedTraffic<'a>,
}

impl<'a> AllowedTraffic<'a> {
    /// Whether a connection between ends that allow this and `other` is allowed only with the policies, or only
    /// without them.
    fn differs_with(&self, other: &AllowedTraffic<'a>) -> bool {
        let parts = [&self.with, &self.without, &other.with, &other.without];
        let patterns = parts.into_iter().flat_map(|part| part.queries.keys());
        let patterns: BTreeSet<Option<&DomainPattern>> = patterns
            .map(|pattern| Some(*pattern))
            .chain([None])
            .collect();
        patterns.into_iter().any(|pattern| {
            self.with.of(pattern).intersect(other.with.of(pattern))
                != self
                    .without
                    .of(pattern)
                    .intersect(other.without.of(pattern))
        })
    }
}

impl<'s, 'c, 'a> EffectSearch<'s, 'c, 'a> {
    pub(super) fn new(
        classified: &'c ClassifiedState<'a>,
        lister: &'s PairLister<'c, 'a>,
        builder: &'s PairRulesBuilder<'c, 'a>,
    ) -> Self {
        let mut selected = vec![Vec::new(); classified.rules.policies.len()];
        for family in Family::BOTH {
            for (class, end) in classified.ends[family as usize].classes.iter().enumerate() {
                for policy in &end.signature.policies {
                    selected[*policy as usize].push((family, to_u32(class)));
                }
            }
        }
        EffectSearch {
            classified,
            lister,
            builder,
            selected,
        }
    }

    /// What the policies (ascending) change together.
    pub(super) fn find_effect(&self, policies: &[u32]) -> PolicyEffect {
        let mut effect = PolicyEffect::Nothing;
        // Pairs between which the policies make no difference at their own end.
        let mut alike: BTreeSet<Vec<u32>> = BTreeSet::new();
        for (family, subject, direction) in self.subjects(policies) {
            let _ = self
                .lister
                .visit_pairs(family, subject, direction, &mut |peers, pair| {
                    effect = self.compare(policies, peers, pair, &mut alike);
                    match effect {
                        PolicyEffect::Nothing => ControlFlow::Continue(()),
                        _ => ControlFlow::Break(()),
                    }
                });
            if effect != PolicyEffect::Nothing {
                break;
            }
        }
        effect
    }

    /// The classes to which one of the policies applies, with family and direction.
    fn subjects(&self, policies: &[u32]) -> BTreeSet<(Family, u32, Direction)> {
        let mut subjects = BTreeSet::new();
        for policy in policies {
            let rules = self.classified.rules.policies[*policy as usize];
            for direction in Direction::BOTH {
                if rules.rules(direction).is_some() {
                    let selected = self.selected[*policy as usize].iter();
                    subjects.extend(selected.map(|(family, class)| (*family, *class, direction)));
                }
            }
        }
        subjects
    }

    /// What the policies change between the subject of a pair and each of some peers with the same rules.
    fn compare(
        &self,
        policies: &[u32],
        peers: &[u32],
        pair: &ClassPair<'_>,
        alike: &mut BTreeSet<Vec<u32>>,
    ) -> PolicyEffect {
        let tiers = self.classified.tiers_of(pair);
        let concerns = |tier: &&[u32]| policies.iter().any(|policy| tier.contains(policy));
        let Some(last) = tiers.iter().rposition(concerns) else {
            return PolicyEffect::Nothing;
        };
        // Later tiers, in which each pair has its own policies, make no difference if these make none.
        let policies_before = tiers.iter().take(last + 1).copied().flatten();
        let policies_before: Vec<u32> = policies_before.copied().collect();
        let judging_key = self.classified.policies_key(pair, &policies_before);
        if alike.contains(&judging_key) {
            return PolicyEffect::Nothing;
        }
        let pair_key = self.classified.pair_key(pair);
        if alike.contains(&pair_key) {
            return PolicyEffect::Nothing;
        }
        let rules = self.builder.rules_of(pair);
        if !self.builder.count_steps(rules.size()) {
            return PolicyEffect::Unknown;
        }
        if rules.walk(last + 1, &[]) == rules.walk(last + 1, policies) {
            alike.insert(judging_key);
            return PolicyEffect::Nothing;
        }
        let own = AllowedTraffic {
            with: rules.allowed(&[]),
            without: rules.allowed(policies),
        };
        if own.with.others == own.without.others && own.with.queries == own.without.queries {
            alike.insert(pair_key);
            return PolicyEffect::Nothing;
        }
        for peer in peers {
            let pair = ClassPair {
                peer: *peer,
                ..*pair
            };
            let Some(other) = self.allowed_by_peer(policies, &pair) else {
                return PolicyEffect::Unknown;
            };
            if own.differs_with(&other) {
                return PolicyEffect::Something;
            }
        }
        PolicyEffect::Nothing
    }

    /// What the subject of a pair allows; `None` if the search is given up.
    fn allowed(&self, policies: &[u32], pair: &ClassPair<'_>) -> Option<AllowedTraffic<'a>> {
        let rules = self.builder.rules_of(pair);
        let enough = self.builder.count_steps(rules.size());
        enough.then(|| AllowedTraffic {
            with: rules.allowed(&[]),
            without: rules.allowed(policies),
        })
    }

    /// What the peer of a pair allows; `None` if the search is given up.
    fn allowed_by_peer(
        &self,
        policies: &[u32],
        pair: &ClassPair<'_>,
    ) -> Option<AllowedTraffic<'a>> {
        let classes = &self.classified.ends[pair.family as usize].classes;
        if !classes[pair.peer as usize].signature.is_endpoint {
            return Some(AllowedTraffic {
                with: QueriedTraffic::all(),
                without: QueriedTraffic::all(),
            });
        }
        let direction = match pair.direction {
            Direction::Ingress => Direction::Egress,
            Direction::Egress => Direction::Ingress,
        };
        let (family, subject, peer) = (pair.family, pair.peer, pair.subject);
        let rules = self.lister.rules_between(family, subject, peer, direction);
        let applying = self.classified.applying(family, subject, direction);
        let reverse = ClassPair {
            family,
            direction,
            subject,
            peer,
            policies: &applying,
            rules: &rules,
        };
        self.allowed(policies, &reverse)
    }
}
