//! NetworkPolicies with every feature of `networking.k8s.io/v1`.

use super::{
    Features, GeneratedObject, LABELS, NAMESPACE_LABELS, NAMESPACES, address, metadata, pod,
};
use crate::Dice;
use serde_json::{Map, Value, json};

/// A policy; now and then one of the idioms that everybody writes.
pub(super) fn policy(dice: &mut Dice, pods: &[GeneratedObject], n: usize) -> GeneratedObject {
    let mut features = Features::new();
    // Half of them stand where some pod is, so that most govern something.
    let namespace = match dice.pick(pods).object.pointer("/metadata/namespace") {
        Some(Value::String(name)) if dice.chance(60) => name.clone(),
        _ => (*dice.pick(&NAMESPACES)).to_owned(),
    };
    let meta = metadata(dice, &namespace, &format!("policy-{n}"), &mut features);
    let mut object = json!({ "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
        "metadata": meta });
    match dice.below(100) {
        0..3 => {
            // All pods of the namespace, ingress, no rule: every default at once.
            features.insert("policy without spec");
            maybe_set_null(dice, &mut object, "spec", &mut features);
        }
        3..16 => object["spec"] = common_policy(dice, &mut features),
        _ => object["spec"] = random_policy(dice, &mut features),
    }
    GeneratedObject { object, features }
}

fn common_policy(dice: &mut Dice, features: &mut Features) -> Value {
    let (feature, spec) = dice
        .pick(&[
            (
                "idiom: deny all ingress",
                json!({ "podSelector": {}, "policyTypes": ["Ingress"] }),
            ),
            (
                "idiom: deny all egress",
                json!({ "podSelector": {}, "policyTypes": ["Egress"] }),
            ),
            (
                "idiom: deny all",
                json!({ "podSelector": {}, "policyTypes": ["Ingress", "Egress"] }),
            ),
            (
                "idiom: allow all ingress",
                json!({ "podSelector": {}, "ingress": [{}], "policyTypes": ["Ingress"] }),
            ),
            (
                "idiom: allow all egress",
                json!({ "podSelector": {}, "egress": [{}], "policyTypes": ["Egress"] }),
            ),
        ])
        .clone();
    features.insert(feature);
    spec
}

fn random_policy(dice: &mut Dice, features: &mut Features) -> Value {
    let mut spec = json!({});
    match dice.below(100) {
        0..6 => {
            features.insert("podSelector missing");
            maybe_set_null(dice, &mut spec, "podSelector", features);
        }
        6..48 => {
            features.insert("subject: all pods");
            spec["podSelector"] = json!({});
        }
        _ => {
            features.insert("subject: selected pods");
            spec["podSelector"] = selector(dice, &LABELS, features);
        }
    }
    match dice.below(100) {
        0..22 => {
            features.insert("policyTypes unset");
            if dice.chance(40) {
                spec["policyTypes"] = json!([]);
                features.insert("policyTypes empty");
            }
            rules(dice, &mut spec, "ingress", 60, features);
            if dice.chance(55) {
                rules(dice, &mut spec, "egress", 85, features);
                features.insert("policyTypes unset with egress");
            }
        }
        22..47 => {
            features.insert("policyTypes: Ingress");
            spec["policyTypes"] = json!(["Ingress"]);
            rules(dice, &mut spec, "ingress", 80, features);
            if dice.chance(15) {
                rules(dice, &mut spec, "egress", 100, features);
                features.insert("rules of a direction not named");
            }
        }
        47..70 => {
            features.insert("policyTypes: Egress");
            spec["policyTypes"] = json!(["Egress"]);
            rules(dice, &mut spec, "egress", 80, features);
            if dice.chance(15) {
                rules(dice, &mut spec, "ingress", 100, features);
                features.insert("rules of a direction not named");
            }
        }
        _ => {
            features.insert("policyTypes: both");
            let mut types = ["Ingress", "Egress"];
            dice.shuffle(&mut types);
            spec["policyTypes"] = json!(types);
            rules(dice, &mut spec, "ingress", 80, features);
            rules(dice, &mut spec, "egress", 80, features);
        }
    }
    spec
}

fn rules(
    dice: &mut Dice,
    spec: &mut Value,
    direction: &str,
    percent: u32,
    features: &mut Features,
) {
    if !dice.chance(percent) {
        if dice.chance(50) {
            spec[direction] = json!([]);
            features.insert("rule list empty");
        } else {
            features.insert("rule list missing");
            maybe_set_null(dice, spec, direction, features);
        }
        return;
    }
    let count = dice.between(1, 3);
    if count > 1 {
        features.insert("several rules");
    }
    spec[direction] = (0..count)
        .map(|_| rule(dice, direction, features))
        .collect();
}

