//! WorkloadEndpoints: their addresses, labels and ports, and their profiles.

use super::*;

/// A WorkloadEndpoint at 10.0.0.8 with these profiles.
fn workload(profiles: Value) -> Value {
    let mut endpoint = calico(
        "WorkloadEndpoint",
        Some("shop"),
        "n-other-vm-eth0",
        json!({ "node": "n", "orchestrator": "other", "workload": "vm", "endpoint": "eth0",
            "interfaceName": "cali1", "ipNetworks": ["10.0.0.8/32", "fd00::8/128"],
            "profiles": profiles,
            "ports": [{ "name": "vm", "port": 80, "protocol": "TCP" }] }),
    );
    endpoint["metadata"]["labels"] = json!({ "app": "vm" });
    endpoint
}

fn profile(name: &str, actions: &[&str]) -> Value {
    let mut spec = egress(actions);
    spec["labelsToApply"] = json!({ "zone": name, "app": "from-profile" });
    calico("Profile", None, name, spec)
}

/// Whether the workload may send to a pod.
fn workload_may_send(objects: &[Value]) -> bool {
    verdicts(&cluster(objects), &flow("10.0.0.8", DB, 6, 80)).0
}

#[test]
fn profiles_are_asked_in_their_order() {
    let objects = |profiles: Value| {
        vec![
            workload(profiles),
            profile("yes", &["Allow"]),
            profile("no", &["Deny"]),
            profile("log", &["Log"]),
            profile("pass", &["Pass"]),
        ]
    };
    let rows = [
        (json!([]), false),
        (json!(["yes"]), true),
        (json!(["no", "yes"]), false),
        (json!(["log", "yes"]), true),
        (json!(["log"]), false),
        (json!(["pass", "yes"]), false),
        (json!(["gone", "yes"]), false),
        (json!(["yes", "gone"]), true),
        (json!(["kns.shop"]), true),
        (json!(["ksa.shop.robot"]), false),
        (json!(["ksa.shop.robot", "kns.shop"]), true),
        (json!(["projectcalico-default-allow"]), true),
    ];
    for (profiles, wanted) in rows {
        assert_eq!(
            workload_may_send(&objects(profiles.clone())),
            wanted,
            "{profiles}"
        );
    }
}

#[test]
fn policies_come_before_profiles() {
    let spec = with(egress(&["Deny"]), json!({ "selector": "app == 'vm'" }));
    assert!(!workload_may_send(&[
        workload(json!(["kns.shop"])),
        global("p", spec)
    ]));
    let policy = global("p", egress(&["Allow"]));
    assert!(workload_may_send(&[workload(json!([])), policy]));
    let policy = global("p", egress(&["Pass"]));
    assert!(!workload_may_send(&[workload(json!([])), policy]));
}

#[test]
fn labels_of_profiles_count_where_there_is_no_own() {
    let objects = |selector: &str| {
        let spec = with(egress(&["Deny"]), json!({ "selector": selector }));
        let profiles = [profile("yes", &["Allow"]), profile("more", &[])];
        let mut all = vec![workload(json!(["yes", "more"])), global("p", spec)];
        all.extend(profiles);
        all
    };
    assert!(
        !workload_may_send(&objects("zone == 'yes'")),
        "the first profile's"
    );
    assert!(workload_may_send(&objects("zone == 'more'")));
    assert!(
        workload_may_send(&objects("app == 'from-profile'")),
        "its own label"
    );
    assert!(!workload_may_send(&objects(
        "projectcalico.org/orchestrator == 'other'"
    )));
    assert!(workload_may_send(&objects(
        "has(projectcalico.org/serviceaccount)"
    )));
    assert!(!workload_may_send(&objects("pcns.team == 'a'")));
}

#[test]
fn a_workload_is_a_peer_with_ports_of_its_own() {
    let to = |rule: Value| local("p", json!({ "egress": [rule] }));
    let send = |rule: Value| {
        let objects = [workload(json!([])), to(rule)];
        verdicts(&cluster(&objects), &flow(WEB, "10.0.0.8", 6, 80)).0
    };
    assert!(send(
        json!({ "action": "Allow", "destination": { "selector": "app == 'vm'" } })
    ));
    let named = |name: &str| json!({ "action": "Allow", "protocol": "TCP", "destination": { "ports": [name] } });
    assert!(send(named("vm")));
    assert!(!send(named("web")));
}

#[test]
fn other_dialects_take_a_workload_for_a_pod() {
    let kubernetes = json!({ "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
        "metadata": { "namespace": "shop", "name": "k" },
        "spec": { "podSelector": { "matchLabels": { "app": "vm" } }, "policyTypes": ["Egress"] } });
    assert!(!workload_may_send(&[
        workload(json!(["kns.shop"])),
        kubernetes
    ]));
    let cilium = json!({ "apiVersion": "cilium.io/v2", "kind": "CiliumNetworkPolicy",
        "metadata": { "namespace": "shop", "name": "c" },
        "spec": { "endpointSelector": { "matchLabels": { "app": "vm" } },
            "egressDeny": [{ "toEntities": ["all"] }] } });
    assert!(!workload_may_send(&[workload(json!(["kns.shop"])), cilium]));
    let cluster_wide = json!({ "apiVersion": "policy.networking.k8s.io/v1alpha2",
        "kind": "ClusterNetworkPolicy", "metadata": { "name": "c" },
        "spec": { "tier": "Admin", "priority": 1,
            "subject": { "pods": { "podSelector": { "matchLabels": { "app": "vm" } } } },
            "egress": [{ "action": "Deny", "to": [{ "namespaces": {} }] }] } });
    assert!(!workload_may_send(&[
        workload(json!(["kns.shop"])),
        cluster_wide
    ]));
}
