//! The hosts of a state: their names, their host endpoints, and the ends of flows that they are.

use palisade_model::{Endpoint, State};
use palisade_oracle::FlowEnd;
use std::collections::BTreeSet;

/// The ends of flows that a host is: the addresses of its Node, else the addresses that its host endpoints hold, else one
/// of its host endpoints.
pub(crate) fn host_ends(state: &State, node: &str) -> Vec<FlowEnd> {
    if let Some(found) = state.nodes.get(node) {
        let addresses = if found.internal_addresses.is_empty() {
            &found.addresses
        } else {
            &found.internal_addresses
        };
        if !addresses.is_empty() {
            return addresses.iter().copied().map(FlowEnd::Address).collect();
        }
    }
    let endpoints = || host_endpoints(state, node);
    let sets = endpoints().filter_map(|endpoint| state.network_sets.get(&endpoint.id));
    let hosts = sets.flat_map(|set| set.nets.iter().filter(|net| net.is_host()));
    let addresses: BTreeSet<_> = hosts.map(|net| net.address()).collect();
    if addresses.is_empty() {
        endpoints()
            .take(1)
            .map(|endpoint| FlowEnd::Endpoint(endpoint.id.clone()))
            .collect()
    } else {
        addresses.into_iter().map(FlowEnd::Address).collect()
    }
}

/// The host endpoints of a node.
pub(super) fn host_endpoints<'a>(
    state: &'a State,
    node: &str,
) -> impl Iterator<Item = &'a Endpoint> {
    let all = state.endpoints.values();
    all.filter(move |endpoint| endpoint.is_host() && endpoint.node.as_deref() == Some(node))
}

/// The names of every host that the state knows.
pub(super) fn host_names(state: &State) -> BTreeSet<String> {
    let nodes = state.nodes.keys().map(ToString::to_string);
    let endpoints = state.endpoints.values();
    let named = endpoints
        .filter(|endpoint| endpoint.is_host())
        .filter_map(|endpoint| Some(endpoint.node.as_ref()?.to_string()));
    nodes.chain(named).collect()
}
