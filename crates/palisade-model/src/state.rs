//! All objects of a source, in sorted maps.
//!
//! [`State`] is the whole input as one value. The oracle and the analysis read it, and tests compare
//! with it. It keeps no index and computes nothing. Updates of different objects commute, and repeated
//! updates have no effect.

use crate::object::own_or_reserved;
use crate::{
    Endpoint, EndpointId, LabelKey, LabelLookup, LabelScope, Namespace, NetworkSet, Node, Object,
    ObjectId, ObjectKey, Policy, PolicyId, Profile, Service, ServiceAccount, Str, Tier, Update,
    builtin_tiers, reserved,
};
use alloc::collections::BTreeMap;
use serde::{Deserialize, Serialize};

/// All objects by key, and the host that they are seen from. The fields are the whole content.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[allow(
    missing_docs,
    reason = "each field holds the objects of the type of its name"
)]
pub struct State {
    pub tiers: BTreeMap<Str, Tier>,
    pub policies: BTreeMap<PolicyId, Policy>,
    pub profiles: BTreeMap<Str, Profile>,
    pub endpoints: BTreeMap<EndpointId, Endpoint>,
    pub namespaces: BTreeMap<Str, Namespace>,
    pub service_accounts: BTreeMap<(Str, Str), ServiceAccount>,
    pub network_sets: BTreeMap<ObjectId, NetworkSet>,
    pub nodes: BTreeMap<Str, Node>,
    pub services: BTreeMap<(Str, Str), Service>,
    /// The name of the node of this host, on which the attached endpoints run; `None` if it is not known, or if the
    /// state is about no host. Whoever makes the state sets it: no update changes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_node: Option<Str>,
}

impl State {
    /// A state without objects, of the host with this node.
    pub fn of_host(host_node: Option<Str>) -> Self {
        State {
            host_node,
            ..State::default()
        }
    }

    /// A state of these updates, applied in order.
    pub fn from_updates(updates: impl IntoIterator<Item = Update>) -> Self {
        let mut state = State::default();
        for update in updates {
            state.apply(update);
        }
        state
    }

    /// Applies one update.
    pub fn apply(&mut self, update: Update) {
        match update {
            Update::Upsert(object) => self.upsert(object),
            Update::Delete(key) => self.delete(&key),
        }
    }

    fn upsert(&mut self, object: Object) {
        match object {
            Object::Tier(o) => drop(self.tiers.insert(o.name.clone(), o)),
            Object::Policy(o) => drop(self.policies.insert(o.id.clone(), o)),
            Object::Profile(o) => drop(self.profiles.insert(o.name.clone(), o)),
            Object::Endpoint(o) => drop(self.endpoints.insert(o.id.clone(), o)),
            Object::Namespace(o) => drop(self.namespaces.insert(o.name.clone(), o)),
            Object::ServiceAccount(o) => {
                drop(
                    self.service_accounts
                        .insert((o.namespace.clone(), o.name.clone()), o),
                );
            }
            Object::NetworkSet(o) => drop(self.network_sets.insert(o.id.clone(), o)),
            Object::Node(o) => drop(self.nodes.insert(o.name.clone(), o)),
            Object::Service(o) => {
                drop(
                    self.services
                        .insert((o.namespace.clone(), o.name.clone()), o),
                );
            }
        }
    }

    fn delete(&mut self, key: &ObjectKey) {
        match key {
            ObjectKey::Tier(name) => drop(self.tiers.remove(name)),
            ObjectKey::Policy(id) => drop(self.policies.remove(id)),
            ObjectKey::Profile(name) => drop(self.profiles.remove(name)),
            ObjectKey::Endpoint(id) => drop(self.endpoints.remove(id)),
            ObjectKey::Namespace(name) => drop(self.namespaces.remove(name)),
            ObjectKey::ServiceAccount { namespace, name } => {
                drop(
                    self.service_accounts
                        .remove(&(namespace.clone(), name.clone())),
                );
            }
            ObjectKey::NetworkSet(id) => drop(self.network_sets.remove(id)),
            ObjectKey::Node(name) => drop(self.nodes.remove(name)),
            ObjectKey::Service { namespace, name } => {
                drop(self.services.remove(&(namespace.clone(), name.clone())));
            }
        }
    }

