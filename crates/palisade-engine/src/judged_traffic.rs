//! Which traffic of an endpoint a policy set judges.
//!
//! Promises: a policy has a part in a set by its scope alone. Never: finds the policies or the points of a set.

use palisade_model::PolicyStage;

/// The traffic that a policy set judges.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum JudgedTraffic {
    /// That of a workload.
    Workload,
    /// What a workload sends to itself through a Service.
    Hairpin,
    /// That of a host endpoint at a stage.
    Host(PolicyStage),
}

impl JudgedTraffic {
    /// The stage of a host endpoint.
    pub(crate) fn host_stage(self) -> Option<PolicyStage> {
        match self {
            JudgedTraffic::Host(stage) => Some(stage),
            JudgedTraffic::Workload | JudgedTraffic::Hairpin => None,
        }
    }

    /// Whether profiles decide what no policy does.
    pub(crate) fn has_profiles(self) -> bool {
        matches!(
            self,
            JudgedTraffic::Workload | JudgedTraffic::Host(PolicyStage::Normal)
        )
    }
}
