//! Tiers, the order of policies, and what stands beside them.

use super::*;

fn in_tier(name: &str, actions: &[&str]) -> Value {
    with(egress(actions), json!({ "tier": name }))
}

fn at(order: Value, actions: &[&str]) -> Value {
    with(egress(actions), json!({ "order": order }))
}

#[test]
fn without_policies_pods_are_allowed_everything() {
    assert!(may_send(&[], DB) && may_have(&[], NOWHERE));
}

#[test]
fn a_policy_that_selects_denies_what_none_of_its_rules_matches() {
    let policy = local("p", json!({ "types": ["Egress"] }));
    assert!(!may_send(std::slice::from_ref(&policy), DB));
    assert!(
        may_have(&[policy], DB),
        "the other direction is not governed"
    );
}

#[test]
fn types_follow_the_lists_where_they_are_left_out() {
    let rows = [
        (json!({}), (true, false)),
        (json!({ "types": [] }), (true, false)),
        (json!({ "ingress": [{ "action": "Deny" }] }), (true, false)),
        (json!({ "egress": [{ "action": "Deny" }] }), (false, true)),
        (
            json!({ "egress": [{ "action": "Deny" }], "ingress": [{ "action": "Deny" }] }),
            (false, false),
        ),
        (
            json!({ "types": ["Egress"], "ingress": [{ "action": "Deny" }] }),
            (false, true),
        ),
        (json!({ "types": ["Ingress", "Egress"] }), (false, false)),
    ];
    for (spec, wanted) in rows {
        let policies = [global("p", spec.clone())];
        let found = (may_send(&policies, DB), may_have(&policies, DB));
        assert_eq!(found, wanted, "{spec}");
    }
}

#[test]
fn the_first_rule_that_decides_does() {
    assert!(may_send(&[global("p", egress(&["Allow", "Deny"]))], DB));
    assert!(!may_send(&[global("p", egress(&["Deny", "Allow"]))], DB));
    assert!(may_send(&[global("p", egress(&["Log", "Allow"]))], DB));
    assert!(!may_send(&[global("p", egress(&["Log"]))], DB));
}

#[test]
fn policies_are_asked_by_order() {
    let two = |a: Value, b: Value| {
        [
            global("a", at(a, &["Deny"])),
            global("b", at(b, &["Allow"])),
        ]
    };
    assert!(!may_send(&two(json!(1), json!(2)), DB));
    assert!(may_send(&two(json!(2), json!(1)), DB));
    assert!(may_send(&two(json!(1.5), json!(1.25)), DB));
    assert!(may_send(&two(json!(0), json!(-1)), DB));
    assert!(may_send(&two(Value::Null, json!(1e9)), DB), "none is last");
    assert!(!may_send(&two(json!(5), json!(5)), DB), "then by name");
    assert!(!may_send(&two(Value::Null, Value::Null), DB));
}

#[test]
fn of_one_name_the_policy_of_the_cluster_comes_first() {
    let policies = [
        local("a", egress(&["Deny"])),
        global("a", egress(&["Allow"])),
    ];
    assert!(may_send(&policies, DB));
    let policies = [
        local("a", egress(&["Allow"])),
        global("b", egress(&["Deny"])),
    ];
    assert!(may_send(&policies, DB));
}

#[test]
fn tiers_are_asked_by_order_then_by_name() {
    let two = |a: Value, b: Value| {
        [
            tier("a", a),
            tier("b", b),
            global("a.p", in_tier("a", &["Deny"])),
            global("b.p", in_tier("b", &["Allow"])),
        ]
    };
    let order = |n: i64| json!({ "order": n });
    assert!(!may_send(&two(order(1), order(2)), DB));
    assert!(may_send(&two(order(2), order(1)), DB));
    assert!(!may_send(&two(order(3), order(3)), DB));
    assert!(may_send(&two(json!({}), order(3)), DB), "none is last");
    assert!(!may_send(&two(json!({}), json!({})), DB));
}

#[test]
fn what_a_tier_does_not_match_it_denies_or_passes() {
    let none = json!({ "types": ["Egress"], "tier": "a" });
    let policies = |action: Value| [tier("a", action), global("a.p", none.clone())];
    assert!(!may_send(&policies(json!({ "order": 1 })), DB));
    assert!(!may_send(
        &policies(json!({ "order": 1, "defaultAction": "Deny" })),
        DB
    ));
    assert!(may_send(
        &policies(json!({ "order": 1, "defaultAction": "Pass" })),
        DB
    ));
}

