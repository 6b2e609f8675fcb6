//! The peers of rules, of every kind.

use super::super::{Features, NAMESPACE_LABELS, NAMESPACES, address};
use super::inventory::{GROUPS, POOLS, SERVICES, TEAMS};
use super::pod_label;
use crate::Dice;
use serde_json::{Map, Value, json};

/// Adds the peers of a rule, or none.
pub(super) fn add(
    dice: &mut Dice,
    rule: &mut Value,
    (egress, denies): (bool, bool),
    scope: Option<&str>,
    features: &mut Features,
) {
    let word = if egress { "to" } else { "from" };
    let (kind, feature) = match dice.below(100) {
        0..10 => {
            features.insert("peers missing in a rule of Cilium");
            return;
        }
        10..36 => ("Endpoints", "peers: endpoints"),
        36..46 => ("CIDR", "peers: CIDR"),
        46..58 => ("CIDRSet", "peers: CIDRSet"),
        58..78 => ("Entities", "peers: entities"),
        78..85 => ("Nodes", "peers: nodes"),
        85..95 if egress => ("Services", "peers: services"),
        95..98 if egress && !denies => ("FQDNs", "peers: FQDNs"),
        98..100 => ("Groups", "peers: groups, held closed"),
        _ => ("Entities", "peers: entities"),
    };
    features.insert(feature);
    let field = format!("{word}{kind}");
    if dice.chance(3) {
        features.insert("peers: an empty list");
        rule[field] = json!([]);
        return;
    }
    let count = dice.between(1, 3);
    let items = (0..count).map(|_| match kind {
        "Endpoints" => endpoints(dice, scope, features),
        "CIDR" => cidr(dice, features),
        "CIDRSet" => cidr_set(dice, features),
        "Entities" => entity(dice, features),
        "Nodes" => nodes(dice, features),
        "Services" => service(dice, features),
        "FQDNs" => json!({ "matchPattern": "*.example.com" }),
        _ => json!({ "aws": { "securityGroupsIds": ["sg-1"] } }),
    });
    rule[field] = items.collect();
}

/// A selector of labels of pods, sometimes with sources.
pub(super) fn pod_selector(dice: &mut Dice, features: &mut Features) -> Value {
    let mut selector = json!({});
    let (key, value) = pod_label(dice);
    let source = match dice.below(100) {
        0..45 => "",
        45..70 => {
            features.insert("label source k8s");
            "k8s:"
        }
        70..90 => {
            features.insert("label source any");
            "any:"
        }
        _ => {
            features.insert("label source that pods do not have");
            *dice.pick(&["node:", "container:", "cidrgroup:"])
        }
    };
    let key = format!("{source}{key}");
    if dice.chance(60) {
        selector["matchLabels"] = json!({ key: value });
        return selector;
    }
    let (operator, feature) = *dice.pick(&[
        ("In", "expression In"),
        ("NotIn", "expression NotIn"),
        ("Exists", "expression Exists"),
        ("DoesNotExist", "expression DoesNotExist"),
    ]);
    features.insert(feature);
    let mut expression = json!({ "key": key, "operator": operator });
    if ["In", "NotIn"].contains(&operator) {
        expression["values"] = json!([value, "web"]);
    }
    selector["matchExpressions"] = json!([expression]);
    selector
}

fn endpoints(dice: &mut Dice, scope: Option<&str>, features: &mut Features) -> Value {
    match dice.below(100) {
        0..20 => {
            features.insert(match scope {
                Some(_) => "endpoints: all of the namespace",
                None => "endpoints: all of the cluster",
            });
            json!({})
        }
        20..48 => pod_selector(dice, features),
        48..62 => {
            features.insert("endpoints: of a namespace by name");
            let mut selector = pod_selector(dice, features);
            let key = *dice.pick(&[
                "k8s:io.kubernetes.pod.namespace",
                "io.kubernetes.pod.namespace",
            ]);
            selector["matchLabels"][key] = (*dice.pick(&NAMESPACES)).into();
            selector
        }
        62..76 => {
            features.insert("endpoints: of namespaces by label");
            let (key, values) = *dice.pick(&NAMESPACE_LABELS);
            let key = format!("k8s:io.cilium.k8s.namespace.labels.{key}");
            json!({ "matchLabels": { key: *dice.pick(values) } })
        }
        76..82 => {
            features.insert("endpoints: by service account");
            let name = *dice.pick(&["robot", "default"]);
            json!({ "matchLabels": { "io.cilium.k8s.policy.serviceaccount": name } })
        }
        82..94 => {
            features.insert("endpoints: by reserved label");
            let name = *dice.pick(&[
                "host",
                "remote-node",
                "remote-node",
                "world",
                "world-ipv4",
                "unmanaged",
                "kube-apiserver",
                "init",
            ]);
            let key = format!("reserved:{name}");
            if name != "kube-apiserver" && dice.chance(35) {
                features.insert("endpoints: without a reserved label");
                return json!({ "matchExpressions": [{ "key": key, "operator": "DoesNotExist" }] });
            }
            if name == "remote-node" && dice.chance(80) {
                features.insert("endpoints: by reserved label and label of a node");
                return json!({ "matchLabels": { key: "", "node:pool": *dice.pick(&POOLS) } });
            }
            json!({ "matchLabels": { key: "" } })
        }
        _ => {
            features.insert("endpoints: outside, by network or group");
            let mut selector = json!({ "matchLabels": { "reserved:world": "" } });
            let operator = *dice.pick(&["Exists", "DoesNotExist"]);
            let key = if dice.chance(50) {
                "cidr:198.51.100.0/28".to_owned()
            } else {
                "cidrgroup:team".to_owned()
            };
            selector["matchExpressions"] = json!([{ "key": key, "operator": operator }]);
            selector
        }
    }
}

