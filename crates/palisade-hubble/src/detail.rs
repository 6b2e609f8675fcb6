//! What the agent knows of a flow and Hubble has no field for: rule with file and line, audit, counters. It is in the
//! field `extensions`.
//!
//! Promises: the keys and values are those of `GET /v1/monitor`. The message is `google.protobuf.Struct`, because
//! Hubble's command prints JSON only of messages that it knows, and fails on any other.
//!
//! Never: repeats what a flow has a field for.

use palisade_api::{
    FlowDecision, FlowRecord, FlowState, FlowTraffic, FlowTranslation, HostStage, MonitorLine,
    MonitorRule, ObjectRef, OriginalDestination, PacketAudit, PacketEvent, PacketReason,
};
use prost::Message;
use prost_types::value::Kind;
use prost_types::{Any, ListValue, Struct, Value};
use serde::Serialize;

const STRUCT: &str = "type.googleapis.com/google.protobuf.Struct";

/// What is said of a packet.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct PacketDetail<'a> {
    reason: PacketReason,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    rejected: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    audit: Option<&'a PacketAudit>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stage: Option<HostStage>,
    #[serde(skip_serializing_if = "Option::is_none")]
    endpoint: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    original_destination: Option<&'a OriginalDestination>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rule: Option<&'a MonitorRule>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    policies: &'a [ObjectRef],
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    logged: &'a [MonitorRule],
    length: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    revision: Option<u64>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    stale: bool,
}

/// What is said of a flow.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct RecordDetail<'a> {
    state: FlowState,
    #[serde(skip_serializing_if = "Option::is_none")]
    began: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ended: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    translation: Option<&'a FlowTranslation>,
    #[serde(skip_serializing_if = "Option::is_none")]
    egress: Option<&'a FlowDecision>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ingress: Option<&'a FlowDecision>,
    #[serde(skip_serializing_if = "Option::is_none")]
    traffic: Option<FlowTraffic>,
}

/// The extension of the flows that a line becomes.
pub(crate) fn extension(line: &MonitorLine) -> Option<Any> {
    let value = match line {
        MonitorLine::Packet(packet) => packet_value(packet),
        MonitorLine::Flow(record) => record_value(record),
        MonitorLine::Lost(_) => return None,
    };
    let Some(Kind::StructValue(fields)) = proto_value(value?).kind else {
        return None;
    };
    Some(Any {
        type_url: STRUCT.to_owned(),
        value: fields.encode_to_vec(),
    })
}

fn packet_value(packet: &PacketEvent) -> Option<serde_json::Value> {
    let detail = PacketDetail {
        reason: packet.reason,
        rejected: packet.rejected,
        audit: packet.audit.as_ref(),
        stage: packet.stage,
        endpoint: packet.endpoint.as_deref(),
        original_destination: packet.original_destination.as_ref(),
        rule: packet.rule.as_ref(),
        policies: &packet.policies,
        logged: &packet.logged,
        length: packet.length,
        revision: packet.revision,
        stale: packet.stale,
    };
    serde_json::to_value(detail).ok()
}

fn record_value(record: &FlowRecord) -> Option<serde_json::Value> {
    let detail = RecordDetail {
        state: record.state,
        began: record.began.as_deref(),
        ended: record.ended.as_deref(),
        translation: record.translation.as_deref(),
        egress: record.egress.as_deref(),
        ingress: record.ingress.as_deref(),
        traffic: record.traffic,
    };
    serde_json::to_value(detail).ok()
}

fn proto_value(value: serde_json::Value) -> Value {
    let kind = match value {
        serde_json::Value::Null => Kind::NullValue(0),
        serde_json::Value::Bool(value) => Kind::BoolValue(value),
        serde_json::Value::Number(value) => Kind::NumberValue(value.as_f64().unwrap_or_default()),
        serde_json::Value::String(value) => Kind::StringValue(value),
        serde_json::Value::Array(values) => Kind::ListValue(ListValue {
            values: values.into_iter().map(proto_value).collect(),
        }),
        serde_json::Value::Object(fields) => Kind::StructValue(Struct {
            fields: fields
                .into_iter()
                .map(|(key, value)| (key, proto_value(value)))
                .collect(),
        }),
    };
    Value { kind: Some(kind) }
}
