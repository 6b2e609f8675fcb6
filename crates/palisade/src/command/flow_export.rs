//! Recorded flows as Hubble's exporter writes flows: a line of JSON each, with the names of Cilium's `flow.proto`.
//!
//! Promises: what Hubble has no field for is left out or said in the summary; nothing is made up: an end that is known as a
//! workload has no address and no pod.

use super::recorded_decision::decision_text;
use palisade_api::{
    MonitorVerdict, ObjectRef, PacketReason, ProtocolName, RecordedDecision, RecordedEnd,
    RecordedFlow, RecordedFlowList,
};
use palisade_text::printable_json;
use serde_json::{Map, Value, json};
use std::net::IpAddr;

/// Cilium's numbers of events: a verdict of policy, and a dropped packet.
const POLICY_VERDICT_EVENT: u8 = 5;
const DROP_EVENT: u8 = 1;

/// Cilium's reserved identities.
const HOST: (u8, &str) = (1, "reserved:host");
const WORLD: (u8, &str) = (2, "reserved:world");
const REMOTE_NODE: (u8, &str) = (6, "reserved:remote-node");

/// The lines of all flows, the first seen first, as a log has them.
pub(super) fn export_lines(list: &RecordedFlowList) -> String {
    let mut out = String::new();
    for flow in list.flows.iter().rev() {
        let line = json!({
            "flow": flow_value(flow, &list.node),
            "node_name": list.node,
            "time": flow.last,
        });
        out.push_str(&printable_json(&line.to_string()));
        out.push('\n');
    }
    out
}

fn flow_value(flow: &RecordedFlow, node: &str) -> Value {
    let is_denied = flow.verdict == MonitorVerdict::Denied;
    let mut value = Map::new();
    let mut set = |name: &str, field: Value| {
        let is_empty = match &field {
            Value::Null => true,
            Value::Array(items) => items.is_empty(),
            Value::Object(fields) => fields.is_empty(),
            _ => false,
        };
        if !is_empty {
            value.insert(name.to_owned(), field);
        }
    };
    set("time", json!(flow.last));
    let verdict = if is_denied { "DROPPED" } else { "FORWARDED" };
    set("verdict", json!(verdict));
    let reason = is_denied.then(|| drop_reason(flow)).unzip();
    set("drop_reason", json!(reason.0));
    set("IP", ip_value(flow));
    set("l4", layer_value(flow));
    set("drop_reason_desc", json!(reason.1));
    set("source", end_value(&flow.source, node));
    set("destination", end_value(&flow.destination, node));
    set("Type", json!("L3_L4"));
    set("node_name", json!(node));
    set("source_names", json!(flow.source.names));
    set("destination_names", json!(flow.destination.names));
    let event = if is_denied {
        DROP_EVENT
    } else {
        POLICY_VERDICT_EVENT
    };
    set("event_type", json!({"type": event}));
    set("destination_service", service_value(&flow.destination));
    set("traffic_direction", json!(direction(flow)));
    for (direction, decision) in [("egress", &flow.egress), ("ingress", &flow.ingress)] {
        let Some(decision) = decision else {
            continue;
        };
        let word = if is_denied { "denied" } else { "allowed" };
        set(&format!("{direction}_{word}_by"), policies_value(decision));
    }
    set("Summary", json!(summary(flow)));
    Value::Object(value)
}

/// Why it was dropped, as Cilium numbers and names it.
fn drop_reason(flow: &RecordedFlow) -> (u8, &'static str) {
    let decision = flow.ingress.as_ref().or(flow.egress.as_ref());
    match decision.map(|decision| decision.reason) {
        Some(PacketReason::Spoofed) => (132, "INVALID_SOURCE_IP"),
        Some(PacketReason::Rule | PacketReason::Profile) => (181, "POLICY_DENY"),
        _ => (133, "POLICY_DENIED"),
    }
}

/// The addresses that are known.
fn ip_value(flow: &RecordedFlow) -> Value {
    let ends = [
        ("source", &flow.source.address),
        ("destination", &flow.destination.address),
    ];
    let mut value = Map::new();
    let mut version = Value::Null;
    for (name, address) in ends {
        let Some(address) = address else {
            continue;
        };
        version = match address.parse() {
            Ok(IpAddr::V6(_)) => json!("IPv6"),
            _ => json!("IPv4"),
        };
        value.insert(name.to_owned(), json!(address));
    }
    if !value.is_empty() {
        value.insert("ipVersion".to_owned(), version);
    }
    Value::Object(value)
}

fn layer_value(flow: &RecordedFlow) -> Value {
    let ports = || json!({"destination_port": flow.port.unwrap_or_default()});
    let icmp = || {
        let icmp = flow.icmp.map(|icmp| (icmp.kind, icmp.code));
        let (kind, code) = icmp.unwrap_or_default();
        json!({"type": kind, "code": code})
    };
    match flow.protocol {
        ProtocolName::Tcp => json!({"TCP": ports()}),
        ProtocolName::Udp => json!({"UDP": ports()}),
        ProtocolName::Sctp => json!({"SCTP": ports()}),
        ProtocolName::Icmp => json!({"ICMPv4": icmp()}),
        ProtocolName::Icmpv6 => json!({"ICMPv6": icmp()}),
        ProtocolName::Other | ProtocolName::Number(_) => Value::Null,
    }
}

