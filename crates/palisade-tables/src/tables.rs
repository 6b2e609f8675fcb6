//! The decision tables.

use crate::{ClassId, IdentityId, PolicySetId, Program, RuleId, Verdict};
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::IpAddr;
use palisade_model::{
    Direction, FailsafePorts, HairpinAction, HostTrafficAction, PolicyId, PolicyStage, Prefix,
    PrefixMap, RuleOrigin, Str,
};
use serde::{Deserialize, Serialize};

/// The interface of a point.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PointInterface {
    /// The host-side interface of a workload.
    Workload(Str),
    /// The same, for what the workload sends to itself through a Service. Without a point it passes.
    Hairpin(Str),
    /// An interface of this host that is in [`Tables::host_interfaces`].
    Host(Str),
    /// Every other interface of this host: no workload's, not loopback, not in [`Tables::host_interfaces`].
    AnyHost,
}

/// Where a direction is judged: an interface, the stage, the direction, and the local addresses that it is for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Point {
    /// The interface.
    pub interface: PointInterface,
    /// The stage; [`PolicyStage::Normal`] at a workload.
    pub stage: PolicyStage,
    /// The direction, seen from the endpoint.
    pub direction: Direction,
    /// The local end: at a workload its own address; at a host interface the addresses that the packet may have at
    /// this end, of which the longest prefix decides.
    pub local: Prefix,
}

impl Point {
    /// The point of a workload's own address.
    pub fn of_workload(interface: Str, address: IpAddr, direction: Direction) -> Self {
        Point {
            interface: PointInterface::Workload(interface),
            stage: PolicyStage::Normal,
            direction,
            local: Prefix::host(address),
        }
    }

    /// The point of a workload's own address for hairpin traffic.
    pub fn of_hairpin(interface: Str, address: IpAddr, direction: Direction) -> Self {
        Point {
            interface: PointInterface::Hairpin(interface),
            ..Point::of_workload(Str::default(), address, direction)
        }
    }

    /// Interface and local address of the point of a workload; `None` for one of a host interface, and for one of
    /// hairpin traffic.
    pub fn workload(&self) -> Option<(&Str, IpAddr)> {
        match &self.interface {
            PointInterface::Workload(interface) => Some((interface, self.local.address())),
            PointInterface::Hairpin(_) | PointInterface::Host(_) | PointInterface::AnyHost => None,
        }
    }

    /// Interface and local address of a point of hairpin traffic.
    pub fn hairpin(&self) -> Option<(&Str, IpAddr)> {
        match &self.interface {
            PointInterface::Hairpin(interface) => Some((interface, self.local.address())),
            PointInterface::Workload(_) | PointInterface::Host(_) | PointInterface::AnyHost => None,
        }
    }

    /// Whether it is one of an interface of this host.
    pub fn is_host(&self) -> bool {
        matches!(
            self.interface,
            PointInterface::Host(_) | PointInterface::AnyHost
        )
    }
}

/// The entry of a policy set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PolicySet {
    /// The class of every identity without an entry in [`Tables::classes`].
    pub default: ClassId,
}

/// Packets and bytes that were counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct CounterValue {
    /// Packets.
    pub packets: u64,
    /// Bytes, from the network header on.
    pub bytes: u64,
}

/// The object that a [`RuleId`] is for: counters and log lines refer to it. It contains no line
/// number, so it stays equal over every edit that does not change the rule. Serialized in state on
/// disk.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum VerdictCause {
    /// A rule of a policy.
    Rule {
        /// The policy.
        policy: PolicyId,
        /// The direction that the rule is for.
        direction: Direction,
        /// Its origin in the policy.
        origin: RuleOrigin,
    },
    /// A rule of a profile.
    ProfileRule {
        /// The profile's name.
        profile: Str,
        /// The direction that the rule is for.
        direction: Direction,
        /// Its origin in the profile.
        origin: RuleOrigin,
    },
    /// The default deny of a tier in which no rule matched.
    TierDefault {
        /// The tier's name.
        tier: Str,
        /// The direction.
        direction: Direction,
        /// The policies that apply default deny, in order.
        policies: Vec<PolicyId>,
    },
    /// A profile of an endpoint that does not exist.
    MissingProfile {
        /// The profile's name.
        profile: Str,
        /// The direction.
        direction: Direction,
    },
    /// No rule of any profile matched.
    NoProfileMatch {
        /// The direction.
        direction: Direction,
    },
    /// The host forwards it, and no rule of a policy that applies on forward matched.
    ForwardEnd {
        /// The direction.
        direction: Direction,
    },
    /// A workload sends it to itself, and no rule of a policy that judges hairpin traffic matched.
    HairpinEnd {
        /// The direction.
        direction: Direction,
    },
    /// No rule of a policy of an early stage matched: the next stage judges.
    #[serde(rename = "PassEnd")]
    StageEnd {
        /// The direction.
        direction: Direction,
    },
    /// An encapsulated packet from an endpoint, which rules allow and the configuration denies.
    Encapsulated,
    /// The endpoint is in audit: no policy is enforced for it.
    EndpointInAudit {
        /// The direction.
        direction: Direction,
    },
    /// What would be the cause if nothing were in audit.
    Audit {
        /// The verdict if nothing were in audit.
        verdict: Verdict,
        /// What would be the cause; itself no audit.
        #[serde(rename = "credit")]
        cause: Box<VerdictCause>,
    },
}

