//! The stream of `GET /v1/monitor`: one line per packet that was denied, dropped, or logged by a Log rule,
//! on request one per flow that begins or ends, and lines with the number of packets that are not shown.

use crate::object::named_enum;
use crate::{HostStage, ObjectRef, OriginalDestination, ProtocolName};
use palisade_model::{Action, Direction, Labels, Str};
use serde::{Deserialize, Serialize};
#[cfg(feature = "schema")]
use std::collections::BTreeMap;
use std::sync::Arc;

/// One line of the stream.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "type")]
pub enum MonitorLine {
    /// A packet.
    Packet(Box<PacketEvent>),
    /// A flow that policy let pass; only on request.
    Flow(Arc<FlowRecord>),
    /// Packets that are not shown one by one.
    Lost(Box<LostEvents>),
}

named_enum! {
    /// Verdict of a packet.
    MonitorVerdict {
        /// It was dropped.
        Denied = "denied",
        /// It was allowed in the reported direction.
        Allowed = "allowed",
    }
}

named_enum! {
    /// Why a packet is reported.
    PacketReason {
        /// A rule decided.
        Rule = "rule",
        /// No rule of an isolating policy allows it.
        DefaultDeny = "default-deny",
        /// A profile decided.
        Profile = "profile",
        /// The host forwards it, and no policy that applies on forward decided.
        ForwardEnd = "forward-end",
        /// A workload sent it to itself through a Service, and no policy that judges such traffic decided.
        HairpinEnd = "hairpin-end",
        /// No policy of an early stage decided: the next stage judges.
        #[serde(alias = "PassEnd")]
        StageEnd = "stage-end",
        /// It is encapsulated, and the configuration denies that.
        Encapsulated = "encapsulated",
        /// Dropped before policy evaluation: its source is not an address of the endpoint.
        Spoofed = "spoofed",
        /// Dropped before policy evaluation: its interface belongs to no known endpoint.
        UnknownInterface = "unknown-interface",
        /// Dropped before policy evaluation: it belongs to no connection and opens none.
        Invalid = "invalid",
        /// Dropped before policy evaluation: its destination is no address of the interface's endpoint.
        NoPoint = "no-point",
        /// The rules changed before the packet was attributed.
        Unknown = "unknown",
        /// Of packets that are counted only: policy denied them.
        Denied = "denied",
        /// Of packets that are counted only: policy denied them, and denials answer.
        Rejected = "rejected",
        /// Of packets that are counted only: a Log rule matched them.
        Logged = "logged",
        /// Of packets that are counted only: they would be denied if nothing were in audit.
        Audited = "audited",
        /// The endpoint is in audit: no policy is enforced for it.
        EndpointInAudit = "endpoint-in-audit",
    }
}

named_enum! {
    /// Where packets were dropped from the report.
    LossCause {
        /// In the agent: more than it processes.
        Agent = "agent",
        /// The reader is too slow.
        Client = "client",
        /// In the kernel: more than it reports.
        Kernel = "kernel",
        /// In the kernel: flows that began or ended faster than the agent reads.
        Flows = "flows",
        /// More of one rule than `monitor-rate`.
        Rate = "rate",
    }
}

/// One packet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct PacketEvent {
    /// [`crate::API_VERSION`].
    pub api_version: Str,
    /// Time of the packet, RFC 3339 with microseconds.
    pub time: String,
    /// Verdict in the reported direction.
    pub verdict: MonitorVerdict,
    /// Whether it was denied and answered.
    #[serde(default, skip_serializing_if = "core::ops::Not::not")]
    pub rejected: bool,
    /// What decided, or why it was dropped before policy evaluation.
    pub reason: PacketReason,
    /// The verdict if nothing were in audit; absent where nothing in audit applies, or if it is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub audit: Option<PacketAudit>,
    /// The direction, relative to `endpoint`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(
        feature = "schema",
        schemars(with = "Option<crate::schema::DirectionSchema>")
    )]
    pub direction: Option<Direction>,
    /// The stage at which a host endpoint judged the packet.
    #[serde(default, alias = "pass", skip_serializing_if = "Option::is_none")]
    pub stage: Option<HostStage>,
    /// The workload whose policy was evaluated, as `namespace/name`; `host:NODE` for a host endpoint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    /// Source of the packet.
    pub source: MonitorEndpoint,
    /// Destination of the packet.
    pub destination: MonitorEndpoint,
    /// Where the first packet of its connection was sent before destination NAT, if it was translated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub original_destination: Option<OriginalDestination>,
    /// Protocol.
    pub protocol: ProtocolName,
    /// The ICMP type.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub icmp_type: Option<u8>,
    /// The ICMP code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub icmp_code: Option<u8>,
    /// Whether it is a reply; a reply is evaluated as the first packet of its connection, in the opposite
    /// direction.
    pub reply: bool,
    /// The rule that decided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<MonitorRule>,
    /// For a default deny: the policies that isolate the endpoint in this direction.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub policies: Vec<ObjectRef>,
    /// The Log rules that matched before the decision.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub logged: Vec<MonitorRule>,
    /// Length in bytes, including the network header.
    pub length: u32,
    /// Interface of the workload whose policy was evaluated, or else the input interface.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interface: Option<String>,
    /// The revision of the rules named here; absent if it is no longer known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<u64>,
    /// Whether the rules have changed since.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stale: bool,
}

