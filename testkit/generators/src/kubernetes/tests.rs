//! What the generator promises: repeatable worlds, flows that fall both ways, every feature.

use super::*;
use std::collections::BTreeMap;

#[test]
fn a_case_is_a_function_of_seed_and_number() {
    let one = ClusterWorld::generate(7, 3, 5);
    let two = ClusterWorld::generate(7, 3, 5);
    assert_eq!(one.objects(), two.objects());
    assert_ne!(one.objects(), ClusterWorld::generate(7, 4, 5).objects());
    assert_ne!(one.objects(), ClusterWorld::generate(8, 3, 5).objects());
}

#[test]
fn worlds_with_cluster_policies_are_of_their_own() {
    let one = ClusterWorld::generate_with_cluster_policies(7, 3, 5);
    let two = ClusterWorld::generate_with_cluster_policies(7, 3, 5);
    assert_eq!(one.objects(), two.objects());
    assert_ne!(one.objects(), ClusterWorld::generate(7, 3, 5).objects());
}

#[test]
fn flows_fall_both_ways_and_every_feature_has_a_say() {
    check_features(ClusterWorld::generate, FEATURES, true);
    let generate = ClusterWorld::generate_with_cluster_policies;
    check_features(generate, POLICY_API_FEATURES, false);
    let generate = ClusterWorld::generate_with_cilium_policies;
    check_features(generate, CILIUM_FEATURES, false);
    let generate = ClusterWorld::generate_with_calico_policies;
    check_features(generate, CALICO_FEATURES, false);
}

/// Whether each feature has a say in one flow of a hundred. Other features may be tried if `are_all` is false.
fn check_features(generate: fn(u64, u64, usize) -> ClusterWorld, expected: &[&str], are_all: bool) {
    let mut counts: BTreeMap<&str, u32> = BTreeMap::new();
    let (mut allowed, mut all) = (0, 0);
    for case in 0..1_000 {
        let world = generate(1, case, 4);
        let objects = world.objects();
        for trial in &world.trials {
            let reading = naive::read(&objects, &trial.flow);
            all += 1;
            allowed += u32::from(reading.egress && reading.ingress);
            for feature in world.tried_features(trial, &reading) {
                *counts.entry(feature).or_default() += 1;
            }
        }
    }
    let percent = |n: u32| f64::from(n) * 100.0 / f64::from(all);
    let rare: Vec<_> = expected
        .iter()
        .map(|feature| (feature, percent(counts.get(feature).copied().unwrap_or(0))))
        .filter(|(_, share)| *share < 1.0)
        .collect();
    assert!(rare.is_empty(), "{rare:?}");
    let unlisted: Vec<_> = counts.keys().filter(|f| !expected.contains(f)).collect();
    assert!(unlisted.is_empty() || !are_all, "{unlisted:?}");
    assert!(
        (38.0..66.0).contains(&percent(allowed)),
        "{}",
        percent(allowed)
    );
}

#[test]
fn worlds_with_calico_policies_are_of_their_own() {
    let one = ClusterWorld::generate_with_calico_policies(7, 3, 5);
    let two = ClusterWorld::generate_with_calico_policies(7, 3, 5);
    assert_eq!(one.objects(), two.objects());
    assert_ne!(one.objects(), ClusterWorld::generate(7, 3, 5).objects());
}

