//! The objects that sources provide, their keys, and the updates that carry them.

use crate::{
    LabelKey, LabelScope, Labels, ObjectKind, Policy, PolicyId, PortSpec, Prefix, Protocol, Rule,
    Str, Tier,
};
use alloc::vec::Vec;
use core::fmt;
use core::net::IpAddr;
use serde::{Deserialize, Serialize};

/// Names of the labels in [`LabelScope::Reserved`], and the values of [`reserved::KIND`].
pub mod reserved {
    /// What the object is: one of the `KIND_…` values.
    pub const KIND: &str = "kind";
    /// The name of the namespace the object lives in; absent without one.
    pub const NAMESPACE: &str = "namespace";
    /// The object's own name.
    pub const NAME: &str = "name";
    /// The name of the service account an endpoint runs under; absent without one.
    pub const SERVICE_ACCOUNT: &str = "serviceaccount";
    /// The name of the node that an endpoint says it runs on; absent without one.
    pub const NODE: &str = "node";
    /// A pod or another attached workload.
    pub const KIND_WORKLOAD: &str = "workload";
    /// A node's own interface (a host endpoint).
    pub const KIND_HOST: &str = "host";
    /// All interfaces of a node (its node endpoint), which only policies of nodes select.
    pub const KIND_NODE_ENDPOINT: &str = "nodeendpoint";
    /// A node's own interface that is known by its addresses only: a network set that is a HostEndpoint.
    pub const KIND_HOST_ENDPOINT: &str = "hostendpoint";
    /// A node, identified by its addresses.
    pub const KIND_NODE: &str = "node";
    /// A network set.
    pub const KIND_NETWORK_SET: &str = "networkset";
    /// The networks from which the pods of a node get addresses: a network set with the name of the node.
    pub const KIND_POD_NETWORK: &str = "podnetwork";
    /// The addresses of endpoints of a Service: a network set that is an EndpointSlice.
    pub const KIND_ENDPOINT_SLICE: &str = "endpointslice";
    /// The addresses of endpoints of a Service that serve nothing: a part of an EndpointSlice.
    pub const KIND_UNREADY_ENDPOINTS: &str = "unreadyendpoints";
    /// A network set that is a CiliumCIDRGroup.
    pub const KIND_CIDR_GROUP: &str = "cidrgroup";
    /// Of a node, whether the judged endpoint runs on it ([`Endpoint::own_node`]): [`IS_OWN_NODE`] or
    /// [`IS_OTHER_NODE`]. Absent while the node of the judged endpoint is not known, and on every other object.
    pub const OWN_NODE: &str = "ownnode";
    /// The value of [`OWN_NODE`] on the node that the judged endpoint runs on.
    pub const IS_OWN_NODE: &str = "true";
    /// The value of [`OWN_NODE`] on every other node.
    pub const IS_OTHER_NODE: &str = "false";
    /// Present on a host endpoint whose node is known: the name of that node. Policies of nodes test it; see
    /// [`crate::Policy::selects_nodes`].
    pub const HOST_NODE: &str = "hostnode";
}

/// Identifies an object as written. Objects of different API group or kind are different objects.
///
/// Ordered by namespace, name, group, kind.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ObjectId {
    /// The namespace; `None` for cluster-wide kinds.
    pub namespace: Option<Str>,
    /// The name.
    pub name: Str,
    /// The API group and the kind.
    #[serde(flatten)]
    pub kind: ObjectKind,
}

impl fmt::Display for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.namespace {
            Some(namespace) => write!(f, "{} {}/{}", self.kind, namespace, self.name),
            None => write!(f, "{} {}", self.kind, self.name),
        }
    }
}

/// Identifies an endpoint: a pod, workload, host endpoint or workload template.
pub type EndpointId = ObjectId;

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

