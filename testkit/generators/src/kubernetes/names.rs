//! Policy by domain name, in every dialect that has it, and the answers that the agent has seen.
//!
//! All of it is drawn from dice of its own, into policies that are there already, so that what else is in a world
//! stays as it is.

use super::policy::NUMBERS;
use super::{Features, GeneratedObject, address};
use crate::Dice;
use crate::naive::{self, ANSWERS_GROUP, ANSWERS_KIND, QUERIES};
use serde_json::{Value, json};
use std::net::IpAddr;

/// Patterns of Cilium.
const PATTERNS: [&str; 12] = [
    "*",
    "*.",
    "*.example.com",
    "*.Example.org.",
    "**.example.com",
    "**.com",
    "*example.com",
    "api*.example.com",
    "api.*.com",
    "a.**.example.org",
    "**.*.org",
    "***.example.com",
];
/// Names as people write them.
const NAMES: [&str; 6] = [
    "example.com",
    "API.Example.com",
    "v1.api.example.com.",
    "com",
    "example.org",
    "a.b.c.example.org",
];
/// Names of ClusterNetworkPolicy and Calico.
const DOMAINS: [&str; 6] = [
    "example.com",
    "Api.example.com.",
    "*.example.com",
    "*.Example.org",
    "*.api.example.com",
    "a.b.c.example.org",
];

/// Gives some policies peers by name and rules of DNS, and the world answers.
pub(super) fn add(seed: u64, case: u64, made: &mut Vec<GeneratedObject>) {
    let mut dice = Dice::new(seed ^ 0x6e61_6d65_735f_3131, case);
    for policy in made.iter_mut() {
        let version = policy.object["apiVersion"].as_str().unwrap_or_default();
        match version.split_once('/').map(|(group, _)| group) {
            Some("cilium.io") => vary_cilium(&mut dice, policy),
            Some("policy.networking.k8s.io") => vary_cluster_policy(&mut dice, policy),
            Some("projectcalico.org") => vary_calico(&mut dice, policy),
            _ => {}
        }
    }
    let objects: Vec<&Value> = made.iter().map(|made| &made.object).collect();
    let inside = naive::inside_addresses(&objects);
    let names = dice.some(&QUERIES, 7);
    made.extend(
        names
            .into_iter()
            .map(|name| answers(&mut dice, name, &inside)),
    );
}

/// The addresses of a name, of which some are inside of the cluster.
fn answers(dice: &mut Dice, name: &str, inside: &[IpAddr]) -> GeneratedObject {
    let count = dice.between(1, 5);
    let addresses = (0..count).map(|_| {
        if !inside.is_empty() && dice.chance(30) {
            return dice.pick(inside).to_string();
        }
        let v6 = dice.chance(50);
        address::outside(dice, v6).to_string()
    });
    GeneratedObject {
        object: json!({ "apiVersion": format!("{ANSWERS_GROUP}/v1"), "kind": ANSWERS_KIND,
            "metadata": { "name": name }, "addresses": addresses.collect::<Vec<_>>() }),
        features: Features::new(),
    }
}

/// The rules of a list of every spec.
fn rules<'a>(policy: &'a mut Value, list: &str) -> Vec<&'a mut Value> {
    let Some(fields) = policy.as_object_mut() else {
        return Vec::new();
    };
    let mut specs: Vec<&mut Value> = Vec::new();
    for (key, value) in fields {
        match (key.as_str(), value) {
            ("spec", spec) => specs.push(spec),
            ("specs", Value::Array(items)) => specs.extend(items),
            _ => {}
        }
    }
    let lists = specs
        .into_iter()
        .filter_map(|spec| spec.get_mut(list)?.as_array_mut());
    lists.flatten().collect()
}

fn cilium_names(dice: &mut Dice) -> Value {
    let count = dice.between(1, 3);
    let items = (0..count).map(|_| {
        if dice.chance(50) {
            json!({ "matchName": *dice.pick(&NAMES) })
        } else {
            json!({ "matchPattern": *dice.pick(&PATTERNS) })
        }
    });
    items.collect()
}

fn vary_cilium(dice: &mut Dice, policy: &mut GeneratedObject) {
    let features = &mut policy.features;
    for rule in rules(&mut policy.object, "egress") {
        let Some(fields) = rule.as_object_mut() else {
            continue;
        };
        if dice.chance(30) && !fields.is_empty() {
            features.insert("peers: FQDNs");
            fields.retain(|key, _| !key.starts_with("to") || key == "toPorts");
            fields.insert("toFQDNs".to_owned(), cilium_names(dice));
        }
        if dice.chance(30) && !fields.contains_key("icmps") {
            features.insert("DNS rules of some names");
            let port = json!({ "port": dice.pick(&NUMBERS).to_string(),
                "protocol": *dice.pick(&["UDP", "TCP", "ANY"]) });
            let item = json!({ "ports": [port], "rules": { "dns": cilium_names(dice) } });
            match fields.get_mut("toPorts").and_then(Value::as_array_mut) {
                Some(items) if dice.chance(50) => items.push(item),
                _ => drop(fields.insert("toPorts".to_owned(), json!([item]))),
            }
        }
    }
}

fn domains(dice: &mut Dice) -> Vec<&'static str> {
    let mut names = dice.some(&DOMAINS, 3);
    if names.is_empty() {
        names.push("*.example.com");
    }
    names
}

fn vary_cluster_policy(dice: &mut Dice, policy: &mut GeneratedObject) {
    if policy.object["kind"] == "BaselineAdminNetworkPolicy" {
        return;
    }
    for rule in rules(&mut policy.object, "egress") {
        let allows = rule["action"] == "Accept" || rule["action"] == "Allow";
        let text = rule.to_string();
        let has_port_names = text.contains("amedPort");
        if allows && !has_port_names && dice.chance(45) {
            policy.features.insert("peer: domainNames");
            let peer = json!({ "domainNames": domains(dice) });
            match rule["to"].as_array_mut() {
                Some(peers) if dice.chance(30) => peers.push(peer),
                _ => rule["to"] = json!([peer]),
            }
        }
    }
}

fn vary_calico(dice: &mut Dice, policy: &mut GeneratedObject) {
    let kind = policy.object["kind"].as_str().unwrap_or_default();
    if !kind.ends_with("NetworkPolicy") || kind == "StagedKubernetesNetworkPolicy" {
        return;
    }
    for rule in rules(&mut policy.object, "egress") {
        if rule["action"] != "Allow" || !dice.chance(40) {
            continue;
        }
        let mut destination = rule
            .get("destination")
            .and_then(Value::as_object)
            .cloned()
            .unwrap_or_default();
        destination.retain(|key, _| ["ports", "notPorts"].contains(&key.as_str()));
        let names = if dice.chance(10) {
            policy.features.insert("domains, held closed");
            vec!["www.*.com", "example.com"]
        } else {
            policy.features.insert("domains");
            domains(dice)
        };
        destination.insert("domains".to_owned(), json!(names));
        rule["destination"] = Value::Object(destination);
    }
}
