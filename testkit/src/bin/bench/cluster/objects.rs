//! The objects of a big cluster, as an API server stores them.

use palisade_testkit::cluster::EtcdChange;
use serde_json::{Value, json};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

pub(super) const NAMESPACES: usize = 500;
/// Different values of the label `app` in a namespace.
const APPS: usize = 30;
const CREATED: &str = "2026-01-01T00:00:00Z";

pub(super) fn namespace_name(pod: usize) -> String {
    format!("team-{}", pod / 7 % NAMESPACES)
}

pub(super) fn app(pod: usize) -> String {
    format!("app-{}", pod / 11 % APPS)
}

pub(super) fn addresses(pod: usize, generation: usize) -> Vec<IpAddr> {
    // A pod that is created again has another address.
    let number = u32::try_from(pod + generation * 200_000).unwrap_or(0);
    let v4 = Ipv4Addr::from(u32::from(Ipv4Addr::new(10, 128, 0, 1)) + number % 0x7f_fff0);
    let v6 = u128::from(Ipv6Addr::new(0xfd00, 0x10, 0x244, 0, 0, 0, 0, 1)) + u128::from(number);
    vec![v4.into(), Ipv6Addr::from(v6).into()]
}

fn metadata(name: &str, namespace: Option<&str>, number: usize) -> Value {
    let mut metadata = json!({
        "name": name,
        "uid": format!("00000000-0000-4000-8000-{number:012x}"),
        "creationTimestamp": CREATED,
    });
    if let Some(namespace) = namespace {
        metadata["namespace"] = namespace.into();
    }
    metadata
}

/// The key of a namespaced object.
fn key(resource: &str, namespace: &str, name: &str) -> String {
    format!("/registry/{resource}/{namespace}/{name}")
}

pub(super) fn namespace(number: usize) -> EtcdChange {
    let name = format!("team-{number}");
    let mut metadata = metadata(&name, None, number);
    metadata["labels"] =
        json!({"kubernetes.io/metadata.name": name, "stage": format!("s{}", number % 5)});
    let value = json!({
        "apiVersion": "v1", "kind": "Namespace", "metadata": metadata,
        "spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"},
    });
    EtcdChange::Put(format!("/registry/namespaces/{name}"), value)
}

pub(super) fn node(number: usize) -> EtcdChange {
    let name = format!("node-{number}");
    let index = u32::try_from(number).unwrap_or(0);
    let address = Ipv4Addr::from(u32::from(Ipv4Addr::new(10, 1, 0, 1)) + index);
    let mut metadata = metadata(&name, None, number);
    metadata["labels"] = json!({"kubernetes.io/hostname": name, "topology.kubernetes.io/zone": format!("z{}", number % 3)});
    let value = json!({
        "apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": {},
        "status": {"addresses": [
            {"type": "InternalIP", "address": address.to_string()}, {"type": "Hostname", "address": name},
        ]},
    });
    EtcdChange::Put(format!("/registry/minions/{name}"), value)
}

/// A pod: how often it was created, its label `version`, and how often its status was written.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PodState {
    pub(super) generation: usize,
    pub(super) version: usize,
    pub(super) status: usize,
}

pub(super) fn pod_key(pod: usize) -> String {
    key("pods", &namespace_name(pod), &format!("pod-{pod}"))
}

/// Some 2 kB, as real ones have.
pub(super) fn pod(pod: usize, nodes: usize, state: PodState) -> EtcdChange {
    let (namespace, app, name) = (namespace_name(pod), app(pod), format!("pod-{pod}"));
    let PodState {
        generation,
        version,
        status,
    } = state;
    let mut metadata = metadata(&name, Some(&namespace), pod + generation * 1_000_000);
    // Those of its Deployment, as all pods of one have: 15,000 of them, with ten pods each.
    let deployment = pod / 11 % APPS;
    metadata["labels"] = json!({
        "app": app, "tier": format!("tier-{}", deployment % 3), "version": format!("v{}", version % 4),
        "pod-template-hash": format!("{:08x}", deployment * 7919),
    });
    metadata["ownerReferences"] = json!([{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": app,
        "uid": "7d1d1c53-7a2b-4a0a-9a40-1f5f0e6d2c11", "controller": true, "blockOwnerDeletion": true}]);
    metadata["managedFields"] = json!([{"manager": "kubelet", "operation": "Update", "apiVersion": "v1",
        "time": CREATED, "fieldsType": "FieldsV1", "subresource": "status", "fieldsV1": {"f:status": {
            "f:conditions": {"k:{\"type\":\"Ready\"}": {".": {}, "f:status": {}, "f:type": {}}},
            "f:containerStatuses": {}, "f:hostIP": {}, "f:phase": {}, "f:podIP": {}, "f:startTime": {}}}}]);
    let addresses = addresses(pod, generation);
    let time = format!(
        "2026-01-01T{:02}:{:02}:{:02}Z",
        status / 3600 % 24,
        status / 60 % 60,
        status % 60
    );
    let condition = |kind: &str| json!({"type": kind, "status": "True", "lastProbeTime": null, "lastTransitionTime": time});
    let conditions = ["Initialized", "Ready", "ContainersReady", "PodScheduled"].map(condition);
    let value = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": metadata,
        "spec": {
            "nodeName": format!("node-{}", pod % nodes), "restartPolicy": "Always", "dnsPolicy": "ClusterFirst",
            "serviceAccountName": "default", "schedulerName": "default-scheduler",
            "terminationGracePeriodSeconds": 30, "enableServiceLinks": true,
            "containers": [{"name": "app", "image": "registry.example.com/team/app:1.2.3",
                "imagePullPolicy": "IfNotPresent", "terminationMessagePath": "/dev/termination-log",
                "env": [{"name": "MODE", "value": "production"}, {"name": "LEVEL", "value": "info"}],
                "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}},
                "ports": [{"name": "http", "containerPort": 8080, "protocol": "TCP"}]}],
        },
        "status": {
            "phase": "Running", "hostIP": "10.1.0.1", "podIP": addresses[0], "startTime": CREATED,
            "podIPs": addresses.iter().map(|ip| json!({"ip": ip})).collect::<Vec<_>>(),
            "conditions": conditions,
            "containerStatuses": [{"name": "app", "ready": true, "started": true, "restartCount": status,
                "image": "registry.example.com/team/app:1.2.3", "imageID": "sha256:0123456789abcdef",
                "containerID": format!("containerd://{pod:064x}"), "state": {"running": {"startedAt": CREATED}}}],
        },
    });
    EtcdChange::Put(pod_key(pod), value)
}

/// A policy of a namespace: pods of one app admit those of the next, on one port.
pub(super) fn policy(number: usize) -> EtcdChange {
    let (of, app) = (number % NAMESPACES, number / NAMESPACES);
    let from = json!([{"podSelector": {"matchLabels": {"app": format!("app-{}", app + 1)}}}]);
    let select = json!({"app": format!("app-{app}")});
    let ports = json!([{"protocol": "TCP", "port": 8080}]);
    policy_named(
        &format!("team-{of}"),
        &format!("policy-{number}"),
        &select,
        &from,
        &ports,
    )
}

/// A policy for ingress.
pub(super) fn policy_named(
    namespace: &str,
    name: &str,
    select: &Value,
    from: &Value,
    ports: &Value,
) -> EtcdChange {
    let value = json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
        "metadata": metadata(name, Some(namespace), name.len()),
        "spec": {"podSelector": {"matchLabels": select}, "policyTypes": ["Ingress"],
            "ingress": [{"from": from, "ports": ports}]},
    });
    EtcdChange::Put(key("networkpolicies", namespace, name), value)
}