#[test]
fn a_tier_that_governs_nothing_of_the_pod_is_left_out() {
    let elsewhere = with(
        in_tier("a", &["Deny"]),
        json!({ "selector": "app == 'db'" }),
    );
    assert!(may_send(
        &[tier("a", json!({ "order": 1 })), global("a.p", elsewhere)],
        GUEST
    ));
}

#[test]
fn pass_leaves_the_tier() {
    let policies = [
        tier("a", json!({ "order": 1 })),
        global("a.p", in_tier("a", &["Pass", "Deny"])),
        global("a.q", in_tier("a", &["Deny"])),
    ];
    assert!(may_send(&policies, DB));
    let policies = [policies.to_vec(), vec![global("p", egress(&["Deny"]))]].concat();
    assert!(!may_send(&policies, DB));
}

#[test]
fn a_tier_without_an_object_comes_after_all_others_and_denies() {
    let missing = global("m.p", in_tier("m", &["Allow"]));
    assert!(may_send(&[missing], DB));
    let missing = global("m.p", json!({ "tier": "m", "types": ["Egress"] }));
    assert!(!may_send(&[missing], DB));
    let policies = [
        global("m.p", in_tier("m", &["Deny"])),
        tier("z", json!({})),
        global("z.p", in_tier("z", &["Allow"])),
    ];
    assert!(may_send(&policies, DB));
}

#[test]
fn a_tier_of_the_built_in_names_changes_nothing() {
    let policies = [
        tier(
            "default",
            json!({ "order": 1_000_000, "defaultAction": "Deny" }),
        ),
        global("p", egress(&["Allow"])),
    ];
    assert!(may_send(&policies, DB));
}

fn kubernetes(spec: Value) -> Value {
    json!({ "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
        "metadata": { "namespace": "shop", "name": "k" }, "spec": spec })
}

#[test]
fn network_policies_stand_at_order_1000() {
    let allow = kubernetes(json!({ "podSelector": {}, "egress": [{}], "policyTypes": ["Egress"] }));
    let none = kubernetes(json!({ "podSelector": {}, "policyTypes": ["Egress"] }));
    let with =
        |k: &Value, order: Value, action: &str| [k.clone(), global("p", at(order, &[action]))];
    assert!(!may_send(&with(&allow, json!(999), "Deny"), DB));
    assert!(!may_send(&with(&allow, json!(1000), "Deny"), DB));
    assert!(may_send(&with(&allow, json!(1000.5), "Deny"), DB));
    assert!(may_send(&with(&allow, Value::Null, "Deny"), DB));
    assert!(may_send(&with(&none, json!(1000), "Allow"), DB));
    assert!(
        may_send(&with(&none, json!(1001), "Allow"), DB),
        "what matches nothing goes on"
    );
    assert!(!may_send(&with(&none, json!(1001), "Log"), DB));
    assert!(
        may_send(&with(&none, json!(1), "Pass"), DB),
        "the whole tier is left"
    );
    assert!(may_send(&with(&none, json!(2000), "Pass"), DB));
}

fn cilium(spec: Value) -> Value {
    json!({ "apiVersion": "cilium.io/v2", "kind": "CiliumNetworkPolicy",
        "metadata": { "namespace": "shop", "name": "c" },
        "spec": with(spec, json!({ "endpointSelector": {} })) })
}

#[test]
fn ciliums_denies_come_before_everything_of_the_default_tier() {
    let deny = cilium(json!({ "egressDeny": [{ "toEntities": ["all"] }] }));
    let allow = cilium(json!({ "egress": [{ "toEntities": ["all"] }] }));
    assert!(!may_send(
        &[deny.clone(), global("p", at(json!(1), &["Allow"]))],
        DB
    ));
    assert!(!may_send(
        &[allow.clone(), global("p", at(json!(1), &["Deny"]))],
        DB
    ));
    assert!(may_send(
        &[allow, global("p", at(json!(2000), &["Deny"]))],
        DB
    ));
    let before = [
        tier("a", json!({ "order": 1 })),
        global("a.p", in_tier("a", &["Allow"])),
        deny,
    ];
    assert!(may_send(&before, DB), "a tier before it decides first");
}

