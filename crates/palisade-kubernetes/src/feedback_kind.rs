//! The kinds of policies that a cluster is told about, and in which form.

use crate::resource::{
    ADMIN_NETWORK_POLICY, BASELINE_ADMIN_NETWORK_POLICY, CILIUM_CLUSTERWIDE_NETWORK_POLICY,
    CILIUM_NETWORK_POLICY, CLUSTER_NETWORK_POLICY, NETWORK_POLICY, ResourceType, calico,
    calico_crd,
};

/// A kind of policy. Every refused object of it gets an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FeedbackKind {
    /// The resource that is watched.
    pub resource: ResourceType,
    /// The condition that each of its objects gets; `None` if its status has no conditions.
    pub condition: Option<ConditionType>,
}

/// A condition in the status of a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConditionType {
    /// The subresource of the status.
    pub subresource: &'static str,
    /// The type of the condition, by the API that the kind is of: the Network Policy API has none of its own, so
    /// it is the one of the Gateway API; Cilium's kinds have [`VALID`], which `kubectl get` shows as a column.
    pub name: &'static str,
}

/// The condition of the kinds of `policy.networking.k8s.io`.
pub const ACCEPTED: &str = "Accepted";
/// The condition of Cilium's kinds.
pub const VALID: &str = "Valid";

/// Every kind that is written back.
pub const FEEDBACK: [FeedbackKind; 16] = [
    of_events(NETWORK_POLICY),
    of_condition(
        CLUSTER_NETWORK_POLICY,
        "clusternetworkpolicies/status",
        ACCEPTED,
    ),
    of_condition(
        ADMIN_NETWORK_POLICY,
        "adminnetworkpolicies/status",
        ACCEPTED,
    ),
    of_condition(
        BASELINE_ADMIN_NETWORK_POLICY,
        "baselineadminnetworkpolicies/status",
        ACCEPTED,
    ),
    of_condition(CILIUM_NETWORK_POLICY, "ciliumnetworkpolicies/status", VALID),
    of_condition(
        CILIUM_CLUSTERWIDE_NETWORK_POLICY,
        "ciliumclusterwidenetworkpolicies/status",
        VALID,
    ),
    of_events(calico_crd("networkpolicies", "NetworkPolicy")),
    of_events(calico_crd("globalnetworkpolicies", "GlobalNetworkPolicy")),
    of_events(calico_crd("stagednetworkpolicies", "StagedNetworkPolicy")),
    of_events(calico_crd(
        "stagedglobalnetworkpolicies",
        "StagedGlobalNetworkPolicy",
    )),
    of_events(calico_crd(
        "stagedkubernetesnetworkpolicies",
        "StagedKubernetesNetworkPolicy",
    )),
    of_events(calico("networkpolicies", "NetworkPolicy")),
    of_events(calico("globalnetworkpolicies", "GlobalNetworkPolicy")),
    of_events(calico("stagednetworkpolicies", "StagedNetworkPolicy")),
    of_events(calico(
        "stagedglobalnetworkpolicies",
        "StagedGlobalNetworkPolicy",
    )),
    of_events(calico(
        "stagedkubernetesnetworkpolicies",
        "StagedKubernetesNetworkPolicy",
    )),
];

const fn of_events(resource: ResourceType) -> FeedbackKind {
    FeedbackKind {
        resource,
        condition: None,
    }
}

const fn of_condition(
    resource: ResourceType,
    subresource: &'static str,
    name: &'static str,
) -> FeedbackKind {
    FeedbackKind {
        resource,
        condition: Some(ConditionType { subresource, name }),
    }
}

impl FeedbackKind {
    /// The kind of the resource of this name (`networkpolicies.networking.k8s.io`); `None` if it is not written back.
    #[must_use]
    pub fn of(resource: &str) -> Option<&'static FeedbackKind> {
        FEEDBACK
            .iter()
            .find(|known| known.resource.is_named(resource))
    }
}