/// An end: a workload with its labels as Cilium spells them, or a reserved identity.
fn end_value(end: &RecordedEnd, own_node: &str) -> Value {
    let Some(namespace) = &end.namespace else {
        let (identity, label) = match end.node.as_deref() {
            Some(node) if node == own_node => HOST,
            Some(_) => REMOTE_NODE,
            None => WORLD,
        };
        return json!({"identity": identity, "labels": [label]});
    };
    let own = end.labels.iter();
    let mut labels: Vec<String> = own
        .map(|(name, value)| format!("k8s:{name}={value}"))
        .collect();
    labels.push(format!("k8s:io.kubernetes.pod.namespace={namespace}"));
    labels.sort();
    let mut value = json!({"namespace": namespace, "labels": labels});
    if let Some(name) = &end.name {
        value["pod_name"] = json!(name);
    }
    if let Some(controller) = &end.controller {
        value["workloads"] = json!([{"name": controller.name, "kind": controller.kind}]);
    }
    value
}

fn service_value(end: &RecordedEnd) -> Value {
    let service = end.service.as_ref();
    service.map_or(
        Value::Null,
        |service| json!({"name": service.name, "namespace": service.namespace}),
    )
}

/// The direction of the end that decided; of a flow that both ends let pass, that of its source.
fn direction(flow: &RecordedFlow) -> &'static str {
    match (&flow.egress, &flow.ingress) {
        (Some(_), _) => "EGRESS",
        (None, Some(_)) => "INGRESS",
        (None, None) => "TRAFFIC_DIRECTION_UNKNOWN",
    }
}

fn policies_value(decision: &RecordedDecision) -> Value {
    let rule = decision.rule.iter().map(|rule| &rule.policy);
    let policy = |policy: &ObjectRef| {
        let mut value = json!({"name": policy.name, "kind": policy.kind});
        if let Some(namespace) = &policy.namespace {
            value["namespace"] = json!(namespace);
        }
        value
    };
    rule.chain(&decision.policies).map(policy).collect()
}

/// What Hubble has no field for: how many there were since when, and the rules with file and line.
fn summary(flow: &RecordedFlow) -> String {
    let mut out = format!("{} since {}", flow.count, flow.first);
    for (direction, decision) in [("egress", &flow.egress), ("ingress", &flow.ingress)] {
        if let Some(decision) = decision {
            out.push_str(&format!("; {direction}: {}", decision_text(decision)));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::recorded_decision::samples::list;

    #[test]
    fn lines_are_those_of_hubble() {
        let lines = export_lines(&list());
        let expected = [
            concat!(
                r#"{"flow":{"time":"2026-11-21T07:30:00Z","verdict":"FORWARDED","#,
                r#""IP":{"destination":"10.0.0.5","ipVersion":"IPv4"},"l4":{"ICMPv4":{"type":8,"code":0}},"#,
                r#""source":{"identity":2,"labels":["reserved:world"]},"#,
                r#""destination":{"identity":6,"labels":["reserved:remote-node"]},"Type":"L3_L4","#,
                r#""node_name":"node-1","event_type":{"type":5},"#,
                r#""traffic_direction":"TRAFFIC_DIRECTION_UNKNOWN","Summary":"3 since 2026-11-21T07:00:00Z"},"#,
                r#""node_name":"node-1","time":"2026-11-21T07:30:00Z"}"#,
            ),
            concat!(
                r#"{"flow":{"time":"2026-11-21T07:31:00Z","verdict":"DROPPED","drop_reason":133,"#,
                r#""IP":{"source":"192.0.2.7","ipVersion":"IPv4"},"l4":{"TCP":{"destination_port":5432}},"#,
                r#""drop_reason_desc":"POLICY_DENIED","#,
                r#""source":{"identity":2,"labels":["reserved:world"]},"#,
                r#""destination":{"namespace":"shop","#,
                r#""labels":["k8s:app=db","k8s:io.kubernetes.pod.namespace=shop"],"#,
                r#""workloads":[{"name":"db","kind":"Deployment"}]},"Type":"L3_L4","node_name":"node-1","#,
                r#""source_names":["scanner.example"],"event_type":{"type":1},"traffic_direction":"INGRESS","#,
                r#""ingress_denied_by":[{"name":"db","kind":"NetworkPolicy","namespace":"shop"}],"#,
                r#""Summary":"1 since 2026-11-21T07:00:00Z; ingress: default-deny of NetworkPolicy shop/db (db.yaml:4)"},"#,
                r#""node_name":"node-1","time":"2026-11-21T07:31:00Z"}"#,
            ),
            concat!(
                r#"{"flow":{"time":"2026-11-21T07:32:05Z","verdict":"FORWARDED","#,
                r#""l4":{"TCP":{"destination_port":5432}},"#,
                r#""source":{"namespace":"shop","labels":["k8s:app=web","k8s:io.kubernetes.pod.namespace=shop"],"#,
                r#""workloads":[{"name":"web","kind":"Deployment"}]},"#,
                r#""destination":{"namespace":"shop","labels":["k8s:app=db","k8s:io.kubernetes.pod.namespace=shop"],"#,
                r#""workloads":[{"name":"db","kind":"Deployment"}]},"Type":"L3_L4","node_name":"node-1","#,
                r#""event_type":{"type":5},"destination_service":{"name":"db","namespace":"shop"},"#,
                r#""traffic_direction":"INGRESS","#,
                r#""ingress_allowed_by":[{"name":"db","kind":"NetworkPolicy","namespace":"shop"}],"#,
                r#""Summary":"7 since 2026-11-21T07:00:00Z; ingress: NetworkPolicy shop/db rule 1 (db.yaml:4)"},"#,
                r#""node_name":"node-1","time":"2026-11-21T07:32:05Z"}"#,
            ),
        ];
        let lines: Vec<&str> = lines.lines().collect();
        assert_eq!(lines, expected);
    }
}
