//! One end of a flow with all holders of its address.

use crate::HolderName;
use alloc::vec::Vec;
use core::net::IpAddr;
use palisade_model::{Endpoint, NetworkSet, Node, Selector, State, Str};

/// A holder of an address.
#[derive(Clone, Copy)]
pub(crate) enum Holder<'a> {
    Endpoint(&'a Endpoint),
    NetworkSet(&'a NetworkSet),
    Node(&'a Node),
}

/// Who looks at holders: an endpoint, by the node that it runs on.
#[derive(Clone, Copy)]
pub(crate) struct Viewpoint<'a> {
    state: &'a State,
    /// The node that the endpoint runs on, if there is an endpoint and its node is known.
    own_node: Option<&'a str>,
}

impl<'a> Viewpoint<'a> {
    /// That of an endpoint, on a host with this node ([`State::host_node`]).
    pub(crate) fn new(
        state: &'a State,
        endpoint: Option<&'a Endpoint>,
        host_node: Option<&'a Str>,
    ) -> Self {
        let own_node = endpoint.and_then(|endpoint| endpoint.own_node(host_node));
        Viewpoint::of_host(state, own_node)
    }

    /// That of a host with this node.
    pub(crate) fn of_host(state: &'a State, host_node: Option<&'a Str>) -> Self {
        Viewpoint {
            state,
            own_node: host_node.map(|name| &**name),
        }
    }
}

impl Holder<'_> {
    pub(crate) fn matches(self, viewpoint: Viewpoint<'_>, selector: &Selector) -> bool {
        let Viewpoint { state, own_node } = viewpoint;
        match self {
            Holder::Endpoint(endpoint) => selector.matches(&state.endpoint_labels(endpoint)),
            Holder::NetworkSet(set) => selector.matches(&state.network_set_labels(set)),
            Holder::Node(node) => selector.matches(&state.node_labels(node, own_node)),
        }
    }

    pub(crate) fn name(self) -> HolderName {
        match self {
            Holder::Endpoint(endpoint) => HolderName::Endpoint(endpoint.id.clone()),
            Holder::NetworkSet(set) => HolderName::NetworkSet(set.id.clone()),
            Holder::Node(node) => HolderName::Node(node.name.clone()),
        }
    }

    /// The conjuncts that do not hold; the whole selector if it is not a conjunction.
    pub(crate) fn unmet_requirements(
        self,
        viewpoint: Viewpoint<'_>,
        selector: &Selector,
    ) -> Vec<Selector> {
        let parts = match selector {
            Selector::And(parts) => parts.as_slice(),
            one => core::slice::from_ref(one),
        };
        let failing = parts.iter().filter(|part| !self.matches(viewpoint, part));
        failing.cloned().collect()
    }
}

/// A resolved end of a flow.
#[derive(Clone)]
pub(crate) struct ResolvedEnd<'a> {
    /// Its address, where known.
    pub(crate) address: Option<IpAddr>,
    /// The endpoint at this end, whose policies apply and whose named ports are used.
    pub(crate) endpoint: Option<&'a Endpoint>,
    /// The network sets that contain the address.
    pub(crate) sets: Vec<&'a NetworkSet>,
    /// The nodes that have the address.
    pub(crate) nodes: Vec<&'a Node>,
}

impl<'a> ResolvedEnd<'a> {
    /// All holders of the address.
    pub(crate) fn holders(&self) -> impl Iterator<Item = Holder<'a>> {
        let endpoint = self.endpoint.into_iter().map(Holder::Endpoint);
        let sets = self.sets.iter().copied().map(Holder::NetworkSet);
        let nodes = self.nodes.iter().copied().map(Holder::Node);
        endpoint.chain(sets).chain(nodes)
    }
}
