//! Nodes of the cluster, and the networks of their pods.

use crate::{Labels, NetworkSet, NetworkSetKind, ObjectId, ObjectKind, Prefix, Str, reserved};
use alloc::vec::Vec;
use core::net::IpAddr;
use serde::{Deserialize, Serialize};

/// A node of the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    /// Its name.
    pub name: Str,
    /// Its labels.
    pub labels: Labels,
    /// Its own addresses.
    pub addresses: Vec<IpAddr>,
    /// Those of its addresses by which other nodes reach it.
    #[serde(default)]
    pub internal_addresses: Vec<IpAddr>,
    /// The networks from which its pods get addresses.
    #[serde(default)]
    pub pod_networks: Vec<Prefix>,
    /// Whether its endpoint is in audit: no policy of nodes is enforced for it.
    #[serde(default)]
    pub audit: bool,
}

impl Node {
    /// The kind of its object.
    pub fn object_kind() -> ObjectKind {
        ObjectKind::new("", "Node")
    }

    /// The name of the node's network set ([`reserved::KIND_POD_NETWORK`]).
    pub fn pod_network_id(name: Str) -> ObjectId {
        ObjectId {
            namespace: None,
            name,
            kind: Node::object_kind(),
        }
    }

    /// The name of the node's endpoint ([`crate::Endpoint::of_node`]).
    pub fn endpoint_id(name: Str) -> ObjectId {
        ObjectId {
            namespace: None,
            name,
            kind: Node::object_kind(),
        }
    }

    /// The networks of its pods, as a network set: they are a holder of their own. `None` without networks.
    pub fn pod_network(&self) -> Option<NetworkSet> {
        (!self.pod_networks.is_empty()).then(|| NetworkSet {
            id: Node::pod_network_id(self.name.clone()),
            kind: NetworkSetKind::PodNetwork,
            labels: Labels::new(),
            nets: self.pod_networks.clone(),
        })
    }

    /// The value of a reserved label; see [`reserved`].
    pub fn reserved_label(&self, name: &str) -> Option<&str> {
        match name {
            reserved::KIND => Some(reserved::KIND_NODE),
            reserved::NAME => Some(&self.name),
            _ => None,
        }
    }
}
