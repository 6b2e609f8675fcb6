//! The kinds of Calico's policies, and in what they differ.

use palisade_model::PolicyMode;

/// A kind of policy with Calico's rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CalicoPolicyKind {
    /// NetworkPolicy.
    Namespaced,
    /// GlobalNetworkPolicy.
    Global,
    /// StagedNetworkPolicy.
    StagedNamespaced,
    /// StagedGlobalNetworkPolicy.
    StagedGlobal,
}

const STAGED_NAMESPACED: &[&str] = &[
    "stagedAction",
    "tier",
    "order",
    "ingress",
    "egress",
    "selector",
    "types",
    "serviceAccountSelector",
    "performanceHints",
];
const STAGED_GLOBAL: &[&str] = &[
    "stagedAction",
    "tier",
    "order",
    "ingress",
    "egress",
    "selector",
    "namespaceSelector",
    "types",
    "serviceAccountSelector",
    "doNotTrack",
    "preDNAT",
    "applyOnForward",
    "performanceHints",
];
/// The same without `stagedAction`, which is the first.
const NAMESPACED: &[&str] = STAGED_NAMESPACED.split_at(1).1;
const GLOBAL: &[&str] = STAGED_GLOBAL.split_at(1).1;
const ONLY_GLOBAL: &str = "only a GlobalNetworkPolicy has it";

impl CalicoPolicyKind {
    /// The variant of a kind that enforces something.
    pub(super) fn of_kind(kind: &str) -> Option<Self> {
        match kind {
            "NetworkPolicy" => Some(CalicoPolicyKind::Namespaced),
            "GlobalNetworkPolicy" => Some(CalicoPolicyKind::Global),
            _ => None,
        }
    }

    /// Whether its policies are in namespaces.
    pub(super) fn is_namespaced(self) -> bool {
        matches!(
            self,
            CalicoPolicyKind::Namespaced | CalicoPolicyKind::StagedNamespaced
        )
    }

    /// Whether its policies are staged: they are reported, and never enforced.
    pub(super) fn is_staged(self) -> bool {
        matches!(
            self,
            CalicoPolicyKind::StagedNamespaced | CalicoPolicyKind::StagedGlobal
        )
    }

    /// The mode of its policies.
    pub(super) fn mode(self) -> PolicyMode {
        if self.is_staged() {
            PolicyMode::Audit
        } else {
            PolicyMode::Enforce
        }
    }

    /// The fields of a spec.
    pub(super) fn spec_fields(self) -> &'static [&'static str] {
        match self {
            CalicoPolicyKind::Namespaced => NAMESPACED,
            CalicoPolicyKind::Global => GLOBAL,
            CalicoPolicyKind::StagedNamespaced => STAGED_NAMESPACED,
            CalicoPolicyKind::StagedGlobal => STAGED_GLOBAL,
        }
    }

    /// Fields that are known elsewhere, each with a hint.
    pub(super) fn fields_elsewhere(self) -> &'static [(&'static str, &'static str)] {
        if self.is_namespaced() {
            &[
                ("podSelector", "the endpoints are selected by `selector`"),
                ("policyTypes", "the directions are in `types`"),
                ("namespaceSelector", ONLY_GLOBAL),
                ("doNotTrack", ONLY_GLOBAL),
                ("preDNAT", ONLY_GLOBAL),
                ("applyOnForward", ONLY_GLOBAL),
            ]
        } else {
            &[
                ("podSelector", "the endpoints are selected by `selector`"),
                ("policyTypes", "the directions are in `types`"),
            ]
        }
    }
}
