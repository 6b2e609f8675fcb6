//! Endpoints: what policies select and judge, each of one kind.
//!
//! The stored form has a flag for each kind, as it had before there was a type for them; of flags that contradict each
//! other the first of the order in [`EndpointKind`] from the end counts. Never: decides what is in force for an endpoint.

use crate::{Labels, Node, ObjectId, Profile, Protocol, Str, reserved};
use alloc::vec::Vec;
use core::net::IpAddr;
use serde::{Deserialize, Serialize};

/// Identifies an endpoint: a pod, workload, host endpoint or workload template.
pub type EndpointId = ObjectId;

/// What an endpoint is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EndpointKind {
    /// A pod, or another attached workload.
    Pod(PodState),
    /// The pods of a workload template, which need not exist (offline analysis only).
    Template {
        /// Whether they use their nodes' network.
        host_network: bool,
    },
    /// A node's own interface.
    HostInterface,
    /// All interfaces of a node: its node endpoint.
    Node,
}

/// What a pod is like. Nothing of it holds for a workload that is no pod.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PodState {
    /// Whether it has completed (a Pod in the phase Succeeded or Failed): it has released its addresses.
    pub completed: bool,
    /// Whether it uses its node's network: its addresses are the node's, and it is neither subject nor peer
    /// of a policy.
    pub host_network: bool,
}

impl EndpointKind {
    /// A pod that runs on a network of its own, or another workload.
    pub const POD: EndpointKind = EndpointKind::Pod(PodState {
        completed: false,
        host_network: false,
    });

    /// Whether it is of the node rather than a workload: a host endpoint.
    #[inline]
    pub const fn is_host(self) -> bool {
        matches!(self, EndpointKind::HostInterface | EndpointKind::Node)
    }

    /// Whether it stands for the pods of a workload template.
    #[inline]
    pub const fn is_template(self) -> bool {
        matches!(self, EndpointKind::Template { .. })
    }

    /// See [`PodState::completed`].
    #[inline]
    pub const fn is_completed(self) -> bool {
        matches!(
            self,
            EndpointKind::Pod(PodState {
                completed: true,
                ..
            })
        )
    }

    /// Whether it uses its node's network; see [`PodState::host_network`].
    #[inline]
    pub const fn uses_host_network(self) -> bool {
        match self {
            EndpointKind::Pod(PodState { host_network, .. })
            | EndpointKind::Template { host_network } => host_network,
            EndpointKind::HostInterface | EndpointKind::Node => false,
        }
    }

    /// The value of [`reserved::KIND`].
    pub const fn reserved_kind(self) -> &'static str {
        match self {
            EndpointKind::Pod(_) | EndpointKind::Template { .. } => reserved::KIND_WORKLOAD,
            EndpointKind::HostInterface => reserved::KIND_HOST,
            EndpointKind::Node => reserved::KIND_NODE_ENDPOINT,
        }
    }
}

/// A named port of an endpoint.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct NamedPort {
    /// The name.
    pub name: Str,
    /// The protocol; the same name can have another number for another protocol.
    pub protocol: Protocol,
    /// The port number.
    pub port: u16,
}

/// The controlling owner of a pod.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Owner {
    /// Its kind, for instance `ReplicaSet`.
    pub kind: Str,
    /// Its name.
    pub name: Str,
}

/// What the object of an endpoint says about itself. It changes no verdict.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EndpointMetadata {
    /// Its controlling owner.
    pub owner: Option<Owner>,
    /// The UID of its Pod, as a container runtime knows it, for whoever attaches the container. The engine does not
    /// keep it.
    pub uid: Option<Str>,
}

