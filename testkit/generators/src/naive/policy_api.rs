//! The naive reading of cluster-wide policies: what the API of `policy.networking.k8s.io` says of its kinds,
//! policy by policy and rule by rule.
//!
//! It promises, as all of the naive reading, to share nothing with the product. It never validates.

use super::{
    NaiveFlow, at, in_cidr, is_kind, labels, list, named_port, names, namespace, namespace_labels,
    pod_at, present, protocol, selects, text,
};
use crate::audit;
use serde_json::Value;
use std::collections::BTreeSet;
use std::net::IpAddr;

/// A tier of cluster-wide policies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NaiveTier {
    /// Before NetworkPolicy.
    Admin,
    /// Where no NetworkPolicy isolates.
    Baseline,
}

/// What a tier says of a flow in one direction at a pod: whether it is allowed; nothing if no rule of the tier
/// matches, or the first that does passes. The policies that were asked are added to `used`.
pub(super) fn decision(
    objects: &[Value],
    pod: &Value,
    tier: NaiveTier,
    (egress, other): (bool, IpAddr),
    flow: &NaiveFlow,
    used: &mut BTreeSet<usize>,
) -> Option<bool> {
    let mut policies: Vec<(usize, &Value)> = objects
        .iter()
        .enumerate()
        .filter(|(_, policy)| tier_of(policy) == Some(tier))
        .filter(|(_, policy)| in_subject(objects, policy, pod))
        .filter(|(_, policy)| !rules(policy, egress).is_empty())
        .collect();
    policies.sort_by_key(|(_, policy)| place(policy));
    for (index, policy) in policies {
        used.insert(index);
        if audit::is_in_audit(policy) {
            continue;
        }
        for rule in rules(policy, egress) {
            match outcome(objects, policy, rule, (egress, other), flow) {
                RuleOutcome::NoMatch => {}
                RuleOutcome::Passes => return None,
                RuleOutcome::Decides(allowed) => return Some(allowed),
            }
        }
    }
    None
}

enum RuleOutcome {
    NoMatch,
    Passes,
    Decides(bool),
}

fn is_cluster_network_policy(policy: &Value) -> bool {
    is_kind(policy, "policy.networking.k8s.io", "ClusterNetworkPolicy")
}

fn is_baseline_admin(policy: &Value) -> bool {
    is_kind(
        policy,
        "policy.networking.k8s.io",
        "BaselineAdminNetworkPolicy",
    )
}

fn tier_of(policy: &Value) -> Option<NaiveTier> {
    if is_kind(policy, "policy.networking.k8s.io", "AdminNetworkPolicy") {
        Some(NaiveTier::Admin)
    } else if is_baseline_admin(policy) {
        Some(NaiveTier::Baseline)
    } else if is_cluster_network_policy(policy) {
        match text(policy, "/spec/tier") {
            Some("Admin") => Some(NaiveTier::Admin),
            _ => Some(NaiveTier::Baseline),
        }
    } else {
        None
    }
}

/// By what the policies of a tier are ordered: priority (the BaselineAdminNetworkPolicy comes last), then kind,
/// then name.
fn place(policy: &Value) -> (bool, u64, bool, String) {
    let priority = at(policy, "/spec/priority").and_then(Value::as_u64);
    let name = text(policy, "/metadata/name").unwrap_or("");
    (
        is_baseline_admin(policy),
        priority.unwrap_or(0),
        !is_cluster_network_policy(policy),
        name.to_owned(),
    )
}

fn in_subject(objects: &[Value], policy: &Value, pod: &Value) -> bool {
    let subject = &policy["spec"]["subject"];
    selects_pod(objects, subject, pod)
}

/// Whether the `namespaces` or the `pods` of a subject or peer select a pod.
fn selects_pod(objects: &[Value], by: &Value, pod: &Value) -> bool {
    let of_namespace = namespace_labels(objects, namespace(pod));
    if let Some(namespaces) = present(by.get("namespaces")) {
        return selects(Some(namespaces), &of_namespace);
    }
    let Some(pods) = present(by.get("pods")) else {
        return false;
    };
    selects(pods.get("namespaceSelector"), &of_namespace)
        && selects(pods.get("podSelector"), &labels(pod))
}

fn rules(policy: &Value, egress: bool) -> &[Value] {
    list(policy["spec"].get(if egress { "egress" } else { "ingress" }))
}

