//! The endpoints of nodes, which policies of nodes select.
//!
//! Promises: while a policy of nodes is in force, each Node that is in force has its endpoint
//! ([`palisade_model::Endpoint::of_node`]), and none has one otherwise; the updates are a function of the objects in force
//! alone. Never: decides which nodes a policy selects, or which node this host is.

use alloc::collections::{BTreeMap, BTreeSet};
use palisade_model::{Endpoint, Node, Object, ObjectKey, Policy, PolicyId, Str, Update};

/// The nodes, and the policies that select nodes.
#[derive(Debug, Default)]
pub(crate) struct NodeEndpoints {
    /// Every node, with whether its endpoint is in audit.
    nodes: BTreeMap<Str, bool>,
    policies: BTreeSet<PolicyId>,
}

impl NodeEndpoints {
    /// Takes in a policy. The first of nodes gives each node its endpoint.
    pub(crate) fn put_policy(&mut self, policy: &Policy, updates: &mut dyn FnMut(Update)) {
        if !policy.selects_nodes() {
            self.remove_policy(&policy.id, updates);
            return;
        }
        let had_policies = !self.policies.is_empty();
        self.policies.insert(policy.id.clone());
        if !had_policies {
            let all = self.nodes.iter();
            all.for_each(|(name, audit)| updates(upsert(name, *audit)));
        }
    }

    /// Takes in that a policy is gone. The last one of nodes takes the endpoints of all with it.
    pub(crate) fn remove_policy(&mut self, id: &PolicyId, updates: &mut dyn FnMut(Update)) {
        if self.policies.remove(id) && self.policies.is_empty() {
            self.nodes.keys().for_each(|name| updates(delete(name)));
        }
    }

    /// Takes in a node.
    pub(crate) fn put_node(&mut self, node: &Node, updates: &mut dyn FnMut(Update)) {
        let before = self.nodes.insert(node.name.clone(), node.audit);
        if before != Some(node.audit) && !self.policies.is_empty() {
            updates(upsert(&node.name, node.audit));
        }
    }

    /// Takes in that a node is gone.
    pub(crate) fn remove_node(&mut self, name: &Str, updates: &mut dyn FnMut(Update)) {
        if self.nodes.remove(name).is_some() && !self.policies.is_empty() {
            updates(delete(name));
        }
    }
}

fn upsert(name: &Str, audit: bool) -> Update {
    Update::Upsert(Object::Endpoint(Endpoint::of_node(name.clone(), audit)))
}

fn delete(name: &Str) -> Update {
    Update::Delete(ObjectKey::Endpoint(Node::endpoint_id(name.clone())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use alloc::vec::Vec;
    use palisade_model::{
        Labels, ObjectId, ObjectKind, Order, PolicyMode, Precedence, Selector, tier_name,
    };

    fn node(name: &str, audit: bool) -> Node {
        Node {
            name: name.into(),
            labels: Labels::new(),
            addresses: vec![],
            internal_addresses: vec![],
            pod_networks: vec![],
            audit,
        }
    }

    fn policy(name: &str, subject: Selector) -> Policy {
        Policy {
            id: PolicyId {
                object: ObjectId {
                    namespace: None,
                    name: name.into(),
                    kind: ObjectKind::new("cilium.io", "CiliumClusterwideNetworkPolicy"),
                },
                part: 1,
            },
            tier: tier_name::DEFAULT.into(),
            precedence: Precedence {
                order: Order::At(1000.0),
                rank: 1,
            },
            mode: PolicyMode::Enforce,
            subject,
            scope: palisade_model::TrafficScope::Endpoints,
            observes_dns: false,
            ingress: None,
            egress: None,
            line: None,
        }
    }

    /// The nodes whose endpoints a change puts (with whether they are in audit) or removes.
    fn after(change: impl FnOnce(&mut dyn FnMut(Update))) -> Vec<(Str, Option<bool>)> {
        let mut all = Vec::new();
        change(&mut |update| match update {
            Update::Upsert(Object::Endpoint(endpoint)) => {
                all.push((endpoint.id.name, Some(endpoint.audit)))
            }
            Update::Delete(ObjectKey::Endpoint(id)) => all.push((id.name, None)),
            other => panic!("{other:?}"),
        });
        all
    }

    #[test]
    fn nodes_have_endpoints_while_a_policy_selects_nodes() {
        let of_nodes = |name| policy(name, Policy::node_subject());
        let mut nodes = NodeEndpoints::default();
        assert_eq!(after(|to| nodes.put_node(&node("a", false), to)), []);
        assert_eq!(
            after(|to| nodes.put_policy(&policy("pods", Selector::all()), to)),
            []
        );
        let a = |audit| ("a".into(), audit);
        let b = |audit| ("b".into(), audit);
        let first = after(|to| nodes.put_policy(&of_nodes("p"), to));
        assert_eq!(first, [a(Some(false))]);
        assert_eq!(after(|to| nodes.put_policy(&of_nodes("p"), to)), []);
        assert_eq!(after(|to| nodes.put_policy(&of_nodes("q"), to)), []);
        assert_eq!(after(|to| nodes.put_node(&node("a", false), to)), []);
        let audited = after(|to| nodes.put_node(&node("a", true), to));
        assert_eq!(audited, [a(Some(true))]);
        let second = after(|to| nodes.put_node(&node("b", false), to));
        assert_eq!(second, [b(Some(false))]);
        // An edit can make one of nodes a policy of pods.
        let edited = after(|to| nodes.put_policy(&policy("p", Selector::all()), to));
        assert_eq!(edited, []);
        assert_eq!(after(|to| nodes.remove_node(&"b".into(), to)), [b(None)]);
        let last = after(|to| nodes.remove_policy(&of_nodes("q").id, to));
        assert_eq!(last, [a(None)]);
        assert_eq!(after(|to| nodes.remove_node(&"a".into(), to)), []);
    }
}
