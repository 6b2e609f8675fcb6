//! Computes the traffic that the policies of a state allow between two end classes in one direction.
//!
//! Verdicts come only from the oracle. Ports, ICMP types and protocols are partitioned at every value in
//! a rule that could match, and the oracle is asked once in each part. No rule distinguishes two flows
//! of one part, so the sets are exact. The oracle gets a state of only the two ends and the policies
//! that select the subject; the result is cached for all pairs whose rules have the same effect.

use crate::end_classes::EndClass;
use crate::rules::{StateRules, to_u32};
use crate::traffic::TrafficSet;
use crate::traffic_grid::{port_cuts, traffic_between_cuts};
use palisade_model::{
    Action, Direction, Encapsulation, Encapsulations, Family, FlowOrigin, HairpinAction, L4,
    PortMatch, PortRange, PortSpec, Protocol, State, TrafficMatch, Update,
};
use palisade_oracle::{FlowEnd, HostPath, OracleOptions, PreparedState, Question};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

/// The number of a traffic set in a [`TrafficSetInterner`].
pub(crate) type TrafficSetId = u32;

/// Interned traffic sets.
pub(crate) struct TrafficSetInterner {
    ids: RefCell<BTreeMap<Rc<TrafficSet>, TrafficSetId>>,
    sets: RefCell<Vec<Rc<TrafficSet>>>,
    intersections: RefCell<BTreeMap<(TrafficSetId, TrafficSetId), TrafficSetId>>,
}

impl TrafficSetInterner {
    /// No traffic.
    pub(crate) const NONE: TrafficSetId = 0;
    /// All traffic.
    pub(crate) const ALL: TrafficSetId = 1;

    pub(crate) fn new() -> Self {
        let sets = TrafficSetInterner {
            ids: RefCell::default(),
            sets: RefCell::default(),
            intersections: RefCell::default(),
        };
        sets.intern(TrafficSet::none());
        sets.intern(TrafficSet::all());
        sets
    }

    pub(crate) fn intern(&self, set: TrafficSet) -> TrafficSetId {
        if let Some(id) = self.ids.borrow().get(&set) {
            return *id;
        }
        let mut sets = self.sets.borrow_mut();
        let id = to_u32(sets.len());
        let set = Rc::new(set);
        sets.push(Rc::clone(&set));
        self.ids.borrow_mut().insert(set, id);
        id
    }

    pub(crate) fn get(&self, id: TrafficSetId) -> Rc<TrafficSet> {
        let sets = self.sets.borrow();
        sets.get(id as usize).cloned().unwrap_or_default()
    }

    /// The intersection of both.
    pub(crate) fn intersect(&self, a: TrafficSetId, b: TrafficSetId) -> TrafficSetId {
        match (a.min(b), a.max(b)) {
            (Self::NONE, _) => Self::NONE,
            (Self::ALL, other) => other,
            (a, b) if a == b => a,
            key => {
                if let Some(known) = self.intersections.borrow().get(&key) {
                    return *known;
                }
                let id = self.intern(self.get(key.0).intersect(&self.get(key.1)));
                self.intersections.borrow_mut().insert(key, id);
                id
            }
        }
    }

    /// The traffic of the first set that is not in the second.
    pub(crate) fn subtract(&self, a: TrafficSetId, b: TrafficSetId) -> TrafficSetId {
        match (a, b) {
            (a, Self::NONE) => a,
            (_, Self::ALL) => Self::NONE,
            (a, b) if a == b => Self::NONE,
            _ => self.intern(self.get(a).subtract(&self.get(b))),
        }
    }
}

/// Evaluates pairs of end classes of one family.
pub(crate) struct PairEvaluator<'j, 'a> {
    pub(crate) family: Family,
    pub(crate) state: &'a State,
    pub(crate) rules: &'j StateRules<'a>,
    pub(crate) classes: &'j [EndClass<'a>],
    pub(crate) sets: &'j TrafficSetInterner,
    pub(crate) cache: RefCell<BTreeMap<Vec<u32>, TrafficSetId>>,
}