/// What Calico's own server refuses, of one rule. Networks of both families, which it refuses today, are drawn:
/// they come in by the definitions.
fn check_rule(rule: &Value, egress: bool, of_cluster: bool) {
    let has = |pointer: &str| rule.pointer(pointer).is_some();
    let protocol = rule.get("protocol").map(Value::to_string);
    let protocol = protocol.unwrap_or_default().to_lowercase();
    let has_ports = ["\"tcp\"", "\"udp\"", "\"sctp\"", "6", "17", "132"];
    for (end, may_name_services) in [("source", !egress), ("destination", egress)] {
        let field = |name: &str| has(&format!("/{end}/{name}"));
        // Ports by name alone need no protocol.
        let listed = ["ports", "notPorts"].map(|field| {
            let listed = rule.pointer(&format!("/{end}/{field}"));
            listed.and_then(Value::as_array)
        });
        let mut listed = listed.into_iter().flatten().flatten();
        let is_by_name = protocol.is_empty()
            && listed.all(|port| {
                port.as_str()
                    .is_some_and(|name| name.parse::<u16>().is_err())
            });
        if (field("ports") || field("notPorts")) && !is_by_name {
            assert!(has_ports.contains(&protocol.as_str()), "{rule}");
        }
        if field("services") {
            let beside = [
                "selector",
                "notSelector",
                "namespaceSelector",
                "serviceAccounts",
            ];
            let beside = beside.into_iter().chain(["nets", "notNets"]);
            assert!(
                may_name_services && !beside.into_iter().any(field),
                "{rule}"
            );
            assert!(!egress || !field("ports") && !field("notPorts"), "{rule}");
            assert!(!of_cluster || field("services/namespace"), "{rule}");
        }
        let version = rule.get("ipVersion").and_then(Value::as_u64);
        for nets in ["nets", "notNets"] {
            let nets = rule.pointer(&format!("/{end}/{nets}"));
            for net in nets.and_then(Value::as_array).into_iter().flatten() {
                let is = if net.to_string().contains(':') { 6 } else { 4 };
                assert!(version.is_none_or(|version| version == is), "{rule}");
            }
        }
    }
    if has("/icmp") || has("/notICMP") {
        assert!(
            ["\"icmp\"", "\"icmpv6\""].contains(&protocol.as_str()),
            "{rule}"
        );
    }
    let version = match protocol.as_str() {
        "\"icmp\"" => Some(4),
        "\"icmpv6\"" => Some(6),
        _ => None,
    };
    let written = rule.get("ipVersion").and_then(Value::as_u64);
    assert!(
        version.is_none() || written.is_none() || version == written,
        "{rule}"
    );
    if has("/http") {
        assert!(!egress && rule["action"] == "Allow", "{rule}");
        assert!(["", "\"tcp\""].contains(&protocol.as_str()), "{rule}");
    }
}

#[test]
fn calico_would_accept_its_objects() {
    for case in 0..400 {
        let world = ClusterWorld::generate_with_calico_policies(1, case, 1);
        let mut names = BTreeSet::new();
        for object in &world.objects() {
            let meta = &object["metadata"];
            let namespace = meta["namespace"].as_str().unwrap_or("default");
            let group = object["apiVersion"].as_str().unwrap_or_default();
            let is_calico = group.contains("projectcalico.org/");
            let place = (is_calico, object["kind"].to_string(), namespace.to_owned());
            let is_new = names.insert((place, meta["name"].to_string()));
            assert!(is_new, "{object}");
            if !is_calico || object["kind"] == "StagedKubernetesNetworkPolicy" {
                continue;
            }
            let spec = &object["spec"];
            for selector in ["selector", "namespaceSelector", "serviceAccountSelector"] {
                let text = spec[selector].as_str().unwrap_or_default();
                assert!(!text.contains("global"), "{object}");
            }
            let is = |flag: &str| spec[flag] == true;
            assert!(
                !(is("doNotTrack") || is("preDNAT")) || is("applyOnForward"),
                "{object}"
            );
            assert!(!is("preDNAT") || spec.get("egress").is_none(), "{object}");
            let of_cluster = object["kind"]
                .as_str()
                .is_some_and(|k| k.contains("Global"));
            for (direction, egress) in [("ingress", false), ("egress", true)] {
                for rule in spec[direction].as_array().into_iter().flatten() {
                    check_rule(rule, egress, of_cluster);
                }
            }
        }
    }
}
