//! What sources say: objects, their names, and the updates that carry them.

use crate::{LabelKey, LabelScope, Labels, Policy, PolicyId, Prefix, Protocol, Rule, Str, Tier};
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
    /// A pod or another attached workload.
    pub const KIND_WORKLOAD: &str = "workload";
    /// A node's own interface.
    pub const KIND_HOST: &str = "host";
    /// A node, by its addresses.
    pub const KIND_NODE: &str = "node";
    /// A labelled set of networks.
    pub const KIND_NETWORK_SET: &str = "networkset";
}

/// An object as its author names it. Objects are told apart by API group and kind.
///
/// Ordered by namespace, name, group, kind.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ObjectId {
    /// The namespace; `None` for cluster-wide kinds.
    pub namespace: Option<Str>,
    /// The name.
    pub name: Str,
    /// The API group without version; empty for the core group.
    pub group: Str,
    /// The kind.
    pub kind: Str,
}

impl fmt::Display for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.namespace {
            Some(namespace) => write!(f, "{} {}/{}", self.kind, namespace, self.name),
            None => write!(f, "{} {}", self.kind, self.name),
        }
    }
}

/// Names an endpoint: the pod, workload, host endpoint or workload template.
pub type EndpointId = ObjectId;

/// A named port of an endpoint.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct NamedPort {
    /// The name.
    pub name: Str,
    /// The protocol the name is for; the same name may stand for other numbers in others.
    pub protocol: Protocol,
    /// The number.
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
    /// The host-side interface, if it is attached to this host: what makes it local.
    pub interface: Option<Str>,
    /// The addresses it holds, of either family, in any number. Empty where they are unknown, and
    /// for one that holds none any more (a completed pod).
    pub addresses: Vec<IpAddr>,
    /// Its named ports.
    pub ports: Vec<NamedPort>,
    /// What judges it after the last tier, in order.
    pub profiles: Vec<Str>,
    /// When it came into being, in any unit that grows with time: of several live claimants of one
    /// address a local one wins, then the newest, then the greatest id.
    pub created: u64,
    /// Its controlling owner.
    pub owner: Option<Owner>,
    /// Whether it stands for pods that a template would make (offline analysis only).
    pub template: bool,
}

impl Endpoint {
    /// The fact under a reserved key.
    pub fn reserved_label(&self, name: &str) -> Option<&str> {
        match name {
            reserved::KIND => Some(if self.host {
                reserved::KIND_HOST
            } else {
                reserved::KIND_WORKLOAD
            }),
            reserved::NAMESPACE => self.id.namespace.as_deref(),
            reserved::NAME => Some(&self.id.name),
            reserved::SERVICE_ACCOUNT => self.service_account.as_deref(),
            _ => None,
        }
    }

    /// The number behind a named port for a protocol; of several the first.
    pub fn named_port(&self, name: &str, protocol: Protocol) -> Option<u16> {
        self.ports
            .iter()
            .find(|p| &*p.name == name && p.protocol == protocol)
            .map(|p| p.port)
    }
}

/// A labelled set of networks, which a selector can match.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetworkSet {
    /// Its name.
    pub id: ObjectId,
    /// Its own labels.
    pub labels: Labels,
    /// The networks.
    pub nets: Vec<Prefix>,
}

impl NetworkSet {
    /// The fact under a reserved key.
    pub fn reserved_label(&self, name: &str) -> Option<&str> {
        match name {
            reserved::KIND => Some(reserved::KIND_NETWORK_SET),
            reserved::NAMESPACE => self.id.namespace.as_deref(),
            reserved::NAME => Some(&self.id.name),
            _ => None,
        }
    }
}

/// A machine of the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    /// Its name.
    pub name: Str,
    /// Its labels.
    pub labels: Labels,
    /// Its own addresses.
    pub addresses: Vec<IpAddr>,
}

impl Node {
    /// The fact under a reserved key.
    pub fn reserved_label(&self, name: &str) -> Option<&str> {
        match name {
            reserved::KIND => Some(reserved::KIND_NODE),
            reserved::NAME => Some(&self.name),
            _ => None,
        }
    }
}

/// A namespace and its labels. One that was never described has only the label that every namespace
/// has, `kubernetes.io/metadata.name`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Namespace {
    /// Its name.
    pub name: Str,
    /// Its labels, `kubernetes.io/metadata.name` included.
    pub labels: Labels,
}

impl Namespace {
    /// The label that carries a namespace's name, on every namespace.
    /// Source: Kubernetes, "Automatic labelling" of namespaces.
    pub const NAME_LABEL: &'static str = "kubernetes.io/metadata.name";

    /// A namespace of which only the name is known.
    pub fn from_name(name: Str) -> Self {
        let labels = Labels::from([(Self::NAME_LABEL.into(), name.clone())]);
        Namespace { name, labels }
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

/// Rules that judge an endpoint after the last tier.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Profile {
    /// Its name.
    pub name: Str,
    /// Its ingress rules.
    pub ingress: Vec<Rule>,
    /// Its egress rules.
    pub egress: Vec<Rule>,
}

impl Profile {
    /// The profile of pods and attached workloads: it allows everything. It exists in every state,
    /// and no object replaces it.
    pub const ALLOW_ALL: &'static str = "palisade.allow-all";
}

/// A port of a service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServicePort {
    /// Its name, where it has one.
    pub name: Option<Str>,
    /// Its protocol.
    pub protocol: Protocol,
    /// The port clients use.
    pub port: u16,
    /// The port of the pods behind it: a number, or the name of one of their ports.
    pub target: crate::PortSpec,
}

/// A service: how clients reach the pods behind it. Policy never sees it (it judges addresses after
/// translation); explanations resolve it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Service {
    /// Its namespace.
    pub namespace: Str,
    /// Its name.
    pub name: Str,
    /// The labels of the pods behind it; empty where its endpoints are managed by hand.
    pub selector: Labels,
    /// Its virtual addresses.
    pub addresses: Vec<IpAddr>,
    /// Its ports.
    pub ports: Vec<ServicePort>,
}

/// Anything a source can say.
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

/// Names an [`Object`] of any type.
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

/// One thing a source says. Updates may come in any order and be repeated; an upsert replaces what
/// was under the same key, and deleting what is not there does nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(
    clippy::large_enum_variant,
    reason = "nearly every update is an upsert, and each is moved once"
)]
pub enum Update {
    /// The object is now this.
    Upsert(Object),
    /// The object is gone.
    Delete(ObjectKey),
}

impl Object {
    /// The object's name.
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

/// The value under a key of an object that has only labels of its own and reserved facts.
pub(crate) fn own_or_reserved<'a>(
    key: &LabelKey,
    labels: &'a Labels,
    reserved: impl FnOnce(&str) -> Option<&'a str>,
) -> Option<&'a str> {
    match key.scope {
        LabelScope::Own => labels.get(&key.name).map(|v| &**v),
        LabelScope::Reserved => reserved(&key.name),
        LabelScope::Namespace | LabelScope::ServiceAccount => None,
    }
}
