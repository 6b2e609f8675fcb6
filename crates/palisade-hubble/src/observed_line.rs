//! Flows of Hubble's API as the lines that they were made of: what [`crate::flow`] does, backwards.
//!
//! Promises: a line of an agent of Palisade comes back as it was, but for what the API does not carry: the name of another
//! node, and labels that Cilium adds. Never: makes a line of a flow of another agent, which does not say what decided.

use crate::proto::flow::layer4::Protocol;
use crate::proto::flow::{Endpoint, Flow, Service, TrafficDirection, Verdict};
use jiff::Timestamp;
use palisade_api::{MonitorEndpoint, MonitorLine, MonitorVerdict, ProtocolName};
use palisade_model::{Direction, Labels};
use prost::Message;
use prost_types::value::Kind;
use prost_types::{Struct, Value};
use serde_json::{Map, json};
use std::sync::Arc;
use std::time::Duration;

/// The label that names a namespace, and those of Cilium that no workload has.
const CILIUM_LABELS: &str = "io.cilium.k8s.policy.";
const NAMESPACE_LABEL: &str = "io.kubernetes.pod.namespace";

/// The line of a flow, and when it happened, since the epoch. Nothing for a flow of another agent, and for the second
/// flow of a line.
pub(crate) fn observed_line(flow: &Flow) -> Option<(Duration, MonitorLine)> {
    let time = flow.time.as_ref()?;
    let since = Duration::new(
        u64::try_from(time.seconds).ok()?,
        u32::try_from(time.nanos).ok()?,
    );
    let detail = flow.extensions.as_ref()?;
    let detail = Struct::decode(detail.value.as_slice()).ok()?;
    let serde_json::Value::Object(mut line) = json_value(Value {
        kind: Some(Kind::StructValue(detail)),
    }) else {
        return None;
    };
    let (protocol, ports, icmp) = layer4(flow)?;
    let name = flow.node_name.rsplit('/').next().unwrap_or_default();
    let ip = flow.ip.as_ref()?;
    let source = end(
        (
            flow.source.as_ref(),
            &flow.source_names,
            flow.source_service.as_ref(),
        ),
        (&ip.source, ports.map(|ports| ports[0])),
        name,
    );
    let destination = end(
        (
            flow.destination.as_ref(),
            &flow.destination_names,
            flow.destination_service.as_ref(),
        ),
        (&ip.destination, ports.map(|ports| ports[1])),
        name,
    );
    line.insert("apiVersion".to_owned(), json!(palisade_api::api_version()));
    line.insert("protocol".to_owned(), json!(protocol));
    line.insert("source".to_owned(), json!(source));
    line.insert("destination".to_owned(), json!(destination));
    let direction = direction(flow);
    if line.contains_key("state") {
        let both = line.contains_key("egress") && line.contains_key("ingress");
        let is_second = both && direction == Some(Direction::Ingress);
        if is_second && line.get("state") == Some(&json!("Began")) {
            return None;
        }
        if let Some((kind, code)) = icmp {
            line.insert("icmp".to_owned(), json!({"type": kind, "code": code}));
        }
        line.insert("type".to_owned(), json!("Flow"));
    } else {
        add_packet_fields(&mut line, flow, direction, since)?;
        if let Some((kind, code)) = icmp {
            line.insert("icmpType".to_owned(), json!(kind));
            line.insert("icmpCode".to_owned(), json!(code));
        }
        line.insert("type".to_owned(), json!("Packet"));
    }
    let line = serde_json::from_value(serde_json::Value::Object(line)).ok()?;
    Some((since, line))
}

fn add_packet_fields(
    line: &mut Map<String, serde_json::Value>,
    flow: &Flow,
    direction: Option<Direction>,
    since: Duration,
) -> Option<()> {
    let time = Timestamp::from_microsecond(i64::try_from(since.as_micros()).ok()?).ok()?;
    let verdict = if flow.verdict == Verdict::Dropped as i32 {
        MonitorVerdict::Denied
    } else {
        MonitorVerdict::Allowed
    };
    line.insert("time".to_owned(), json!(format!("{time:.6}")));
    line.insert("verdict".to_owned(), json!(verdict));
    line.insert("reply".to_owned(), json!(flow.is_reply.unwrap_or(false)));
    if let Some(direction) = direction {
        line.insert("direction".to_owned(), json!(direction));
    }
    if let Some(interface) = &flow.interface {
        line.insert("interface".to_owned(), json!(interface.name));
    }
    Some(())
}