/// The traffic where rules that decide DNS queries by name match otherwise than elsewhere: TCP, UDP, and of UDP the ports
/// of encapsulations.
fn query_traffic() -> [TrafficMatch; 2] {
    let ports = Encapsulation::ALL
        .into_iter()
        .flat_map(Encapsulation::ports);
    let ports = ports.map(|port| PortSpec::Range(PortRange::single(*port)));
    let udp = PortMatch {
        any_of: Some(ports.collect()),
        ..PortMatch::any()
    };
    [
        TrafficMatch {
            protocol: Some(Protocol::TCP),
            ..TrafficMatch::any()
        },
        TrafficMatch {
            protocol: Some(Protocol::UDP),
            destination: udp,
            ..TrafficMatch::any()
        },
    ]
}

impl PairEvaluator<'_, '_> {
    /// The traffic that the subject allows in a direction to or from a peer, regardless of the policies
    /// of the peer. `rules` are those of the subject that can match between the two.
    pub(crate) fn allowed_traffic(
        &self,
        subject: usize,
        peer: usize,
        direction: Direction,
        rules: &[u32],
    ) -> TrafficSetId {
        let class = &self.classes[subject];
        if !class.signature.is_endpoint {
            return TrafficSetInterner::ALL;
        }
        let key = self.rule_key(subject, peer, direction, rules);
        if let Some(known) = self.cache.borrow().get(&key) {
            return *known;
        }
        let set = self
            .sets
            .intern(self.query_oracle(subject, peer, direction, rules));
        self.cache.borrow_mut().insert(key, set);
        set
    }

    /// The effect of the rules on a pair: pairs with equal keys have equal traffic.
    fn rule_key(
        &self,
        subject: usize,
        peer: usize,
        direction: Direction,
        rules: &[u32],
    ) -> Vec<u32> {
        const TIER: u32 = u32::MAX;
        const PROFILE: u32 = u32::MAX - 1;
        const PORTS: u32 = u32::MAX - 2;
        let all = self.rules;
        let signature = &self.classes[subject].signature;
        let push_effects = |range: &std::ops::Range<usize>, key: &mut Vec<u32>| {
            let from = rules.partition_point(|rule| (*rule as usize) < range.start);
            let to = rules.partition_point(|rule| (*rule as usize) < range.end);
            let deeds = rules.get(from..to).unwrap_or_default().iter();
            key.extend(deeds.map(|rule| all.all[*rule as usize].effect));
        };
        let mut key = Vec::new();
        for (tier, policies) in all.tiers.iter().enumerate() {
            let begin = key.len();
            key.extend([TIER, to_u32(tier), 0]);
            let mut has_judging_policy = false;
            for policy in policies {
                if signature.policies.binary_search(policy).is_err() {
                    continue;
                }
                if let Some(list) = all.policies[*policy as usize].rules(direction) {
                    has_judging_policy = true;
                    key[begin + 2] |= u32::from(list.default_deny);
                    push_effects(&all.policy_rules[*policy as usize], &mut key);
                }
            }
            if !has_judging_policy {
                key.truncate(begin);
                continue;
            }
            let of_tier = rules.iter().map(|rule| &all.all[*rule as usize]);
            let mut of_tier = of_tier.filter(|placed| placed.rule.action != Action::Allow);
            if of_tier.next().is_none() {
                // Rules that only allow have the same effect in any order.
                let mut sorted = key.split_off(begin + 3);
                sorted.sort_unstable();
                sorted.dedup();
                key.extend(sorted);
            }
        }
        for (place, profile) in signature.profiles.iter().enumerate() {
            key.extend([PROFILE, to_u32(place)]);
            let builtin = **profile == *palisade_model::Profile::ALLOW_ALL;
            match all.profile_rules.get(profile) {
                Some(range) if !builtin => {
                    key.push(1);
                    push_effects(range, &mut key);
                }
                _ => key.push(2 + u32::from(builtin)),
            }
        }
        let names = rules.iter().map(|rule| all.all[*rule as usize].names_ports);
        let names = names.fold([false; 2], |a, b| [a[0] || b[0], a[1] || b[1]]);
        let (from, to) = match direction {
            Direction::Egress => (subject, peer),
            Direction::Ingress => (peer, subject),
        };
        for (end, _) in [from, to]
            .into_iter()
            .zip(names)
            .filter(|(_, named)| *named)
        {
            key.push(PORTS);
            let ports = self.classes[end].signature.ports.iter();
            key.extend(ports.flat_map(|(name, protocol, port)| {
                [*name, u32::from(*protocol), u32::from(*port)]
            }));
        }
        key.push(u32::from(names[0]) | u32::from(names[1]) << 1);
        key
    }

