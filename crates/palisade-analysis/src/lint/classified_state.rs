//! A state whose ends are in classes that every policy treats alike, and the pairs of classes between which
//! there are flows.
//!
//! Promises: each flow between an endpoint and another end belongs to exactly one [`ClassPair`], and all flows
//! of a pair match the same rules but for their traffic. A pair exists only if two different ends are in its
//! classes: a pod's flows to itself are not subject to policy. Never decides anything.

use crate::end_classes::EndClassifier;
use crate::reachability::classify_endpoint;
use crate::reachability_matrix::{INSIDE, OUTSIDE, PeerIndex, zone_of};
use crate::rules::{StateRules, to_u32};
use crate::state_view::StateView;
use crate::workload::group_endpoints;
use palisade_model::{Direction, EndpointId, Family, State, Str};
use palisade_oracle::{FlowEnd, PreparedState};
use std::collections::BTreeMap;
use std::ops::{ControlFlow, Range};

/// Separates the parts of a key.
const SEPARATOR: u32 = u32::MAX;
/// Begins the last part of the key of a whole pair.
const PROFILES: u32 = u32::MAX - 1;

/// The endpoints in a class.
#[derive(Clone, Copy)]
enum ClassMembers<'a> {
    /// None: addresses outside.
    Outside,
    /// Addresses of one endpoint.
    One(&'a EndpointId),
    /// Several endpoints, or a template, which stands for several pods.
    Several,
}

/// A state with its ends in classes, by family.
pub(super) struct ClassifiedState<'a> {
    pub(super) prepared: PreparedState<'a>,
    pub(super) rules: StateRules<'a>,
    pub(super) ends: [EndClassifier<'a>; 2],
    zones: [Vec<usize>; 2],
    members: [Vec<ClassMembers<'a>>; 2],
    /// For each class, the number of its list of profiles.
    profile_lists: [Vec<u32>; 2],
    /// For each policy, its tier and its position there.
    positions: Vec<(u32, u32)>,
}

/// The flows of one family and direction between the endpoints of a class and the ends of another.
#[derive(Clone, Copy)]
pub(super) struct ClassPair<'p> {
    pub(super) family: Family,
    pub(super) direction: Direction,
    /// The class whose policies apply.
    pub(super) subject: u32,
    /// The class at the other end.
    pub(super) peer: u32,
    /// The policies that apply to the subject in this direction, in order of evaluation.
    pub(super) policies: &'p [u32],
    /// The subject's rules that match the peer, ascending.
    pub(super) rules: &'p [u32],
}

impl<'a> ClassifiedState<'a> {
    pub(super) fn new(state: &'a State) -> Self {
        let prepared = PreparedState::new(state);
        // What is in audit is linted as what it would be: that is when its author looks at it.
        let rules = StateRules::new(StateView::audit(state), &prepared);
        let mut ends = Family::BOTH.map(|family| EndClassifier::new(family, &prepared, &rules));
        let mut members: [Vec<ClassMembers<'a>>; 2] = [Vec::new(), Vec::new()];
        let mut add = |family: Family, class: u32, id: &'a EndpointId, is_template: bool| {
            let list = &mut members[family as usize];
            if list.len() <= class as usize {
                list.resize(class as usize + 1, ClassMembers::Outside);
            }
            let member = &mut list[class as usize];
            *member = match *member {
                ClassMembers::Outside if !is_template => ClassMembers::One(id),
                ClassMembers::One(known) if !is_template && known == id => ClassMembers::One(id),
                _ => ClassMembers::Several,
            };
        };
        for endpoint in group_endpoints(state).into_values().flatten() {
            let classes = classify_endpoint(&mut ends, &prepared, &rules, endpoint);
            for (family, classes) in Family::BOTH.into_iter().zip(classes) {
                for (_, class) in classes {
                    add(family, class, &endpoint.id, endpoint.is_template());
                }
            }
        }
        for (address, host) in prepared.claims().iter().filter(|(_, e)| e.is_host()) {
            let family = Family::of(*address);
            let end = FlowEnd::Address(*address);
            let class = ends[family as usize].classify(end, &prepared, &rules);
            add(family, to_u32(class), &host.id, false);
        }
        let mut lists: BTreeMap<Vec<Str>, u32> = BTreeMap::new();
        let mut profile_lists = [Vec::new(), Vec::new()];
        for (list, ends) in profile_lists.iter_mut().zip(&ends) {
            for class in &ends.classes {
                let next = to_u32(lists.len());
                let profiles = class.signature.profiles.clone();
                list.push(*lists.entry(profiles).or_insert(next));
            }
        }
        for (list, ends) in members.iter_mut().zip(&ends) {
            list.resize(ends.classes.len(), ClassMembers::Outside);
        }
        let mut positions = vec![(u32::MAX, 0); rules.policies.len()];
        for (tier, policies) in rules.tiers.iter().enumerate() {
            for (position, policy) in policies.iter().enumerate() {
                positions[*policy as usize] = (to_u32(tier), to_u32(position));
            }
        }
        ClassifiedState {
            zones: [&ends[0], &ends[1]].map(|ends| ends.classes.iter().map(zone_of).collect()),
            prepared,
            rules,
            ends,
            members,
            profile_lists,
            positions,
        }
    }

