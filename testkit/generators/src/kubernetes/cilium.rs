//! Cilium's policies with every field that decides a connection, and what they refer to: nodes with the networks
//! of their pods, groups of CIDRs, EndpointSlices.
//!
//! They are drawn from dice of their own, into worlds of their own kind: other worlds stay as they are.

mod features;
mod inventory;
mod nodes;
mod peers;
mod rules;

pub use features::CILIUM_FEATURES;
pub(super) use inventory::{add_traffic_features, inventory, join_nodes};
pub(super) use nodes::{has_node_policy, is_node_policy, lead_flows, node_policies};

use super::{Features, GeneratedObject, LABELS, NAMESPACES, metadata};
use crate::Dice;
use serde_json::{Map, Value, json};

/// Between two and five policies, of one namespace or of the cluster.
pub(super) fn policies(dice: &mut Dice, pods: &[GeneratedObject]) -> Vec<GeneratedObject> {
    let count = dice.between(2, 5);
    (0..count).map(|n| policy(dice, pods, n)).collect()
}

/// A policy, of a namespace or of the cluster.
pub(super) fn policy(dice: &mut Dice, pods: &[GeneratedObject], n: usize) -> GeneratedObject {
    let mut features = Features::new();
    let name = format!("cilium-{n}");
    let (kind, meta, scope) = if dice.chance(60) {
        features.insert("CiliumNetworkPolicy");
        let namespace = match dice.pick(pods).object.pointer("/metadata/namespace") {
            Some(Value::String(name)) if dice.chance(70) => name.clone(),
            _ => (*dice.pick(&NAMESPACES)).to_owned(),
        };
        let meta = metadata(dice, &namespace, &name, &mut Features::new());
        ("CiliumNetworkPolicy", meta, Some(namespace))
    } else {
        features.insert("CiliumClusterwideNetworkPolicy");
        (
            "CiliumClusterwideNetworkPolicy",
            json!({ "name": name }),
            None,
        )
    };
    let mut object = json!({ "apiVersion": "cilium.io/v2", "kind": kind, "metadata": meta });
    let several = dice.chance(25);
    if !several || dice.chance(50) {
        object["spec"] = spec(dice, scope.as_deref(), &mut features);
    }
    if several {
        features.insert("specs");
        let count = dice.between(1, 2);
        object["specs"] = (0..count)
            .map(|_| spec(dice, scope.as_deref(), &mut features))
            .collect();
    }
    GeneratedObject { object, features }
}

fn spec(dice: &mut Dice, scope: Option<&str>, features: &mut Features) -> Value {
    let mut spec = json!({ "endpointSelector": subject(dice, scope, features) });
    add_rules(dice, &mut spec, scope, features);
    spec
}

/// Gives a spec its lists of rules, and what is beside them.
fn add_rules(dice: &mut Dice, spec: &mut Value, scope: Option<&str>, features: &mut Features) {
    loop {
        for (list, percent) in [
            ("ingress", 55),
            ("egress", 55),
            ("ingressDeny", 28),
            ("egressDeny", 28),
        ] {
            if dice.chance(percent) {
                spec[list] = rules::list(dice, list, scope, features);
            } else if dice.chance(4) {
                features.insert("list of rules empty");
                spec[list] = json!([]);
            }
        }
        let is_filled = |list: &str| spec[list].as_array().is_some_and(|rules| !rules.is_empty());
        if ["ingress", "egress", "ingressDeny", "egressDeny"]
            .into_iter()
            .any(is_filled)
        {
            break;
        }
    }
    if dice.chance(35) {
        let mut enabled = Map::new();
        for direction in ["ingress", "egress"] {
            if dice.chance(65) {
                let is = dice.chance(30);
                features.insert(if is {
                    "enableDefaultDeny true"
                } else {
                    "enableDefaultDeny false"
                });
                enabled.insert(direction.to_owned(), is.into());
            }
        }
        spec["enableDefaultDeny"] = Value::Object(enabled);
    }
    if dice.chance(15) {
        features.insert("description, labels and log");
        spec["description"] = "what it is for".into();
        spec["labels"] = json!([{ "key": "team", "value": "a", "source": "k8s" }]);
        spec["log"] = json!({ "value": "said" });
    }
}

/// The pods of a policy.
fn subject(dice: &mut Dice, scope: Option<&str>, features: &mut Features) -> Value {
    if dice.chance(45) {
        features.insert("endpointSelector: all");
        return json!({});
    }
    features.insert("endpointSelector: selected");
    let mut selector = peers::pod_selector(dice, features);
    if dice.chance(16) {
        features.insert("endpointSelector of no pod");
        selector["matchLabels"]["reserved:init"] = "".into();
    }
    if scope.is_none() && dice.chance(25) {
        features.insert("endpointSelector by namespace");
        let name = *dice.pick(&NAMESPACES);
        selector["matchLabels"]["k8s:io.kubernetes.pod.namespace"] = name.into();
    } else if scope.is_some() && dice.chance(25) {
        features.insert("endpointSelector of a namespaced policy by namespace");
        test_namespace(dice, &mut selector);
    }
    selector
}

/// Adds a test of the namespace, as a label or as an expression, with any source.
fn test_namespace(dice: &mut Dice, selector: &mut Value) {
    let name = *dice.pick(&NAMESPACES);
    let source = *dice.pick(&["k8s:", "any:", ""]);
    let key = format!("{source}io.kubernetes.pod.namespace");
    if dice.chance(50) {
        selector["matchLabels"][key] = name.into();
        return;
    }
    let expression = match dice.below(4) {
        0 => json!({ "key": key, "operator": "Exists" }),
        1 => json!({ "key": key, "operator": "NotIn", "values": [name] }),
        _ => json!({ "key": key, "operator": "In", "values": [name] }),
    };
    match selector["matchExpressions"].as_array_mut() {
        Some(expressions) => expressions.push(expression),
        None => selector["matchExpressions"] = json!([expression]),
    }
}

/// A label of pods with one of its values.
pub(super) fn pod_label(dice: &mut Dice) -> (&'static str, &'static str) {
    let (key, values) = *dice.pick(&LABELS);
    (key, *dice.pick(values))
}