/// A workload (a pod, an attached namespace) or a node's own interface.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "StoredEndpoint", into = "StoredEndpoint")]
pub struct Endpoint {
    /// Its name.
    pub id: EndpointId,
    /// What it is.
    pub kind: EndpointKind,
    /// Its own labels.
    pub labels: Labels,
    /// The service account it runs under, in its namespace.
    pub service_account: Option<Str>,
    /// The node it runs on, where known.
    pub node: Option<Str>,
    /// The host-side interface of an endpoint on this host; `None` for an endpoint that is not local. That of a host
    /// endpoint may be [`Endpoint::ANY_INTERFACE`].
    pub interface: Option<Str>,
    /// Its addresses, any number of each family. Empty where they are unknown, and for a host endpoint with an
    /// interface, of which a network set of the same name has the addresses.
    pub addresses: Vec<IpAddr>,
    /// Its named ports.
    pub ports: Vec<NamedPort>,
    /// The profiles that are evaluated after the last tier, in order.
    pub profiles: Vec<Str>,
    /// Its creation time, in any unit that grows with time. Of several live endpoints that claim one
    /// address a local one wins, then the newest, then the greatest id.
    pub created: u64,
    /// Its owner and UID.
    pub metadata: EndpointMetadata,
    /// Whether it is in audit by itself: no policy is enforced for it. See [`crate::State::is_in_audit`].
    pub audit: bool,
}

impl Endpoint {
    /// A pod, or another workload, without labels and addresses, which allows everything that no policy denies.
    pub fn pod(id: EndpointId) -> Self {
        Endpoint {
            profiles: alloc::vec![Profile::ALLOW_ALL.into()],
            ..Endpoint::without_profiles(id, EndpointKind::POD)
        }
    }

    /// The pods of a workload template.
    pub fn template(id: EndpointId) -> Self {
        Endpoint {
            kind: EndpointKind::Template {
                host_network: false,
            },
            ..Endpoint::pod(id)
        }
    }

    /// A node's own interface without profiles, which denies everything that no policy allows.
    pub fn host_interface(id: EndpointId) -> Self {
        Endpoint::without_profiles(id, EndpointKind::HostInterface)
    }

    /// The endpoint of a node: every interface that no other host endpoint governs. Only policies of nodes select it
    /// ([`Policy::selects_nodes`](crate::Policy::selects_nodes)), and what they do not decide is allowed. Source:
    /// Cilium, "Host Policies".
    pub fn of_node(name: Str, audit: bool) -> Self {
        Endpoint {
            node: Some(name.clone()),
            interface: Some(Endpoint::ANY_INTERFACE.into()),
            profiles: alloc::vec![Profile::ALLOW_ALL.into()],
            audit,
            ..Endpoint::without_profiles(Node::endpoint_id(name), EndpointKind::Node)
        }
    }

    fn without_profiles(id: EndpointId, kind: EndpointKind) -> Self {
        Endpoint {
            id,
            kind,
            labels: Labels::new(),
            service_account: None,
            node: None,
            interface: None,
            addresses: Vec::new(),
            ports: Vec::new(),
            profiles: Vec::new(),
            created: 0,
            metadata: EndpointMetadata::default(),
            audit: false,
        }
    }

    /// The interface of a host endpoint for every interface of its node that is no workload's. Source: Calico, "Host
    /// endpoint".
    pub const ANY_INTERFACE: &str = "*";

    /// The loopback interface, which no host endpoint governs.
    pub const LOOPBACK: &str = "lo";

    /// Whether it is the endpoint of a node ([`Endpoint::of_node`]), and not one that an object of its own describes.
    pub fn is_node_endpoint(&self) -> bool {
        self.kind == EndpointKind::Node
    }

    /// See [`EndpointKind::is_host`].
    #[inline]
    pub fn is_host(&self) -> bool {
        self.kind.is_host()
    }

    /// See [`EndpointKind::is_template`].
    #[inline]
    pub fn is_template(&self) -> bool {
        self.kind.is_template()
    }

    /// See [`PodState::completed`].
    #[inline]
    pub fn is_completed(&self) -> bool {
        self.kind.is_completed()
    }

    /// See [`EndpointKind::uses_host_network`].
    #[inline]
    pub fn uses_host_network(&self) -> bool {
        self.kind.uses_host_network()
    }

    /// The name of the node that it runs on, if it is known: for an endpoint that is attached to this host, the
    /// node of this host ([`crate::State::host_node`]), whatever it names; for any other, the one that it names.
    pub fn own_node<'a>(&'a self, host_node: Option<&'a Str>) -> Option<&'a Str> {
        match self.interface {
            Some(_) => host_node,
            None => self.node.as_ref(),
        }
    }

