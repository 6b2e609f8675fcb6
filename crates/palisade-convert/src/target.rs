//! The dialects that can be written. Never: says how.

use palisade_model::ObjectKind;
use std::fmt;

/// A dialect that policies can be written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TargetDialect {
    /// NetworkPolicy of `networking.k8s.io`.
    Kubernetes,
    /// ClusterNetworkPolicy of `policy.networking.k8s.io`.
    ClusterNetworkPolicy,
    /// CiliumNetworkPolicy and CiliumClusterwideNetworkPolicy.
    Cilium,
    /// NetworkPolicy and GlobalNetworkPolicy of `projectcalico.org`.
    Calico,
}

impl TargetDialect {
    /// Every target.
    pub const ALL: [TargetDialect; 4] = [
        TargetDialect::Kubernetes,
        TargetDialect::ClusterNetworkPolicy,
        TargetDialect::Cilium,
        TargetDialect::Calico,
    ];

    /// Whether policies of a kind are of the dialect already: they stay as they are.
    #[must_use]
    pub fn has_kind(self, kind: &ObjectKind) -> bool {
        let (group, name) = (kind.group(), kind.name());
        match self {
            TargetDialect::Kubernetes => (group, name) == ("networking.k8s.io", "NetworkPolicy"),
            TargetDialect::ClusterNetworkPolicy => {
                (group, name) == ("policy.networking.k8s.io", "ClusterNetworkPolicy")
            }
            TargetDialect::Cilium => group == "cilium.io",
            TargetDialect::Calico => {
                matches!(group, "projectcalico.org" | "crd.projectcalico.org")
            }
        }
    }

    /// How a sentence names a policy of it.
    #[must_use]
    pub const fn policy_name(self) -> &'static str {
        match self {
            TargetDialect::Kubernetes => "a NetworkPolicy",
            TargetDialect::ClusterNetworkPolicy => "a ClusterNetworkPolicy",
            TargetDialect::Cilium => "a policy of Cilium",
            TargetDialect::Calico => "a policy of Calico",
        }
    }
}

impl fmt::Display for TargetDialect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.policy_name())
    }
}
