//! The rules of a state, and the tests in them by which policy can distinguish two ends of flows.

use crate::label_value_index::LabelValueIndex;
use crate::state_view::StateView;
use palisade_model::{
    Action, Direction, LabelKey, Peer, Policy, PolicyView, PortMatch, PortSpec, Prefix, Rule,
    Selector, Str, TrafficMatch,
};
use palisade_oracle::PreparedState;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// A rule with its direction.
pub(crate) struct DirectedRule<'a> {
    pub(crate) direction: Direction,
    pub(crate) rule: &'a Rule,
    /// Its peers, as indices into [`PeerTests::all`], ascending.
    pub(crate) peers: Vec<u32>,
    /// Its test of the local address, as such an index.
    pub(crate) local: Option<u32>,
    /// The number of its action and traffic terms; rules with equal ones have the same number.
    pub(crate) effect: u32,
    /// Whether it has named ports at the source, and at the destination.
    pub(crate) names_ports: [bool; 2],
}

/// The tests that selectors make of one key.
#[derive(Default)]
pub(crate) struct KeyTests<'a> {
    /// The values that are compared with as a whole.
    pub(crate) values: BTreeSet<&'a str>,
    /// Whether a selector tests a prefix, suffix or substring of the value.
    pub(crate) tests_substring: bool,
}

/// The distinct address tests of all rules, and which of them an address or labels may match.
#[derive(Default)]
pub(crate) struct PeerTests<'a> {
    pub(crate) all: Vec<&'a Peer>,
    /// Tests of networks without a selector, by network.
    pub(crate) by_net: BTreeMap<Prefix, Vec<u32>>,
    /// Tests that any address may match.
    pub(crate) any_address: Vec<u32>,
    /// Tests with a selector.
    pub(crate) by_labels: LabelValueIndex<'a>,
}

/// Every rule of a state, with its policy or profile.
pub(crate) struct StateRules<'a> {
    /// Which policies decide.
    pub(crate) view: PolicyView,
    pub(crate) policies: Vec<&'a Policy>,
    pub(crate) all: Vec<DirectedRule<'a>>,
    /// For each policy, the range of its rules in `all`.
    pub(crate) policy_rules: Vec<Range<usize>>,
    pub(crate) profile_rules: BTreeMap<&'a Str, Range<usize>>,
    pub(crate) tests: PeerTests<'a>,
    pub(crate) by_subject: LabelValueIndex<'a>,
    /// The port names that rules use.
    pub(crate) port_names: Vec<&'a Str>,
    /// The keys that selectors test.
    pub(crate) keys: BTreeMap<&'a LabelKey, KeyTests<'a>>,
    /// For each tier with policies, its policies in order.
    pub(crate) tiers: Vec<Vec<u32>>,
}

impl<'a> StateRules<'a> {
    pub(crate) fn new(state_view: StateView<'a>, prepared: &PreparedState<'a>) -> Self {
        let StateView { state, view } = state_view;
        let mut rules = StateRules {
            view,
            policies: state.policies.values().collect(),
            all: Vec::new(),
            policy_rules: Vec::new(),
            profile_rules: BTreeMap::new(),
            tests: PeerTests::default(),
            by_subject: LabelValueIndex::default(),
            port_names: Vec::new(),
            keys: BTreeMap::new(),
            tiers: Vec::new(),
        };
        let mut known = RuleInterner::default();
        for (id, policy) in state.policies.values().enumerate() {
            let start = rules.all.len();
            for direction in Direction::BOTH {
                let list = policy.rules(direction).map_or(&[][..], |r| &r.rules);
                rules.add_rules(direction, list, &mut known);
            }
            rules.policy_rules.push(start..rules.all.len());
            rules.by_subject.add(to_u32(id), &policy.subject);
            collect_key_tests(&policy.subject, &mut rules.keys);
        }
        for profile in state.profiles.values() {
            let start = rules.all.len();
            rules.add_rules(Direction::Ingress, &profile.ingress, &mut known);
            rules.add_rules(Direction::Egress, &profile.egress, &mut known);
            rules
                .profile_rules
                .insert(&profile.name, start..rules.all.len());
        }
        rules.port_names = known.names.into_iter().collect();
        let places = rules.policies.iter().enumerate();
        let places: BTreeMap<_, _> = places.map(|(id, p)| (&p.id, to_u32(id))).collect();
        rules.tiers = (prepared.tiers().iter())
            .map(|tier| {
                let ids = tier.policies.iter().filter_map(|p| places.get(&p.id));
                ids.copied().collect()
            })
            .collect();
        rules
    }

