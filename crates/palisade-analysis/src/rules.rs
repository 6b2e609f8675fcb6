//! The rules of a state, and everything in them that can tell two ends of flows apart.

use crate::index::Index;
use palisade_model::{
    Action, Direction, LabelKey, Peer, Policy, PortMatch, PortSpec, Prefix, Rule, Selector, State,
    Str, Traffic,
};
use palisade_oracle::Prepared;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// A rule with the direction it is for.
pub(crate) struct Placed<'a> {
    pub(crate) direction: Direction,
    pub(crate) rule: &'a Rule,
    /// Its peers, as places in [`Rules::tests`], ascending.
    pub(crate) peers: Vec<u32>,
    /// Its test of the own address, likewise.
    pub(crate) own: Option<u32>,
    /// Tells rules apart that do other things, or to other traffic.
    pub(crate) does: u32,
    /// Whether it names ports of the source, and of the destination.
    pub(crate) names: [bool; 2],
}

/// How selectors test a key.
#[derive(Default)]
pub(crate) struct Asked<'a> {
    /// The values that are asked for by name.
    pub(crate) values: BTreeSet<&'a str>,
    /// Whether parts of the value are looked at.
    pub(crate) parts: bool,
}

/// Every rule of a state, and the lists they stand in.
pub(crate) struct Rules<'a> {
    pub(crate) policies: Vec<&'a Policy>,
    pub(crate) all: Vec<Placed<'a>>,
    /// For each policy its rules in `all`.
    pub(crate) of_policies: Vec<Range<usize>>,
    pub(crate) of_profiles: BTreeMap<&'a Str, Range<usize>>,
    /// The tests of addresses, each once.
    pub(crate) tests: Vec<&'a Peer>,
    /// Tests that name networks and ask for no labels, by network.
    pub(crate) by_net: BTreeMap<Prefix, Vec<u32>>,
    /// Tests that any address may meet.
    pub(crate) anywhere: Vec<u32>,
    pub(crate) by_labels: Index<'a>,
    pub(crate) by_subject: Index<'a>,
    /// The names of ports that some rule uses.
    pub(crate) port_names: Vec<&'a Str>,
    /// The keys that some selector tests.
    pub(crate) keys: BTreeMap<&'a LabelKey, Asked<'a>>,
    /// For each tier that decides, its policies in order.
    pub(crate) tiers: Vec<Vec<u32>>,
}

impl<'a> Rules<'a> {
    pub(crate) fn of(state: &'a State, prepared: &Prepared<'a>) -> Self {
        let mut rules = Rules {
            policies: state.policies.values().collect(),
            all: Vec::new(),
            of_policies: Vec::new(),
            of_profiles: BTreeMap::new(),
            tests: Vec::new(),
            by_net: BTreeMap::new(),
            anywhere: Vec::new(),
            by_labels: Index::default(),
            by_subject: Index::default(),
            port_names: Vec::new(),
            keys: BTreeMap::new(),
            tiers: Vec::new(),
        };
        let mut known = Known::default();
        for (id, policy) in state.policies.values().enumerate() {
            let start = rules.all.len();
            for direction in Direction::BOTH {
                let list = policy.rules(direction).map_or(&[][..], |r| &r.rules);
                rules.add(direction, list, &mut known);
            }
            rules.of_policies.push(start..rules.all.len());
            rules.by_subject.add(number(id), &policy.subject);
            ask(&policy.subject, &mut rules.keys);
        }
        for profile in state.profiles.values() {
            let start = rules.all.len();
            rules.add(Direction::Ingress, &profile.ingress, &mut known);
            rules.add(Direction::Egress, &profile.egress, &mut known);
            rules
                .of_profiles
                .insert(&profile.name, start..rules.all.len());
        }
        rules.port_names = known.names.into_iter().collect();
        let places = rules.policies.iter().enumerate();
        let places: BTreeMap<_, _> = places.map(|(id, p)| (&p.id, number(id))).collect();
        rules.tiers = (prepared.tiers().iter())
            .map(|tier| {
                let ids = tier.policies.iter().filter_map(|p| places.get(&p.id));
                ids.copied().collect()
            })
            .collect();
        rules
    }

    fn add(&mut self, direction: Direction, list: &'a [Rule], known: &mut Known<'a>) {
        for rule in list {
            let peers = rule.peers.iter().map(|peer| self.test(peer, known));
            let mut peers: Vec<u32> = peers.collect();
            peers.sort_unstable();
            peers.dedup();
            let own = rule.own.as_ref().map(|own| self.test(own, known));
            let next = number(known.deeds.len());
            let does = *known
                .deeds
                .entry((rule.action, &rule.traffic))
                .or_insert(next);
            let mut names = [false; 2];
            for term in &rule.traffic {
                for (named, end) in names.iter_mut().zip([&term.source, &term.destination]) {
                    let before = known.names.len();
                    *named |= names_in(end).next().is_some();
                    known.names.extend(names_in(end));
                    debug_assert!(known.names.len() >= before);
                }
            }
            self.all.push(Placed {
                direction,
                rule,
                peers,
                own,
                does,
                names,
            });
        }
    }

    fn test(&mut self, peer: &'a Peer, known: &mut Known<'a>) -> u32 {
        if let Some(id) = known.tests.get(peer) {
            return *id;
        }
        let id = number(self.tests.len());
        known.tests.insert(peer, id);
        self.tests.push(peer);
        for selector in peer.selector.iter().chain(&peer.not_selector) {
            ask(selector, &mut self.keys);
        }
        match (&peer.selector, &peer.nets) {
            (Some(selector), _) => self.by_labels.add(id, selector),
            (None, Some(nets)) => {
                for net in nets {
                    self.by_net.entry(*net).or_default().push(id);
                }
            }
            (None, None) => self.anywhere.push(id),
        }
        id
    }

    /// Every prefix that some rule names.
    pub(crate) fn prefixes(&self) -> impl Iterator<Item = Prefix> + '_ {
        self.tests.iter().flat_map(|peer| {
            let nets = peer.nets.iter().flatten();
            nets.chain(&peer.not_nets).copied()
        })
    }
}

/// What has a number already.
#[derive(Default)]
struct Known<'a> {
    tests: BTreeMap<&'a Peer, u32>,
    deeds: BTreeMap<(Action, &'a Vec<Traffic>), u32>,
    names: BTreeSet<&'a Str>,
}

/// A place in a list, kept small: there are many.
pub(crate) fn number(place: usize) -> u32 {
    u32::try_from(place).unwrap_or(u32::MAX)
}

fn names_in(ports: &PortMatch) -> impl Iterator<Item = &Str> {
    let specs = ports.is.iter().flatten().chain(&ports.not);
    specs.filter_map(|spec| match spec {
        PortSpec::Named(name) => Some(name),
        PortSpec::Range(_) => None,
    })
}

fn ask<'a>(selector: &'a Selector, keys: &mut BTreeMap<&'a LabelKey, Asked<'a>>) {
    match selector {
        Selector::In(key, values) => {
            let asked = keys.entry(key).or_default();
            asked.values.extend(values.iter().map(|value| &**value));
        }
        Selector::Has(key) => drop(keys.entry(key).or_default()),
        Selector::Contains(key, _) | Selector::StartsWith(key, _) | Selector::EndsWith(key, _) => {
            keys.entry(key).or_default().parts = true;
        }
        Selector::Not(inner) => ask(inner, keys),
        Selector::And(parts) | Selector::Or(parts) => {
            parts.iter().for_each(|part| ask(part, keys));
        }
    }
}