    /// The tier of a policy, as an index into [`PreparedState::tiers`].
    pub(super) fn tier_of(&self, policy: u32) -> u32 {
        self.positions[policy as usize].0
    }

    /// The policies that apply to a class in a direction, in order of evaluation.
    pub(super) fn applying(&self, family: Family, class: u32, direction: Direction) -> Vec<u32> {
        let signature = &self.ends[family as usize].classes[class as usize].signature;
        let governs = |policy: &&u32| {
            self.rules.policies[**policy as usize]
                .rules(direction)
                .is_some()
        };
        let mut policies: Vec<u32> = signature.policies.iter().filter(governs).copied().collect();
        policies.sort_by_key(|policy| self.positions[*policy as usize]);
        policies
    }

    /// Whether there are two different ends in these classes.
    pub(super) fn are_distinct(&self, family: Family, a: u32, b: u32) -> bool {
        let members = &self.members[family as usize];
        match (members[a as usize], members[b as usize]) {
            (ClassMembers::One(a), ClassMembers::One(b)) => a != b,
            _ => true,
        }
    }

    /// The policies that apply to the subject of a pair, tier by tier.
    pub(super) fn tiers_of<'p>(&self, pair: &ClassPair<'p>) -> Vec<&'p [u32]> {
        let same_tier = |a: &u32, b: &u32| self.tier_of(*a) == self.tier_of(*b);
        pair.policies.chunk_by(same_tier).collect()
    }

    /// Those of the rules of a pair that belong to a range of `StateRules::all`.
    pub(super) fn rules_within<'p>(&self, pair: &ClassPair<'p>, range: &Range<usize>) -> &'p [u32] {
        let from = |at: usize| pair.rules.partition_point(|rule| (*rule as usize) < at);
        let rules = pair.rules.get(from(range.start)..from(range.end));
        rules.unwrap_or_default()
    }

    /// What distinguishes some policies of a pair from those of other pairs: with equal keys they have the same
    /// rules with the same traffic.
    pub(super) fn policies_key(&self, pair: &ClassPair<'_>, policies: &[u32]) -> Vec<u32> {
        let ranges = policies
            .iter()
            .map(|p| &self.rules.policy_rules[*p as usize]);
        let rules = ranges
            .flat_map(|range| self.rules_within(pair, range))
            .copied();
        self.key(pair, policies, rules.collect())
    }

    /// What distinguishes a pair from others: with equal keys they have the same policies and rules with the same
    /// traffic.
    pub(super) fn pair_key(&self, pair: &ClassPair<'_>) -> Vec<u32> {
        let mut key = self.key(pair, pair.policies, pair.rules.to_vec());
        let profiles = self.profile_lists[pair.family as usize][pair.subject as usize];
        key.extend([PROFILES, profiles]);
        key
    }

    fn key(&self, pair: &ClassPair<'_>, policies: &[u32], rules: Vec<u32>) -> Vec<u32> {
        let mut names = [false; 2];
        for rule in &rules {
            let of_rule = self.rules.all[*rule as usize].names_ports;
            names = [names[0] || of_rule[0], names[1] || of_rule[1]];
        }
        let mut key = vec![pair.family as u32, pair.direction as u32];
        key.extend(policies);
        key.push(SEPARATOR);
        key.extend(rules);
        let ends = match pair.direction {
            Direction::Egress => [pair.subject, pair.peer],
            Direction::Ingress => [pair.peer, pair.subject],
        };
        let classes = &self.ends[pair.family as usize].classes;
        for (class, _) in ends.into_iter().zip(names).filter(|(_, named)| *named) {
            key.push(SEPARATOR);
            let ports = classes[class as usize].signature.ports.iter();
            key.extend(ports.flat_map(|(name, protocol, port)| {
                [*name, u32::from(*protocol), u32::from(*port)]
            }));
        }
        key
    }
}

