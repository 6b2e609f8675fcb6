//! A state as single hosts see it, and the ranges of addresses that it treats as a whole.
//!
//! Promises: a host knows its own host endpoints only, since interfaces of several hosts have the same names. Never:
//! decides anything.

use crate::explain::host_paths::name_interfaces;
use crate::state_view::StateView;
use palisade_model::{
    Endpoint, EndpointId, FailsafePorts, Family, Policy, PolicyId, Prefix, Rule, State, Str,
    address_from_number,
};
use palisade_oracle::{OracleOptions, PreparedState};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// A state, from which those of single hosts are made: interfaces of several hosts have the same names.
pub(crate) struct HostStates<'a> {
    view: StateView<'a>,
    /// The state without host endpoints that have an interface, and without policies that select none of them.
    base: State,
    pub(crate) hosts: BTreeMap<Str, BTreeMap<EndpointId, Endpoint>>,
}

impl<'a> HostStates<'a> {
    pub(crate) fn new(view: StateView<'a>) -> Self {
        let named = name_interfaces(view.state);
        let mut hosts: BTreeMap<Str, BTreeMap<EndpointId, Endpoint>> = BTreeMap::new();
        for endpoint in named
            .endpoints
            .values()
            .filter(|endpoint| endpoint.is_host())
        {
            if let (Some(node), Some(_)) = (&endpoint.node, &endpoint.interface) {
                let of_node = hosts.entry(node.clone()).or_default();
                of_node.insert(endpoint.id.clone(), endpoint.clone());
            }
        }
        let selects_host = |policy: &Policy| {
            let mut all = hosts.values().flat_map(BTreeMap::values);
            all.any(|endpoint| policy.subject.matches(&named.endpoint_labels(endpoint)))
        };
        let policies = named.policies.iter();
        let policies: BTreeMap<PolicyId, Policy> = policies
            .filter(|(_, policy)| selects_host(policy))
            .map(|(id, policy)| (id.clone(), policy.clone()))
            .collect();
        let mut base = State {
            policies,
            ..named.into_owned()
        };
        // One without an interface governs nothing, and is a peer by its addresses.
        base.endpoints
            .retain(|_, endpoint| !endpoint.is_host() || endpoint.interface.is_none());
        HostStates { view, base, hosts }
    }

    pub(crate) fn of_node(&self, node: &Str) -> HostState<'a> {
        let mut state = State {
            host_node: Some(node.clone()),
            ..self.base.clone()
        };
        let endpoints = self.hosts.get(node).cloned().unwrap_or_default();
        state.endpoints.extend(endpoints);
        HostState {
            view: self.view,
            state,
        }
    }
}

/// The state as one host sees it.
pub(crate) struct HostState<'a> {
    view: StateView<'a>,
    state: State,
}

impl HostState<'_> {
    pub(crate) fn interfaces(&self) -> BTreeSet<Str> {
        let hosts = self.state.endpoints.values().filter(|e| e.is_host());
        hosts.filter_map(|e| e.interface.clone()).collect()
    }

    pub(crate) fn prepared(&self, failsafe: &FailsafePorts) -> PreparedState<'_> {
        PreparedState::new(&self.state).with_failsafe(failsafe.clone())
    }

    pub(crate) fn options(&self) -> OracleOptions {
        OracleOptions {
            view: self.view.view,
            ..OracleOptions::default()
        }
    }
}

/// The first address of each range that everything in these states, and the failsafe ports, treat as a whole: networks
/// begin and end only between such ranges.
pub(crate) fn address_range_starts(
    states: &[&State],
    failsafe: &FailsafePorts,
) -> BTreeSet<IpAddr> {
    let mut addresses: BTreeSet<IpAddr> = Family::BOTH
        .map(|family| Prefix::all(family).address())
        .into();
    let failsafe = failsafe.inbound.iter().chain(&failsafe.outbound);
    let failsafe = failsafe.filter_map(|port| port.net);
    for net in states.iter().copied().flat_map(networks).chain(failsafe) {
        addresses.insert(net.address());
        if net.last() != Prefix::all(net.family()).last() {
            let (_, last) = net.bounds();
            addresses.insert(address_from_number(net.family(), last + 1));
        }
    }
    addresses
}

/// Every network and address in a state.
fn networks(state: &State) -> Vec<Prefix> {
    let lists = state.policies.values().flat_map(|policy| {
        let lists = policy.ingress.iter().chain(&policy.egress);
        lists.flat_map(|list| &list.rules)
    });
    let profiles = state.profiles.values();
    let of_profiles = profiles.flat_map(|profile| profile.ingress.iter().chain(&profile.egress));
    let of_rule = |rule: &Rule| -> Vec<Prefix> {
        let peers = rule.peers.iter().chain(&rule.local);
        let nets = peers.flat_map(|peer| peer.nets.iter().flatten().chain(&peer.not_nets));
        nets.copied().collect()
    };
    let sets = state.network_sets.values().flat_map(|set| set.nets.clone());
    let pods = state
        .nodes
        .values()
        .flat_map(|node| node.pod_networks.clone());
    let of_nodes = state.nodes.values().flat_map(|node| node.addresses.clone());
    let of_endpoints = state.endpoints.values().flat_map(|e| e.addresses.clone());
    let addresses = of_nodes.chain(of_endpoints).map(Prefix::host);
    let of_rules = lists.chain(of_profiles).flat_map(of_rule);
    of_rules.chain(sets).chain(pods).chain(addresses).collect()
}
