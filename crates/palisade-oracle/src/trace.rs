//! The output of the oracle: verdicts, the deciding reasons, and the trace of each evaluation.

use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::fmt;
use core::net::IpAddr;
use palisade_model::{
    Action, Direction, DomainPattern, Encapsulation, EndpointId, Family, IcmpMatch, ObjectId,
    Order, PolicyId, PolicyStage, PortSpec, Prefix, Protocol, RuleOrigin, Selector, SourceLine,
    Str, TierDefault,
};

/// The verdict of a flow, or of one direction of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FlowVerdict {
    /// Allowed.
    Allow,
    /// Denied.
    Deny,
}

impl FlowVerdict {
    /// [`FlowVerdict::Allow`] if `allowed`, else [`FlowVerdict::Deny`].
    pub fn from_allowed(allowed: bool) -> Self {
        if allowed {
            FlowVerdict::Allow
        } else {
            FlowVerdict::Deny
        }
    }

    /// Whether the verdict is [`FlowVerdict::Allow`].
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

/// The verdict of a flow, with the decisions of both ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Allow if both directions and this host allow.
    pub verdict: FlowVerdict,
    /// The decision of the source endpoint.
    pub egress: DirectionJudgement,
    /// The decision of the destination endpoint.
    pub ingress: DirectionJudgement,
    /// The decisions of this host at the interfaces that the packet crosses, in the order in which it crosses them; at
    /// each, those of the stages up to the first that decides.
    pub host: Vec<HostJudgement>,
}

/// The decision of a host endpoint at one interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostJudgement {
    /// The interface.
    pub interface: Str,
    /// The stage.
    pub stage: PolicyStage,
    /// Ingress where the packet arrives, egress where it leaves.
    pub direction: Direction,
    /// The decision; its subject is the host endpoint.
    pub judgement: DirectionJudgement,
}

/// The decision of one end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirectionJudgement {
    /// The endpoint whose policies apply; `None` where the end is not an endpoint, so that none apply.
    pub subject: Option<EndpointId>,
    /// The verdict.
    pub verdict: FlowVerdict,
    /// The reason for the verdict.
    pub decided_by: DecisionReason,
    /// The verdict of DNS queries for other names than those in `redirect`; where nobody reads queries, that of the flow.
    pub query_verdict: FlowVerdict,
    /// Where rules decide DNS queries by name: the names that they allow. The reason is then that of queries for other
    /// names. Empty as well where a policy only observes DNS ([`palisade_model::Policy::observes_dns`]).
    pub redirect: Option<BTreeSet<DomainPattern>>,
    /// The evaluation trace, in order, up to the decision.
    pub steps: Vec<TraceStep>,
    /// The judgement if nothing were in audit; `None` where nothing in audit applies to this direction of
    /// the endpoint.
    pub audit: Option<Box<DirectionJudgement>>,
}

/// The reason for the verdict of one direction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DecisionReason {
    /// A rule of a policy or a profile: the first matching rule that allows or denies (in a profile,
    /// also one that passes).
    Rule {
        /// The policy or profile of the rule.
        owner: RuleOwner,
        /// The direction it is for.
        direction: Direction,
        /// The origin of the rule.
        origin: RuleOrigin,
        /// Its action.
        action: Action,
    },
    /// The default deny of a tier in which no rule matched.
    TierDefault {
        /// The tier.
        tier: Str,
        /// The policies that apply default deny, in order.
        isolating: Vec<PolicyId>,
    },
    /// The built-in profile that allows everything.
    AllowAllProfile,
    /// No rule of any profile of the endpoint matched.
    NoProfileMatch,
    /// A profile of the endpoint does not exist.
    MissingProfile {
        /// Its name.
        profile: Str,
    },
    /// The host's own stack emitted the packet, which is allowed to its endpoints.
    HostOrigin,
    /// Source and destination are this endpoint, and no policy that applies to it judges such traffic.
    Hairpin,
    /// Source and destination are this endpoint, and none of the policies that judge such traffic decides.
    HairpinEnd,
    /// Rules allow it, but the configuration denies this encapsulation to endpoints.
    Encapsulated {
        /// The encapsulation.
        encapsulation: Encapsulation,
    },
    /// The endpoint is in audit: no policy is enforced for it.
    EndpointInAudit,
    /// The end is not an endpoint.
    NotAnEndpoint,
    /// It is to or from a failsafe port of the host.
    Failsafe,
    /// The host forwards it, and no policy that applies on forward selects the interface.
    NoForwardPolicy,
    /// The host forwards it, and no policy that applies on forward decides.
    ForwardEnd,
    /// No policy of an early stage decides: the next stage judges.
    StageEnd,
}

/// The object that a rule belongs to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RuleOwner {
    /// A policy.
    Policy(PolicyId),
    /// A profile, by name.
    Profile(Str),
}

