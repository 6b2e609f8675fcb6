//! What the policies of some states test of an end: label keys and networks. Ends that are equal in all of this are
//! judged alike.
//!
//! Promises: nothing that a selector, a network or a name tests is left out. Never: evaluates a test.

use palisade_model::{
    Endpoint, Family, LabelKey, LabelLookup, LabelScope, Peer, PortSpec, Prefix, Rule, State, Str,
    address_to_number, reserved,
};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// The tests of the policies of some states.
#[derive(Debug, Default)]
pub(crate) struct TestedFacts {
    keys: BTreeSet<LabelKey>,
    /// By family, where the membership in a network begins or ends.
    boundaries: [BTreeSet<u128>; 2],
    /// The networks of each family, in order.
    starts: [Vec<u128>; 2],
    /// Whether a test tells the own node from others, or tests the node of a workload.
    pub(crate) has_node_tests: bool,
    /// Whether a test reads the service account of a workload.
    pub(crate) has_account_tests: bool,
    /// Whether a test reads the source port.
    pub(crate) has_source_ports: bool,
}

impl TestedFacts {
    /// What these states test.
    pub(crate) fn new(states: &[&State]) -> Self {
        let mut facts = TestedFacts::default();
        for state in states {
            for policy in state.policies.values() {
                facts.add_selector_keys(&policy.subject);
                let lists = policy.ingress.iter().chain(&policy.egress);
                lists
                    .flat_map(|list| &list.rules)
                    .for_each(|rule| facts.add_rule(rule));
            }
            for profile in state.profiles.values() {
                let rules = profile.ingress.iter().chain(&profile.egress);
                rules.for_each(|rule| facts.add_rule(rule));
            }
            let sets = state.network_sets.values();
            sets.flat_map(|set| &set.nets)
                .for_each(|net| facts.add_network(*net));
            for node in state.nodes.values() {
                let own = node.addresses.iter().map(|address| Prefix::host(*address));
                let networks = own.chain(node.pod_networks.iter().copied());
                networks.for_each(|net| facts.add_network(net));
            }
        }
        facts.starts =
            Family::BOTH.map(|family| facts.boundaries[family as usize].iter().copied().collect());
        facts.has_account_tests = facts.keys.iter().any(|key| {
            key.scope == LabelScope::ServiceAccount
                || *key == LabelKey::reserved(reserved::SERVICE_ACCOUNT)
        });
        let of_node = [reserved::OWN_NODE, reserved::NODE].map(LabelKey::reserved);
        facts.has_node_tests = of_node.iter().any(|key| facts.keys.contains(key));
        facts
    }

    fn add_rule(&mut self, rule: &Rule) {
        for peer in rule.peers.iter().chain(&rule.local) {
            self.add_peer(peer);
        }
        self.has_source_ports |= rule.traffic.iter().any(|term| !term.source.is_any());
    }

    fn add_peer(&mut self, peer: &Peer) {
        for selector in peer.selector.iter().chain(&peer.not_selector) {
            self.add_selector_keys(selector);
        }
        let networks = peer.nets.iter().flatten().chain(&peer.not_nets);
        networks.for_each(|net| self.add_network(*net));
    }

    fn add_selector_keys(&mut self, selector: &palisade_model::Selector) {
        let keys = &mut self.keys;
        selector.for_each_key(&mut |key| {
            if !keys.contains(key) {
                keys.insert(key.clone());
            }
        });
    }

    fn add_network(&mut self, network: Prefix) {
        let (first, last) = network.bounds();
        let starts = &mut self.boundaries[network.family() as usize];
        starts.insert(first);
        if let Some(next) = last.checked_add(1) {
            starts.insert(next);
        }
    }

    /// The number of the interval between boundaries in which an address lies.
    pub(crate) fn interval(&self, address: IpAddr) -> usize {
        let number = address_to_number(address);
        self.starts[Family::of(address) as usize].partition_point(|start| *start <= number)
    }

    /// What selectors of these states can tell of an endpoint of a state.
    pub(crate) fn endpoint_facts(&self, state: &State, endpoint: &Endpoint) -> EndpointFacts {
        let labels = state.endpoint_labels(endpoint);
        let values = self.keys.iter().map(|key| {
            // Seen by an endpoint, and added below.
            labels.label(key).map(Str::from)
        });
        EndpointFacts {
            values: values.collect(),
            namespace: endpoint.id.namespace.clone(),
            ports: endpoint.ports.clone(),
            profiles: endpoint.profiles.clone(),
            is_in_audit: state.is_in_audit(endpoint),
            node: endpoint.node.clone().filter(|_| self.has_node_tests),
        }
    }
}

/// What policies can tell of an endpoint.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct EndpointFacts {
    values: Vec<Option<Str>>,
    namespace: Option<Str>,
    ports: Vec<palisade_model::NamedPort>,
    profiles: Vec<Str>,
    is_in_audit: bool,
    node: Option<Str>,
}

/// Whether a rule tests ports by name.
pub(crate) fn has_named_ports(rule: &Rule) -> bool {
    rule.traffic.iter().any(|term| {
        let sides = [&term.destination, &term.source].into_iter();
        let mut specs = sides.flat_map(|side| side.any_of.iter().flatten().chain(&side.not));
        specs.any(|spec| matches!(spec, PortSpec::Named(_)))
    })
}

/// The endpoint that holds each address: of several that claim one the one that the oracle takes.
pub(crate) fn address_holders(state: &State) -> BTreeMap<IpAddr, &Endpoint> {
    let mut holders: BTreeMap<IpAddr, &Endpoint> = BTreeMap::new();
    let rank = |endpoint: &Endpoint| (endpoint.interface.is_some(), endpoint.created);
    for endpoint in state.endpoints.values().filter(|e| !e.is_template()) {
        for address in &endpoint.addresses {
            let holder = holders.entry(*address).or_insert(endpoint);
            if (rank(endpoint), &endpoint.id) > (rank(holder), &holder.id) {
                *holder = endpoint;
            }
        }
    }
    holders
}
