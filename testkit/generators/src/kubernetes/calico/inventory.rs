//! What Calico's policies refer to: tiers, sets of networks, host endpoints, profiles, service accounts, and
//! workloads that are no pods.

use super::super::{
    Features, GeneratedObject, LABELS, NAMESPACES, address, metadata, pod, policy::NUMBERS,
    some_labels,
};
use super::rules::{self, RuleScope};
use super::version;
use crate::Dice;
use crate::naive;
use serde_json::{Map, Value, json};

/// Tiers that may have an object; the last never has one.
pub(super) const TIERS: [&str; 4] = ["alpha", "edge", "mid", "gone"];
/// Values of the label `set`.
pub(super) const SETS: [&str; 3] = ["near", "far", "hosts"];
/// The names of service accounts, and the values of their label.
pub(super) const ACCOUNTS: [&str; 3] = ["robot", "clerk", "default"];
pub(super) const LEVELS: [&str; 2] = ["high", "low"];
/// Profiles that may have an object.
const PROFILES: [&str; 3] = ["open", "closed", "mixed"];

/// Everything but policies and workloads.
pub(in crate::kubernetes) fn inventory(dice: &mut Dice) -> Vec<GeneratedObject> {
    let mut all = tiers(dice);
    all.extend(sets(dice));
    all.extend(hosts(dice));
    all.extend(profiles(dice));
    all.extend(accounts(dice));
    all
}

fn plain(object: Value) -> GeneratedObject {
    GeneratedObject {
        object,
        features: Features::new(),
    }
}

/// An object with labels; as a resource, often with its metadata stored as Calico's clients do.
fn stored(dice: &mut Dice, mut object: Value) -> GeneratedObject {
    if dice.chance(55) {
        object["apiVersion"] = "crd.projectcalico.org/v1".into();
        let labels = object["metadata"]["labels"].take();
        let text = json!({ "labels": labels, "creationTimestamp": null }).to_string();
        object["metadata"]["annotations"] = json!({ "projectcalico.org/metadata": text });
        // What older versions left there.
        object["metadata"]["labels"] = if dice.chance(30) {
            json!({ "set": *dice.pick(&SETS) })
        } else {
            json!({})
        };
    }
    plain(object)
}

/// An object of the cluster.
fn of_cluster(dice: &mut Dice, kind: &str, name: &str, spec: Value) -> Value {
    json!({ "apiVersion": version(dice), "kind": kind, "metadata": { "name": name }, "spec": spec })
}

fn tiers(dice: &mut Dice) -> Vec<GeneratedObject> {
    let mut all = Vec::new();
    for name in &TIERS[..3] {
        if dice.chance(13) {
            continue;
        }
        let mut features = Features::new();
        let mut spec = json!({});
        match dice.below(100) {
            0..15 => drop(features.insert("tier without order")),
            15..22 => {
                features.insert("tier without order");
                spec["order"] = Value::Null;
            }
            _ => {
                let order = dice
                    .pick(&[
                        json!(1),
                        json!(10),
                        json!(10),
                        json!(1000),
                        json!(999.5),
                        json!(1_000_000),
                        json!(2_000_000),
                        json!(2_000_000),
                        json!(10_000_000),
                        json!(20_000_000),
                        json!(20_000_000),
                    ])
                    .clone();
                features.insert(match order.as_f64().unwrap_or_default() {
                    1_000.0 | 1_000_000.0 | 10_000_000.0 => "tier of the order of a built-in one",
                    ..1_000.0 => "tier before the admin tier",
                    ..10_000_000.0 => "tier between the default tier and the baseline",
                    _ => "tier after the baseline",
                });
                spec["order"] = order;
            }
        }
        match dice.below(100) {
            0..45 => {
                features.insert("tier: defaultAction Pass");
                spec["defaultAction"] = "Pass".into();
            }
            45..70 => {
                features.insert("tier: defaultAction Deny");
                spec["defaultAction"] = "Deny".into();
            }
            _ => drop(features.insert("tier: defaultAction left out")),
        }
        let object = of_cluster(dice, "Tier", name, spec);
        all.push(GeneratedObject { object, features });
    }
    for (name, order, action) in [
        ("default", 1_000_000, "Deny"),
        ("kube-admin", 1_000, "Pass"),
        ("kube-baseline", 10_000_000, "Pass"),
    ] {
        if dice.chance(18) {
            let spec = json!({ "order": order, "defaultAction": action });
            all.push(plain(of_cluster(dice, "Tier", name, spec)));
        }
    }
    all
}

