//! Where on its way a packet is judged, and which traffic a policy judges.
//!
//! Promises: a policy has a part in a stage by its [`TrafficScope`] alone. Never: says what happens at a stage.

use crate::direction::Direction;
use core::fmt;
use serde::{Deserialize, Serialize};

/// Where on its way a packet is judged for an endpoint, in the order in which a packet meets the stages.
///
/// A workload is judged at [`PolicyStage::Normal`] only, whichever way its packets go. Source: Calico, "Host
/// endpoints".
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum PolicyStage {
    /// A packet before connection tracking, as it arrives (ingress) or as the host's own stack sends it (egress). What
    /// is allowed is not tracked and not judged again at this interface.
    Untracked,
    /// A packet with the destination that it has before destination NAT, at the interface by which its flow arrives.
    /// What is allowed is not judged again at this interface.
    PreDnat,
    /// A packet that this host forwards, at the interface by which it arrives (ingress) or leaves (egress).
    Forward,
    /// A packet to or from the endpoint: a workload's, or one of this host's own stack.
    Normal,
}

impl PolicyStage {
    /// All stages, in order.
    pub const ALL: [PolicyStage; 4] = [
        PolicyStage::Untracked,
        PolicyStage::PreDnat,
        PolicyStage::Forward,
        PolicyStage::Normal,
    ];

    /// Whether a packet that no policy decides at this stage is judged at the next one: no profile is asked. What is
    /// allowed is not judged again at the interface.
    pub fn is_early(self) -> bool {
        matches!(self, PolicyStage::Untracked | PolicyStage::PreDnat)
    }

    /// Whether a direction of a flow is judged at this stage.
    pub fn has_direction(self, direction: Direction) -> bool {
        self != PolicyStage::PreDnat || direction == Direction::Ingress
    }
}

impl fmt::Display for PolicyStage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            PolicyStage::Untracked => "untracked",
            PolicyStage::PreDnat => "pre-DNAT",
            PolicyStage::Forward => "forward",
            PolicyStage::Normal => "normal",
        })
    }
}

/// The traffic that a policy judges. Source: Calico, GlobalNetworkPolicy: `applyOnForward`, `preDNAT`, `doNotTrack`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub enum TrafficScope {
    /// That of workloads, and to and from the host at host endpoints.
    #[default]
    Endpoints,
    /// The same, and what workloads send to themselves through a Service (hairpin traffic). Source: Network Policy
    /// API, "API overview": a pod that reaches itself through a Service is subject to ClusterNetworkPolicy.
    Hairpin,
    /// That of [`TrafficScope::Endpoints`], and what the host forwards at host endpoints.
    Forwarded,
    /// What arrives at host endpoints, before destination NAT.
    PreDnat,
    /// What is before connection tracking at host endpoints.
    Untracked,
}

impl TrafficScope {
    /// Whether a policy with this scope has a part in a stage.
    pub fn has_stage(self, stage: PolicyStage) -> bool {
        match stage {
            PolicyStage::Untracked => self == TrafficScope::Untracked,
            PolicyStage::PreDnat => self == TrafficScope::PreDnat,
            PolicyStage::Forward => self == TrafficScope::Forwarded,
            PolicyStage::Normal => !self.is_early(),
        }
    }

    /// Whether a policy with this scope judges hairpin traffic where each kind does as its standard says
    /// ([`crate::HairpinAction::ByKind`]).
    pub fn has_hairpin(self) -> bool {
        self == TrafficScope::Hairpin
    }

    /// Whether it is that of an early stage ([`PolicyStage::is_early`]).
    pub fn is_early(self) -> bool {
        matches!(self, TrafficScope::PreDnat | TrafficScope::Untracked)
    }
}