fn rule(dice: &mut Dice, direction: &str, features: &mut Features) -> Value {
    let mut rule = json!({});
    let peers = if direction == "ingress" { "from" } else { "to" };
    match dice.below(100) {
        0..12 => {
            features.insert("peers missing");
            maybe_set_null(dice, &mut rule, peers, features);
        }
        12..18 => {
            rule[peers] = json!([]);
            features.insert("peers empty");
        }
        _ => {
            let count = dice.between(1, 3);
            if count > 1 {
                features.insert("several peers");
            }
            rule[peers] = (0..count).map(|_| peer(dice, features)).collect();
        }
    }
    match dice.below(100) {
        0..32 => {
            features.insert("ports missing");
            maybe_set_null(dice, &mut rule, "ports", features);
        }
        32..40 => {
            rule["ports"] = json!([]);
            features.insert("ports empty");
        }
        _ => {
            let count = dice.between(1, 4);
            if count > 1 {
                features.insert("several ports");
            }
            rule["ports"] = (0..count).map(|_| port(dice, features)).collect();
        }
    }
    if rule.as_object().is_some_and(Map::is_empty) {
        features.insert("rule that is {}");
    }
    rule
}

/// What is not there, said out loud.
fn maybe_set_null(dice: &mut Dice, of: &mut Value, field: &str, features: &mut Features) {
    if dice.chance(20) {
        of[field] = Value::Null;
        features.insert("field that is null");
    }
}

fn peer(dice: &mut Dice, features: &mut Features) -> Value {
    match dice.below(100) {
        0..26 => {
            features.insert("peer: podSelector");
            json!({ "podSelector": pods(dice, features) })
        }
        26..44 => {
            features.insert("peer: namespaceSelector");
            json!({ "namespaceSelector": namespaces(dice, features) })
        }
        44..62 => {
            features.insert("peer: both selectors");
            json!({ "podSelector": pods(dice, features),
                    "namespaceSelector": namespaces(dice, features) })
        }
        _ => json!({ "ipBlock": block(dice, features) }),
    }
}

pub(super) fn pods(dice: &mut Dice, features: &mut Features) -> Value {
    if dice.chance(30) {
        features.insert("podSelector that is {}");
        return json!({});
    }
    selector(dice, &LABELS, features)
}

pub(super) fn namespaces(dice: &mut Dice, features: &mut Features) -> Value {
    match dice.below(100) {
        0..25 => {
            features.insert("namespaceSelector that is {}");
            json!({})
        }
        25..50 => {
            features.insert("namespaceSelector by kubernetes.io/metadata.name");
            let name = *dice.pick(&NAMESPACES);
            if dice.chance(50) {
                json!({ "matchLabels": { "kubernetes.io/metadata.name": name } })
            } else {
                let operator = *dice.pick(&["In", "NotIn"]);
                json!({ "matchExpressions": [{ "key": "kubernetes.io/metadata.name",
                    "operator": operator, "values": [name, "elsewhere"] }] })
            }
        }
        _ => selector(dice, &NAMESPACE_LABELS, features),
    }
}

/// A label selector with at least one requirement, over keys that exist and one that does not.
fn selector(dice: &mut Dice, of: &[(&str, &[&str])], features: &mut Features) -> Value {
    let mut selector = json!({});
    if dice.chance(50) {
        let (key, values) = *dice.pick(of);
        let mut wanted = Map::new();
        wanted.insert(key.to_owned(), (*dice.pick(values)).into());
        if dice.chance(40) {
            let (second, values) = *dice.pick(of);
            wanted.insert(second.to_owned(), (*dice.pick(values)).into());
            if wanted.len() == 2 {
                features.insert("matchLabels with two labels");
            }
        }
        selector["matchLabels"] = Value::Object(wanted);
        features.insert("matchLabels");
        if dice.chance(70) {
            return selector;
        }
    }
    let count = dice.between(1, 2);
    selector["matchExpressions"] = (0..count).map(|_| expression(dice, of, features)).collect();
    selector
}

