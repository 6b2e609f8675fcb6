//! The explanation as a value: names and words, nothing that needs the state to be read.

use serde::{Deserialize, Serialize};
use std::net::IpAddr;

/// Why a query gets what it gets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Explanation {
    /// The version of this shape.
    #[serde(rename = "apiVersion")]
    pub api_version: String,
    /// The outcome; of several the first that denies.
    #[serde(flatten)]
    pub case: FlowReport,
    /// The other outcomes, where the query stands for several flows that are decided differently.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub others: Vec<FlowReport>,
    /// What a reader should know about how the ends were understood.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

impl Explanation {
    /// The same without the policies that do not apply: they are counted.
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

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde asks for it")]
fn is_zero(number: &usize) -> bool {
    *number == 0
}

/// A verdict as a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs, reason = "the words say it")]
pub enum VerdictWord {
    Allow,
    Deny,
}

/// One flow and what becomes of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FlowReport {
    /// What it gets: allow if both directions allow.
    pub verdict: VerdictWord,
    /// Where it comes from.
    pub from: FlowEndReport,
    /// Where it goes to.
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
    /// What the source's endpoint decides.
    pub egress: DirectionReport,
    /// What the destination's endpoint decides.
    pub ingress: DirectionReport,
}

/// One end of a flow.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FlowEndReport {
    /// The endpoint there, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<ObjectRef>,
    /// Its address, where known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<IpAddr>,
    /// The service it was reached through, and the port there: `shop/web:80`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<String>,
}

/// Names an object, and where it was written.
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

/// Names a rule, and where it was written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RuleRef {
    /// The policy it stands in, unless it stands in a profile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<ObjectRef>,
    /// The profile it stands in.
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

/// What one end decides.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DirectionReport {
    /// The endpoint that judges; absent where there is none, so that nothing judges.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<ObjectRef>,
    /// What it decides.
    pub verdict: VerdictWord,
    /// What decided.
    pub decided_by: DecisionReport,
    /// What was considered, in order, up to the decision.
    pub steps: Vec<StepReport>,
    /// How many policies that do not apply are left out of the steps.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub not_applying: usize,
    /// For a default deny, the allowing rule that came nearest to matching.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nearest_miss: Option<NearestMiss>,
}

/// What decided one direction.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "type", rename_all = "kebab-case")]
pub enum DecisionReport {
    /// A rule.
    Rule(RuleRef),
    /// No rule of a tier that denies by default matched.
    TierDefault {
        /// The tier.
        tier: String,
        /// The policies that isolate the endpoint there.
        isolating: Vec<ObjectRef>,
    },
    /// The built-in profile that allows everything: no policy decided.
    AllowAllProfile,
    /// No rule of any profile matched.
    NoProfileMatch,
    /// A profile that does not exist.
    MissingProfile {
        /// Its name.
        profile: String,
    },
    /// The host's own stack made the packet, and may reach its endpoints.
    HostOrigin,
    /// Both ends are this endpoint, which cannot be cut off from itself.
    Itself,
    /// Rules allow it, but it carries packets within packets, which this endpoint may not send.
    Encapsulated {
        /// The encapsulation: `vxlan`, `geneve`, `ipip` or `gre`.
        encapsulation: String,
        /// The agent's parameter that denies it.
        parameter: String,
    },
    /// There is no endpoint at this end.
    NotAnEndpoint,
}

/// One thing that was considered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "step", rename_all = "kebab-case")]
pub enum StepReport {
    /// A tier's turn.
    Tier {
        /// Its name.
        tier: String,
        /// What it does with what its rules do not match: `deny` or `pass`.
        default: String,
        /// Whether no such tier exists, so that it stands last.
        missing: bool,
        /// Whether it counts: one of its policies judges the endpoint in this direction.
        counts: bool,
    },
    /// A policy of the tier.
    Policy {
        /// Its name.
        policy: ObjectRef,
        /// Whether it judges the endpoint in this direction.
        judges: bool,
        /// Why it does not.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// A rule.
    Rule {
        /// Which.
        #[serde(flatten)]
        rule: RuleRef,
        /// Whether it matched.
        matched: bool,
        /// Why it did not.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        reasons: Vec<String>,
    },
    /// None of a tier's rules decided.
    TierEnd {
        /// Its name.
        tier: String,
        /// `deny`, or `pass` to the next tier.
        outcome: String,
        /// Why.
        reason: String,
    },
    /// A profile's turn.
    Profile {
        /// Its name.
        profile: String,
        /// Whether it exists.
        exists: bool,
    },
}

/// The allowing rule that came nearest to matching.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NearestMiss {
    /// Which.
    pub rule: RuleRef,
    /// What kept it from matching; all of it would have to differ.
    pub unless: Vec<String>,
}