/// The evaluation of a packet if nothing were in audit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct PacketAudit {
    /// The verdict in the reported direction.
    pub verdict: MonitorVerdict,
    /// What would decide.
    pub reason: PacketReason,
    /// The rule that would decide.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<MonitorRule>,
    /// For a default deny, the policies that would isolate.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub policies: Vec<ObjectRef>,
}

/// Source or destination of a packet or flow.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct MonitorEndpoint {
    /// Its address.
    pub address: Str,
    /// Port, if the protocol has ports.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// Namespace of the workload that has, or recently had, the address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<Str>,
    /// Name of the workload.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<Str>,
    /// What controls the workload, if it is a pod with a controller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub controller: Option<Arc<ControllerRef>>,
    /// The workload's own labels.
    #[serde(default, skip_serializing_if = "has_no_labels")]
    #[cfg_attr(feature = "schema", schemars(with = "BTreeMap<String, String>"))]
    pub labels: Arc<Labels>,
    /// The node that has the address, if it is one of a node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<Str>,
    /// The domain names whose answers had the address, at most [`MonitorEndpoint::MAX_NAMES`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub names: Vec<Str>,
    /// Of a destination: the Service that it was reached by.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<Arc<ServiceRef>>,
}

fn has_no_labels(labels: &Labels) -> bool {
    labels.is_empty()
}

impl MonitorEndpoint {
    /// The greatest number of domain names of an end.
    pub const MAX_NAMES: usize = 4;
}

/// The controller of a pod, as users name it: the Deployment, not its ReplicaSet.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct ControllerRef {
    /// Its kind.
    pub kind: Str,
    /// Its name.
    pub name: Str,
}

/// A Service.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct ServiceRef {
    /// Its namespace.
    pub namespace: Str,
    /// Its name.
    pub name: Str,
}

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
    pub api_version: Str,
    /// What happened.
    pub state: FlowState,
    /// When it began, RFC 3339 with microseconds; absent if that was not seen and the kernel does not say.
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
    pub translation: Option<Box<FlowTranslation>>,
    /// Protocol.
    pub protocol: ProtocolName,
    /// The ICMP header of its first packet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub icmp: Option<FlowIcmp>,
    /// What let it leave its source; absent where that is neither a workload of this host nor the host with policy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub egress: Option<Arc<FlowDecision>>,
    /// What let it reach its destination; absent where that is neither a workload of this host nor the host with policy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ingress: Option<Arc<FlowDecision>>,
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
    /// The stage at which a host endpoint decided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stage: Option<HostStage>,
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

/// A rule of a policy or profile.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct MonitorRule {
    /// Its policy; `line` is that of the rule.
    #[serde(flatten)]
    pub policy: ObjectRef,
    /// Present index in the rule list of its direction.
    pub index: u32,
    /// Name of the rule, in policy types that have one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule_name: Option<String>,
    /// The action; absent if the rule no longer exists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(
        feature = "schema",
        schemars(with = "Option<crate::schema::ActionSchema>")
    )]
    pub action: Option<Action>,
}

/// Packets that are not shown one by one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct LostEvents {
    /// [`crate::API_VERSION`].
    pub api_version: Str,
    /// Time of detection, RFC 3339 with microseconds.
    pub time: String,
    /// Where they were dropped from the report.
    pub cause: LossCause,
    /// Number of packets; of flows, of begins and ends, those of flows that no policy judges among them.
    pub count: u64,
    /// Their common reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<PacketReason>,
    /// Their common rule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<MonitorRule>,
    /// The policies of their common default deny.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub policies: Vec<ObjectRef>,
}

