//! The other nodes, for Hubble's relay: it asks one node for all, and follows them.
//!
//! Promises: a change of the nodes is told at once. Never: asks whether a node answers.

use palisade_hubble::HubblePeer;
use palisade_node::cluster_nodes::ClusterNodes;
use std::net::SocketAddr;
use tokio::sync::watch;

/// The other nodes that serve Hubble's API, for the relay: where each is reached.
pub(crate) struct HubblePeers {
    peers: watch::Sender<Vec<HubblePeer>>,
    /// The port and whether it has TLS, which are the same on every node.
    port: u16,
    has_tls: bool,
}

impl HubblePeers {
    /// Tells a service of nodes that all serve at this port.
    pub(crate) fn new(peers: watch::Sender<Vec<HubblePeer>>, port: u16, has_tls: bool) -> Self {
        HubblePeers {
            peers,
            port,
            has_tls,
        }
    }

    /// Takes in changed nodes.
    pub(crate) fn set(&self, nodes: &ClusterNodes) {
        let others = nodes.others().filter_map(|(name, facts)| {
            let address = facts.internal_addresses.first()?;
            Some(HubblePeer {
                node: name.to_string(),
                address: SocketAddr::new(*address, self.port).to_string(),
                tls: self.has_tls,
            })
        });
        let others: Vec<HubblePeer> = others.collect();
        self.peers.send_if_modified(|peers| {
            let is_changed = *peers != others;
            *peers = others;
            is_changed
        });
    }
}
