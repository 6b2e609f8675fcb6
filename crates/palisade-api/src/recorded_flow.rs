//! Recorded flows: what happened on this host, summed up by ends, port, verdict and rules; over days and restarts.

use crate::{
    ControllerRef, FlowIcmp, FlowTraffic, MonitorRule, MonitorVerdict, ObjectRef, PacketReason,
    ProtocolName, ServiceRef,
};
use palisade_model::Str;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Flows that policy let pass, or packets that it denied, which have everything in common but the source port, the time
/// and what they carried.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct RecordedFlow {
    /// The sender of the first packets.
    pub source: RecordedEnd,
    /// The receiver, after destination NAT.
    pub destination: RecordedEnd,
    /// Protocol.
    pub protocol: ProtocolName,
    /// Destination port, after destination NAT, if the protocol has ports.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// The ICMP header.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub icmp: Option<FlowIcmp>,
    /// The verdict.
    pub verdict: MonitorVerdict,
    /// What decided at the source; absent where it is no workload of this host, or was not reached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub egress: Option<RecordedDecision>,
    /// What decided at the destination; absent where it is no workload of this host, or was not reached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ingress: Option<RecordedDecision>,
    /// Time of the first one, RFC 3339 in seconds; of flows that began earlier, when they were seen first in this time.
    pub first: String,
    /// Time of the last one, RFC 3339 in seconds.
    pub last: String,
    /// The number of flows that began, or of denied packets; 0 of flows that only ended in this time.
    pub count: u64,
    /// What the flows that have ended carried; absent where the kernel does not count, and for denied packets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traffic: Option<FlowTraffic>,
}

/// An end of recorded flows: a workload by its controller, or else an address.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct RecordedEnd {
    /// Namespace of the workload.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Name of the workload, if nothing controls it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The controller of the workload.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub controller: Option<ControllerRef>,
    /// The workload's labels, without those that differ between the pods of a controller (`pod-template-hash`).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// The address, if no workload had it; absent if there were too many to tell them apart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// The node that has the address, if it is one of a node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// The domain names whose answers had the address.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub names: Vec<String>,
    /// Of a destination: the Service that it was reached by.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<ServiceRef>,
}

/// What decided at one end of recorded flows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct RecordedDecision {
    /// What decided.
    pub reason: PacketReason,
    /// The rule that decided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<MonitorRule>,
    /// Where no rule decided, the policies that apply.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub policies: Vec<ObjectRef>,
    /// The verdict if nothing were in audit; absent where nothing in audit applies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub audit: Option<MonitorVerdict>,
}

/// Recorded flows that match a query.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct RecordedFlowList {
    /// [`crate::API_VERSION`].
    pub api_version: Str,
    /// The node that recorded them.
    pub node: String,
    /// When the record begins: nothing earlier is kept. RFC 3339; absent if nothing is recorded yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<String>,
    /// The flows, the last seen first.
    pub flows: Vec<RecordedFlow>,
    /// How many flows and packets in this time were not recorded, as far as it is known.
    pub lost: u64,
    /// Whether more match than are listed.
    pub truncated: bool,
}

/// The query parameters of `GET /v1/flows`: the command's flags.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RecordedFlowQuery {
    /// Only flows seen since this time (RFC 3339), or in this time span until now (`24h`). Counts are those of the five
    /// minutes in which a flow was seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<String>,
    /// Only flows seen before this time (RFC 3339, or a time span before now).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<String>,
    /// Only flows from or to workloads of this namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Only flows from or to this workload or controller (`namespace/name`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    /// Only flows from this workload or controller (`namespace/name`), address, network or domain name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// Only flows to this workload or controller (`namespace/name`), address, network or domain name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// Only flows with this verdict.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verdict: Option<MonitorVerdict>,
    /// Only flows of this protocol.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol: Option<ProtocolName>,
    /// Only flows to this port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// At most this many, the last seen first: 1,000 if absent, and no more than 100,000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
}
