//! Pods in every state that decides whether they hold an address, and what stands beside them.

use super::{Features, GeneratedObject, LABELS, NAMESPACES, address, metadata, some_labels};
use crate::Dice;
use serde_json::{Value, json};

/// Between four and seven pods.
pub(super) fn pods(dice: &mut Dice) -> Vec<GeneratedObject> {
    let mut numbers: Vec<u8> = (0..address::POD_ADDRESSES as u8).collect();
    dice.shuffle(&mut numbers);
    let count = dice.between(4, 7);
    let mut pods: Vec<GeneratedObject> = (0..count).map(|n| pod(dice, n, &mut numbers)).collect();
    if dice.chance(12) {
        claim_twice(dice, &mut pods);
    }
    pods
}

fn pod(dice: &mut Dice, n: usize, numbers: &mut Vec<u8>) -> GeneratedObject {
    let mut features = Features::new();
    let namespace = *dice.pick(&NAMESPACES);
    let mut meta = metadata(dice, namespace, &format!("pod-{n}"), &mut features);
    let labels = some_labels(dice, &LABELS, 70);
    if labels.is_empty() {
        features.insert("pod without labels");
    } else {
        meta["labels"] = Value::Object(labels);
    }
    if dice.chance(60) {
        meta["creationTimestamp"] = format!("2026-0{}-01T00:00:00Z", dice.between(1, 9)).into();
    }
    let mut spec = json!({ "containers": containers(dice, &mut features) });
    if dice.chance(45) {
        let mut init = json!({ "name": "side", "image": "side",
            "ports": [{ "name": INIT_PORT, "containerPort": *dice.pick(&[443, 81]) }] });
        if dice.chance(50) {
            init["restartPolicy"] = "Always".into();
            features.insert("pod with a sidecar's named port");
        } else {
            features.insert("pod with an init container's named port");
        }
        spec["initContainers"] = json!([init]);
    }
    let mut status = json!({});
    let ips = addresses(dice, numbers, &mut features);
    if let Some(first) = ips.first() {
        status["podIP"] = first.as_str().into();
        if ips.len() > 1 || dice.chance(60) {
            status["podIPs"] = ips.iter().map(|ip| json!({ "ip": ip })).collect();
        }
    }
    match dice.below(100) {
        0..5 => {
            status["phase"] = (*dice.pick(&["Succeeded", "Failed"])).into();
            features.insert("pod completed, its address free");
        }
        5..11 => {
            meta["deletionTimestamp"] = "2026-09-30T00:00:00Z".into();
            status["phase"] = "Running".into();
            features.insert("pod terminating");
        }
        11..18 => {
            spec["hostNetwork"] = true.into();
            features.insert("pod on the host's network");
            if dice.chance(60) {
                let [v4, v6] = address::NODE;
                status["podIP"] = v4.into();
                status["podIPs"] = json!([{ "ip": v4 }, { "ip": v6 }]);
                spec["nodeName"] = "node-1".into();
                features.insert("host-network pod at its node's address");
            }
        }
        18..32 => {}
        _ => status["phase"] = "Running".into(),
    }
    if dice.chance(50) {
        spec["nodeName"] = "node-1".into();
    }
    if dice.chance(20) {
        spec["serviceAccountName"] = "robot".into();
    }
    GeneratedObject {
        object: json!({ "apiVersion": "v1", "kind": "Pod", "metadata": meta,
            "spec": spec, "status": status }),
        features,
    }
}

/// The name of a port that only init containers have, those that stay and those that end.
pub(super) const INIT_PORT: &str = "api";

/// Names of ports, and the numbers that pods' containers give them.
pub(super) const PORT_NAMES: [(&str, &[u16]); 2] = [("web", &[80, 8080]), ("dns", &[53, 5353])];

