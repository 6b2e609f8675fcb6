//! The verdict of a direction, a stage or a packet.
//!
//! Promises: verdicts are in order of what passes. Never: knows what is judged, or by which rule.

use serde::{Deserialize, Serialize};

/// The verdict of a direction, a stage or a packet, in order of what passes. Serialized in state on disk, as a part of
/// causes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Verdict {
    /// Denied.
    Deny,
    /// Not decided: the next stage judges. Of an early stage only ([`palisade_model::PolicyStage::is_early`]).
    Continue,
    /// Allowed. An early stage that allows a packet ends its judgement at the interface.
    Allow,
}

impl Verdict {
    /// Whether a packet with this verdict is not dropped where it is judged.
    pub fn passes(self) -> bool {
        self != Verdict::Deny
    }

    /// The verdict of what is judged last: what is not decided is allowed.
    #[must_use]
    pub fn or_allow(self) -> Verdict {
        match self {
            Verdict::Continue => Verdict::Allow,
            decided => decided,
        }
    }
}
