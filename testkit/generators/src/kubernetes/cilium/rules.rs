//! The rules of lists, with their ports and messages.

use super::super::policy::NUMBERS;
use super::super::{Features, pod};
use super::peers;
use crate::Dice;
use serde_json::{Value, json};

/// The rules of a list.
pub(super) fn list(
    dice: &mut Dice,
    list: &'static str,
    scope: Option<&str>,
    features: &mut Features,
) -> Value {
    features.insert(match list {
        "ingress" => "list ingress",
        "egress" => "list egress",
        "ingressDeny" => "list ingressDeny",
        _ => "list egressDeny",
    });
    let egress = list.starts_with("egress");
    let denies = list.ends_with("Deny");
    let count = dice.between(1, 3);
    (0..count)
        .map(|_| rule(dice, (egress, denies), scope, features))
        .collect()
}

fn rule(
    dice: &mut Dice,
    (egress, denies): (bool, bool),
    scope: Option<&str>,
    features: &mut Features,
) -> Value {
    let mut rule = json!({});
    if dice.chance(4) {
        features.insert("rule of Cilium that is {}");
        return rule;
    }
    peers::add(dice, &mut rule, (egress, denies), scope, features);
    match dice.below(100) {
        0..38 => {}
        38..86 => {
            features.insert("toPorts");
            let count = dice.between(1, 2);
            rule["toPorts"] = (0..count)
                .map(|_| to_ports(dice, (egress, denies), features))
                .collect();
        }
        _ => {
            features.insert("icmps");
            let count = dice.between(1, 3);
            let fields: Vec<Value> = (0..count).map(|_| message(dice, features)).collect();
            rule["icmps"] = json!([{ "fields": fields }]);
        }
    }
    if !denies && dice.chance(6) {
        let mode = *dice.pick(&["disabled", "required", "test-always-fail"]);
        features.insert(match mode {
            "disabled" => "authentication disabled",
            _ => "authentication, held closed",
        });
        rule["authentication"] = json!({ "mode": mode });
    }
    rule
}

fn to_ports(dice: &mut Dice, (egress, denies): (bool, bool), features: &mut Features) -> Value {
    if !denies && dice.chance(8) {
        features.insert("L7 rules, held closed");
        let mut item = json!({ "ports": [{ "port": "80", "protocol": "TCP" }] });
        match dice.below(5) {
            0 => item["rules"] = json!({ "http": [{ "method": "GET", "path": "/" }] }),
            1 => item["rules"] = json!({ "l7proto": "x", "l7": [{ "a": "b" }] }),
            2 => item["serverNames"] = json!(["example.com"]),
            3 => item["terminatingTLS"] = json!({ "secret": { "name": "s", "namespace": "shop" } }),
            _ if egress => {
                item["listener"] = json!({ "envoyConfig": { "name": "e" }, "name": "l" });
            }
            _ => item["rules"] = json!({ "kafka": [{ "topic": "t" }] }),
        }
        return item;
    }
    if egress && !denies && dice.chance(15) {
        return dns(dice, features);
    }
    if dice.chance(3) {
        features.insert("toPorts without ports");
        return json!({});
    }
    let count = dice.between(1, 3);
    let ports: Vec<Value> = (0..count).map(|_| port(dice, features)).collect();
    json!({ "ports": ports })
}

/// Ports with rules of DNS.
fn dns(dice: &mut Dice, features: &mut Features) -> Value {
    let (names, feature) = dice
        .pick(&[
            (json!([{ "matchPattern": "*" }]), "DNS rules of every name"),
            (
                json!([{ "matchName": "example.com" }, { "matchPattern": "*" }]),
                "DNS rules of every name",
            ),
            (
                json!([{ "matchPattern": "*.example.com" }]),
                "DNS rules of some names",
            ),
        ])
        .clone();
    features.insert(feature);
    let port = dice.pick(&NUMBERS).to_string();
    let protocol = *dice.pick(&["UDP", "TCP", "ANY"]);
    json!({
        "ports": [{ "port": port, "protocol": protocol }],
        "rules": { "dns": names },
    })
}

fn port(dice: &mut Dice, features: &mut Features) -> Value {
    let mut port = json!({});
    let (protocol, feature) = *dice.pick(&[
        ("", "port of any protocol"),
        ("ANY", "port of any protocol"),
        ("TCP", "port of TCP"),
        ("UDP", "port of UDP"),
        ("SCTP", "port of SCTP"),
    ]);
    features.insert(feature);
    if !protocol.is_empty() {
        port["protocol"] = protocol.into();
    }
    match dice.below(100) {
        0..18 => {
            features.insert("port 0");
            port["port"] = "0".into();
        }
        18..40 => {
            features.insert("port by name");
            let (name, _) = *dice.pick(&pod::PORT_NAMES);
            port["port"] = if dice.chance(25) {
                pod::INIT_PORT
            } else {
                name
            }
            .into();
        }
        40..72 => {
            features.insert("port by number");
            port["port"] = dice.pick(&NUMBERS).to_string().into();
        }
        _ => {
            features.insert("range of ports");
            let first = *dice.pick(&NUMBERS);
            let last = first.saturating_add(*dice.pick(&[0, 1, 4, 400]));
            port["port"] = first.to_string().into();
            port["endPort"] = last.into();
        }
    }
    port
}

fn message(dice: &mut Dice, features: &mut Features) -> Value {
    let (family, kind, feature) = dice
        .pick(&[
            (None, json!(8), "ICMP of the default family"),
            (Some("IPv4"), json!("EchoRequest"), "ICMP type by name"),
            (Some("IPv4"), json!("13"), "ICMP type as text"),
            (Some("IPv4"), json!(3), "ICMP type by number"),
            (Some("IPv6"), json!("EchoRequest"), "ICMPv6 type by name"),
            (Some("IPv6"), json!(3), "ICMPv6 type by number"),
            (Some("IPv6"), json!(128), "ICMPv6 type by number"),
        ])
        .clone();
    features.insert(feature);
    let mut field = json!({ "type": kind });
    if let Some(family) = family {
        field["family"] = family.into();
    }
    field
}