fn containers(dice: &mut Dice, features: &mut Features) -> Vec<Value> {
    let mut ports = Vec::new();
    for (name, numbers) in PORT_NAMES {
        let mut protocols = dice.some(&["TCP", "UDP", "SCTP"], 2);
        if dice.chance(35) {
            protocols.clear();
        }
        if protocols.len() > 1 {
            features.insert("pod with one port name for two protocols");
        }
        for protocol in protocols {
            let mut port = json!({ "name": name, "containerPort": *dice.pick(numbers) });
            if protocol != "TCP" || dice.chance(50) {
                port["protocol"] = protocol.into();
            }
            ports.push(port);
        }
    }
    if dice.chance(30) {
        ports.push(json!({ "containerPort": 9999 }));
    }
    if !ports.is_empty() && dice.chance(25) {
        let second = ports.split_off(ports.len() / 2);
        return vec![
            json!({ "name": "main", "image": "main", "ports": ports }),
            json!({ "name": "more", "image": "more", "ports": second }),
        ];
    }
    let mut container = json!({ "name": "main", "image": "main" });
    if !ports.is_empty() {
        container["ports"] = ports.into();
    }
    vec![container]
}

fn addresses(dice: &mut Dice, numbers: &mut Vec<u8>, features: &mut Features) -> Vec<String> {
    let mut draw = |v6: bool| address::pod_address(v6, numbers.pop().unwrap_or(0)).to_string();
    let families: &[bool] = match dice.below(100) {
        0..35 => &[false],
        35..50 => &[true],
        50..75 => &[false, true],
        75..90 => &[true, false],
        90..97 => {
            features.insert("pod with more than two addresses");
            &[false, true, false]
        }
        _ => &[],
    };
    if families.len() > 1 {
        features.insert("pod of both families");
    }
    families.iter().map(|v6| draw(*v6)).collect()
}

/// Gives one pod an address of another: the youngest live one has it.
fn claim_twice(dice: &mut Dice, pods: &mut [GeneratedObject]) {
    let (from, to) = (dice.below(pods.len()), dice.below(pods.len()));
    let status = pods[from].object["status"].clone();
    let runs = |pod: &GeneratedObject| pod.object["spec"].get("hostNetwork").is_none();
    if from == to || !runs(&pods[from]) || !runs(&pods[to]) || status.get("podIP").is_none() {
        return;
    }
    let phase = pods[to].object["status"].get("phase").cloned();
    pods[to].object["status"] = status;
    let new = &mut pods[to].object["status"];
    match phase {
        Some(phase) => new["phase"] = phase,
        None => drop(new.as_object_mut().map(|status| status.remove("phase"))),
    }
    for index in [from, to] {
        pods[index].features.insert("address claimed twice");
    }
}

/// Nodes, services, service accounts, and objects that no policy ever concerns.
pub(super) fn bystanders(dice: &mut Dice) -> Vec<GeneratedObject> {
    let mut all = Vec::new();
    let mut add = |object: Value| {
        all.push(GeneratedObject {
            object,
            features: Features::new(),
        });
    };
    if dice.chance(40) {
        let [v4, v6] = address::NODE;
        add(
            json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": "node-1" },
            "status": { "addresses": [{ "type": "InternalIP", "address": v4 },
                                      { "type": "InternalIP", "address": v6 },
                                      { "type": "Hostname", "address": "node-1" }] } }),
        );
    }
    if dice.chance(25) {
        add(json!({ "apiVersion": "v1", "kind": "Service",
            "metadata": { "name": "web", "namespace": "shop" },
            "spec": { "selector": { "app": "web" }, "clusterIP": "10.96.0.1",
                      "ports": [{ "port": 80, "targetPort": "web" }] } }));
    }
    if dice.chance(15) {
        add(json!({ "apiVersion": "v1", "kind": "ServiceAccount",
            "metadata": { "name": "robot", "namespace": "shop" } }));
    }
    if dice.chance(15) {
        add(json!({ "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": { "name": "settings", "namespace": "shop" },
            "data": { "text": "a: b\n- c\n" } }));
    }
    all
}
