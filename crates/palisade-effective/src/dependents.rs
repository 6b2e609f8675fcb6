//! Objects that are passed on with what other objects say of them: endpoints with the labels of their profiles,
//! policies with the ports of the Services that they name, nodes with an endpoint while policies select nodes.
//!
//! Promises: an object is passed on again when what it depends on changes, and only then; the order of changes does
//! not matter. Never: decides what is in force.

use crate::applied_labels::AppliedLabels;
use crate::node_endpoints::NodeEndpoints;
use crate::service_rules::ServiceRules;
use palisade_model::{Object, ObjectKey, Update};

/// What passes on the objects in force.
#[derive(Debug, Default)]
pub(crate) struct DependentObjects {
    labels: AppliedLabels,
    services: ServiceRules,
    nodes: NodeEndpoints,
}

impl DependentObjects {
    /// Passes on an object, and every other that it changes.
    pub(crate) fn upsert(&mut self, object: Object, updates: &mut dyn FnMut(Update)) {
        match object {
            Object::Policy(policy) => {
                self.nodes.put_policy(&policy, updates);
                let policy = self.services.put_policy(policy);
                updates(Update::Upsert(Object::Policy(policy)));
            }
            Object::NetworkSet(set) => {
                self.services.put_slice(&set, updates);
                self.labels.upsert(Object::NetworkSet(set), updates);
            }
            Object::Node(node) => {
                self.nodes.put_node(&node, updates);
                updates(Update::Upsert(Object::Node(node)));
            }
            other => self.labels.upsert(other, updates),
        }
    }

    /// Passes on that an object is gone, and every other that this changes.
    pub(crate) fn delete(&mut self, key: ObjectKey, updates: &mut dyn FnMut(Update)) {
        match &key {
            ObjectKey::Policy(id) => {
                self.services.remove_policy(id);
                self.nodes.remove_policy(id, updates);
            }
            ObjectKey::Node(name) => self.nodes.remove_node(name, updates),
            ObjectKey::NetworkSet(id) => self.services.remove_slice(id, updates),
            _ => {}
        }
        self.labels.delete(key, updates);
    }
}
