//! What a rule says of one end of a packet.

use super::super::{Features, address, pod, policy::NUMBERS};
use super::inventory::ACCOUNTS;
use super::rules::{RuleFamily, RuleScope};
use super::selector::{SelectorSubject, selector};
use crate::Dice;
use serde_json::{Value, json};

/// Which end of which rule.
pub(super) struct EntityPlace<'a> {
    pub(super) scope: &'a RuleScope<'a>,
    /// Whether it is the other end than the one that the policy selects.
    pub(super) is_peer: bool,
    pub(super) is_destination: bool,
    /// Whether the rule has a protocol with ports.
    pub(super) has_ports: bool,
    pub(super) family: RuleFamily,
}

/// Adds what holders and addresses must be.
pub(super) fn add_criteria(
    dice: &mut Dice,
    entity: &mut Value,
    place: &EntityPlace<'_>,
    features: &mut Features,
) {
    if place.is_peer && place.scope.has_services && dice.chance(16) {
        add_service(dice, entity, place, features);
        return;
    }
    let count = *dice.pick(&[1, 1, 1, 1, 1, 2, 2, 3]);
    for _ in 0..count {
        match dice.below(100) {
            0..26 => {
                features.insert("selector");
                entity["selector"] = selector(dice, SelectorSubject::Holder, features).into();
            }
            26..38 => {
                features.insert("notSelector");
                entity["notSelector"] = selector(dice, SelectorSubject::Holder, features).into();
            }
            38..56 => add_namespaces(dice, entity, features),
            56..68 => add_accounts(dice, entity, features),
            68..86 => add_nets(dice, entity, ("nets", place.family), features),
            _ => add_nets(dice, entity, ("notNets", place.family), features),
        }
    }
    let has = |field: &str| entity.get(field).is_some();
    if place.scope.namespace.is_some()
        && has("notSelector")
        && !["selector", "namespaceSelector", "serviceAccounts"]
            .into_iter()
            .any(has)
    {
        features.insert("notSelector without another selector in a NetworkPolicy");
    }
    if has("namespaceSelector") && has("selector") {
        features.insert("namespaceSelector and selector");
    }
}

fn add_service(
    dice: &mut Dice,
    entity: &mut Value,
    place: &EntityPlace<'_>,
    features: &mut Features,
) {
    features.insert(if place.scope.egress {
        "services in egress"
    } else {
        "services in ingress"
    });
    let mut service = json!({ "name": *dice.pick(&["web", "web", "db", "kubernetes"]) });
    match place.scope.namespace {
        Some(_) if dice.chance(50) => drop(features.insert("services of the policy's namespace")),
        _ => {
            features.insert("services of a namespace by name");
            service["namespace"] = (*dice.pick(&["shop", "shop", "stock", "default"])).into();
        }
    }
    entity["services"] = service;
}

fn add_namespaces(dice: &mut Dice, entity: &mut Value, features: &mut Features) {
    let text = match dice.below(100) {
        0..25 => {
            features.insert("namespaceSelector: all()");
            "all()".to_owned()
        }
        25..50 => {
            features.insert("namespaceSelector: global()");
            (*dice.pick(&["global()", "global()", " global() ", "global( )"])).to_owned()
        }
        _ => {
            features.insert("namespaceSelector");
            selector(dice, SelectorSubject::Namespace, features)
        }
    };
    entity["namespaceSelector"] = text.into();
}

fn add_accounts(dice: &mut Dice, entity: &mut Value, features: &mut Features) {
    let mut accounts = json!({});
    let (has_names, has_selector) = *dice.pick(&[(true, false), (false, true), (true, true)]);
    if has_names {
        features.insert("serviceAccounts: names");
        let count = dice.between(1, 2);
        accounts["names"] = (0..count).map(|_| *dice.pick(&ACCOUNTS)).collect();
    }
    if has_selector {
        features.insert("serviceAccounts: selector");
        accounts["selector"] = selector(dice, SelectorSubject::ServiceAccount, features).into();
    }
    entity["serviceAccounts"] = accounts;
}