/// Lists the pairs of classes.
pub(super) struct PairLister<'c, 'a> {
    classified: &'c ClassifiedState<'a>,
    indexes: [PeerIndex<'c, 'a>; 2],
}

impl<'c, 'a> PairLister<'c, 'a> {
    pub(super) fn new(classified: &'c ClassifiedState<'a>) -> Self {
        PairLister {
            indexes: [0, 1].map(|family| {
                let classes = &classified.ends[family].classes;
                PeerIndex::new(&classified.rules, classes, &classified.zones[family])
            }),
            classified,
        }
    }

    /// Calls `visit` with the pairs of a class in a direction until it breaks, those with the outside first.
    /// Pairs with the same rules are given together: all peers, and the pair with the first of them.
    pub(super) fn visit_pairs(
        &self,
        family: Family,
        subject: u32,
        direction: Direction,
        visit: &mut dyn FnMut(&[u32], &ClassPair<'_>) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let classified = self.classified;
        let policies = classified.applying(family, subject, direction);
        let rules = self.indexes[family as usize].rules_by_peer(subject as usize, direction);
        let zones = &classified.zones[family as usize];
        let exists = |peer: &u32| classified.are_distinct(family, subject, *peer);
        let mut visit_peers = |peers: &[u32], rules: &[u32]| match peers.first() {
            None => ControlFlow::Continue(()),
            Some(peer) => visit(
                peers,
                &ClassPair {
                    family,
                    direction,
                    subject,
                    peer: *peer,
                    policies: &policies,
                    rules,
                },
            ),
        };
        for zone in [OUTSIDE, INSIDE] {
            let of_zone = |peer: &u32| zones[*peer as usize] == zone;
            let all = 0..to_u32(zones.len());
            let usual = all.filter(|peer| of_zone(peer) && rules.is_usual(*peer));
            let usual: Vec<u32> = usual.filter(exists).collect();
            visit_peers(&usual, &rules.usual[zone])?;
            let unusual = rules.unusual.iter().copied().filter(of_zone);
            for peer in unusual.filter(exists) {
                visit_peers(&[peer], &rules.of_unusual(peer, zone))?;
            }
        }
        ControlFlow::Continue(())
    }

    /// The rules of a class for a direction that match one peer.
    pub(super) fn rules_between(
        &self,
        family: Family,
        subject: u32,
        peer: u32,
        direction: Direction,
    ) -> Vec<u32> {
        let index = &self.indexes[family as usize];
        let classes = &self.classified.ends[family as usize].classes;
        let tests = &classes[peer as usize].signature.matching_tests;
        let mut rules = index.applicable_rules(subject as usize, direction);
        rules.retain(|rule| {
            let mut peers = self.classified.rules.all[*rule as usize].peers.iter();
            peers.any(|test| tests.binary_search(test).is_ok())
        });
        rules
    }
}