impl VerdictCause {
    /// The cause, or what it would be if nothing were in audit.
    pub fn unaudited(&self) -> &VerdictCause {
        match self {
            VerdictCause::Audit { cause, .. } => cause,
            cause => cause,
        }
    }

    /// The direction that was judged.
    pub fn direction(&self) -> Direction {
        match self {
            VerdictCause::Rule { direction, .. }
            | VerdictCause::ProfileRule { direction, .. }
            | VerdictCause::TierDefault { direction, .. }
            | VerdictCause::MissingProfile { direction, .. }
            | VerdictCause::NoProfileMatch { direction }
            | VerdictCause::ForwardEnd { direction }
            | VerdictCause::HairpinEnd { direction }
            | VerdictCause::StageEnd { direction }
            | VerdictCause::EndpointInAudit { direction } => *direction,
            VerdictCause::Encapsulated => Direction::Egress,
            VerdictCause::Audit { cause, .. } => cause.direction(),
        }
    }
}

/// Which traffic is judged that a deployment may exempt from policy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JudgementOptions {
    /// Whether ingress policy applies to packets of this host's own stack to its endpoints. If false,
    /// they pass: a kubelet's probes must reach its pods.
    pub judge_host_traffic: bool,
    /// Whether the points of workloads judge packets from an endpoint to itself as any other. If false, they are judged
    /// at the points of [`PointInterface::Hairpin`], and pass where there is none.
    pub judge_hairpin: bool,
    /// The flows of the host that no policy can deny.
    pub failsafe: FailsafePorts,
}

impl JudgementOptions {
    /// The options that these parameters of a deployment mean.
    pub fn new(
        host_traffic: HostTrafficAction,
        hairpin: HairpinAction,
        failsafe: FailsafePorts,
    ) -> Self {
        JudgementOptions {
            judge_host_traffic: host_traffic == HostTrafficAction::Policy,
            judge_hairpin: hairpin == HairpinAction::Policy,
            failsafe,
        }
    }
}

/// The decision tables. The fields are the whole content.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tables {
    /// Which traffic is judged that could be exempt.
    pub judgement: JudgementOptions,
    /// The managed interfaces: a packet that arrives or leaves there and has no point is denied.
    pub interfaces: BTreeSet<Str>,
    /// The interfaces of this host with points of their own; the others have those of [`PointInterface::AnyHost`]. What has
    /// no point at an interface of the host is not judged there.
    pub host_interfaces: BTreeSet<Str>,
    /// Address or prefix → identity; the longest prefix wins.
    pub addresses: PrefixMap<IdentityId>,
    /// Point → policy set.
    pub points: BTreeMap<Point, PolicySetId>,
    /// The policy sets.
    pub sets: BTreeMap<PolicySetId, PolicySet>,
    /// (policy set, identity) → class. An identity without an entry has the set's default.
    pub classes: BTreeMap<(PolicySetId, IdentityId), ClassId>,
    /// Class → program.
    pub programs: BTreeMap<ClassId, Arc<Program>>,
    /// Rule number → cause, for every rule that a program refers to.
    pub rules: BTreeMap<RuleId, Arc<VerdictCause>>,
}

impl Tables {
    /// Whether this host judges packets at interfaces of its own.
    pub fn judges_host(&self) -> bool {
        // Points of the host are the last in order.
        let last = self.points.last_key_value();
        last.is_some_and(|(point, _)| {
            matches!(
                point.interface,
                PointInterface::Host(_) | PointInterface::AnyHost
            )
        })
    }

    /// The class of an identity in a policy set; `None` if the set does not exist.
    pub fn class(&self, set: PolicySetId, identity: IdentityId) -> Option<ClassId> {
        let default = self.sets.get(&set)?.default;
        Some(
            self.classes
                .get(&(set, identity))
                .copied()
                .unwrap_or(default),
        )
    }
}