/// Labels of a set or a host endpoint.
fn set_labels(dice: &mut Dice, set: &'static str) -> Map<String, Value> {
    let mut labels = some_labels(dice, &LABELS, 40);
    if dice.chance(80) {
        labels.insert("set".to_owned(), set.into());
    }
    labels
}

fn sets(dice: &mut Dice) -> Vec<GeneratedObject> {
    let mut all = Vec::new();
    for n in 0..dice.between(2, 4) {
        let kind = *dice.pick(&["NetworkSet", "GlobalNetworkSet"]);
        let label = *dice.pick(&SETS[..2]);
        let count = dice.between(0, 3);
        let nets: Vec<String> = (0..count)
            .map(|_| {
                let v6 = dice.chance(45);
                match dice.below(100) {
                    0..22 => address::outside(dice, v6).to_string(),
                    22..45 => {
                        let outside = address::outside(dice, v6);
                        format!("{outside}/{}", if v6 { 128 } else { 32 })
                    }
                    _ => address::network(dice, v6).0,
                }
            })
            .collect();
        let mut spec = json!({});
        if !nets.is_empty() || dice.chance(50) {
            spec["nets"] = json!(nets);
        }
        let mut object = of_cluster(dice, kind, &format!("set-{n}"), spec);
        if kind == "NetworkSet" {
            let of = *dice.pick(&NAMESPACES);
            object["metadata"] = metadata(dice, of, &format!("set-{n}"), &mut Features::new());
        }
        object["metadata"]["labels"] = Value::Object(set_labels(dice, label));
        all.push(stored(dice, object));
    }
    all
}

/// Host endpoints at addresses that neither pods nor nodes have, and those of this host.
fn hosts(dice: &mut Dice) -> Vec<GeneratedObject> {
    let mut all = own_hosts(dice);
    for n in 0..dice.between(1, 3) {
        let mut ips = vec![
            format!("198.51.100.{}", dice.between(4, 8)),
            format!("2001:db8::{}", dice.between(4, 8)),
        ];
        if dice.chance(30) {
            ips.remove(dice.below(2));
        }
        let mut spec = json!({ "node": format!("host-{n}"), "expectedIPs": ips });
        if dice.chance(50) {
            spec["interfaceName"] = "eth0".into();
        }
        let mut object = of_cluster(dice, "HostEndpoint", &format!("host-{n}"), spec);
        object["metadata"]["labels"] = Value::Object(set_labels(dice, SETS[2]));
        all.push(stored(dice, object));
    }
    all
}

/// Host endpoints of this host, by their interfaces: none in a quarter of the worlds.
fn own_hosts(dice: &mut Dice) -> Vec<GeneratedObject> {
    let count = *dice.pick(&[0, 1, 1, 1, 1, 2, 2, 3]);
    (0..count).map(|n| own_host(dice, n)).collect()
}

fn own_host(dice: &mut Dice, n: usize) -> GeneratedObject {
    let mut features = Features::new();
    let (interface, feature) = match dice.below(100) {
        0..40 => ("eth0", "HostEndpoint of an interface"),
        40..60 => ("eth1", "HostEndpoint of an interface"),
        _ => ("*", "HostEndpoint of every interface"),
    };
    features.insert(feature);
    let mut spec = json!({ "node": naive::OWN_NODE, "interfaceName": interface });
    if dice.chance(45) {
        let [v4, v6] = address::NODE;
        spec["expectedIPs"] = json!([v4, v6]);
    }
    let home = *dice.pick(&NAMESPACES);
    if dice.chance(60)
        && let Some(profiles) = profiles_of(dice, home, &mut features)
    {
        features.insert("HostEndpoint with profiles");
        spec["profiles"] = profiles;
    }
    let ports = workload_ports(dice);
    if !ports.is_empty() {
        features.insert("HostEndpoint with ports");
        spec["ports"] = json!(ports);
    }
    let mut object = of_cluster(dice, "HostEndpoint", &format!("own-{n}"), spec);
    object["metadata"]["labels"] = Value::Object(set_labels(dice, SETS[2]));
    let object = stored(dice, object).object;
    GeneratedObject { object, features }
}