    /// Adds the labels that its profiles apply, in the order of the profiles; a label that it has already stays.
    /// Source: Calico, "Profile".
    pub fn inherit_labels<'a>(&mut self, applied: impl IntoIterator<Item = &'a Labels>) {
        for labels in applied {
            for (key, value) in labels.iter() {
                if self.labels.get(key).is_none() {
                    self.labels.insert(key.clone(), value.clone());
                }
            }
        }
    }

    /// The value of a reserved label; see [`reserved`].
    pub fn reserved_label(&self, name: &str) -> Option<&str> {
        match name {
            reserved::KIND => Some(self.kind.reserved_kind()),
            reserved::NAMESPACE => self.id.namespace.as_deref(),
            reserved::NAME => Some(&self.id.name),
            reserved::SERVICE_ACCOUNT => self.service_account.as_deref(),
            reserved::NODE => self.node.as_deref(),
            _ => None,
        }
    }

    /// The number of a named port for a protocol; if several ports match, the first.
    pub fn named_port(&self, name: &str, protocol: Protocol) -> Option<u16> {
        self.ports
            .iter()
            .find(|p| &*p.name == name && p.protocol == protocol)
            .map(|p| p.port)
    }
}

/// The stored form of an endpoint.
#[derive(Serialize, Deserialize)]
struct StoredEndpoint {
    id: EndpointId,
    host: bool,
    labels: Labels,
    service_account: Option<Str>,
    node: Option<Str>,
    interface: Option<Str>,
    addresses: Vec<IpAddr>,
    ports: Vec<NamedPort>,
    profiles: Vec<Str>,
    created: u64,
    owner: Option<Owner>,
    template: bool,
    #[serde(default)]
    completed: bool,
    #[serde(default)]
    host_network: bool,
    #[serde(default)]
    audit: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    uid: Option<Str>,
}

impl From<StoredEndpoint> for Endpoint {
    fn from(stored: StoredEndpoint) -> Self {
        let kind = if stored.host && stored.id.kind == Node::object_kind() {
            EndpointKind::Node
        } else if stored.host {
            EndpointKind::HostInterface
        } else if stored.template {
            EndpointKind::Template {
                host_network: stored.host_network,
            }
        } else {
            EndpointKind::Pod(PodState {
                completed: stored.completed,
                host_network: stored.host_network,
            })
        };
        Endpoint {
            id: stored.id,
            kind,
            labels: stored.labels,
            service_account: stored.service_account,
            node: stored.node,
            interface: stored.interface,
            addresses: stored.addresses,
            ports: stored.ports,
            profiles: stored.profiles,
            created: stored.created,
            metadata: EndpointMetadata {
                owner: stored.owner,
                uid: stored.uid,
            },
            audit: stored.audit,
        }
    }
}

impl From<Endpoint> for StoredEndpoint {
    fn from(endpoint: Endpoint) -> Self {
        let kind = endpoint.kind;
        StoredEndpoint {
            id: endpoint.id,
            host: kind.is_host(),
            labels: endpoint.labels,
            service_account: endpoint.service_account,
            node: endpoint.node,
            interface: endpoint.interface,
            addresses: endpoint.addresses,
            ports: endpoint.ports,
            profiles: endpoint.profiles,
            created: endpoint.created,
            owner: endpoint.metadata.owner,
            template: kind.is_template(),
            completed: kind.is_completed(),
            host_network: kind.uses_host_network(),
            audit: endpoint.audit,
            uid: endpoint.metadata.uid,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ObjectKind;

    #[test]
    fn every_kind_is_stored_and_read() {
        let id = || ObjectId {
            namespace: Some("shop".into()),
            name: "web".into(),
            kind: ObjectKind::new("", "Pod"),
        };
        let pod = |completed, host_network| {
            let state = PodState {
                completed,
                host_network,
            };
            Endpoint {
                kind: EndpointKind::Pod(state),
                ..Endpoint::pod(id())
            }
        };
        for endpoint in [
            pod(false, false),
            pod(true, false),
            pod(false, true),
            pod(true, true),
            Endpoint::template(id()),
            Endpoint::host_interface(id()),
            Endpoint::of_node("n".into(), true),
        ] {
            let stored = StoredEndpoint::from(endpoint.clone());
            assert_eq!(Endpoint::from(stored), endpoint);
        }
    }
}