/// One step of an evaluation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TraceStep {
    /// A tier is evaluated; its policies follow.
    Tier {
        /// Its name.
        tier: Str,
        /// Its order among the tiers.
        order: Order,
        /// Its default.
        default: TierDefault,
        /// Whether the tier does not exist.
        missing: bool,
        /// Whether it applies: one of its policies applies to the endpoint in this direction.
        counts: bool,
    },
    /// A policy of the tier; if it applies to the endpoint, its rules follow.
    Policy {
        /// Its name.
        policy: PolicyId,
        /// Its order in the tier.
        order: Order,
        /// Where it was written.
        line: Option<SourceLine>,
        /// Whether it applies to the endpoint in this direction, and if not, why.
        applicability: PolicyApplicability,
    },
    /// A rule.
    Rule {
        /// Its policy or profile.
        owner: RuleOwner,
        /// Its origin.
        origin: RuleOrigin,
        /// Its action.
        action: Action,
        /// Whether it matched, and if not, why.
        outcome: RuleOutcome,
    },
    /// No rule of a tier decided.
    TierEnd {
        /// Its name.
        tier: Str,
        /// The outcome of its default.
        outcome: TierOutcome,
    },
    /// A profile is evaluated; its rules follow.
    Profile {
        /// Its name.
        profile: Str,
        /// Whether it exists.
        exists: bool,
    },
}

/// Whether a policy applies to an endpoint in a direction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PolicyApplicability {
    /// It applies.
    Applies,
    /// It selects the endpoint, and is in audit.
    InAudit,
    /// It has no rules for the direction (whether or not it selects the endpoint).
    OtherDirection,
    /// It has no part in the stage (whether or not it selects the endpoint).
    OtherStage,
    /// Source and destination are the endpoint itself, which the policy does not judge.
    NoHairpin,
    /// It does not select the endpoint.
    NotSelected {
        /// The requirements of its selector that do not hold.
        unmet_requirements: Vec<Selector>,
    },
}

/// Whether a rule matched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RuleOutcome {
    /// It matched.
    Matched,
    /// It did not match.
    Missed(RuleMiss),
}

/// The outcome of a tier in which no rule decided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TierOutcome {
    /// Denied by the tier's default.
    Denied {
        /// The policies that apply default deny, in order.
        isolating: Vec<PolicyId>,
    },
    /// The tier's default is `Pass`: the next tier follows.
    DefaultPass,
    /// The tier's default is `Deny`, but no policy applies default deny to the endpoint.
    NotIsolated,
}

/// Why a rule did not match. A part that matched is `None`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleMiss {
    /// Why the test of the endpoint's own address failed.
    pub local: Option<Vec<PeerFailure>>,
    /// Why each peer did not match. Empty where the rule has no peers.
    pub peers: Option<Vec<PeerMiss>>,
    /// Why each traffic term did not match. Empty where the rule has no traffic terms.
    pub traffic: Option<Vec<TrafficMiss>>,
    /// Whether the rule decides DNS queries by name, and those of this flow cannot be read.
    pub unreadable_queries: bool,
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
    /// No holder of the address matches the selector.
    Selector {
        /// The selector.
        selector: Selector,
        /// The holders of the address, with the requirements of the selector that fail for each; without nodes
        /// where a workload has the address. Empty where the address has no holder.
        holders: Vec<HolderMismatch>,
    },
    /// A holder of the address matches an excluded selector.
    NotSelector {
        /// The excluded selector.
        selector: Selector,
        /// The holder that matches it.
        holder: HolderName,
    },
    /// The address is in none of these networks.
    Nets {
        /// The networks.
        nets: Vec<Prefix>,
        /// The address; `None` where it is unknown, and therefore in no network.
        address: Option<IpAddr>,
    },
    /// The address is in an excluded network.
    NotNets {
        /// That network.
        net: Prefix,
    },
}

/// Why a selector does not match a holder of the address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HolderMismatch {
    /// The holder.
    pub holder: HolderName,
    /// The requirements of the selector that do not hold for it.
    pub unmet_requirements: Vec<Selector>,
}

/// Identifies a holder of an address.
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
    /// The term matches only this family.
    Family(Family),
    /// The term matches only this protocol.
    Protocol(Protocol),
    /// The term excludes this protocol.
    NotProtocol(Protocol),
    /// The destination port does not match.
    Destination(PortFailure),
    /// The source port does not match.
    Source(PortFailure),
    /// The term matches only this ICMP message.
    Icmp(IcmpMatch),
    /// The term excludes this ICMP message.
    NotIcmp(IcmpMatch),
}

/// Why a port does not match.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PortFailure {
    /// The flow's protocol has no ports.
    NoPorts,
    /// The port is none of the listed ones.
    NotListed {
        /// The flow's port.
        port: u16,
        /// The listed ports.
        specs: Vec<PortSpec>,
        /// The listed port names that do not resolve at this end.
        unresolved: Vec<PortSpec>,
    },
    /// The port is excluded.
    Excluded {
        /// The flow's port.
        port: u16,
        /// The spec that excludes it.
        excluded_by: PortSpec,
    },
}

/// Records an evaluation.
pub(crate) trait TraceRecorder {
    /// Records a step. `step` is called only if a trace is kept.
    fn record(&mut self, _step: impl FnOnce() -> TraceStep) {}

    /// Records the names of a rule that decides by name.
    fn redirect(&mut self, _names: &BTreeSet<DomainPattern>) {}
}

/// Records the names of the rules that decide by name; `None` if there was none.
#[derive(Default)]
pub(crate) struct RedirectNames(pub(crate) Option<BTreeSet<DomainPattern>>);

impl TraceRecorder for RedirectNames {
    fn redirect(&mut self, names: &BTreeSet<DomainPattern>) {
        let all = self.0.get_or_insert_default();
        all.extend(names.iter().cloned());
    }
}

impl TraceRecorder for Vec<TraceStep> {
    fn record(&mut self, step: impl FnOnce() -> TraceStep) {
        self.push(step());
    }
}
