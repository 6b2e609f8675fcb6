//! `GET /v1/explain` and `palisade explain`: the request, and the explanation. An explanation is complete:
//! reading it does not require the state.

mod text;

use crate::object::named_enum;
use crate::{IpFamily, ObjectRef, ProtocolName};
use palisade_model::{Action, Direction, Encapsulation, PolicyStage, Str, TierDefault};
use serde::{Deserialize, Serialize};
use std::net::IpAddr;

/// The query parameters of `GET /v1/explain`: the command's flags.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ExplainQuery {
    /// The source: `namespace/pod`, `host:node` or an address.
    pub from: String,
    /// The destination: `namespace/pod`, `host:node`, an address, `service:namespace/name`, or `name:domain`.
    pub to: String,
    /// The destination port: `80/TCP`, `80` (TCP), or a named port of the destination, `http/TCP`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<String>,
    /// The protocol where `port` is absent: a name or a number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol: Option<String>,
    /// The ICMP message: `TYPE` or `TYPE/CODE`; an echo request where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub icmp_type: Option<String>,
    /// The source port; 49152, the first of the dynamic ports, where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_port: Option<u16>,
    /// Where the packet was sent before destination NAT: `ADDRESS:PORT`, `[ADDRESS]:PORT`, or the address where only
    /// that is translated; the destination where absent. Hosts judge it so where policies apply before destination NAT.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub original_destination: Option<String>,
    /// The interface by which the destination's host, or the host that forwards the packet, receives it; where
    /// absent, every interface with a host endpoint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_interface: Option<String>,
    /// The interface by which the packet leaves the source's host, or the host that forwards it; where absent,
    /// every interface with a host endpoint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_interface: Option<String>,
    /// The node of these interfaces, where neither end tells it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
}

/// The verdict of a query and the reasons for it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Explanation {
    /// The version of this format.
    pub api_version: Str,
    /// The result; if there are several, the first that denies.
    #[serde(flatten)]
    pub case: FlowReport,
    /// The other results, where the query covers several flows with different results.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub others: Vec<FlowReport>,
    /// Notes on how the ends of the query were resolved.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

crate::object::named_enum! {
    /// What the sender of a denied packet is answered.
    DenialAnswer {
        /// A TCP reset.
        TcpReset = "a TCP reset",
        /// ICMP or ICMPv6: administratively prohibited.
        AdminProhibited = "ICMP administratively prohibited",
    }
}

impl Explanation {
    /// The same explanation where denials answer. Not answered are denials before connection tracking and before
    /// destination NAT, and what a host itself sends to an address that is translated.
    #[must_use]
    pub fn with_answers(mut self) -> Self {
        for case in std::iter::once(&mut self.case).chain(&mut self.others) {
            let denied_early = case.hosts.iter().any(|host| {
                matches!(host.stage, HostStage::Untracked | HostStage::PreDnat)
                    && host.decision.verdict == VerdictWord::Deny
            });
            let is_translated = case.from.node.is_some() && case.original_destination.is_some();
            if case.verdict == VerdictWord::Deny && !denied_early && !is_translated {
                case.rejected_with = Some(match case.protocol {
                    ProtocolName::Tcp => DenialAnswer::TcpReset,
                    _ => DenialAnswer::AdminProhibited,
                });
            }
        }
        self
    }

    /// The same explanation without the steps of policies that do not apply; they are counted in
    /// [`DirectionReport::not_applying`].
    #[must_use]
    pub fn brief(mut self) -> Self {
        for case in std::iter::once(&mut self.case).chain(&mut self.others) {
            let hosts = case.hosts.iter_mut().map(|at| &mut at.decision);
            for side in [&mut case.egress, &mut case.ingress]
                .into_iter()
                .chain(hosts)
            {
                side.omit_not_applying();
                if let Some(audit) = &mut side.audit {
                    audit.omit_not_applying();
                }
            }
        }
        self
    }
}

#[allow(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde requires a reference"
)]
fn is_zero(number: &usize) -> bool {
    *number == 0
}

/// A verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[allow(missing_docs, reason = "the names are self-explanatory")]
pub enum VerdictWord {
    Allow,
    Deny,
}