/// A workload (a pod, an attached namespace) or a node's own interface.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Endpoint {
    /// Its name.
    pub id: EndpointId,
    /// Whether it is a node's own interface rather than a workload.
    pub host: bool,
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
    /// Its controlling owner.
    pub owner: Option<Owner>,
    /// Whether it represents the pods of a workload template (offline analysis only).
    pub template: bool,
    /// Whether it has completed (a Pod in the phase Succeeded or Failed): it has released its addresses.
    #[serde(default)]
    pub completed: bool,
    /// Whether it uses its node's network: its addresses are the node's, and it is neither subject nor peer
    /// of a policy.
    #[serde(default)]
    pub host_network: bool,
    /// Whether it is in audit by itself: no policy is enforced for it. See [`crate::State::is_in_audit`].
    #[serde(default)]
    pub audit: bool,
    /// The UID of its Pod, as a container runtime knows it, for whoever attaches the container. It changes no verdict,
    /// and the engine does not keep it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<Str>,
}

impl Endpoint {
    /// The interface of a host endpoint for every interface of its node that is no workload's. Source: Calico, "Host
    /// endpoint".
    pub const ANY_INTERFACE: &str = "*";

    /// The loopback interface, which no host endpoint governs.
    pub const LOOPBACK: &str = "lo";

    /// Whether it is the endpoint of a node ([`Node::endpoint`]), and not one that an object of its own describes.
    pub fn is_node_endpoint(&self) -> bool {
        self.host && self.id.kind == Node::object_kind()
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
            reserved::KIND => Some(match self.host {
                true if self.is_node_endpoint() => reserved::KIND_NODE_ENDPOINT,
                true => reserved::KIND_HOST,
                false => reserved::KIND_WORKLOAD,
            }),
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

/// A network set: a labelled set of networks that a selector can match.
///
/// Objects of several kinds are network sets; the value of [`reserved::KIND`] tells them apart.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetworkSet {
    /// Its name.
    pub id: ObjectId,
    /// Its own labels.
    pub labels: Labels,
    /// The networks.
    pub nets: Vec<Prefix>,
}

/// The kind in the name of the part of an EndpointSlice that serves nothing; no object has it.
const UNREADY_ENDPOINTS: &str = "EndpointSlice (unready)";

impl NetworkSet {
    /// The label of an EndpointSlice with the name of its Service. Source: Kubernetes, "EndpointSlices".
    pub const SERVICE_LABEL: &str = "kubernetes.io/service-name";

    /// The name of the part of an EndpointSlice with the addresses that serve nothing.
    pub fn unready_endpoints_id(slice: &ObjectId) -> ObjectId {
        ObjectId {
            kind: ObjectKind::new("discovery.k8s.io", UNREADY_ENDPOINTS),
            ..slice.clone()
        }
    }

    /// The value of a reserved label; see [`reserved`].
    pub fn reserved_label(&self, name: &str) -> Option<&str> {
        match name {
            reserved::KIND => Some(NetworkSet::reserved_kind(&self.id.kind)),
            reserved::NAMESPACE => self.id.namespace.as_deref(),
            reserved::NAME => Some(&self.id.name),
            _ => None,
        }
    }