/// Networks of the family of the rule, or of both.
fn add_nets(
    dice: &mut Dice,
    entity: &mut Value,
    (field, family): (&'static str, RuleFamily),
    features: &mut Features,
) {
    let is_not = field == "notNets";
    features.insert(field);
    let mut nets: Vec<String> = Vec::new();
    for _ in 0..dice.between(1, 3) {
        let v6 = match family {
            RuleFamily::V4 => false,
            RuleFamily::V6 => true,
            RuleFamily::Both => dice.chance(50),
        };
        let is_whole = is_not && dice.chance(7);
        nets.push(match (is_whole, v6) {
            (true, false) => "0.0.0.0/0".to_owned(),
            (true, true) => "::/0".to_owned(),
            _ => address::network(dice, v6).0,
        });
    }
    let has = |v6: bool| nets.iter().any(|net| net.contains(':') == v6);
    if has(false) && has(true) {
        features.insert(if is_not {
            "notNets of both families"
        } else {
            "nets of both families"
        });
    } else if is_not {
        features.insert("notNets of one family");
    }
    if is_not && nets.iter().any(|net| net.ends_with("/0")) {
        features.insert("notNets: a whole family");
    }
    entity[field] = json!(nets);
}

/// Adds names of ports to an end of a rule without a protocol: the protocol is that of the port of each endpoint.
pub(super) fn add_port_names(dice: &mut Dice, entity: &mut Value, features: &mut Features) {
    if entity.get("services").is_some() {
        return;
    }
    let is_negated = dice.chance(30);
    let (field, feature) = if is_negated {
        ("notPorts", "notPorts by name without a protocol")
    } else {
        ("ports", "port of Calico by name without a protocol")
    };
    features.insert(feature);
    let names = (0..=dice.below(2)).map(|_| dice.pick(&pod::PORT_NAMES).0);
    entity[field] = names.collect();
}

/// Adds the ports of a protocol that has some.
pub(super) fn add_ports(
    dice: &mut Dice,
    entity: &mut Value,
    place: &EntityPlace<'_>,
    features: &mut Features,
) {
    if !place.has_ports || place.is_destination && entity.get("services").is_some() {
        return;
    }
    let (percent, not_percent) = if place.is_destination {
        (52, 28)
    } else {
        (14, 12)
    };
    for (field, percent, feature) in [
        (
            "ports",
            percent,
            if place.is_destination {
                "ports of the destination"
            } else {
                "ports of the source"
            },
        ),
        (
            "notPorts",
            not_percent,
            if place.is_destination {
                "notPorts of the destination"
            } else {
                "notPorts of the source"
            },
        ),
    ] {
        if !dice.chance(percent) {
            continue;
        }
        features.insert(feature);
        let count = dice.between(1, 3);
        entity[field] = (0..count).map(|_| port(dice, field, features)).collect();
    }
}

fn port(dice: &mut Dice, field: &str, features: &mut Features) -> Value {
    match dice.below(100) {
        0..42 => {
            features.insert("port of Calico by number");
            (*dice.pick(&NUMBERS)).into()
        }
        42..46 => {
            features.insert("port of Calico by number in quotes");
            dice.pick(&NUMBERS).to_string().into()
        }
        46..72 => {
            features.insert("port of Calico by range");
            let first = *dice.pick(&NUMBERS);
            let last = first.saturating_add(*dice.pick(&[0, 1, 4, 400]));
            format!("{first}:{last}").into()
        }
        _ => {
            features.insert(match field {
                "notPorts" => "notPorts by name",
                _ => "port of Calico by name",
            });
            let (name, _) = *dice.pick(&pod::PORT_NAMES);
            let missing = dice.chance(18);
            if missing { pod::INIT_PORT } else { name }.into()
        }
    }
}
