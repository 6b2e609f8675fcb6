//! What the oracle says: verdicts, what decided, and each step on the way.

use alloc::vec::Vec;
use core::fmt;
use core::net::IpAddr;
use palisade_model::{
    Action, Direction, Encapsulation, EndpointId, Family, IcmpMatch, ObjectId, PolicyId, PortSpec,
    Prefix, Protocol, RuleOrigin, Selector, SourceLine, Str, TierDefault,
};

/// What becomes of a flow, or of one direction of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FlowVerdict {
    /// It passes.
    Allow,
    /// It does not.
    Deny,
}

impl FlowVerdict {
    /// The verdict that allows if `allowed`.
    pub fn from_allowed(allowed: bool) -> Self {
        if allowed {
            FlowVerdict::Allow
        } else {
            FlowVerdict::Deny
        }
    }

    /// Whether it allows.
    pub fn is_allow(self) -> bool {
        self == FlowVerdict::Allow
    }
}

impl fmt::Display for FlowVerdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            FlowVerdict::Allow => "allow",
            FlowVerdict::Deny => "deny",
        })
    }
}

/// What happens to a flow: both ends must allow it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Allow if both directions allow.
    pub verdict: FlowVerdict,
    /// What the source's endpoint decides.
    pub egress: DirectionJudgement,
    /// What the destination's endpoint decides.
    pub ingress: DirectionJudgement,
}

/// What one end decides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirectionJudgement {
    /// The endpoint that judges; `None` where the end is none, so that nothing judges it.
    pub subject: Option<EndpointId>,
    /// What it decides.
    pub verdict: FlowVerdict,
    /// What decided.
    pub decided_by: DecisionReason,
    /// What was considered, in order, up to the decision.
    pub steps: Vec<TraceStep>,
}

/// What decided one direction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DecisionReason {
    /// A rule of a policy or a profile: the first that matched and allows or denies (in a profile,
    /// or passes).
    Rule {
        /// Where the rule stands.
        owner: RuleOwner,
        /// The direction it is for.
        direction: Direction,
        /// Which rule.
        origin: RuleOrigin,
        /// What it does.
        action: Action,
    },
    /// No rule of a tier that denies by default matched.
    TierDefault {
        /// The tier.
        tier: Str,
        /// The policies that ask for default deny there, in order.
        isolating: Vec<PolicyId>,
    },
    /// The built-in profile that allows everything.
    AllowAllProfile,
    /// No rule of any profile of the endpoint matched.
    NoProfileMatch,
    /// The endpoint names a profile that does not exist.
    MissingProfile {
        /// Its name.
        profile: Str,
    },
    /// The host's own stack made the packet, and may reach its endpoints.
    HostOrigin,
    /// Both ends are this endpoint, which cannot be cut off from itself.
    Hairpin,
    /// Rules allow it, but the endpoint may not send packets within packets of this kind.
    Encapsulated {
        /// The kind.
        encapsulation: Encapsulation,
    },
    /// There is no endpoint at this end.
    NotAnEndpoint,
}

/// Where a rule stands.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RuleOwner {
    /// In a policy.
    Policy(PolicyId),
    /// In a profile.
    Profile(Str),
}

/// One step of a judgement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TraceStep {
    /// A tier's turn; its policies follow.
    Tier {
        /// Its name.
        tier: Str,
        /// What it does with what its rules do not match.
        default: TierDefault,
        /// Whether no such tier exists.
        missing: bool,
        /// Whether it counts: one of its policies judges the endpoint in this direction.
        counts: bool,
    },
    /// A policy of the tier; if it judges the endpoint, its rules follow.
    Policy {
        /// Its name.
        policy: PolicyId,
        /// Where it was written.
        line: Option<SourceLine>,
        /// Whether it judges the endpoint in this direction, and if not, why.
        applicability: PolicyApplicability,
    },
    /// A rule.
    Rule {
        /// Where it stands.
        owner: RuleOwner,
        /// Which rule.
        origin: RuleOrigin,
        /// What it does.
        action: Action,
        /// Whether it matched, and if not, why.
        outcome: RuleOutcome,
    },
    /// None of a tier's rules decided.
    TierEnd {
        /// Its name.
        tier: Str,
        /// What follows.
        outcome: TierOutcome,
    },
    /// A profile's turn; its rules follow.
    Profile {
        /// Its name.
        profile: Str,
        /// Whether it exists.
        exists: bool,
    },
}

