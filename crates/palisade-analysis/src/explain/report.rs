//! The explanation as a serializable value. It is complete: reading it does not require the state.

use serde::{Deserialize, Serialize};
use std::net::IpAddr;

/// The verdict of a query and the reasons for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Explanation {
    /// The version of this format.
    #[serde(rename = "apiVersion")]
    pub api_version: String,
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

impl Explanation {
    /// The same explanation without the steps of policies that do not apply; they are counted in
    /// [`DirectionReport::not_applying`].
    #[must_use]
    pub fn brief(mut self) -> Self {
        for case in std::iter::once(&mut self.case).chain(&mut self.others) {
            for side in [&mut case.egress, &mut case.ingress] {
                let before = side.steps.len();
                let applies =
                    |step: &StepReport| !matches!(step, StepReport::Policy { judges: false, .. });
                side.steps.retain(applies);
                side.not_applying += before - side.steps.len();
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
#[serde(rename_all = "lowercase")]
#[allow(missing_docs, reason = "the names are self-explanatory")]
pub enum VerdictWord {
    Allow,
    Deny,
}

/// One flow and its verdict.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FlowReport {
    /// The verdict: `allow` if both directions allow.
    pub verdict: VerdictWord,
    /// The source.
    pub from: FlowEndReport,
    /// The destination.
    pub to: FlowEndReport,
    /// `IPv4` or `IPv6`.
    pub family: String,
    /// The protocol's name or number.
    pub protocol: String,
    /// The destination port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// The source port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_port: Option<u16>,
    /// The ICMP type and code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub icmp_type: Option<[u8; 2]>,
    /// The decision of the source endpoint.
    pub egress: DirectionReport,
    /// The decision of the destination endpoint.
    pub ingress: DirectionReport,
}

/// One end of a flow.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FlowEndReport {
    /// The endpoint at this end, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<ObjectRef>,
    /// Its address, where known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<IpAddr>,
    /// The service through which it was reached, with the service port: `shop/web:80`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<String>,
}

/// Identifies an object, and where it was written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ObjectRef {
    /// Its kind.
    pub kind: String,
    /// Its namespace, where it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Its name.
    pub name: String,
    /// File and line, where known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<String>,
}

/// Identifies a rule, and where it was written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RuleRef {
    /// The policy of the rule, unless it is a rule of a profile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<ObjectRef>,
    /// The profile of the rule, unless it is a rule of a policy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
    /// `ingress` or `egress`.
    pub direction: String,
    /// Its index in the object's list for the direction, from 0.
    pub index: u32,
    /// Its own name, in dialects that have one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// File and line, where known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<String>,
    /// `allow`, `deny`, `pass` or `log`.
    pub action: String,
}

/// The decision of one end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DirectionReport {
    /// The endpoint whose policies apply; absent where the end is not an endpoint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<ObjectRef>,
    /// The verdict.
    pub verdict: VerdictWord,
    /// The reason for the verdict.
    pub decided_by: DecisionReport,
    /// The evaluation trace, in order, up to the decision.
    pub steps: Vec<StepReport>,
    /// The number of policies that do not apply and are left out of the steps.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub not_applying: usize,
    /// For a default deny, the allow rule that came nearest to matching.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nearest_miss: Option<NearestMiss>,
}

/// The reason for the verdict of one direction.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "type", rename_all = "kebab-case")]
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
    /// Source and destination are this endpoint, which policy cannot isolate from itself.
    Itself,
    /// Rules allow it, but the configuration denies this encapsulation to endpoints.
    Encapsulated {
        /// The encapsulation: `vxlan`, `geneve`, `ipip` or `gre`.
        encapsulation: String,
        /// The configuration parameter of the agent that denies it.
        parameter: String,
    },
    /// The end is not an endpoint.
    NotAnEndpoint,
}

/// One step of the evaluation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "step", rename_all = "kebab-case")]
pub enum StepReport {
    /// A tier is evaluated.
    Tier {
        /// Its name.
        tier: String,
        /// Its default for traffic that no rule matches: `deny` or `pass`.
        default: String,
        /// Whether the tier does not exist; it is then evaluated last.
        missing: bool,
        /// Whether it applies: one of its policies applies to the endpoint in this direction.
        counts: bool,
    },
    /// A policy of the tier.
    Policy {
        /// Its name.
        policy: ObjectRef,
        /// Whether it applies to the endpoint in this direction.
        judges: bool,
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
        /// `deny`, or `pass` (continue with the next tier).
        outcome: String,
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
pub struct NearestMiss {
    /// The rule.
    pub rule: RuleRef,
    /// Why it did not match; it would match if none of these held.
    pub unless: Vec<String>,
}
