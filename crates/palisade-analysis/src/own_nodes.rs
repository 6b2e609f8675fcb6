//! Tests of an endpoint's own node, resolved to tests of nodes by name.
//!
//! Such a test depends on who asks, and classes of ends must not: each policy with one becomes a policy for the
//! endpoints of each node, with the name of the node in it. Nothing else changes; a state without such tests stays
//! as it is.
//!
//! Never: reports a policy made here; only the traffic that they allow is used.

use palisade_model::{LabelKey, Peer, Policy, Rule, Selector, State, Str, reserved};
use std::borrow::Cow;
use std::collections::BTreeSet;

/// The state without tests of own nodes.
pub(crate) fn resolve_own_nodes(state: &State) -> Cow<'_, State> {
    if !state.policies.values().any(tests_own_node) {
        return Cow::Borrowed(state);
    }
    let mut resolved = state.clone();
    let host_node = state.host_node.clone();
    let mut nodes: BTreeSet<Option<Str>> = BTreeSet::new();
    for endpoint in resolved.endpoints.values_mut() {
        endpoint.node = endpoint.own_node(host_node.as_ref()).cloned();
        nodes.insert(endpoint.node.clone());
    }
    resolved.policies.clear();
    for policy in state.policies.values() {
        let nodes: Vec<Option<&Str>> = if tests_own_node(policy) {
            nodes.iter().map(Option::as_ref).collect()
        } else {
            vec![None]
        };
        for (number, node) in (0..).zip(nodes) {
            let mut of_node = if tests_own_node(policy) {
                resolve_policy(policy, node)
            } else {
                policy.clone()
            };
            // Room for numbers: parts keep their order, and no two have the same.
            of_node.id.part = policy.id.part.saturating_mul(1 << 16) + number;
            resolved.policies.insert(of_node.id.clone(), of_node);
        }
    }
    Cow::Owned(resolved)
}

/// The policy for the endpoints of a node, or for those without one.
fn resolve_policy(policy: &Policy, node: Option<&Str>) -> Policy {
    let mut resolved = policy.clone();
    let key = LabelKey::reserved(reserved::NODE);
    let of_node = match node {
        Some(name) => Selector::equals(key, name.clone()),
        None => Selector::negate(Selector::has(key)),
    };
    resolved.subject = Selector::and([resolved.subject, of_node]);
    for rules in resolved.ingress.iter_mut().chain(&mut resolved.egress) {
        for peer in rules.rules.iter_mut().flat_map(peers_of) {
            for selector in peer.selector.iter_mut().chain(&mut peer.not_selector) {
                *selector = resolve_selector(selector, node);
            }
        }
    }
    resolved
}

fn resolve_selector(selector: &Selector, node: Option<&Str>) -> Selector {
    let parts = |parts: &[Selector]| -> Vec<Selector> {
        let resolved = parts.iter().map(|part| resolve_selector(part, node));
        resolved.collect()
    };
    match selector {
        Selector::Not(inner) => Selector::negate(resolve_selector(inner, node)),
        Selector::And(all) => Selector::and(parts(all)),
        Selector::Or(all) => Selector::or(parts(all)),
        test if is_own_node_test(test) => resolve_test(test, node),
        other => other.clone(),
    }
}

/// A test of the label alone, as a test of the name of a node.
fn resolve_test(test: &Selector, node: Option<&Str>) -> Selector {
    let constant = |holds: bool| {
        if holds {
            Selector::all()
        } else {
            Selector::none()
        }
    };
    let is_node = Selector::equals(LabelKey::reserved(reserved::KIND), reserved::KIND_NODE);
    let if_absent = constant(holds_with(test, None));
    let Some(name) = node else {
        return if_absent;
    };
    let is_own = Selector::equals(LabelKey::reserved(reserved::NAME), name.clone());
    let if_own = constant(holds_with(test, Some(reserved::IS_OWN_NODE)));
    let if_other = constant(holds_with(test, Some(reserved::IS_OTHER_NODE)));
    Selector::or([
        Selector::and([is_node.clone(), is_own.clone(), if_own]),
        Selector::and([is_node.clone(), Selector::negate(is_own), if_other]),
        Selector::and([Selector::negate(is_node), if_absent]),
    ])
}

/// Whether a test of the label holds for a value of it, or without one.
fn holds_with(test: &Selector, value: Option<&'static str>) -> bool {
    struct OwnNodeLabel(Option<&'static str>);
    impl palisade_model::LabelLookup for OwnNodeLabel {
        fn label(&self, _: &LabelKey) -> Option<&str> {
            self.0
        }
    }
    test.matches(&OwnNodeLabel(value))
}

fn peers_of(rule: &mut Rule) -> impl Iterator<Item = &mut Peer> {
    rule.peers.iter_mut().chain(&mut rule.local)
}

/// Whether a policy tells an endpoint's own node from others.
pub(crate) fn tests_own_node(policy: &Policy) -> bool {
    let lists = policy.ingress.iter().chain(&policy.egress);
    let peers = lists.flat_map(|list| &list.rules);
    let mut peers = peers.flat_map(|rule| rule.peers.iter().chain(&rule.local));
    peers.any(|peer| {
        let mut selectors = peer.selector.iter().chain(&peer.not_selector);
        selectors.any(is_own_node_test)
    })
}

/// Whether a selector tests the label anywhere.
fn is_own_node_test(selector: &Selector) -> bool {
    let own = LabelKey::reserved(reserved::OWN_NODE);
    let mut has_own_node_test = false;
    selector.for_each_key(&mut |key| has_own_node_test |= *key == own);
    has_own_node_test
}