/// One flow and its verdict.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct FlowReport {
    /// The verdict: `Allow` if both directions and all hosts allow.
    pub verdict: VerdictWord,
    /// The verdict if nothing were in audit; absent where nothing in audit applies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub audit_verdict: Option<VerdictWord>,
    /// What the sender is answered, where the flow is denied and denials answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rejected_with: Option<DenialAnswer>,
    /// The source.
    pub from: FlowEndReport,
    /// The destination.
    pub to: FlowEndReport,
    /// The IP version.
    pub family: IpFamily,
    /// The protocol.
    pub protocol: ProtocolName,
    /// The destination port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// The source port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_port: Option<u16>,
    /// The ICMP type and code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub icmp_type: Option<[u8; 2]>,
    /// Where the packet was sent before destination NAT, if it is translated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub original_destination: Option<OriginalDestination>,
    /// The decision of the source endpoint.
    pub egress: DirectionReport,
    /// What hosts decide at the interfaces that the packet crosses, in its order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<HostReport>,
    /// The decision of the destination endpoint.
    pub ingress: DirectionReport,
}

/// The destination of a packet before destination NAT.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct OriginalDestination {
    /// The address.
    pub address: IpAddr,
    /// The port, where the protocol has ports.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
}

named_enum! {
    /// The stage at which a packet is judged at an interface of a host.
    HostStage {
        /// Before connection tracking.
        Untracked = "untracked",
        /// Before destination NAT.
        PreDnat = "pre-dnat",
        /// The host forwards it.
        Forward = "forward",
        /// It is to or from the host.
        Normal = "normal",
    }
}

impl From<PolicyStage> for HostStage {
    fn from(stage: PolicyStage) -> HostStage {
        match stage {
            PolicyStage::Untracked => HostStage::Untracked,
            PolicyStage::PreDnat => HostStage::PreDnat,
            PolicyStage::Forward => HostStage::Forward,
            PolicyStage::Normal => HostStage::Normal,
        }
    }
}

/// The decision of a host endpoint at an interface of its host.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct HostReport {
    /// The node.
    pub node: String,
    /// The interface; `*` for any that no host endpoint names, `[ADDRESS]` for the one with this address.
    pub interface: String,
    /// The stage at which the packet is judged.
    #[serde(alias = "pass")]
    pub stage: HostStage,
    /// Ingress where the packet arrives, egress where it leaves.
    #[cfg_attr(feature = "schema", schemars(with = "crate::schema::DirectionSchema"))]
    pub direction: Direction,
    /// The decision; its subject is the host endpoint.
    #[serde(flatten)]
    pub decision: DirectionReport,
}

/// One end of a flow.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct FlowEndReport {
    /// The endpoint at this end, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<ObjectRef>,
    /// The node, if this end is a host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// Its address, where known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<IpAddr>,
    /// The service through which it was reached, with the service port: `shop/web:80`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<String>,
}

/// Identifies a rule, and where it was written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct RuleRef {
    /// The policy of the rule, unless it is a rule of a profile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<ObjectRef>,
    /// The profile of the rule, unless it is a rule of a policy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
    /// The direction.
    #[cfg_attr(feature = "schema", schemars(with = "crate::schema::DirectionSchema"))]
    pub direction: Direction,
    /// Its index in the object's list for the direction, from 0.
    pub index: u32,
    /// Its own name, in dialects that have one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// File and line, or resource, resource version and path in an object of a server, where known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<String>,
    /// The action.
    #[cfg_attr(feature = "schema", schemars(with = "crate::schema::ActionSchema"))]
    pub action: Action,
}

/// The decision of one end.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct DirectionReport {
    /// The endpoint whose policies apply; absent where the end is not an endpoint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<ObjectRef>,
    /// The verdict.
    pub verdict: VerdictWord,
    /// The reason for the verdict.
    pub decided_by: DecisionReport,
    /// Where rules decide DNS queries by name: the names and patterns that they allow. The verdict is then that of
    /// queries for other names. Empty as well where queries are only observed, and all names allowed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dns_names: Option<Vec<String>>,
    /// The evaluation trace, in order, up to the decision.
    pub steps: Vec<StepReport>,
    /// The number of policies that do not apply and are left out of the steps.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub not_applying: usize,
    /// For a default deny, the allow rule that came nearest to matching.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nearest_miss: Option<NearestMiss>,
    /// The decision if nothing were in audit; absent where nothing in audit applies to this end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub audit: Option<Box<DirectionReport>>,
}