fn profiles(dice: &mut Dice) -> Vec<GeneratedObject> {
    let mut all = Vec::new();
    for name in PROFILES {
        if dice.chance(15) {
            continue;
        }
        let mut features = Features::new();
        features.insert("rules of a profile");
        let mut spec = json!({});
        for (direction, egress) in [("ingress", false), ("egress", true)] {
            let rules: Vec<Value> = match (name, dice.below(100)) {
                ("open", _) => vec![json!({ "action": "Allow" })],
                ("closed", 0..40) => vec![json!({ "action": "Deny" })],
                (_, 40..50) => continue,
                _ => {
                    let count = dice.between(1, 3);
                    let scope = RuleScope::of_profile(egress);
                    (0..count)
                        .map(|_| rules::rule(dice, &scope, &mut features))
                        .collect()
                }
            };
            spec[direction] = json!(rules);
        }
        if dice.chance(70) {
            features.insert("labels of a profile");
            let mut labels = some_labels(dice, &LABELS, 45);
            labels.insert("zone".to_owned(), name.into());
            spec["labelsToApply"] = Value::Object(labels);
        }
        let object = of_cluster(dice, "Profile", name, spec);
        all.push(GeneratedObject { object, features });
    }
    all
}

fn accounts(dice: &mut Dice) -> Vec<GeneratedObject> {
    let mut all = Vec::new();
    for namespace in NAMESPACES {
        for name in ACCOUNTS {
            if dice.chance(40) {
                continue;
            }
            let mut metadata = json!({ "name": name, "namespace": namespace });
            if dice.chance(75) {
                metadata["labels"] = json!({ "level": *dice.pick(&LEVELS) });
            }
            let object =
                json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata });
            all.push(plain(object));
        }
    }
    all
}

/// Gives the ports of EndpointSlices some variety.
pub(in crate::kubernetes) fn vary_slice_ports(dice: &mut Dice, made: &mut [GeneratedObject]) {
    let slices = made.iter_mut().map(|made| &mut made.object);
    for slice in slices.filter(|object| object["kind"] == "EndpointSlice") {
        let count = dice.between(0, 3);
        let mut ports: Vec<Value> = (0..count)
            .map(|n| {
                let mut port = json!({ "name": format!("p{n}") });
                if dice.chance(92) {
                    port["port"] = (*dice.pick(&NUMBERS)).into();
                }
                if dice.chance(70) {
                    port["protocol"] = (*dice.pick(&["TCP", "UDP", "SCTP"])).into();
                }
                port
            })
            .collect();
        ports.push(json!({ "name": "", "port": 80, "protocol": "TCP" }));
        slice["ports"] = json!(ports);
    }
}

/// Gives pods service accounts, and makes some of them workloads that Kubernetes does not run.
pub(in crate::kubernetes) fn vary_workloads(dice: &mut Dice, pods: &mut [GeneratedObject]) {
    for (n, made) in pods.iter_mut().enumerate() {
        if dice.chance(55) {
            made.object["spec"]["serviceAccountName"] = (*dice.pick(&ACCOUNTS)).into();
        }
        let pod = &made.object;
        let is_host = pod["spec"].get("hostNetwork").is_some();
        let is_ended = pod["status"]["phase"]
            .as_str()
            .is_some_and(|phase| phase != "Running");
        let is_contended = made.features.contains("address claimed twice");
        if dice.chance(30) && !is_host && !is_ended && !is_contended {
            *made = workload(dice, n, &made.object);
        }
    }
}