fn outcome(
    objects: &[Value],
    policy: &Value,
    rule: &Value,
    (egress, other): (bool, IpAddr),
    flow: &NaiveFlow,
) -> RuleOutcome {
    let peers = list(rule.get(if egress { "to" } else { "from" }));
    let action = text(rule, "/action").unwrap_or("");
    let allows = action == "Accept" || action == "Allow";
    let known: &[&str] = match (egress, is_baseline_admin(policy)) {
        (false, _) => &["namespaces", "pods"],
        (true, true) => &["namespaces", "pods", "networks", "nodes"],
        (true, false) => &["namespaces", "pods", "networks", "nodes", "domainNames"],
    };
    let is_understood = |peer: &Value| known.iter().any(|key| present(peer.get(key)).is_some());
    let in_ports = in_ports(objects, rule, flow);
    if !peers.iter().all(is_understood) {
        // Fails closed: nothing is allowed by it, and what does not allow denies everybody.
        return if in_ports && !allows {
            RuleOutcome::Decides(false)
        } else {
            RuleOutcome::NoMatch
        };
    }
    if !in_ports || !peers.iter().any(|peer| in_peer(objects, peer, other)) {
        return RuleOutcome::NoMatch;
    }
    match action {
        "Pass" => RuleOutcome::Passes,
        _ => RuleOutcome::Decides(allows),
    }
}

fn in_peer(objects: &[Value], peer: &Value, other: IpAddr) -> bool {
    if let Some(networks) = present(peer.get("networks")) {
        return list(Some(networks))
            .iter()
            .filter_map(Value::as_str)
            .any(|cidr| in_cidr(cidr, other));
    }
    if let Some(nodes) = present(peer.get("nodes")) {
        return objects
            .iter()
            .filter(|object| is_kind(object, "", "Node"))
            .any(|node| {
                node_addresses(node).contains(&other) && selects(Some(nodes), &labels(node))
            });
    }
    if let Some(written) = present(peer.get("domainNames")) {
        let is_named = |name: &str| {
            let mut all = list(Some(written)).iter().filter_map(Value::as_str);
            all.any(|written| names::is_domain(written, name))
        };
        return names::is_answer(objects, other, is_named);
    }
    pod_at(objects, other).is_some_and(|pod| selects_pod(objects, peer, &objects[pod]))
}

/// The addresses of a node, inside and outside of its cluster.
fn node_addresses(node: &Value) -> Vec<IpAddr> {
    list(at(node, "/status/addresses"))
        .iter()
        .filter(|entry| matches!(text(entry, "/type"), Some("InternalIP" | "ExternalIP")))
        .filter_map(|entry| text(entry, "/address")?.parse().ok())
        .collect()
}

/// Whether a flow is one that the ports of a rule are about; without any, every flow is.
fn in_ports(objects: &[Value], rule: &Value, flow: &NaiveFlow) -> bool {
    let listed = present(rule.get("ports")).or_else(|| present(rule.get("protocols")));
    let Some(listed) = listed else {
        return true;
    };
    let Some((_, number)) = flow.ports else {
        return false;
    };
    let number = u64::from(number);
    list(Some(listed)).iter().any(|port| {
        let name = text(port, "/namedPort").or_else(|| text(port, "/destinationNamedPort"));
        if let Some(name) = name {
            // The name of a port of the receiver, whatever its protocol.
            let receiver = pod_at(objects, flow.destination);
            let named = receiver.and_then(|pod| named_port(&objects[pod], name, flow.protocol));
            return named == Some(number);
        }
        if let Some(single) = present(port.get("portNumber")) {
            return protocol(single.get("protocol")) == Some(flow.protocol)
                && single["port"] == number;
        }
        if let Some(range) = present(port.get("portRange")) {
            return protocol(range.get("protocol")) == Some(flow.protocol)
                && in_range(range, number);
        }
        [("tcp", 6), ("udp", 17), ("sctp", 132)]
            .into_iter()
            .any(|(name, wanted)| {
                let Some(matched) = present(port.get(name)) else {
                    return false;
                };
                let port = &matched["destinationPort"];
                flow.protocol == wanted
                    && (port["number"] == number
                        || present(port.get("range")).is_some_and(|range| in_range(range, number)))
            })
    })
}

fn in_range(range: &Value, number: u64) -> bool {
    let bound = |key: &str| range[key].as_u64();
    bound("start").is_some_and(|start| start <= number)
        && bound("end").is_some_and(|end| number <= end)
}

#[cfg(test)]
mod tests;
