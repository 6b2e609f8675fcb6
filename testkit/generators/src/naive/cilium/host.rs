//! Policies of nodes: what the host itself sends and has.
//!
//! It promises, as all of the naive reading, to share nothing with the product. It never validates.

use super::super::{OWN_NODE, is_kind, pod_at, present, text};
use super::{NaiveAsked, NaiveCiliumVerdict, NaiveFlow, NaivePeer, all_specs};
use crate::audit;
use serde_json::Value;
use std::collections::BTreeSet;
use std::net::IpAddr;

/// What the policies that select this node say of a flow of its own; nothing where its Node is not known. Ports of
/// the host have the names that its HostEndpoint gives them, if it has one.
pub(in crate::naive) fn host_verdict(
    objects: &[Value],
    host: Option<&Value>,
    (egress, other): (bool, IpAddr),
    flow: &NaiveFlow,
    used: &mut BTreeSet<usize>,
) -> NaiveCiliumVerdict {
    let mut verdict = NaiveCiliumVerdict::default();
    let Some(node) = own_node(objects) else {
        return verdict;
    };
    let asked = NaiveAsked {
        objects,
        own: NaivePeer::of_host(objects, &objects[node]),
        peer: NaivePeer::of(objects, other, Some(OWN_NODE)),
        egress,
        receiver: if egress {
            pod_at(objects, flow.destination).map(|index| &objects[index])
        } else {
            host
        },
        is_host: true,
    };
    for (index, policy) in objects.iter().enumerate() {
        if !is_kind(policy, "cilium.io", "CiliumClusterwideNetworkPolicy") {
            continue;
        }
        for spec in all_specs(policy) {
            if let Some(selector) = present(spec.get("nodeSelector")) {
                asked.ask((index, policy, spec), selector, flow, &mut verdict, used);
            }
        }
    }
    verdict
}

/// Whether this host lets a flow of its own through an interface that no HostEndpoint governs: everything but what
/// is denied, or not allowed where something has to be.
pub(in crate::naive) fn allows_at_node(
    objects: &[Value],
    (egress, other): (bool, IpAddr),
    flow: &NaiveFlow,
    used: &mut BTreeSet<usize>,
) -> bool {
    let Some(node) = own_node(objects) else {
        return true;
    };
    let mut asked = BTreeSet::new();
    let verdict = host_verdict(objects, None, (egress, other), flow, &mut asked);
    if !asked.is_empty() {
        used.insert(node);
        used.extend(asked);
    }
    audit::is_in_audit(&objects[node])
        || !verdict.denied && (verdict.allowed || !verdict.default_deny)
}

/// The Node of this host.
fn own_node(objects: &[Value]) -> Option<usize> {
    let is_own = |object: &Value| {
        is_kind(object, "", "Node") && text(object, "/metadata/name") == Some(OWN_NODE)
    };
    objects.iter().position(is_own)
}