    /// The value of [`reserved::KIND`] for a network set of this kind.
    pub fn reserved_kind(kind: &ObjectKind) -> &'static str {
        match (kind.group(), kind.name()) {
            ("", "Node") => reserved::KIND_POD_NETWORK,
            ("discovery.k8s.io", "EndpointSlice") => reserved::KIND_ENDPOINT_SLICE,
            ("discovery.k8s.io", UNREADY_ENDPOINTS) => reserved::KIND_UNREADY_ENDPOINTS,
            ("cilium.io", "CiliumCIDRGroup") => reserved::KIND_CIDR_GROUP,
            ("projectcalico.org", "HostEndpoint") => reserved::KIND_HOST_ENDPOINT,
            _ => reserved::KIND_NETWORK_SET,
        }
    }
}

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

    /// The name of the node's endpoint.
    pub fn endpoint_id(name: Str) -> EndpointId {
        ObjectId {
            namespace: None,
            name,
            kind: Node::object_kind(),
        }
    }

    /// The node's endpoint: every interface that no other host endpoint governs. Only policies of nodes select it
    /// ([`Policy::selects_nodes`]), and what they do not decide is allowed. Source: Cilium, "Host Policies".
    pub fn endpoint(name: Str, audit: bool) -> Endpoint {
        Endpoint {
            id: Node::endpoint_id(name.clone()),
            host: true,
            labels: Labels::new(),
            service_account: None,
            node: Some(name),
            interface: Some(Endpoint::ANY_INTERFACE.into()),
            addresses: Vec::new(),
            ports: Vec::new(),
            profiles: alloc::vec![Profile::ALLOW_ALL.into()],
            created: 0,
            owner: None,
            template: false,
            completed: false,
            host_network: false,
            audit,
            uid: None,
        }
    }

    /// The networks of its pods, as a network set: they are a holder of their own. `None` without networks.
    pub fn pod_network(&self) -> Option<NetworkSet> {
        (!self.pod_networks.is_empty()).then(|| NetworkSet {
            id: Node::pod_network_id(self.name.clone()),
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

/// A namespace and its labels. A namespace without an object has only the label that every namespace
/// has, `kubernetes.io/metadata.name`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Namespace {
    /// Its name.
    pub name: Str,
    /// Its labels, `kubernetes.io/metadata.name` included.
    pub labels: Labels,
    /// Whether its endpoints are in audit: no policy is enforced for them.
    #[serde(default)]
    pub audit: bool,
}

impl Namespace {
    /// The label with the namespace's name, present on every namespace.
    /// Source: Kubernetes, "Automatic labelling" of namespaces.
    pub const NAME_LABEL: &'static str = "kubernetes.io/metadata.name";

    /// A namespace with only the name label.
    pub fn from_name(name: Str) -> Self {
        let labels = Labels::from([(Self::NAME_LABEL.into(), name.clone())]);
        Namespace {
            name,
            labels,
            audit: false,
        }
    }
}

/// A service account and its labels.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServiceAccount {
    /// Its namespace.
    pub namespace: Str,
    /// Its name.
    pub name: Str,
    /// Its labels.
    pub labels: Labels,
}

/// Rules that are evaluated for an endpoint after the last tier.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Profile {
    /// Its name.
    pub name: Str,
    /// Its ingress rules.
    pub ingress: Vec<Rule>,
    /// Its egress rules.
    pub egress: Vec<Rule>,
    /// Labels that its endpoints get beside their own ([`Endpoint::inherit_labels`]).
    #[serde(default)]
    pub labels_to_apply: Labels,
}

impl Profile {
    /// The profile of pods and attached workloads: it allows everything. It is built in, and no object
    /// can replace it.
    pub const ALLOW_ALL: &'static str = "palisade.allow-all";
}

/// A port of a service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServicePort {
    /// Its name, where it has one.
    pub name: Option<Str>,
    /// Its protocol.
    pub protocol: Protocol,
    /// The service port, to which clients connect.
    pub port: u16,
    /// The target port on the backend pods: a number, or the name of one of their ports.
    pub target: PortSpec,
}

/// A Service. Policy is evaluated after destination NAT and never sees it; explanations resolve it to
/// its backend pods.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Service {
    /// Its namespace.
    pub namespace: Str,
    /// Its name.
    pub name: Str,
    /// The labels that select its backend pods; empty where its endpoints are managed manually.
    pub selector: Labels,
    /// Its cluster IPs.
    pub addresses: Vec<IpAddr>,
    /// Its ports.
    pub ports: Vec<ServicePort>,
    /// Whether it is headless: its name stands for the addresses of its backend pods, and nothing is translated.
    #[serde(default)]
    pub headless: bool,
}

