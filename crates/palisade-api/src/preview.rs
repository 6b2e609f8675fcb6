//! `POST /v1/preview` and `palisade preview -o json`: what a change of the manifests means for the flows that were
//! recorded.

use crate::{DecisionReport, FlowIcmp, MonitorVerdict, ProtocolName, RecordedEnd};
use palisade_model::{Direction, Str};
use serde::{Deserialize, Serialize};
use std::fmt;

/// `palisade ui -o json`: where the page is served.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PageReport {
    /// [`crate::API_VERSION`].
    pub api_version: Str,
    /// The address for a browser.
    pub url: String,
    /// The socket of the agent that it shows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub socket: Option<String>,
    /// The relay whose flows it shows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub relay: Option<String>,
}

/// The body of `POST /v1/preview`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PreviewRequest {
    /// Policies in YAML or JSON, which replace those of the same kind, namespace and name.
    pub manifests: String,
    /// Only flows seen since this time (RFC 3339), or in this time span until now (`24h`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<String>,
}

/// Recorded flows, judged by the present manifests and by the changed ones.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct PreviewReport {
    /// [`crate::API_VERSION`].
    pub api_version: Str,
    /// What was read.
    pub record: RecordSummary,
    /// The number of judged flows, told apart by ends, port and recorded verdict.
    pub judged: usize,
    /// Recorded as allowed, and denied by the change; the last seen first.
    pub cut: Vec<PreviewedFlow>,
    /// Denied by the present manifests, and allowed by the change; the last seen first.
    pub opened: Vec<PreviewedFlow>,
    /// Recorded as allowed, and denied by the present manifests and by the changed ones.
    pub already_denied: Vec<PreviewedFlow>,
    /// Flows that cannot be judged.
    pub unjudged: Vec<UnjudgedFlow>,
    /// What the verdicts do not contain.
    pub notes: Vec<String>,
}

/// The records that were read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct RecordSummary {
    /// When the first of the records begins, RFC 3339; absent if nothing is recorded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<String>,
    /// When the last flow was seen; absent if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<String>,
    /// The nodes whose records were read.
    pub nodes: Vec<String>,
    /// The nodes of the manifests whose records were not read.
    pub nodes_missing: Vec<String>,
    /// How many flows and packets were not recorded, as far as it is known.
    pub lost: u64,
    /// The nodes whose records are cut off: more flows match than are listed.
    pub truncated: Vec<String>,
    /// The number of entries that were read.
    pub entries: usize,
    /// The number of flows, told apart by ends, port and recorded verdict.
    pub flows: usize,
}

/// A recorded flow that the change concerns.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct PreviewedFlow {
    /// What was recorded.
    #[serde(flatten)]
    pub flow: FlowSummary,
    /// What denies it after the change, or denied it before; one entry for each end that does.
    pub denied_by: Vec<DenyingEnd>,
    /// Where the pods at the ends are judged differently: how many pairs of them the change concerns.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pairs: Option<PairShare>,
    /// The ends that no pod has any more: they were judged by their recorded labels.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(
        feature = "schema",
        schemars(with = "Vec<crate::schema::DirectionSchema>")
    )]
    pub reconstructed: Vec<Direction>,
}

/// A recorded flow with all of its entries.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct FlowSummary {
    /// The sender.
    pub source: RecordedEnd,
    /// The receiver.
    pub destination: RecordedEnd,
    /// Protocol.
    pub protocol: ProtocolName,
    /// Destination port, if the protocol has ports.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// The ICMP header.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub icmp: Option<FlowIcmp>,
    /// The recorded verdict.
    pub recorded: MonitorVerdict,
    /// How often; where both ends recorded it, only the end that did so more often counts.
    pub count: u64,
    /// When it was first seen.
    pub first: String,
    /// When it was last seen.
    pub last: String,
}

