//! The fast path in eBPF: the addresses, flows and policy that it has, and whether the kernel has what it should.

use crate::object::named_enum;
use crate::{PacketCount, ProtocolName};
use palisade_model::Str;
use serde::{Deserialize, Serialize};

/// The addresses of workloads of this host, and whether the fast path delivers their packets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct BpfEndpointList {
    /// [`crate::API_VERSION`].
    pub api_version: Str,
    /// Ordered by address.
    pub endpoints: Vec<BpfEndpoint>,
    /// The interfaces to networks of other hosts, ordered by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub uplinks: Vec<BpfUplink>,
}

/// An interface to networks of other hosts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct BpfUplink {
    /// Its name.
    pub interface: String,
    /// Whether what is proven allowed is delivered by it.
    pub armed: bool,
    /// Why not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The largest IP packet that it takes, in bytes; absent without programs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u32>,
}

/// An address of a workload, as the fast path knows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct BpfEndpoint {
    /// The address, with its workload.
    #[serde(flatten)]
    pub end: BpfAddress,
    /// The host-side interface.
    pub interface: String,
    /// Whether what is proven allowed is delivered by the fast path.
    pub armed: bool,
    /// Why not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The number of its slot; absent without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slot: Option<u16>,
    /// The number of its identity.
    pub identity: u32,
    /// The number of its policy set for egress; 0 has everything go by the stack.
    pub egress_set: u32,
    /// The number of its policy set for ingress; 0 has everything go by the stack.
    pub ingress_set: u32,
    /// The largest IP packet that its interface takes, in bytes; absent without programs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u32>,
}

/// An address, and the workload of this host that has it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct BpfAddress {
    /// The address.
    pub address: String,
    /// Namespace of the workload; absent if none has the address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Name of the workload; absent if none has the address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// The query parameters of `GET /v1/bpf/flows`: the command's flags.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct BpfFlowQuery {
    /// Only flows of this workload (`namespace/name`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    /// Only flows of this protocol.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol: Option<ProtocolName>,
    /// At most this many (1 to 100000, 1000 if absent).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
}

/// Flows in the fast path's table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct BpfFlowList {
    /// [`crate::API_VERSION`].
    pub api_version: Str,
    /// All flows that the fast path delivers.
    pub owned: u64,
    /// All flows of UDP and ICMP that the stack delivers, and whose answers go by it.
    pub via_stack: u64,
    /// Live flows that had to make room since the table was made.
    pub evictions: u64,
    /// Those that the query asks for; the last seen come first.
    pub flows: Vec<BpfFlow>,
    /// How many more match the query.
    pub left_out: u64,
}

/// A flow in the fast path's table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct BpfFlow {
    /// The protocol.
    pub protocol: ProtocolName,
    /// Who sent the first packet.
    pub source: BpfAddress,
    /// The source port, if the protocol has ports.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_port: Option<u16>,
    /// Who was sent it.
    pub destination: BpfAddress,
    /// The destination port, if the protocol has ports.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub destination_port: Option<u16>,
    /// The type of an ICMP request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub icmp_type: Option<u8>,
    /// The identifier of ICMP requests and their answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub icmp_id: Option<u16>,
    /// Who delivers it.
    pub delivery: BpfDelivery,
    /// Its state.
    pub state: BpfFlowState,
    /// Whether its next packet is judged again, since policy has revoked something.
    pub judged_again: bool,
    /// Seconds since a packet of it was seen.
    pub age: f64,
    /// Seconds that it lives without another packet.
    pub remaining: f64,
}

named_enum! {
    /// Who delivers the packets of a flow.
    BpfDelivery {
        /// The fast path.
        FastPath = "fast path",
        /// The host's network stack.
        Stack = "stack",
    }
}

named_enum! {
    /// The state of a flow.
    BpfFlowState {
        /// Its receiver has not answered.
        Unanswered = "unanswered",
        /// Its receiver has answered.
        Answered = "answered",
        /// A packet was seen that ends it.
        Closing = "closing",
    }
}

/// The query parameters of `GET /v1/bpf/policy`: the command's arguments.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct BpfPolicyQuery {
    /// Only pairs with this workload (`namespace/name`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    /// At most this many pairs (1 to 10000, 500 if absent).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
}

/// What the fast path judges by: what it delivers between workloads of this host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct BpfPolicyList {
    /// [`crate::API_VERSION`].
    pub api_version: Str,
    /// By sender and receiver.
    pub pairs: Vec<BpfPair>,
    /// How many more pairs match the query.
    pub left_out: usize,
}

/// Flows from an address of a workload to one of another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct BpfPair {
    /// The sender.
    pub source: BpfAddress,
    /// The receiver.
    pub destination: BpfAddress,
    /// What judges at the sender's egress.
    pub egress: BpfJudgement,
    /// What judges at the receiver's ingress.
    pub ingress: BpfJudgement,
    /// What is proven allowed at both ends, and delivered; all else passes to nftables.
    pub allowed: Vec<BpfAllowance>,
}

/// The numbers of what judges a flow at one of its ends, as `palisade bpf check` names them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct BpfJudgement {
    /// Of the policy set; 0 if there is none.
    pub set: u32,
    /// Of the identity of the other end.
    pub identity: u32,
    /// Of the class; 0 passes everything.
    pub class: u32,
}

/// Traffic that the fast path delivers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct BpfAllowance {
    /// The protocol.
    pub protocol: ProtocolName,
    /// The first destination port; of ICMP, type and code as one number, `256 * type + code`.
    pub first: u16,
    /// The last one.
    pub last: u16,
    /// What counts it at the sender's egress.
    pub egress: BpfCounter,
    /// What counts it at the receiver's ingress.
    pub ingress: BpfCounter,
}

/// A counter of the fast path. Several rows can have the same one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct BpfCounter {
    /// Its number; 0 counts what no rule decides.
    pub number: u32,
    /// The rules that it counts for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<String>,
    /// What it has counted.
    pub count: PacketCount,
}

/// The fast path in the kernel beside what it should be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct BpfCheckReport {
    /// [`crate::API_VERSION`].
    pub api_version: Str,
    /// Elements of maps that were compared.
    pub elements: usize,
    /// Interfaces whose programs were compared.
    pub interfaces: usize,
    /// Pins that were compared.
    pub pins: usize,
    /// What differs; empty if nothing does.
    pub differences: Vec<BpfDifference>,
    /// How many more differences there are.
    pub left_out: usize,
    /// What to do next; absent if nothing differs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_step: Option<String>,
}

/// Something of the fast path that is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct BpfDifference {
    /// What kind of thing.
    pub part: BpfPart,
    /// Which one.
    pub object: String,
    /// The workload that it is for, if it is for one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workload: Option<String>,
    /// What should be there.
    pub expected: String,
    /// What is there.
    pub found: String,
}

named_enum! {
    /// The parts of the fast path in the kernel.
    BpfPart {
        /// An element of a map.
        Map = "map",
        /// A program at an interface.
        Program = "program",
        /// The pin that keeps a program attached.
        Link = "link",
        /// The pin of a map.
        Pin = "pin",
    }
}
