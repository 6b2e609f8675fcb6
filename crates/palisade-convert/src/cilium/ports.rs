//! The ports of rules of Cilium, and their messages of ICMP.

use super::TARGET;
use crate::inexpressible::InexpressibleReason;
use crate::ports::{DestinationPort, PlainTraffic, port_protocol_name};
use crate::refusals::{Refusals, RulePart};
use palisade_model::{Direction, Policy, Protocol, Rule};
use serde_json::{Value, json};

/// The maximum number of ports in an item of `toPorts`, and of messages in one of `icmps`.
const MAX_ITEMS: usize = 40;
/// Protocols without ports that can be named.
const OTHERS: [(Protocol, &str); 2] = [(Protocol(112), "VRRP"), (Protocol(2), "IGMP")];

/// What a rule tests of packets: a field with its items; `None` for all traffic.
type TrafficItems = Option<(&'static str, Vec<Value>)>;

/// One test as it is written.
enum TrafficItem {
    All,
    Port(Value),
    Message(Value),
}

/// The lists of ports and of messages of a rule.
pub(super) fn write(
    place: (&Policy, Direction),
    rule: &Rule,
    refusals: &mut Refusals,
) -> Vec<TrafficItems> {
    let (mut ports, mut messages, mut has_all) = (Vec::new(), Vec::new(), false);
    for (index, traffic) in rule.traffic.iter().enumerate() {
        let items = PlainTraffic::read(traffic, TARGET).and_then(|tests| {
            let items = tests.iter().map(item);
            items.collect::<Result<Vec<_>, _>>()
        });
        match items {
            Err(reason) => refusals.of_rule(place, (rule, RulePart::Traffic(index)), reason),
            Ok(items) => {
                for item in items {
                    match item {
                        TrafficItem::All => has_all = true,
                        TrafficItem::Port(port) => ports.push(port),
                        TrafficItem::Message(message) => messages.push(message),
                    }
                }
            }
        }
    }
    let ports = merge_protocols(ports);
    let mut lists = Vec::new();
    if has_all {
        lists.push(None);
    }
    for (field, key, items) in [("toPorts", "ports", ports), ("icmps", "fields", messages)] {
        if !items.is_empty() {
            let chunks = items.chunks(MAX_ITEMS).map(|chunk| json!({ key: chunk }));
            lists.push(Some((field, chunks.collect())));
        }
    }
    lists
}

fn item(test: &PlainTraffic) -> Result<TrafficItem, InexpressibleReason> {
    if test.is_any() {
        return Ok(TrafficItem::All);
    }
    if let Some(message) = test.icmp {
        let family = match test.protocol {
            Some(Protocol::ICMP) => "IPv4",
            Some(Protocol::ICMPV6) => "IPv6",
            _ => return Err(InexpressibleReason::Icmp(TARGET)),
        };
        return match message.code {
            Some(_) => Err(InexpressibleReason::IcmpCode),
            None => Ok(TrafficItem::Message(
                json!({ "family": family, "type": message.kind }),
            )),
        };
    }
    let name = match test.protocol {
        None => "ANY",
        Some(protocol) => {
            let other = OTHERS.iter().find(|(known, _)| *known == protocol);
            if let Some((_, name)) = other
                && test.port == DestinationPort::Any
            {
                return Ok(TrafficItem::Port(json!({ "port": "0", "protocol": name })));
            }
            port_protocol_name(protocol).ok_or(InexpressibleReason::Protocol {
                target: TARGET,
                protocol,
            })?
        }
    };
    Ok(TrafficItem::Port(match &test.port {
        DestinationPort::Any => json!({ "port": "0", "protocol": name }),
        DestinationPort::Named(port) => json!({ "port": port, "protocol": name }),
        DestinationPort::Range(range) if range.first == 0 => {
            return Err(InexpressibleReason::PortZero(TARGET));
        }
        DestinationPort::Range(range) if range.first == range.last => {
            json!({ "port": range.first.to_string(), "protocol": name })
        }
        DestinationPort::Range(range) => {
            json!({ "port": range.first.to_string(), "endPort": range.last, "protocol": name })
        }
    }))
}

/// Of three items that differ in the protocol alone, one for all protocols that have ports.
fn merge_protocols(ports: Vec<Value>) -> Vec<Value> {
    let with = |port: &Value, name: &str| {
        let mut port = port.clone();
        port["protocol"] = json!(name);
        port
    };
    let is_merged = |port: &Value| {
        let names = ["TCP", "UDP", "SCTP"];
        names.iter().all(|name| ports.contains(&with(port, name)))
    };
    let mut merged: Vec<Value> = Vec::new();
    for port in &ports {
        let port = if is_merged(port) && port["protocol"] != "VRRP" && port["protocol"] != "IGMP" {
            with(port, "ANY")
        } else {
            port.clone()
        };
        if !merged.contains(&port) {
            merged.push(port);
        }
    }
    merged
}