fn cidr(dice: &mut Dice, features: &mut Features) -> Value {
    let v6 = dice.chance(42);
    if dice.chance(15) {
        features.insert("CIDR of one address without a length");
        return address::outside(dice, v6).to_string().into();
    }
    address::network(dice, v6).0.into()
}

fn cidr_set(dice: &mut Dice, features: &mut Features) -> Value {
    match dice.below(100) {
        0..45 => {
            let v6 = dice.chance(42);
            let (cidr, length) = address::network(dice, v6);
            let mut item = json!({ "cidr": cidr });
            let count = dice.between(0, 2);
            let inner: Vec<String> = (0..count)
                .filter_map(|_| address::subnet(dice, &cidr, length, v6))
                .collect();
            if !inner.is_empty() {
                features.insert("CIDRSet with except");
                item["except"] = json!(inner);
            }
            item
        }
        45..75 => {
            features.insert("CIDRSet with cidrGroupRef");
            json!({ "cidrGroupRef": *dice.pick(&GROUPS) })
        }
        _ => {
            features.insert("CIDRSet with cidrGroupSelector");
            let selector = match dice.below(3) {
                0 => json!({}),
                1 => json!({ "matchLabels": { "team": *dice.pick(&TEAMS) } }),
                _ => {
                    json!({ "matchExpressions": [{ "key": "team", "operator": *dice.pick(&["NotIn"]),
                    "values": [*dice.pick(&TEAMS)] }] })
                }
            };
            json!({ "cidrGroupSelector": selector })
        }
    }
}

fn entity(dice: &mut Dice, features: &mut Features) -> Value {
    let (name, feature) = *dice.pick(&[
        ("all", "entity all"),
        ("world", "entity world"),
        ("world", "entity world"),
        ("world-ipv4", "entity world-ipv4"),
        ("world-ipv6", "entity world-ipv6"),
        ("cluster", "entity cluster"),
        ("host", "entity host"),
        ("remote-node", "entity remote-node"),
        ("kube-apiserver", "entity kube-apiserver"),
        ("unmanaged", "entity unmanaged"),
        ("init", "entity without addresses"),
        ("health", "entity without addresses"),
        ("ingress", "entity without addresses"),
        ("none", "entity none"),
    ]);
    features.insert(feature);
    name.into()
}

fn nodes(dice: &mut Dice, features: &mut Features) -> Value {
    if dice.chance(30) {
        features.insert("nodes: all");
        return json!({});
    }
    features.insert("nodes: by label");
    let key = *dice.pick(&["pool", "node:pool"]);
    json!({ "matchLabels": { key: *dice.pick(&POOLS) } })
}

fn service(dice: &mut Dice, features: &mut Features) -> Value {
    let mut of = Map::new();
    if dice.chance(65) {
        of.insert(
            "namespace".to_owned(),
            (*dice.pick(&["shop", "stock"])).into(),
        );
    } else {
        features.insert("services: of all namespaces");
    }
    if dice.chance(60) {
        features.insert("services: by name");
        of.insert("serviceName".to_owned(), (*dice.pick(&SERVICES)).into());
        return json!({ "k8sService": of });
    }
    features.insert("services: by label");
    let selector = if dice.chance(25) {
        json!({})
    } else {
        json!({ "matchLabels": { "team": *dice.pick(&TEAMS) } })
    };
    of.insert("selector".to_owned(), selector);
    json!({ "k8sServiceSelector": of })
}