fn direction(flow: &Flow) -> Option<Direction> {
    match flow.traffic_direction() {
        TrafficDirection::Ingress => Some(Direction::Ingress),
        TrafficDirection::Egress => Some(Direction::Egress),
        TrafficDirection::Unknown => None,
    }
}

/// The protocol, with the ports or with type and code.
type Layer4Fields = (ProtocolName, Option<[u16; 2]>, Option<(u8, u8)>);

fn layer4(flow: &Flow) -> Option<Layer4Fields> {
    let number = |value: u32| u16::try_from(value).ok();
    let ports = |source, destination| Some([number(source)?, number(destination)?]);
    let octets = |kind: u32, code: u32| Some((u8::try_from(kind).ok()?, u8::try_from(code).ok()?));
    Some(match flow.l4.as_ref()?.protocol.as_ref()? {
        Protocol::Tcp(tcp) => (
            ProtocolName::Tcp,
            ports(tcp.source_port, tcp.destination_port),
            None,
        ),
        Protocol::Udp(udp) => (
            ProtocolName::Udp,
            ports(udp.source_port, udp.destination_port),
            None,
        ),
        Protocol::Sctp(sctp) => (
            ProtocolName::Sctp,
            ports(sctp.source_port, sctp.destination_port),
            None,
        ),
        Protocol::IcmPv4(icmp) => (ProtocolName::Icmp, None, octets(icmp.r#type, icmp.code)),
        Protocol::IcmPv6(icmp) => (ProtocolName::Icmpv6, None, octets(icmp.r#type, icmp.code)),
    })
}

fn end(
    (endpoint, names, service): (Option<&Endpoint>, &[String], Option<&Service>),
    (address, port): (&str, Option<u16>),
    node: &str,
) -> MonitorEndpoint {
    let none = Endpoint::default();
    let endpoint = endpoint.unwrap_or(&none);
    let is_workload = !endpoint.pod_name.is_empty();
    let is_own_host = endpoint.labels.iter().any(|label| label == "reserved:host");
    let labels: Labels = endpoint
        .labels
        .iter()
        .filter_map(|label| label.strip_prefix("k8s:")?.split_once('='))
        .filter(|(key, _)| *key != NAMESPACE_LABEL && !key.starts_with(CILIUM_LABELS))
        .map(|(key, value)| (key.into(), value.into()))
        .collect();
    MonitorEndpoint {
        address: address.into(),
        port,
        namespace: is_workload.then(|| (&*endpoint.namespace).into()),
        name: is_workload.then(|| (&*endpoint.pod_name).into()),
        controller: endpoint.workloads.first().map(|workload| {
            Arc::new(palisade_api::ControllerRef {
                kind: (&*workload.kind).into(),
                name: (&*workload.name).into(),
            })
        }),
        labels: Arc::new(labels),
        node: is_own_host.then(|| node.into()),
        names: names.iter().map(Into::into).collect(),
        service: service.map(|service| {
            Arc::new(palisade_api::ServiceRef {
                namespace: (&*service.namespace).into(),
                name: (&*service.name).into(),
            })
        }),
    }
}

/// A value as JSON; the message has all numbers as floating-point ones.
fn json_value(value: Value) -> serde_json::Value {
    match value.kind {
        None | Some(Kind::NullValue(_)) => serde_json::Value::Null,
        Some(Kind::BoolValue(value)) => value.into(),
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a whole number in the range of the type"
        )]
        Some(Kind::NumberValue(value))
            if value.fract() == 0.0 && (0.0..9.007_199_254_740_992e15).contains(&value) =>
        {
            (value as u64).into()
        }
        Some(Kind::NumberValue(value)) => value.into(),
        Some(Kind::StringValue(value)) => value.into(),
        Some(Kind::ListValue(list)) => list.values.into_iter().map(json_value).collect(),
        Some(Kind::StructValue(fields)) => fields
            .fields
            .into_iter()
            .map(|(key, value)| (key, json_value(value)))
            .collect(),
    }
}