#[test]
fn cluster_wide_policies_are_tiers_among_those_of_calico() {
    let cluster = |tier: &str, action: &str| {
        json!({ "apiVersion": "policy.networking.k8s.io/v1alpha2", "kind": "ClusterNetworkPolicy",
            "metadata": { "name": "c" },
            "spec": { "tier": tier, "priority": 1, "subject": { "namespaces": {} },
                "egress": [{ "action": action, "to": [{ "namespaces": {} }] }] } })
    };
    let of_order = |of: &Value, name: &str, order: Value, action: &str| {
        let policy = global(&format!("{name}.p"), in_tier(name, &[action]));
        [of.clone(), tier(name, json!({ "order": order })), policy]
    };
    let admin = cluster("Admin", "Accept");
    assert!(!may_send(&of_order(&admin, "t", json!(999), "Deny"), DB));
    assert!(may_send(&of_order(&admin, "t", json!(1001), "Deny"), DB));
    assert!(
        !may_send(&of_order(&admin, "a", json!(1000), "Deny"), DB),
        "by name"
    );
    assert!(may_send(&of_order(&admin, "z", json!(1000), "Deny"), DB));
    let baseline = cluster("Baseline", "Deny");
    assert!(may_send(
        &of_order(&baseline, "t", json!(9_999_999), "Allow"),
        DB
    ));
    assert!(!may_send(
        &of_order(&baseline, "t", Value::Null, "Allow"),
        DB
    ));
    let default = [baseline, global("p", egress(&["Pass"]))];
    assert!(
        !may_send(&default, DB),
        "what passes the default tier comes to the baseline"
    );
}

#[test]
fn policies_of_the_traffic_of_hosts_do_not_concern_pods() {
    for flag in ["doNotTrack", "preDNAT"] {
        let spec = with(
            egress(&["Deny"]),
            json!({ flag: true, "applyOnForward": true }),
        );
        assert!(may_send(&[global("p", spec)], DB), "{flag}");
    }
    let spec = with(egress(&["Deny"]), json!({ "applyOnForward": true }));
    assert!(!may_send(&[global("p", spec)], DB));
}

#[test]
fn staged_policies_only_count_where_nothing_is_in_audit() {
    let staged = calico("StagedGlobalNetworkPolicy", None, "p", egress(&["Deny"]));
    assert!(may_send(std::slice::from_ref(&staged), DB));
    assert!(!might_send(&[staged], DB));
    for (action, wanted) in [
        ("Set", false),
        ("Delete", true),
        ("Learn", true),
        ("Ignore", true),
    ] {
        let spec = with(egress(&["Deny"]), json!({ "stagedAction": action }));
        let staged = calico("StagedNetworkPolicy", Some("shop"), "p", spec);
        assert_eq!(might_send(&[staged], DB), wanted, "{action}");
    }
    let spec = json!({ "podSelector": {}, "policyTypes": ["Egress"] });
    let staged = calico("StagedKubernetesNetworkPolicy", Some("shop"), "k", spec);
    assert!(may_send(std::slice::from_ref(&staged), DB));
    assert!(!might_send(&[staged], DB));
}

#[test]
fn a_staged_policy_comes_after_the_one_of_its_name() {
    let enforced = global("p", egress(&["Allow"]));
    let staged = calico("StagedGlobalNetworkPolicy", None, "p", egress(&["Deny"]));
    assert!(might_send(&[staged, enforced], DB));
}

#[test]
fn a_policy_in_audit_is_as_a_staged_one() {
    let mut policy = global("p", egress(&["Deny"]));
    policy["metadata"]["annotations"] = json!({ "palisade.dev/mode": "audit" });
    assert!(may_send(std::slice::from_ref(&policy), DB));
    assert!(!might_send(&[policy], DB));
}

#[test]
fn objects_of_the_definitions_count_as_those_of_the_api() {
    let mut policy = global("p", egress(&["Deny"]));
    policy["apiVersion"] = json!("crd.projectcalico.org/v1");
    assert!(!may_send(&[policy], DB));
}