/// Whether a policy judges an endpoint in a direction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PolicyApplicability {
    /// It does.
    Applies,
    /// It has no rules for the direction (whether or not it selects the endpoint).
    OtherDirection,
    /// It does not select the endpoint.
    NotSelected {
        /// The parts of its selector that do not hold.
        unmet_requirements: Vec<Selector>,
    },
}

/// Whether a rule matched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RuleOutcome {
    /// It did.
    Matched,
    /// It did not.
    Missed(RuleMiss),
}

/// How a tier ends that none of its rules decided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TierOutcome {
    /// Its default denies.
    Denied {
        /// The policies that ask for it, in order.
        isolating: Vec<PolicyId>,
    },
    /// Its default passes on.
    DefaultPass,
    /// Its default denies, but no policy that judges the endpoint asks for that.
    NotIsolated,
}

/// Why a rule did not match. Each part that failed is there; a part that held is `None`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleMiss {
    /// The test of the own address failed, for these reasons.
    pub own: Option<Vec<PeerFailure>>,
    /// No peer matched: why each did not. Empty where the rule lists none.
    pub peers: Option<Vec<PeerMiss>>,
    /// No traffic term matched: why each did not. Empty where the rule lists none.
    pub traffic: Option<Vec<TrafficMiss>>,
}

/// Why a peer did not match.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerMiss {
    /// Its index in the rule.
    pub index: usize,
    /// Every criterion that failed.
    pub failures: Vec<PeerFailure>,
}

/// A criterion of a peer that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PeerFailure {
    /// Nothing that holds the address matches.
    Selector {
        /// What was asked for.
        selector: Selector,
        /// What holds the address, and which parts of the selector fail there. Empty where nothing
        /// holds it.
        holders: Vec<HolderMismatch>,
    },
    /// Something that holds the address matches what must not.
    NotSelector {
        /// What was excluded.
        selector: Selector,
        /// What matches it.
        holder: HolderName,
    },
    /// The address lies in none of these networks.
    Nets {
        /// The networks.
        nets: Vec<Prefix>,
        /// The address; `None` where it is unknown, which no network holds.
        address: Option<IpAddr>,
    },
    /// The address lies in an excluded network.
    NotNets {
        /// That network.
        net: Prefix,
    },
}

/// What a selector lacks at one thing that holds the address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HolderMismatch {
    /// The thing.
    pub holder: HolderName,
    /// The parts of the selector that do not hold for it.
    pub unmet_requirements: Vec<Selector>,
}

/// Names something that holds an address.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum HolderName {
    /// An endpoint.
    Endpoint(EndpointId),
    /// A network set.
    NetworkSet(ObjectId),
    /// A node.
    Node(Str),
}

impl fmt::Display for HolderName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HolderName::Endpoint(id) | HolderName::NetworkSet(id) => id.fmt(f),
            HolderName::Node(name) => write!(f, "Node {name}"),
        }
    }
}

/// Why a traffic term did not match.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrafficMiss {
    /// Its index in the rule.
    pub index: usize,
    /// Every criterion that failed.
    pub failures: Vec<TrafficFailure>,
}

/// A criterion of a traffic term that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TrafficFailure {
    /// It is for this family only.
    Family(Family),
    /// It is for this protocol only.
    Protocol(Protocol),
    /// It is for any protocol but this.
    NotProtocol(Protocol),
    /// The destination port does not match.
    Destination(PortFailure),
    /// The source port does not match.
    Source(PortFailure),
    /// It is for this ICMP message only.
    Icmp(IcmpMatch),
    /// It is for anything but this ICMP message.
    NotIcmp(IcmpMatch),
}

/// Why a port does not match.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PortFailure {
    /// The flow's protocol has no ports.
    NoPorts,
    /// It is none of these.
    NotListed {
        /// The flow's port.
        port: u16,
        /// What was asked for.
        specs: Vec<PortSpec>,
        /// Those names of it that stand for nothing here.
        unresolved: Vec<PortSpec>,
    },
    /// It is excluded.
    Excluded {
        /// The flow's port.
        port: u16,
        /// What excludes it.
        excluded_by: PortSpec,
    },
}

/// Hears each step of a walk.
pub(crate) trait TraceRecorder {
    /// Takes in a step, or lets it be: `step` is called only if someone listens.
    fn record(&mut self, step: impl FnOnce() -> TraceStep);
}

/// Hears nothing.
pub(crate) struct NoTrace;

impl TraceRecorder for NoTrace {
    fn record(&mut self, _step: impl FnOnce() -> TraceStep) {}
}

impl TraceRecorder for Vec<TraceStep> {
    fn record(&mut self, step: impl FnOnce() -> TraceStep) {
        self.push(step());
    }
}
