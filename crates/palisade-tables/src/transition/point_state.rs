//! What judges the packets of a point.

use crate::PolicySetId;

/// What judges the packets of a point.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum PointState {
    /// None, and the interface is not managed: everything passes.
    Open,
    /// None, and the interface is managed or closed by the dataplane: everything is denied.
    Denied,
    /// A policy set.
    Set(PolicySetId),
}

impl PointState {
    /// The policy set, if it has one.
    pub(super) fn set(self) -> Option<PolicySetId> {
        match self {
            PointState::Set(set) => Some(set),
            PointState::Open | PointState::Denied => None,
        }
    }
}
