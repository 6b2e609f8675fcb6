//! Policies of nodes, and flows to and from this host that they judge.
//!
//! They are drawn from dice of their own, so that what else is in a world stays as it is.

use super::super::calico::{aim_at_host_port, lead_through_host, name_ends};
use super::super::{ClusterTrial, ClusterWorld, Features, GeneratedObject};
use super::add_rules;
use super::inventory::POOLS;
use crate::Dice;
use crate::naive;
use serde_json::{Value, json};
use std::net::IpAddr;

/// One or two policies of nodes, in some worlds.
pub(in crate::kubernetes) fn node_policies(dice: &mut Dice, percent: u32) -> Vec<GeneratedObject> {
    let count = if dice.chance(percent) {
        dice.between(1, 2)
    } else {
        0
    };
    (0..count).map(|n| node_policy(dice, n)).collect()
}

fn node_policy(dice: &mut Dice, n: usize) -> GeneratedObject {
    let mut features = Features::from(["policy of nodes"]);
    let mut spec = json!({ "nodeSelector": selector(dice, &mut features) });
    add_rules(dice, &mut spec, None, &mut features);
    remove_content_rules(&mut spec);
    features.remove("L7 rules, held closed");
    let mut object = json!({ "apiVersion": "cilium.io/v2", "kind": "CiliumClusterwideNetworkPolicy",
        "metadata": { "name": format!("nodes-{n}") } });
    if dice.chance(80) {
        object["spec"] = spec
    } else {
        object["specs"] = json!([spec])
    }
    GeneratedObject { object, features }
}

/// Cilium refuses rules about what is inside connections in policies of nodes, but for names of DNS on egress.
fn remove_content_rules(spec: &mut Value) {
    for list in ["ingress", "egress"] {
        let rules = spec[list].as_array_mut().into_iter().flatten();
        let ports = rules.filter_map(|rule| rule["toPorts"].as_array_mut());
        for fields in ports.flatten().filter_map(Value::as_object_mut) {
            if fields
                .get("rules")
                .is_some_and(|rules| rules.get("dns").is_none())
            {
                fields.shift_remove("rules");
            }
        }
    }
    for list in ["ingress", "egress", "ingressDeny", "egressDeny"] {
        if spec[list].is_null() {
            spec.as_object_mut().map(|fields| fields.shift_remove(list));
        }
    }
}

/// The nodes of a policy.
fn selector(dice: &mut Dice, features: &mut Features) -> Value {
    let pool = *dice.pick(&POOLS);
    match dice.below(100) {
        0..24 => {
            features.insert("nodeSelector: all");
            json!({})
        }
        24..60 => {
            features.insert("nodeSelector: by label");
            let key = *dice.pick(&["pool", "k8s:pool", "any:pool"]);
            json!({ "matchLabels": { key: pool } })
        }
        60..84 => {
            features.insert("nodeSelector: by expression");
            let expression = match dice.below(4) {
                0 => json!({ "key": "pool", "operator": "In", "values": POOLS }),
                1 => json!({ "key": "pool", "operator": "NotIn", "values": [pool] }),
                2 => json!({ "key": "k8s:pool", "operator": "Exists" }),
                _ => json!({ "key": "pool", "operator": "DoesNotExist" }),
            };
            json!({ "matchExpressions": [expression] })
        }
        84..97 => {
            features.insert("nodeSelector: by reserved label");
            json!({ "matchLabels": { "reserved:host": "" } })
        }
        _ => json!({ "matchLabels": { "node:pool": pool } }),
    }
}

/// Whether an object is a policy of nodes.
pub(in crate::kubernetes) fn is_node_policy(object: &Value) -> bool {
    let specs = object["specs"].as_array().into_iter().flatten();
    let mut specs = specs.chain(object.get("spec"));
    object["kind"] == "CiliumClusterwideNetworkPolicy"
        && specs.any(|spec| spec.get("nodeSelector").is_some())
}

/// Whether one of these objects is a policy of nodes.
pub(in crate::kubernetes) fn has_node_policy(objects: &[Value]) -> bool {
    objects.iter().any(is_node_policy)
}

/// Leads some flows of a world with policies of nodes to this host, from it or through it.
pub(in crate::kubernetes) fn lead_flows(dice: &mut Dice, world: &mut ClusterWorld) {
    let objects = world.objects();
    if !has_node_policy(&objects) {
        return;
    }
    for trial in &mut world.trials {
        if trial.features.contains("flow: encapsulation") || !dice.chance(48) {
            continue;
        }
        lead_through_host(dice, &objects, trial);
        if !trial.flow.path.is_forwarded && dice.chance(30) {
            move_to_pod(dice, &objects, trial);
        }
        if dice.chance(30) {
            aim_at_host_port(dice, &objects, trial);
        }
    }
}

/// Makes a pod the other end of a flow of the host.
fn move_to_pod(dice: &mut Dice, objects: &[Value], trial: &mut ClusterTrial) {
    let v6 = trial.flow.source.is_ipv6();
    let workloads = objects.iter().filter(|object| naive::is_workload(object));
    let addresses = workloads.flat_map(naive::addresses);
    let addresses: Vec<IpAddr> = addresses
        .filter(|address| address.is_ipv6() == v6)
        .collect();
    if addresses.is_empty() {
        return;
    }
    let pod = *dice.pick(&addresses);
    match trial.flow.path.input {
        Some(_) => trial.flow.source = pod,
        None => trial.flow.destination = pod,
    }
    name_ends(objects, trial);
}