fn expression(dice: &mut Dice, of: &[(&str, &[&str])], features: &mut Features) -> Value {
    let (key, values) = *dice.pick(of);
    let key = if dice.chance(6) {
        "nobody-has-this"
    } else {
        key
    };
    let (operator, feature) = *dice.pick(&[
        ("In", "matchExpressions In"),
        ("NotIn", "matchExpressions NotIn"),
        ("Exists", "matchExpressions Exists"),
        ("DoesNotExist", "matchExpressions DoesNotExist"),
    ]);
    features.insert(feature);
    let mut expression = json!({ "key": key, "operator": operator });
    if operator == "In" || operator == "NotIn" {
        let mut chosen = dice.some(values, 2);
        if chosen.is_empty() {
            chosen.push(values[0]);
        }
        expression["values"] = json!(chosen);
    } else if dice.chance(20) {
        expression["values"] = json!([]);
    }
    expression
}

fn block(dice: &mut Dice, features: &mut Features) -> Value {
    let v6 = dice.chance(42);
    features.insert(if v6 { "ipBlock IPv6" } else { "ipBlock IPv4" });
    let (cidr, length) = address::network(dice, v6);
    if length == 0 {
        features.insert("ipBlock of everything");
    }
    if length == if v6 { 128 } else { 32 } {
        features.insert("ipBlock of one address");
    }
    let mut block = json!({ "cidr": with_host_bits(dice, &cidr, features) });
    if dice.chance(55) {
        let count = dice.between(1, 3);
        let inner: Vec<String> = (0..count)
            .filter_map(|_| address::subnet(dice, &cidr, length, v6))
            .collect();
        let inner: Vec<String> = (inner.iter())
            .map(|cidr| with_host_bits(dice, cidr, features))
            .collect();
        if !inner.is_empty() {
            features.insert("ipBlock with except");
            if inner.len() > 1 {
                features.insert("ipBlock with several excepts");
            }
            block["except"] = json!(inner);
        }
    } else if dice.chance(15) {
        block["except"] = json!([]);
    }
    if dice.chance(8) {
        let odd = legacy_cidr(&cidr, length);
        if let Some(odd) = odd.filter(|_| v6 || block["except"][0].is_null()) {
            features.insert("ipBlock oddly written");
            block["cidr"] = json!(odd);
        }
    }
    block
}

/// The same network, sometimes written as an address in it, which the API accepts.
fn with_host_bits(dice: &mut Dice, cidr: &str, features: &mut Features) -> String {
    let loose = if dice.chance(12) {
        address::with_host_bits(dice, cidr)
    } else {
        None
    };
    match loose {
        Some(loose) => {
            features.insert("ipBlock with host bits");
            loose
        }
        None => cidr.to_owned(),
    }
}

/// The same network as only old readers take it: its numbers with zeros before them, or one of IPv4
/// in the form of IPv6, whose excepts would have to be in that form too.
fn legacy_cidr(cidr: &str, length: u8) -> Option<String> {
    let (network, _) = cidr.split_once('/')?;
    if network.contains(':') {
        return Some(format!("{network}/0{length}"));
    }
    if length.is_multiple_of(2) {
        let octets: Vec<String> = network
            .split('.')
            .map(|octet| format!("0{octet}"))
            .collect();
        return Some(format!("{}/0{length}", octets.join(".")));
    }
    Some(format!("::ffff:{network}/{}", length + 96))
}

/// Numbers that rules name; flows are drawn near them.
pub(super) const NUMBERS: [u16; 8] = [80, 81, 443, 8080, 53, 5353, 1, 65535];

fn port(dice: &mut Dice, features: &mut Features) -> Value {
    let mut port = json!({});
    let (protocol, feature) = *dice.pick(&[
        (None, "protocol left out"),
        (Some("TCP"), "protocol TCP"),
        (Some("UDP"), "protocol UDP"),
        (Some("SCTP"), "protocol SCTP"),
    ]);
    features.insert(feature);
    if let Some(protocol) = protocol {
        port["protocol"] = protocol.into();
    }
    match dice.below(100) {
        0..20 => drop(features.insert("port left out")),
        20..50 => {
            let (name, _) = *dice.pick(&pod::PORT_NAMES);
            port["port"] = if dice.chance(33) {
                pod::INIT_PORT
            } else {
                name
            }
            .into();
            features.insert("named port");
        }
        50..75 => {
            port["port"] = (*dice.pick(&NUMBERS)).into();
            features.insert("port number");
        }
        _ => {
            let first = *dice.pick(&NUMBERS);
            let last = match dice.below(4) {
                0 => first,
                3 => first.saturating_add(1),
                1 if dice.chance(50) => first.saturating_add(dice.between(1, 4) as u16),
                1 => first.saturating_add(dice.between(1, 400) as u16),
                _ => (*dice.pick(&NUMBERS)).max(first),
            };
            port["port"] = first.into();
            port["endPort"] = last.into();
            features.insert("endPort");
        }
    }
    port
}
