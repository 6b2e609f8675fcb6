//! What Cilium's policies refer to: nodes, groups of CIDRs, EndpointSlices.

use super::super::{ClusterWorld, Features, GeneratedObject, address};
use crate::Dice;
use crate::naive;
use serde_json::{Map, Value, json};
use std::net::IpAddr;

/// The labels of nodes.
pub(super) const POOLS: [&str; 2] = ["infra", "work"];
/// The names of groups, and of their label `team` the values.
pub(super) const GROUPS: [&str; 3] = ["partners", "office", "cloud"];
pub(super) const TEAMS: [&str; 2] = ["a", "b"];
/// The names of Services.
pub(super) const SERVICES: [&str; 2] = ["web", "db"];

/// Nodes, groups and slices.
pub(in crate::kubernetes) fn inventory(
    dice: &mut Dice,
    pods: &[GeneratedObject],
) -> Vec<GeneratedObject> {
    let mut all = nodes(dice);
    all.extend(groups(dice));
    all.extend(slices(dice, pods));
    all.into_iter()
        .map(|object| GeneratedObject {
            object,
            features: Features::new(),
        })
        .collect()
}

/// Three nodes, of which two have the networks of the pods, if they are there.
fn nodes(dice: &mut Dice) -> Vec<Value> {
    let mut all = Vec::new();
    for number in 1..=3_u8 {
        if dice.chance(12) {
            continue;
        }
        let mut labels = Map::new();
        if dice.chance(75) {
            labels.insert("pool".to_owned(), (*dice.pick(&POOLS)).into());
        }
        let [v4, v6] = match number {
            1 => address::NODE.map(str::to_owned),
            _ => [
                format!("198.51.100.{number}"),
                format!("2001:db8::{number}"),
            ],
        };
        let mut node = json!({ "apiVersion": "v1", "kind": "Node",
            "metadata": { "name": format!("node-{number}"), "labels": labels },
            "status": { "addresses": [
                { "type": "InternalIP", "address": v4 },
                { "type": "InternalIP", "address": v6 }] } });
        if dice.chance(65) {
            let net = number - 1;
            node["spec"] = json!({ "podCIDR": format!("10.0.{net}.0/24"),
                "podCIDRs": [format!("10.0.{net}.0/24"), format!("fd00:0:0:{net}::/64")] });
        }
        all.push(node);
    }
    all
}

/// Puts pods onto nodes.
pub(in crate::kubernetes) fn join_nodes(dice: &mut Dice, pods: &mut [GeneratedObject]) {
    for pod in pods {
        if dice.chance(85) {
            let number = *dice.pick(&[1, 1, 2, 3]);
            pod.object["spec"]["nodeName"] = format!("node-{number}").into();
        }
    }
}

fn groups(dice: &mut Dice) -> Vec<Value> {
    let mut all = Vec::new();
    for name in GROUPS {
        if dice.chance(20) {
            continue;
        }
        let mut labels = Map::new();
        if dice.chance(75) {
            labels.insert("team".to_owned(), (*dice.pick(&TEAMS)).into());
        }
        let count = dice.between(0, 3);
        let cidrs: Vec<String> = (0..count)
            .map(|_| {
                let v6 = dice.chance(40);
                address::network(dice, v6).0
            })
            .collect();
        let version = if dice.chance(70) { "v2" } else { "v2alpha1" };
        all.push(
            json!({ "apiVersion": format!("cilium.io/{version}"), "kind": "CiliumCIDRGroup",
            "metadata": { "name": name, "labels": labels }, "spec": { "externalCIDRs": cidrs } }),
        );
    }
    all
}

fn slices(dice: &mut Dice, pods: &[GeneratedObject]) -> Vec<Value> {
    let mut all = Vec::new();
    for (service, namespace) in [
        ("kubernetes", "default"),
        ("kubernetes", "shop"),
        ("web", "shop"),
        ("web", "stock"),
        ("db", "shop"),
    ] {
        if dice.chance(25) {
            continue;
        }
        for v6 in [false, true] {
            if dice.chance(25) {
                continue;
            }
            let count = dice.between(1, 3);
            let endpoints: Vec<Value> = (0..count)
                .filter_map(|_| endpoint(dice, pods, v6, service))
                .collect();
            let family = if v6 { "IPv6" } else { "IPv4" };
            let mut labels = Map::new();
            labels.insert("kubernetes.io/service-name".to_owned(), service.into());
            if dice.chance(70) {
                labels.insert("team".to_owned(), (*dice.pick(&TEAMS)).into());
            }
            let name = format!("{service}-{}", family.to_lowercase());
            all.push(
                json!({ "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
                "metadata": { "name": name, "namespace": namespace, "labels": labels },
                "addressType": family, "endpoints": endpoints,
                "ports": [{ "name": "", "port": 80, "protocol": "TCP" }] }),
            );
        }
    }
    all
}

fn endpoint(dice: &mut Dice, pods: &[GeneratedObject], v6: bool, service: &str) -> Option<Value> {
    let address = match dice.below(100) {
        0..55 if service != "kubernetes" => {
            let all: Vec<IpAddr> = pods
                .iter()
                .flat_map(|pod| naive::addresses(&pod.object))
                .filter(|address| address.is_ipv6() == v6)
                .collect();
            all.get(dice.below(all.len())).copied()?.to_string()
        }
        _ => {
            let host = dice.between(1, 5);
            if v6 {
                format!("2001:db8::{host}")
            } else {
                format!("198.51.100.{host}")
            }
        }
    };
    let mut endpoint = json!({ "addresses": [address] });
    match dice.below(100) {
        0..45 => endpoint["conditions"] = json!({ "ready": true }),
        45..60 => {}
        60..80 => {
            endpoint["conditions"] =
                json!({ "ready": false, "serving": false, "terminating": false })
        }
        _ => {
            endpoint["conditions"] = json!({ "ready": false, "serving": true, "terminating": true })
        }
    }
    Some(endpoint)
}

/// Says of each flow what its other end is.
pub(in crate::kubernetes) fn add_traffic_features(world: &mut ClusterWorld) {
    let objects = world.objects();
    let nodes: Vec<IpAddr> = objects
        .iter()
        .filter(|object| object["kind"] == "Node")
        .flat_map(naive::holder_addresses)
        .collect();
    let networks: Vec<&str> = objects
        .iter()
        .filter_map(|object| object.pointer("/spec/podCIDRs")?.as_array())
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    for trial in &mut world.trials {
        for end in [trial.flow.source, trial.flow.destination] {
            if nodes.contains(&end) {
                trial.features.insert("flow: with a node");
            } else if naive::pod_at(&objects, end).is_none() {
                let inside = networks.iter().any(|net| naive::in_cidr(net, end));
                trial.features.insert(if inside {
                    "flow: with an unknown address of pods"
                } else {
                    "flow: with the outside"
                });
            }
        }
    }
}