impl Service {
    /// Whether its selector matches a pod or workload; without a selector it matches none.
    pub fn selects(&self, endpoint: &Endpoint) -> bool {
        let mut wanted = self.selector.iter();
        !self.selector.is_empty()
            && !endpoint.host
            && endpoint.id.namespace.as_ref() == Some(&self.namespace)
            && wanted.all(|(key, value)| endpoint.labels.get(key) == Some(value))
    }

    /// The port of a backend to which one of its ports leads; `None` if the backend has no port of that name.
    pub fn target_port(&self, port: &ServicePort, backend: &Endpoint) -> Option<u16> {
        match &port.target {
            _ if self.headless => Some(port.port),
            PortSpec::Range(range) => Some(range.first),
            PortSpec::Named(name) => backend.named_port(name, port.protocol),
        }
    }
}

/// Any object that a source can provide.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "each variant carries the type of its name")]
pub enum Object {
    Tier(Tier),
    Policy(Policy),
    Profile(Profile),
    Endpoint(Endpoint),
    Namespace(Namespace),
    ServiceAccount(ServiceAccount),
    NetworkSet(NetworkSet),
    Node(Node),
    Service(Service),
}

/// Identifies an [`Object`] of any type.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[allow(
    missing_docs,
    reason = "each variant names the object type of its name"
)]
pub enum ObjectKey {
    Tier(Str),
    Policy(PolicyId),
    Profile(Str),
    Endpoint(EndpointId),
    Namespace(Str),
    ServiceAccount { namespace: Str, name: Str },
    NetworkSet(ObjectId),
    Node(Str),
    Service { namespace: Str, name: Str },
}

/// One update of a source. Updates may come in any order and be repeated. An upsert replaces the
/// object with the same key; deleting an object that does not exist has no effect.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(
    clippy::large_enum_variant,
    reason = "nearly every update is an upsert, and each is moved once"
)]
pub enum Update {
    /// The object was added or changed.
    Upsert(Object),
    /// The object was deleted.
    Delete(ObjectKey),
}

impl Object {
    /// The object as policy sees it: a completed endpoint holds no address, and one on its node's network is
    /// no endpoint.
    pub fn into_effective(mut self) -> Option<Self> {
        if let Object::Endpoint(endpoint) = &mut self {
            if endpoint.host_network {
                return None;
            }
            if endpoint.completed {
                endpoint.addresses.clear();
            }
        }
        Some(self)
    }

    /// The object's key.
    pub fn key(&self) -> ObjectKey {
        match self {
            Object::Tier(o) => ObjectKey::Tier(o.name.clone()),
            Object::Policy(o) => ObjectKey::Policy(o.id.clone()),
            Object::Profile(o) => ObjectKey::Profile(o.name.clone()),
            Object::Endpoint(o) => ObjectKey::Endpoint(o.id.clone()),
            Object::Namespace(o) => ObjectKey::Namespace(o.name.clone()),
            Object::ServiceAccount(o) => ObjectKey::ServiceAccount {
                namespace: o.namespace.clone(),
                name: o.name.clone(),
            },
            Object::NetworkSet(o) => ObjectKey::NetworkSet(o.id.clone()),
            Object::Node(o) => ObjectKey::Node(o.name.clone()),
            Object::Service(o) => ObjectKey::Service {
                namespace: o.namespace.clone(),
                name: o.name.clone(),
            },
        }
    }
}

/// The value of a key on an object that has only its own and reserved labels.
pub(crate) fn own_or_reserved<'a>(
    key: &LabelKey,
    labels: &'a Labels,
    reserved: impl FnOnce(&str) -> Option<&'a str>,
) -> Option<&'a str> {
    match key.scope {
        LabelScope::Own => labels.get(&key.name).map(|v| &**v),
        LabelScope::Reserved => reserved(&key.name),
        LabelScope::Namespace | LabelScope::ServiceAccount | LabelScope::Node => None,
    }
}
