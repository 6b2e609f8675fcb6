//! Which peers of the rules that concern an endpoint match another end: ends with the same answer are judged alike
//! there.
//!
//! Promises: a signature holds the answer for every peer of every rule that may decide, and the end itself where a
//! rule resolves something at it. Never: evaluates a rule.

use crate::record::to_u32;
use crate::sites::{Site, SiteId};
use crate::tested_facts::has_named_ports;
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use palisade_model::{Direction, Endpoint, Family, Peer, Policy, Rule};
use palisade_oracle::{FlowEnd, PreparedState};
use std::collections::BTreeMap;

/// The rules that may decide for an endpoint in a direction.
#[derive(Clone, Debug, Default)]
pub(crate) struct TestedRules {
    /// The peers of these rules, by number.
    peers: Vec<u32>,
    /// Whether a rule tests ports by name.
    pub(crate) has_named_ports: bool,
}

/// An end of a pair of one family.
pub(crate) type FamilySite = (SiteId, Family);

/// The signatures in one state.
pub(crate) struct PeerSignatures<'s> {
    peers: Vec<&'s Peer>,
    /// For each endpoint site and direction.
    rules: HashMap<(SiteId, Direction), TestedRules, FixedState>,
    /// For each site and family, which peers match.
    matching: HashMap<FamilySite, Vec<bool>, FixedState>,
    /// The numbers of answers, by endpoint, direction and answer.
    numbers: HashMap<(SiteId, Direction, Vec<bool>), u32, FixedState>,
    known: HashMap<(SiteId, Direction, FamilySite), u32, FixedState>,
    /// Whether what an end is depends on who looks at it.
    has_node_tests: bool,
}

impl<'s> PeerSignatures<'s> {
    /// The signatures for these sites.
    pub(crate) fn new(prepared: &PreparedState<'s>, sites: &[Site], has_node_tests: bool) -> Self {
        let mut numbers: BTreeMap<&'s Peer, u32> = BTreeMap::new();
        let mut rules = HashMap::default();
        let state = prepared.state();
        for (number, site) in (0..).zip(sites) {
            let endpoint = site.endpoint.as_ref();
            let Some(endpoint) = endpoint.and_then(|id| state.endpoints.get(id)) else {
                continue;
            };
            let policies = state.policies.values();
            let selecting: Vec<&'s Policy> = policies
                .filter(|policy| prepared.selects(policy, endpoint))
                .collect();
            for direction in Direction::BOTH {
                let found = applicable_rules(prepared, &selecting, endpoint, direction);
                let mut applicable = TestedRules::default();
                for rule in found {
                    applicable.has_named_ports |= has_named_ports(rule);
                    for peer in &rule.peers {
                        let next = to_u32(numbers.len());
                        applicable.peers.push(*numbers.entry(peer).or_insert(next));
                    }
                }
                applicable.peers.sort_unstable();
                applicable.peers.dedup();
                rules.insert((number, direction), applicable);
            }
        }
        let mut peers: Vec<(u32, &'s Peer)> = numbers.into_iter().map(|(p, n)| (n, p)).collect();
        peers.sort_unstable_by_key(|(number, _)| *number);
        PeerSignatures {
            peers: peers.into_iter().map(|(_, peer)| peer).collect(),
            rules,
            matching: HashMap::default(),
            numbers: HashMap::default(),
            known: HashMap::default(),
            has_node_tests,
        }
    }

    /// The rules that may decide for the endpoint of a site.
    pub(crate) fn rules(&self, site: SiteId, direction: Direction) -> Option<&TestedRules> {
        self.rules.get(&(site, direction))
    }

    /// What the rules of an endpoint can tell of another end, as a number.
    pub(crate) fn signature(
        &mut self,
        prepared: &PreparedState<'s>,
        (subject, direction): (SiteId, Direction),
        other: FamilySite,
        end: &FlowEnd,
    ) -> u32 {
        if let Some(known) = self.known.get(&(subject, direction, other)) {
            return *known;
        }
        let peers = &self.peers;
        let matching = self.matching.entry(other);
        let matching = matching.or_insert_with(|| prepared.match_peers(peers.iter().copied(), end));
        let rules = self.rules.get(&(subject, direction));
        let tested = rules.into_iter().flat_map(|rules| &rules.peers);
        let mut answer: Vec<bool> = tested
            .map(|peer| matching.get(*peer as usize) == Some(&true))
            .collect();
        if self.has_node_tests || rules.is_some_and(|rules| rules.has_named_ports) {
            // Each end is one of its own.
            answer.extend((0..32).map(|bit| other.0 >> bit & 1 == 1));
        }
        let next = to_u32(self.numbers.len());
        let numbers = &mut self.numbers;
        let number = *numbers.entry((subject, direction, answer)).or_insert(next);
        self.known.insert((subject, direction, other), number);
        number
    }
}

/// The rules of policies and profiles that may decide for an endpoint in a direction.
fn applicable_rules<'s>(
    prepared: &PreparedState<'s>,
    selecting: &[&'s Policy],
    endpoint: &Endpoint,
    direction: Direction,
) -> Vec<&'s Rule> {
    let lists = selecting
        .iter()
        .filter_map(|policy| policy.rules(direction));
    let of_policies = lists.flat_map(|list| &list.rules);
    let state = prepared.state();
    let profiles = endpoint
        .profiles
        .iter()
        .filter_map(|name| state.profiles.get(name));
    let of_profiles = profiles.flat_map(|profile| match direction {
        Direction::Ingress => &profile.ingress,
        Direction::Egress => &profile.egress,
    });
    of_policies.chain(of_profiles).collect()
}
