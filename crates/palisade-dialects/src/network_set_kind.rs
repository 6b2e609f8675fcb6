//! Which objects are network sets of which kind.
//!
//! A network set that was stored before it had a kind gets that of its object here.

use palisade_model::{NetworkSetKind, Node, ObjectId, ObjectKind};

/// The API group of EndpointSlices.
const DISCOVERY: &str = "discovery.k8s.io";
/// The kind in the name of the part of an EndpointSlice that serves nothing; no object has it.
const UNREADY_ENDPOINTS: &str = "EndpointSlice (unready)";

/// The name of the part of an EndpointSlice with the addresses that serve nothing.
pub(crate) fn unready_endpoints_id(slice: &ObjectId) -> ObjectId {
    ObjectId {
        kind: ObjectKind::new(DISCOVERY, UNREADY_ENDPOINTS),
        ..slice.clone()
    }
}

/// What a network set is that has the name of an object of this kind.
#[must_use]
pub fn network_set_kind(kind: &ObjectKind) -> NetworkSetKind {
    match (kind.group(), kind.name()) {
        _ if *kind == Node::object_kind() => NetworkSetKind::PodNetwork,
        (DISCOVERY, "EndpointSlice") => NetworkSetKind::EndpointSlice,
        (DISCOVERY, UNREADY_ENDPOINTS) => NetworkSetKind::UnreadyEndpoints,
        ("cilium.io", "CiliumCIDRGroup") => NetworkSetKind::CidrGroup,
        ("projectcalico.org", "HostEndpoint") => NetworkSetKind::HostEndpoint,
        _ => NetworkSetKind::NetworkSet,
    }
}