    /// A state of the two ends and the policies that select the subject.
    fn minimal_state(&self, subject: usize, peer: usize) -> State {
        let mut minimal = State {
            tiers: self.state.tiers.clone(),
            profiles: self.state.profiles.clone(),
            ..State::default()
        };
        for policy in &self.classes[subject].signature.policies {
            let policy = self.rules.policies[*policy as usize];
            minimal.policies.insert(policy.id.clone(), policy.clone());
        }
        for class in [subject, peer] {
            let class = &self.classes[class];
            if let FlowEnd::Address(address) = class.end {
                let sets = self.state.network_sets.values();
                let sets = sets.filter(|set| set.nets.iter().any(|net| net.contains(address)));
                minimal
                    .network_sets
                    .extend(sets.map(|set| (set.id.clone(), set.clone())));
                let nodes = self.state.nodes.values();
                let nodes = nodes.filter(|node| node.addresses.contains(&address));
                minimal
                    .nodes
                    .extend(nodes.map(|n| (n.name.clone(), n.clone())));
            }
            if let Some(endpoint) = class.endpoint {
                let described = endpoint.id.namespace.as_ref();
                let described =
                    described.and_then(|name| self.state.namespaces.get_key_value(name));
                minimal
                    .namespaces
                    .extend(described.map(|(name, n)| (name.clone(), n.clone())));
                let account = endpoint
                    .id
                    .namespace
                    .clone()
                    .zip(endpoint.service_account.clone());
                let account =
                    account.and_then(|key| self.state.service_accounts.get_key_value(&key));
                minimal
                    .service_accounts
                    .extend(account.map(|(key, a)| (key.clone(), a.clone())));
                minimal.apply(Update::Upsert(palisade_model::Object::Endpoint(
                    endpoint.clone(),
                )));
            }
        }
        for set in minimal.network_sets.values() {
            let namespace = set.id.namespace.as_ref();
            let described = namespace.and_then(|name| self.state.namespaces.get_key_value(name));
            minimal
                .namespaces
                .extend(described.map(|(name, n)| (name.clone(), n.clone())));
        }
        minimal
    }

    /// The traffic that one direction allows, from the oracle.
    fn query_oracle(
        &self,
        subject: usize,
        peer: usize,
        direction: Direction,
        rules: &[u32],
    ) -> TrafficSet {
        let (from, to) = match direction {
            Direction::Egress => (&self.classes[subject], &self.classes[peer]),
            Direction::Ingress => (&self.classes[peer], &self.classes[subject]),
        };
        let minimal = self.minimal_state(subject, peer);
        let prepared = PreparedState::new(&minimal);
        let matching = || rules.iter().map(|rule| self.rules.all[*rule as usize].rule);
        let by_name = matching().any(|rule| rule.dns_names.is_some());
        let readable = query_traffic();
        let terms: Vec<&TrafficMatch> = matching()
            .flat_map(|rule| &rule.traffic)
            .chain(readable.iter().filter(|_| by_name))
            .collect();
        let question = RefCell::new(Question {
            source: from.end.clone(),
            destination: to.end.clone(),
            family: self.family,
            protocol: Protocol::TCP,
            l4: L4::None,
            origin: FlowOrigin::Network,
            path: HostPath::default(),
        });
        // One endpoint represents its class at both ends: this is traffic between two members.
        let options = OracleOptions {
            hairpin: HairpinAction::Policy,
            // Configuration is not policy, and would split the ports of every connection.
            allowed_encapsulation: Encapsulations::ALL,
            view: self.rules.view,
            ..OracleOptions::default()
        };
        let allows = |protocol: Protocol, l4: L4| {
            let mut question = question.borrow_mut();
            (question.protocol, question.l4) = (protocol, l4);
            prepared.allows(&question, direction, &options)
        };
        let cuts = |protocol| {
            [
                port_cuts(&terms, |term| &term.source, from.endpoint, protocol),
                port_cuts(&terms, |term| &term.destination, to.endpoint, protocol),
            ]
        };
        traffic_between_cuts(&terms, cuts, allows)
    }
}
