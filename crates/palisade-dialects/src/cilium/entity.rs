//! The entities of rules: names for kinds of addresses.

use super::peer_kind::{PeerKind, api_server, world};
use super::rule_context::RuleAction;
use crate::domain_peer::inside_kinds;
use crate::report::ObjectReport;
use crate::suggest::nearest;
use palisade_manifest::{Field, quote};
use palisade_model::{Peer, Prefix};

const ENTITIES: &[&str] = &[
    "all",
    "world",
    "world-ipv4",
    "world-ipv6",
    "cluster",
    "host",
    "remote-node",
    "kube-apiserver",
    "unmanaged",
    "init",
    "ingress",
    "health",
    "none",
];

/// The peers of an entity, for rules of an action; empty for one that no address is here.
pub(super) fn read(field: &Field<'_>, action: RuleAction, report: &mut ObjectReport) -> Vec<Peer> {
    let Some(text) = report.ok(field.as_str()) else {
        return Vec::new();
    };
    let of_family = |net| Peer {
        nets: Some(vec![net]),
        ..world()
    };
    match text {
        "all" => vec![Peer::any()],
        "world" => vec![world()],
        "world-ipv4" => vec![of_family(Prefix::ALL_V4)],
        "world-ipv6" => vec![of_family(Prefix::ALL_V6)],
        "cluster" => cluster(),
        "host" => vec![PeerKind::OwnNode.peer(action)],
        "remote-node" => vec![PeerKind::RemoteNode.peer(action)],
        "kube-apiserver" => vec![Peer::from_selector(api_server())],
        "unmanaged" => vec![PeerKind::Unmanaged.peer(action)],
        "none" => Vec::new(),
        "init" | "ingress" | "health" => {
            let who = match text {
                "init" => "a pod is closed until it is known, and has no address before",
                "ingress" => "there is no proxy of Cilium for ingress",
                _ => "there are no endpoints for Cilium's health checks",
            };
            report.warn(
                field,
                format!("no address is of the entity `{text}` here: {who}"),
            );
            Vec::new()
        }
        other => {
            let hint = match nearest(other, ENTITIES) {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("use one of {}", ENTITIES.join(", ")),
            };
            report.error(
                field,
                format!("unsupported entity: {} is none; {hint}", quote(other)),
            );
            Vec::new()
        }
    }
}

/// Pods, nodes, what else is in the networks of pods, and the API server wherever it is. One test of all kinds, so
/// that it tells no pod from the network that the pod is in.
fn cluster() -> Vec<Peer> {
    [inside_kinds(), api_server()]
        .into_iter()
        .map(Peer::from_selector)
        .collect()
}
