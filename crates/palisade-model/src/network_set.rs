//! Network sets: labelled sets of networks, of objects of several kinds.
//!
//! Never: knows which objects of a dialect are network sets of which kind; the crate that reads them says so.

use crate::{Labels, ObjectId, Prefix, reserved};
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// A network set: a labelled set of networks that a selector can match.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetworkSet {
    /// Its name.
    pub id: ObjectId,
    /// What it is.
    #[serde(default)]
    pub kind: NetworkSetKind,
    /// Its own labels.
    pub labels: Labels,
    /// The networks.
    pub nets: Vec<Prefix>,
}

/// What a network set is; selectors see it as [`reserved::KIND`].
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub enum NetworkSetKind {
    /// Networks that an object lists.
    #[default]
    NetworkSet,
    /// See [`reserved::KIND_POD_NETWORK`].
    PodNetwork,
    /// See [`reserved::KIND_ENDPOINT_SLICE`].
    EndpointSlice,
    /// See [`reserved::KIND_UNREADY_ENDPOINTS`].
    UnreadyEndpoints,
    /// See [`reserved::KIND_CIDR_GROUP`].
    CidrGroup,
    /// See [`reserved::KIND_HOST_ENDPOINT`].
    HostEndpoint,
    /// See [`reserved::KIND_DOMAIN_NAME`].
    DomainName,
}

impl NetworkSetKind {
    /// The value of [`reserved::KIND`].
    pub const fn reserved_kind(self) -> &'static str {
        match self {
            NetworkSetKind::NetworkSet => reserved::KIND_NETWORK_SET,
            NetworkSetKind::PodNetwork => reserved::KIND_POD_NETWORK,
            NetworkSetKind::EndpointSlice => reserved::KIND_ENDPOINT_SLICE,
            NetworkSetKind::UnreadyEndpoints => reserved::KIND_UNREADY_ENDPOINTS,
            NetworkSetKind::CidrGroup => reserved::KIND_CIDR_GROUP,
            NetworkSetKind::HostEndpoint => reserved::KIND_HOST_ENDPOINT,
            NetworkSetKind::DomainName => reserved::KIND_DOMAIN_NAME,
        }
    }
}

impl NetworkSet {
    /// The label of an EndpointSlice with the name of its Service. Source: Kubernetes, "EndpointSlices".
    pub const SERVICE_LABEL: &str = "kubernetes.io/service-name";

    /// The value of a reserved label; see [`reserved`].
    pub fn reserved_label(&self, name: &str) -> Option<&str> {
        match name {
            reserved::KIND => Some(self.kind.reserved_kind()),
            reserved::NAMESPACE => self.id.namespace.as_deref(),
            reserved::NAME => Some(&self.id.name),
            reserved::DOMAIN if self.kind == NetworkSetKind::DomainName => Some(&self.id.name),
            _ => None,
        }
    }
}