impl DirectionReport {
    /// Counts the policies that do not apply instead of listing them.
    fn omit_not_applying(&mut self) {
        let before = self.steps.len();
        let unrelated = |step: &StepReport| {
            matches!(
                step,
                StepReport::Policy {
                    judges: false,
                    in_audit: false,
                    ..
                }
            )
        };
        self.steps.retain(|step| !unrelated(step));
        self.not_applying += before - self.steps.len();
    }
}

/// The reason for the verdict of one direction.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "type", rename_all_fields = "camelCase")]
pub enum DecisionReport {
    /// A rule.
    Rule(RuleRef),
    /// The default deny of a tier in which no rule matched.
    TierDefault {
        /// The tier.
        tier: String,
        /// The policies of the tier that apply default deny to the endpoint.
        isolating: Vec<ObjectRef>,
    },
    /// The built-in profile that allows everything; no policy decided.
    AllowAllProfile,
    /// No rule of any profile matched.
    NoProfileMatch,
    /// A profile of the endpoint does not exist.
    MissingProfile {
        /// Its name.
        profile: String,
    },
    /// The host's own stack emitted the packet, which is allowed to its endpoints.
    HostOrigin,
    /// Source and destination are this endpoint, and no policy that applies to it judges what it sends to itself.
    Itself,
    /// Source and destination are this endpoint, and none of the policies that judge what it sends to itself decides.
    HairpinEnd,
    /// Rules allow it, but the configuration denies this encapsulation to endpoints.
    Encapsulated {
        /// The encapsulation.
        #[cfg_attr(
            feature = "schema",
            schemars(with = "crate::schema::EncapsulationSchema")
        )]
        encapsulation: Encapsulation,
        /// The configuration parameter of the agent that denies it.
        parameter: String,
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
    #[serde(alias = "PassEnd")]
    StageEnd,
}

/// One step of the evaluation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "step", rename_all_fields = "camelCase")]
pub enum StepReport {
    /// A tier is evaluated.
    Tier {
        /// Its name.
        tier: String,
        /// Its order among the tiers, ascending; absent where it has none and stands after those that have.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        order: Option<f64>,
        /// Its default for traffic that no rule matches.
        #[cfg_attr(
            feature = "schema",
            schemars(with = "crate::schema::TierDefaultSchema")
        )]
        default: TierDefault,
        /// Whether the tier does not exist; it is then evaluated last.
        missing: bool,
        /// Whether it applies: one of its policies applies to the endpoint in this direction.
        counts: bool,
    },
    /// A policy of the tier.
    Policy {
        /// Its name.
        policy: ObjectRef,
        /// Its order in the tier; see [`crate::PolicySummary::order`].
        #[serde(default, skip_serializing_if = "Option::is_none")]
        order: Option<f64>,
        /// Whether it applies to the endpoint in this direction.
        judges: bool,
        /// Whether it would apply, but is in audit.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        in_audit: bool,
        /// Why it does not apply.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// A rule.
    Rule {
        /// The rule.
        #[serde(flatten)]
        rule: RuleRef,
        /// Whether it matched.
        matched: bool,
        /// Why it did not match.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        reasons: Vec<String>,
    },
    /// No rule of a tier decided.
    TierEnd {
        /// Its name.
        tier: String,
        /// `Deny`, or `Pass` (continue with the next tier).
        #[cfg_attr(
            feature = "schema",
            schemars(with = "crate::schema::TierDefaultSchema")
        )]
        outcome: TierDefault,
        /// The reason for the outcome.
        reason: String,
    },
    /// A profile is evaluated.
    Profile {
        /// Its name.
        profile: String,
        /// Whether it exists.
        exists: bool,
    },
}

/// The allow rule that came nearest to matching.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct NearestMiss {
    /// The rule.
    pub rule: RuleRef,
    /// Why it did not match; it would match if none of these held.
    pub unless: Vec<String>,
}
