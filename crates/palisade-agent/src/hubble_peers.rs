//! The nodes, for Hubble's relay: it asks one node for all, and follows them.
//!
//! Promises: a change of the nodes is told at once. Never: asks whether a node answers.

use palisade_hubble::HubblePeer;
use palisade_node::cluster_nodes::ClusterNodes;
use palisade_sys::fault;
use std::net::SocketAddr;
use tokio::sync::watch;

/// The nodes that serve Hubble's API, for the relay: where each is reached.
pub(crate) struct HubblePeers {
    peers: watch::Sender<Vec<HubblePeer>>,
    /// Where it is served, and whether it has TLS: the same on every node, but for the address of each.
    address: SocketAddr,
    has_tls: bool,
}

impl HubblePeers {
    /// Tells a service of nodes that all serve at the port of this address.
    pub(crate) fn new(
        peers: watch::Sender<Vec<HubblePeer>>,
        address: SocketAddr,
        has_tls: bool,
    ) -> Self {
        HubblePeers {
            peers,
            address,
            has_tls,
        }
    }

    /// Takes in changed nodes. This one is among them if it serves at every address of its own: the service knows none then.
    pub(crate) fn set(&self, nodes: &ClusterNodes) {
        let own = nodes.own().filter(|_| self.address.ip().is_unspecified());
        let own = own.map(|facts| (nodes.own_name(), facts));
        let all = nodes.others().chain(own).filter_map(|(name, facts)| {
            let address = facts.internal_addresses.first()?;
            Some(HubblePeer {
                node: name.to_string(),
                address: SocketAddr::new(*address, self.address.port()).to_string(),
                tls: self.has_tls,
            })
        });
        let mut all: Vec<HubblePeer> = all.collect();
        if fault::is_injected("other-nodes-not-told") {
            all.clear();
        }
        self.peers.send_if_modified(|peers| {
            let is_changed = *peers != all;
            *peers = all;
            is_changed
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use palisade_model::{Labels, Node, Object, Update};

    #[test]
    fn this_node_is_told_by_its_node_object_if_it_serves_at_every_address() {
        let mut nodes = ClusterNodes::new("here".into());
        for (name, last) in [("here", 1), ("there", 2)] {
            let address = [192, 0, 2, last].into();
            nodes.apply(&Update::Upsert(Object::Node(Node {
                name: name.into(),
                labels: Labels::new(),
                addresses: vec![address],
                internal_addresses: vec![address],
                pod_networks: Vec::new(),
                audit: false,
            })));
        }
        let addresses = |address: &str| {
            let (peers, followed) = watch::channel(Vec::new());
            let peers = HubblePeers::new(peers, address.parse().unwrap(), true);
            peers.set(&nodes);
            let known = followed.borrow().clone();
            let known = known.into_iter().map(|peer| peer.address);
            known.collect::<Vec<String>>()
        };
        assert_eq!(addresses("192.0.2.1:4244"), ["192.0.2.2:4244"]);
        assert_eq!(
            addresses("0.0.0.0:4244"),
            ["192.0.2.2:4244", "192.0.2.1:4244"]
        );
    }
}