/// An end of a flow whose policies deny it.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct DenyingEnd {
    /// Egress at the source, ingress at the destination.
    #[cfg_attr(feature = "schema", schemars(with = "crate::schema::DirectionSchema"))]
    pub direction: Direction,
    /// What decides.
    pub decided_by: DecisionReport,
}

/// How many of the pairs of pods at the ends of a flow are meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct PairShare {
    /// So many.
    pub concerned: usize,
    /// Of so many kinds of pairs that policies may treat differently.
    pub total: usize,
}

/// A recorded flow that cannot be judged.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct UnjudgedFlow {
    /// What was recorded.
    #[serde(flatten)]
    pub flow: FlowSummary,
    /// Why.
    pub reason: String,
}

/// Policies that allow what was recorded, and what they allow beside that.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SuggestionReport {
    /// [`crate::API_VERSION`].
    pub api_version: Str,
    /// What was read.
    pub record: RecordSummary,
    /// The policies, ready to be applied.
    pub objects: Vec<serde_json::Value>,
    /// The workloads for which no policy is suggested.
    pub refused: Vec<RefusedWorkload>,
    /// Flows of these workloads that no policy allows: denied, seen too rarely, or not to be placed.
    pub left_out: Vec<UnjudgedFlow>,
    /// What the policies allow although it was not recorded.
    pub widened: Vec<WidenedConnection>,
}

/// A workload without a suggested policy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RefusedWorkload {
    /// The workload.
    pub workload: String,
    /// Why.
    pub reason: String,
}

/// A connection that suggested policies allow although it was not recorded.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WidenedConnection {
    /// The sender.
    pub from: String,
    /// The receiver.
    pub to: String,
    /// The traffic that was not recorded.
    pub traffic: String,
    /// Why it is allowed.
    pub reason: String,
}

/// An end in a line of text: the workload by its controller, else its name, the node, the domain names or the address.
pub struct EndName<'a>(pub &'a RecordedEnd);

impl fmt::Display for EndName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let end = self.0;
        let address = end.address.as_deref();
        match (&end.namespace, &end.controller, &end.name) {
            (Some(namespace), Some(controller), _) => {
                return write!(f, "{namespace}/{} ({})", controller.name, controller.kind);
            }
            (Some(namespace), None, name) => {
                return write!(f, "{namespace}/{}", name.as_deref().unwrap_or("?"));
            }
            (None, ..) => {}
        }
        let names = end.names.join(", ");
        match (&end.node, address) {
            (Some(node), Some(address)) => write!(f, "host:{node} ({address})"),
            (Some(node), None) => write!(f, "host:{node}"),
            (None, Some(address)) if names.is_empty() => f.write_str(address),
            (None, Some(address)) => write!(f, "{address} ({names})"),
            (None, None) if names.is_empty() => f.write_str("other addresses"),
            (None, None) => f.write_str(&names),
        }
    }
}

impl FlowSummary {
    /// Protocol and port, or ICMP message, in a word: `443/TCP`, `ICMP type 8 code 0`.
    #[must_use]
    pub fn traffic(&self) -> String {
        match (self.port, self.icmp) {
            (Some(port), _) => format!("{port}/{}", self.protocol),
            (None, Some(icmp)) => {
                format!("{} type {} code {}", self.protocol, icmp.kind, icmp.code)
            }
            (None, None) => self.protocol.to_string(),
        }
    }
}

impl fmt::Display for DenyingEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.direction)?;
        match &self.decided_by {
            DecisionReport::Rule(rule) => f.write_str(&rule.qualified()),
            DecisionReport::TierDefault { isolating, .. } => {
                let policies: Vec<String> = isolating.iter().map(ToString::to_string).collect();
                write!(f, "no rule allows it; isolated by {}", policies.join(", "))
            }
            DecisionReport::NoProfileMatch => f.write_str("no rule of a profile matches"),
            DecisionReport::MissingProfile { profile } => {
                write!(f, "profile {profile} does not exist")
            }
            // The others allow.
            other => write!(f, "{other:?}"),
        }
    }
}