/// A WorkloadEndpoint in the place of a pod.
fn workload(dice: &mut Dice, n: usize, pod: &Value) -> GeneratedObject {
    let mut features = Features::new();
    features.insert("WorkloadEndpoint");
    let node = pod["spec"]["nodeName"]
        .as_str()
        .unwrap_or("node-1")
        .to_owned();
    let (orchestrator, field, workload) = match dice.below(3) {
        0 => ("k8s", "pod", format!("vm-{n}")),
        1 => ("cni", "containerID", format!("c{n}")),
        _ => ("other", "workload", format!("vm-{n}")),
    };
    let mut spec = json!({ "node": node, "orchestrator": orchestrator, "endpoint": "eth0",
        "interfaceName": format!("cali{n}") });
    spec[field] = workload.as_str().into();
    if orchestrator == "k8s" {
        spec["containerID"] = format!("c{n}").into();
    }
    let networks: Vec<String> = naive::addresses(pod)
        .into_iter()
        .map(|address| format!("{address}/{}", if address.is_ipv6() { 128 } else { 32 }))
        .collect();
    if !networks.is_empty() {
        spec["ipNetworks"] = json!(networks);
    }
    if dice.chance(45) {
        features.insert("WorkloadEndpoint with a service account");
        spec["serviceAccountName"] = (*dice.pick(&ACCOUNTS)).into();
    }
    let home = pod["metadata"]["namespace"].as_str().unwrap_or("default");
    if let Some(profiles) = profiles_of(dice, home, &mut features) {
        spec["profiles"] = profiles;
    }
    let ports = workload_ports(dice);
    if !ports.is_empty() {
        features.insert("WorkloadEndpoint with ports");
        spec["ports"] = json!(ports);
    }
    // Dashes within the parts of the name are doubled.
    let parts = [node.as_str(), orchestrator, workload.as_str(), "eth0"];
    let parts = parts.map(|part| part.replace('-', "--"));
    let mut metadata = pod["metadata"].clone();
    metadata["name"] = parts.join("-").into();
    if dice.chance(35) {
        // As Calico stores them.
        metadata["labels"]["projectcalico.org/namespace"] = home.into();
        metadata["labels"]["projectcalico.org/orchestrator"] = orchestrator.into();
    }
    if let Some(fields) = metadata.as_object_mut() {
        fields.shift_remove("deletionTimestamp");
    }
    GeneratedObject {
        object: json!({ "apiVersion": "projectcalico.org/v3", "kind": "WorkloadEndpoint",
            "metadata": metadata, "spec": spec }),
        features,
    }
}

fn profiles_of(dice: &mut Dice, home: &str, features: &mut Features) -> Option<Value> {
    let kns = format!("kns.{home}");
    let ksa = format!("ksa.{home}.robot");
    let (profiles, feature) = match dice.below(100) {
        0..20 => (json!([kns]), "profiles: of the namespace"),
        20..32 => (json!([ksa, kns]), "profiles: of a service account"),
        32..42 => (json!([ksa, "mixed"]), "profiles: of a service account"),
        42..56 => (json!(["mixed", "open"]), "profiles: several"),
        56..66 => (json!(["closed", "open"]), "profiles: several"),
        66..76 => (json!(["open"]), "profiles: one"),
        76..84 => (json!(["lost", "open"]), "profiles: one without an object"),
        84..92 => (
            json!(["projectcalico-default-allow"]),
            "profiles: the one that allows everything",
        ),
        92..96 => (json!([]), "profiles: none"),
        _ => {
            features.insert("profiles: none");
            return None;
        }
    };
    features.insert(feature);
    Some(profiles)
}

fn workload_ports(dice: &mut Dice) -> Vec<Value> {
    let mut ports = Vec::new();
    for (name, numbers) in pod::PORT_NAMES {
        for protocol in dice.some(&["TCP", "UDP", "SCTP"], 2) {
            let port = *dice.pick(numbers);
            ports.push(json!({ "name": name, "port": port, "protocol": protocol }));
        }
    }
    ports
}
