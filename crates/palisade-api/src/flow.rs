//! Flows of `GET /v1/monitor?flows=true`: a line when a flow that policy let pass begins, and one when it ends.

use crate::object::named_enum;
use crate::{MonitorEndpoint, MonitorRule, ObjectRef, OriginalDestination, PacketAudit};
use crate::{PacketReason, ProtocolName};
use serde::{Deserialize, Serialize};

named_enum! {
    /// What happened to a flow.
    FlowState {
        /// Its first packet passed.
        Began = "began",
        /// It has ended, or is known no longer.
        Ended = "ended",
    }
}

/// A flow that policy let pass.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct FlowRecord {
    /// [`crate::API_VERSION`].
    pub api_version: String,
    /// What happened.
    pub state: FlowState,
    /// When it began, RFC 3339 with microseconds; of a flow that ended, absent if the kernel does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub began: Option<String>,
    /// When it ended, RFC 3339 with microseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<String>,
    /// The sender of its first packet.
    pub source: MonitorEndpoint,
    /// The receiver, after destination NAT.
    pub destination: MonitorEndpoint,
    /// How its addresses are translated; absent if they are not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub translation: Option<FlowTranslation>,
    /// Protocol.
    pub protocol: ProtocolName,
    /// The ICMP header of its first packet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub icmp: Option<FlowIcmp>,
    /// What let it leave its source; absent where it is no workload of this host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub egress: Option<FlowDecision>,
    /// What let it reach its destination; absent where it is no workload of this host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ingress: Option<FlowDecision>,
    /// What it carried; absent where the kernel does not count (`nf_conntrack_acct`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traffic: Option<FlowTraffic>,
}

/// How a flow's addresses are translated.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct FlowTranslation {
    /// Where its first packet was sent, if destination NAT changed that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub original_destination: Option<OriginalDestination>,
    /// The source that its destination sees, if source NAT changed that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub translated_source: Option<OriginalDestination>,
}

/// The ICMP header of the first packet of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct FlowIcmp {
    /// The type.
    #[serde(rename = "type")]
    pub kind: u8,
    /// The code.
    pub code: u8,
}

/// What let a flow pass in one direction.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct FlowDecision {
    /// What decided; [`PacketReason::Unknown`] if the rules changed before the flow was attributed.
    pub reason: PacketReason,
    /// The rule that decided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<MonitorRule>,
    /// Where no rule decided, the policies that apply.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub policies: Vec<ObjectRef>,
    /// The verdict if nothing were in audit; absent where nothing in audit applies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub audit: Option<PacketAudit>,
    /// The revision of the rules named here; absent if it is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<u64>,
    /// Whether the rules have changed since.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stale: bool,
}

/// What a flow carried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct FlowTraffic {
    /// Packets from its source.
    pub packets_sent: u64,
    /// Bytes from its source, including network headers.
    pub bytes_sent: u64,
    /// Packets from its destination.
    pub packets_received: u64,
    /// Bytes from its destination, including network headers.
    pub bytes_received: u64,
}