    /// Every object, by type and key. Upserting them into an empty state gives this state.
    pub fn objects(&self) -> impl Iterator<Item = Object> + '_ {
        let tiers = self.tiers.values().cloned().map(Object::Tier);
        let policies = self.policies.values().cloned().map(Object::Policy);
        let profiles = self.profiles.values().cloned().map(Object::Profile);
        let endpoints = self.endpoints.values().cloned().map(Object::Endpoint);
        let namespaces = self.namespaces.values().cloned().map(Object::Namespace);
        let accounts = self
            .service_accounts
            .values()
            .cloned()
            .map(Object::ServiceAccount);
        let sets = self.network_sets.values().cloned().map(Object::NetworkSet);
        let nodes = self.nodes.values().cloned().map(Object::Node);
        let services = self.services.values().cloned().map(Object::Service);
        tiers
            .chain(namespaces)
            .chain(accounts)
            .chain(nodes)
            .chain(sets)
            .chain(services)
            .chain(profiles)
            .chain(policies)
            .chain(endpoints)
    }

    /// A tier by name: the object of that name, else the built-in tier, else `None`.
    pub fn tier(&self, name: &str) -> Option<Tier> {
        self.tiers
            .get(name)
            .cloned()
            .or_else(|| builtin_tiers().into_iter().find(|tier| &*tier.name == name))
    }

    /// Whether an endpoint is in audit, by itself or with its namespace: no policy is enforced for it.
    pub fn is_in_audit(&self, endpoint: &Endpoint) -> bool {
        let namespace = endpoint.id.namespace.as_ref();
        let namespace = namespace.and_then(|name| self.namespaces.get(name));
        endpoint.audit || namespace.is_some_and(|namespace| namespace.audit)
    }

    /// The labels of an endpoint that selectors test.
    pub fn endpoint_labels<'a>(&'a self, endpoint: &'a Endpoint) -> EndpointLabels<'a> {
        EndpointLabels {
            state: self,
            endpoint,
        }
    }

    /// The labels of a network set that selectors test.
    pub fn network_set_labels<'a>(&'a self, set: &'a NetworkSet) -> NetworkSetLabels<'a> {
        NetworkSetLabels { state: self, set }
    }

    /// The labels of a node that selectors test, seen by an endpoint on the node `own_node`
    /// ([`Endpoint::own_node`]).
    pub fn node_labels<'a>(&'a self, node: &'a Node, own_node: Option<&str>) -> NodeLabels<'a> {
        NodeLabels {
            node,
            own_node_value: own_node_value(&node.name, own_node),
        }
    }

    /// The node whose interface a host endpoint is, if it is known.
    fn node_of_host(&self, endpoint: &Endpoint) -> Option<&Node> {
        let name = endpoint.node.as_ref().filter(|_| endpoint.is_host())?;
        self.nodes.get(name)
    }

    fn namespace_label<'a>(&'a self, namespace: Option<&'a Str>, name: &str) -> Option<&'a str> {
        let namespace = namespace?;
        match self.namespaces.get(namespace) {
            Some(described) => described.labels.get(name).map(|v| &**v),
            None => (name == Namespace::NAME_LABEL).then_some(&**namespace),
        }
    }
}

/// An endpoint's labels, with those of its namespace and service account.
#[derive(Clone, Copy)]
pub struct EndpointLabels<'a> {
    state: &'a State,
    endpoint: &'a Endpoint,
}

impl LabelLookup for EndpointLabels<'_> {
    fn label(&self, key: &LabelKey) -> Option<&str> {
        let endpoint = self.endpoint;
        match key.scope {
            LabelScope::Namespace => self
                .state
                .namespace_label(endpoint.id.namespace.as_ref(), &key.name),
            LabelScope::ServiceAccount => {
                let account_key = (
                    endpoint.id.namespace.clone()?,
                    endpoint.service_account.clone()?,
                );
                let account = self.state.service_accounts.get(&account_key)?;
                account.labels.get(&key.name).map(|v| &**v)
            }
            LabelScope::Node => {
                let node = self.state.node_of_host(endpoint)?;
                node.labels.get(&key.name).map(|v| &**v)
            }
            LabelScope::Reserved if *key.name == *reserved::HOST_NODE => {
                let node = self.state.node_of_host(endpoint)?;
                Some(&node.name)
            }
            _ => own_or_reserved(key, &endpoint.labels, |name| endpoint.reserved_label(name)),
        }
    }
}

/// A network set's labels, with those of its namespace.
#[derive(Clone, Copy)]
pub struct NetworkSetLabels<'a> {
    state: &'a State,
    set: &'a NetworkSet,
}

impl LabelLookup for NetworkSetLabels<'_> {
    fn label(&self, key: &LabelKey) -> Option<&str> {
        match key.scope {
            LabelScope::Namespace => self
                .state
                .namespace_label(self.set.id.namespace.as_ref(), &key.name),
            _ => own_or_reserved(key, &self.set.labels, |name| self.set.reserved_label(name)),
        }
    }
}

/// A node's labels.
#[derive(Clone, Copy)]
pub struct NodeLabels<'a> {
    node: &'a Node,
    own_node_value: Option<&'static str>,
}

impl LabelLookup for NodeLabels<'_> {
    fn label(&self, key: &LabelKey) -> Option<&str> {
        own_or_reserved(key, &self.node.labels, |name| match name {
            reserved::OWN_NODE => self.own_node_value,
            name => self.node.reserved_label(name),
        })
    }
}

/// The value of [`reserved::OWN_NODE`] of a node, seen by an endpoint that runs on the node `own_node`.
pub fn own_node_value(node: &str, own_node: Option<&str>) -> Option<&'static str> {
    Some(if own_node? == node {
        reserved::IS_OWN_NODE
    } else {
        reserved::IS_OTHER_NODE
    })
}
