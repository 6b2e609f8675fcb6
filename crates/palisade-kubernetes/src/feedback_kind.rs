//! The kinds of policies that a cluster is told about, and in which form.

use crate::resource::{
    ADMIN_NETWORK_POLICY, BASELINE_ADMIN_NETWORK_POLICY, CILIUM_CLUSTERWIDE_NETWORK_POLICY,
    CILIUM_NETWORK_POLICY, CLUSTER_NETWORK_POLICY, NETWORK_POLICY, ResourceType,
};

/// A kind of policy. Every refused object of it gets an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FeedbackKind {
    /// The resource that is watched.
    pub resource: ResourceType,
    /// The subresource of its objects' status, if that has conditions: then each gets the condition `Accepted`.
    pub status: Option<&'static str>,
}

/// Every kind that is written back.
pub const FEEDBACK: [FeedbackKind; 6] = [
    FeedbackKind {
        resource: NETWORK_POLICY,
        status: None,
    },
    FeedbackKind {
        resource: CLUSTER_NETWORK_POLICY,
        status: Some("clusternetworkpolicies/status"),
    },
    FeedbackKind {
        resource: ADMIN_NETWORK_POLICY,
        status: Some("adminnetworkpolicies/status"),
    },
    FeedbackKind {
        resource: BASELINE_ADMIN_NETWORK_POLICY,
        status: Some("baselineadminnetworkpolicies/status"),
    },
    FeedbackKind {
        resource: CILIUM_NETWORK_POLICY,
        status: Some("ciliumnetworkpolicies/status"),
    },
    FeedbackKind {
        resource: CILIUM_CLUSTERWIDE_NETWORK_POLICY,
        status: Some("ciliumclusterwidenetworkpolicies/status"),
    },
];

impl FeedbackKind {
    /// The kind of this name; `None` if it is not written back.
    #[must_use]
    pub fn of(kind: &str) -> Option<&'static FeedbackKind> {
        FEEDBACK.iter().find(|known| known.resource.kind == kind)
    }
}
