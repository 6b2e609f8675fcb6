//! The objects that sources provide, their keys, and the updates that carry them.

use crate::{
    Endpoint, EndpointId, LabelKey, LabelScope, Labels, NetworkSet, Node, ObjectId, Policy,
    PolicyId, PortSpec, Profile, Protocol, Str, Tier,
};
use alloc::vec::Vec;
use core::net::IpAddr;
use serde::{Deserialize, Serialize};

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
            && !endpoint.is_host()
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
            if endpoint.uses_host_network() {
                return None;
            }
            if endpoint.is_completed() {
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