/// The query parameters of `GET /v1/monitor`: the command's flags.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct MonitorQuery {
    /// Only packets that this workload (`namespace/name`) sent or received.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    /// Only packets from or to workloads of this namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Only packets with this verdict.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verdict: Option<MonitorVerdict>,
    /// Only packets from this workload or address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// Only packets to this workload or address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// Only packets whose verdict would be another if nothing were in audit.
    #[serde(default)]
    pub audit: bool,
    /// Flows that policy let pass as well: when they begin, and when they end.
    #[serde(default)]
    pub flows: bool,
    /// Start with this many of the most recent packets.
    #[serde(default)]
    pub last: usize,
    /// Stop after the most recent packets.
    #[serde(default)]
    pub stop: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_this_shape() {
        let policy = ObjectRef {
            kind: "NetworkPolicy".to_owned(),
            namespace: Some("shop".to_owned()),
            name: "db".to_owned(),
            line: Some("db.yaml:9".to_owned()),
        };
        let rule = MonitorRule {
            policy,
            index: 0,
            rule_name: None,
            action: Some(Action::Log),
        };
        let end = |address: &str, name: Option<&str>| MonitorEndpoint {
            address: address.into(),
            port: Some(80),
            namespace: name.map(|_| "shop".into()),
            name: name.map(Into::into),
            ..MonitorEndpoint::default()
        };
        let packet = MonitorLine::Packet(Box::new(PacketEvent {
            original_destination: None,
            stage: None,
            api_version: crate::api_version(),
            time: "2026-11-21T07:32:05.000001Z".to_owned(),
            rejected: false,
            verdict: MonitorVerdict::Denied,
            reason: PacketReason::DefaultDeny,
            audit: None,
            direction: Some(Direction::Ingress),
            endpoint: Some("shop/db".to_owned()),
            source: end("10.0.0.9", None),
            destination: end("10.0.0.1", Some("db")),
            protocol: ProtocolName::Tcp,
            icmp_type: None,
            icmp_code: None,
            reply: false,
            rule: None,
            policies: Vec::new(),
            logged: vec![rule.clone()],
            length: 60,
            interface: Some("pal1".to_owned()),
            revision: Some(3),
            stale: false,
        }));
        let text = concat!(
            r#"{"type":"Packet","apiVersion":"palisade.io/v1","time":"2026-11-21T07:32:05.000001Z","#,
            r#""verdict":"Denied","reason":"DefaultDeny","direction":"Ingress","endpoint":"shop/db","#,
            r#""source":{"address":"10.0.0.9","port":80},"#,
            r#""destination":{"address":"10.0.0.1","port":80,"namespace":"shop","name":"db"},"#,
            r#""protocol":"TCP","reply":false,"#,
            r#""logged":[{"kind":"NetworkPolicy","namespace":"shop","name":"db","line":"db.yaml:9","#,
            r#""index":0,"action":"Log"}],"length":60,"interface":"pal1","revision":3}"#,
        );
        assert_eq!(serde_json::to_string(&packet).unwrap(), text);
        assert_eq!(serde_json::from_str::<MonitorLine>(text).unwrap(), packet);

        // A line of an older agent, which called a stage a pass.
        let older = text
            .replace(r#""reason":"DefaultDeny""#, r#""reason":"PassEnd""#)
            .replace(r#""endpoint":"#, r#""pass":"PreDnat","endpoint":"#);
        let Ok(MonitorLine::Packet(packet)) = serde_json::from_str(&older) else {
            panic!("{older}");
        };
        assert_eq!(
            (packet.reason, packet.stage),
            (PacketReason::StageEnd, Some(HostStage::PreDnat))
        );

        let lost = MonitorLine::Lost(Box::new(LostEvents {
            api_version: crate::api_version(),
            time: "2026-11-21T07:32:05.000001Z".to_owned(),
            cause: LossCause::Rate,
            count: 9,
            reason: Some(PacketReason::Rule),
            rule: Some(rule),
            policies: Vec::new(),
        }));
        let text = concat!(
            r#"{"type":"Lost","apiVersion":"palisade.io/v1","time":"2026-11-21T07:32:05.000001Z","#,
            r#""cause":"Rate","count":9,"reason":"Rule","rule":{"kind":"NetworkPolicy","#,
            r#""namespace":"shop","name":"db","line":"db.yaml:9","index":0,"action":"Log"}}"#,
        );
        assert_eq!(serde_json::to_string(&lost).unwrap(), text);
    }
}
