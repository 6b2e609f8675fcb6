//! The rules of Calico, with every field.

use super::super::Features;
use super::entity::{self, EntityPlace};
use crate::Dice;
use serde_json::{Value, json};

/// Where a rule stands.
#[derive(Clone, Copy, Debug)]
pub(super) struct RuleScope<'a> {
    /// The namespace of its policy.
    pub(super) namespace: Option<&'a str>,
    pub(super) egress: bool,
    /// Whether it may name Services.
    pub(super) has_services: bool,
}

impl<'a> RuleScope<'a> {
    /// Within a policy of a namespace or of the cluster.
    pub(super) fn of_policy(namespace: Option<&'a str>, egress: bool) -> Self {
        RuleScope {
            namespace,
            egress,
            has_services: true,
        }
    }

    /// Within a profile.
    pub(super) fn of_profile(egress: bool) -> Self {
        RuleScope {
            namespace: None,
            egress,
            has_services: false,
        }
    }
}

/// The families that the networks of a rule are of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RuleFamily {
    V4,
    V6,
    Both,
}

/// A rule.
pub(super) fn rule(dice: &mut Dice, scope: &RuleScope<'_>, features: &mut Features) -> Value {
    let action = match dice.below(100) {
        0..50 => "Allow",
        50..70 => "Deny",
        70..84 => "Pass",
        _ => "Log",
    };
    features.insert(match action {
        "Allow" => "action Allow of Calico",
        "Deny" => "action Deny of Calico",
        "Pass" => "action Pass of Calico",
        _ => "action Log",
    });
    let mut rule = json!({ "action": action });
    if dice.chance(8) {
        features.insert("rule of Calico without conditions");
        return rule;
    }
    let has_ports = protocol(dice, &mut rule, features);
    let family = family(dice, &mut rule, features);
    messages(dice, &mut rule, features);
    let is_tcp = rule.get("protocol").is_none_or(|p| *p == "TCP");
    if action == "Allow" && !scope.egress && is_tcp && dice.chance(14) {
        features.insert("http, held closed");
        rule["http"] = json!({ "methods": ["GET"], "paths": [{ "prefix": "/" }] });
    }
    if dice.chance(8) {
        features.insert("metadata of a rule");
        rule["metadata"] = json!({ "annotations": { "why": "because" } });
    }
    ends(dice, &mut rule, scope, (has_ports, family), features);
    rule
}

/// The protocol of a rule; whether it has ports.
fn protocol(dice: &mut Dice, rule: &mut Value, features: &mut Features) -> bool {
    let (protocol, feature, has_ports) = match dice.below(100) {
        0..16 => (json!("TCP"), "protocol by name", true),
        16..25 => (json!("UDP"), "protocol by name", true),
        25..30 => (json!("SCTP"), "protocol by name", true),
        30..35 => {
            let name = *dice.pick(&["tcp", "Udp", "sctp"]);
            (json!(name), "protocol in another case", true)
        }
        35..39 => (json!(*dice.pick(&[6, 17, 132])), "protocol by number", true),
        39..49 => (json!("ICMP"), "protocol ICMP", false),
        49..57 => (json!("ICMPv6"), "protocol ICMPv6", false),
        57..59 => (json!("UDPLite"), "protocol UDPLite", false),
        59..63 => {
            let number = *dice.pick(&[1, 47, 50, 136]);
            (json!(number), "protocol without ports by number", false)
        }
        _ => {
            if dice.chance(25) {
                features.insert("notProtocol");
                let all = [json!("TCP"), json!("udp"), json!(132), json!("ICMP")];
                rule["notProtocol"] = dice.pick(&all).clone();
            }
            return false;
        }
    };
    features.insert(feature);
    rule["protocol"] = protocol;
    if dice.chance(5) {
        features.insert("notProtocol");
        rule["notProtocol"] = dice.pick(&[json!("TCP"), json!("UDP")]).clone();
    }
    has_ports
}

/// The family that the rule or its protocol asks for, or the families of its networks.
fn family(dice: &mut Dice, rule: &mut Value, features: &mut Features) -> RuleFamily {
    let is = |field: &str, name: &str| rule.get(field).is_some_and(|p| *p == name);
    let family = match (
        is("protocol", "ICMPv6"),
        is("protocol", "ICMP") || is("notProtocol", "ICMP"),
    ) {
        (true, _) => RuleFamily::V6,
        (_, true) => RuleFamily::V4,
        _ => *dice.pick(&[RuleFamily::V4, RuleFamily::V4, RuleFamily::V6]),
    };
    if dice.chance(9) {
        features.insert("ipVersion");
        rule["ipVersion"] = if family == RuleFamily::V4 { 4 } else { 6 }.into();
        return family;
    }
    // Only the definitions let networks of both families in, and what was stored before they were refused.
    if dice.chance(38) {
        RuleFamily::Both
    } else {
        family
    }
}

/// Messages, if the protocol has them.
fn messages(dice: &mut Dice, rule: &mut Value, features: &mut Features) {
    let echo = match rule["protocol"].as_str() {
        Some("ICMP") => 8,
        Some("ICMPv6") => 128,
        _ => return,
    };
    for (field, percent, of_type, of_code) in [
        ("icmp", 50, "icmp by type", "icmp by type and code"),
        ("notICMP", 40, "notICMP by type", "notICMP by type and code"),
    ] {
        if !dice.chance(percent) {
            continue;
        }
        let mut message = json!({ "type": *dice.pick(&[echo, echo, 3, 13]) });
        features.insert(of_type);
        if dice.chance(50) {
            features.insert(of_code);
            message["code"] = (*dice.pick(&[0, 0, 4])).into();
        }
        rule[field] = message;
    }
}

fn ends(
    dice: &mut Dice,
    rule: &mut Value,
    scope: &RuleScope<'_>,
    (has_ports, family): (bool, RuleFamily),
    features: &mut Features,
) {
    let (own, peer) = if scope.egress {
        ("source", "destination")
    } else {
        ("destination", "source")
    };
    // What is about ports or messages is met more often if it is about little else.
    let has_protocol = rule.get("protocol").is_some();
    let (of_peer, of_own) = if has_protocol { (38, 12) } else { (80, 18) };
    for (field, percent) in [(peer, of_peer), (own, of_own)] {
        let place = EntityPlace {
            scope,
            is_peer: field == peer,
            is_destination: field == "destination",
            has_ports,
            family,
        };
        let mut end = json!({});
        if dice.chance(percent) {
            entity::add_criteria(dice, &mut end, &place, features);
        }
        if has_ports {
            entity::add_ports(dice, &mut end, &place, features);
        } else if !has_protocol && dice.chance(9) {
            entity::add_port_names(dice, &mut end, features);
        }
        if end.as_object().is_some_and(|fields| !fields.is_empty()) || dice.chance(4) {
            rule[field] = end;
        }
    }
    let is_filled = |field: &str| {
        let fields = rule.get(field).and_then(Value::as_object);
        fields.is_some_and(|fields| !fields.is_empty())
    };
    if is_filled(own) {
        features.insert("own end");
    }
    if is_filled(own) && is_filled(peer) {
        features.insert("both ends");
    }
}