    fn add_rules(
        &mut self,
        direction: Direction,
        list: &'a [Rule],
        interner: &mut RuleInterner<'a>,
    ) {
        for rule in list {
            let peers = rule
                .peers
                .iter()
                .map(|peer| self.intern_test(peer, interner));
            let mut peers: Vec<u32> = peers.collect();
            peers.sort_unstable();
            peers.dedup();
            let local = rule
                .local
                .as_ref()
                .map(|local| self.intern_test(local, interner));
            let next = to_u32(interner.effects.len());
            let does = *interner
                .effects
                .entry((rule.action, rule.dns_names.is_some(), &rule.traffic))
                .or_insert(next);
            let mut names = [false; 2];
            for term in &rule.traffic {
                for (named, end) in names.iter_mut().zip([&term.source, &term.destination]) {
                    let before = interner.names.len();
                    *named |= port_names(end).next().is_some();
                    interner.names.extend(port_names(end));
                    debug_assert!(interner.names.len() >= before);
                }
            }
            self.all.push(DirectedRule {
                direction,
                rule,
                peers,
                local,
                effect: does,
                names_ports: names,
            });
        }
    }

    fn intern_test(&mut self, peer: &'a Peer, interner: &mut RuleInterner<'a>) -> u32 {
        if let Some(id) = interner.tests.get(peer) {
            return *id;
        }
        let id = to_u32(self.tests.all.len());
        interner.tests.insert(peer, id);
        self.tests.all.push(peer);
        for selector in peer.selector.iter().chain(&peer.not_selector) {
            collect_key_tests(selector, &mut self.keys);
        }
        match (&peer.selector, &peer.nets) {
            (Some(selector), _) => self.tests.by_labels.add(id, selector),
            (None, Some(nets)) => {
                for net in nets {
                    self.tests.by_net.entry(*net).or_default().push(id);
                }
            }
            (None, None) => self.tests.any_address.push(id),
        }
        id
    }

    /// Every prefix in a rule.
    pub(crate) fn prefixes(&self) -> impl Iterator<Item = Prefix> + '_ {
        self.tests.all.iter().flat_map(|peer| {
            let nets = peer.nets.iter().flatten();
            nets.chain(&peer.not_nets).copied()
        })
    }
}

/// The numbers that are assigned already.
#[derive(Default)]
struct RuleInterner<'a> {
    tests: BTreeMap<&'a Peer, u32>,
    /// By action, whether it decides by name, and traffic.
    effects: BTreeMap<(Action, bool, &'a Vec<TrafficMatch>), u32>,
    names: BTreeSet<&'a Str>,
}

/// An index as `u32`: there are many, so they are kept small.
pub(crate) fn to_u32(place: usize) -> u32 {
    u32::try_from(place).unwrap_or(u32::MAX)
}

fn port_names(ports: &PortMatch) -> impl Iterator<Item = &Str> {
    let specs = ports.any_of.iter().flatten().chain(&ports.not);
    specs.filter_map(|spec| match spec {
        PortSpec::Named(name) => Some(name),
        PortSpec::Range(_) => None,
    })
}

fn collect_key_tests<'a>(selector: &'a Selector, keys: &mut BTreeMap<&'a LabelKey, KeyTests<'a>>) {
    match selector {
        Selector::In(key, values) => {
            let tests = keys.entry(key).or_default();
            tests.values.extend(values.iter().map(|value| &**value));
        }
        Selector::Has(key) => drop(keys.entry(key).or_default()),
        Selector::Contains(key, _)
        | Selector::StartsWith(key, _)
        | Selector::EndsWith(key, _)
        | Selector::Domain(key, _) => {
            keys.entry(key).or_default().tests_substring = true;
        }
        Selector::Not(inner) => collect_key_tests(inner, keys),
        Selector::And(parts) | Selector::Or(parts) => {
            parts.iter().for_each(|part| collect_key_tests(part, keys));
        }
    }
}
