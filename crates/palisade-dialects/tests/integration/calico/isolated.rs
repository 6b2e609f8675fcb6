//! What isolates the workloads of a policy of Calico while no version of it has ever been valid.

use super::manifest;
use crate::common;
use palisade_model::{Direction, DirectionRules, Policy, TrafficScope};

/// The isolation policies of an object that is rejected.
fn isolation(word: &str, written: &str) -> Vec<Policy> {
    let lowering = common::lowering("f", &manifest(word, written));
    assert!(!lowering.errors.is_empty(), "{word} {written}");
    lowering.entries[0].isolation.clone()
}

/// A direction: not governed, closed by default, or denied whatever else there is.
fn shown(rules: Option<&DirectionRules>) -> &'static str {
    match rules {
        None => "open",
        Some(rules) if rules.rules.is_empty() && rules.default_deny => "isolated",
        Some(_) => "denied",
    }
}

#[test]
fn directions_of_isolation() {
    for (spec, expected) in [
        // An error elsewhere, in each form of the lists.
        ("{order: x}", ["isolated", "open"]),
        ("{order: x, ingress: []}", ["isolated", "open"]),
        ("{order: x, egress: []}", ["isolated", "open"]),
        ("{order: x, egress: null}", ["isolated", "open"]),
        (
            "{order: x, egress: [{action: Allow}]}",
            ["open", "isolated"],
        ),
        (
            "{order: x, ingress: [{action: Allow}], egress: [{action: Log}]}",
            ["isolated", "isolated"],
        ),
        ("{order: x, types: [Egress]}", ["open", "isolated"]),
        (
            "{order: x, types: [Ingress, Egress]}",
            ["isolated", "isolated"],
        ),
        // A rule that denies or passes, or may.
        ("{order: x, ingress: [{action: Deny}]}", ["denied", "open"]),
        (
            "{order: x, ingress: [{action: Allow}, {action: Pass}]}",
            ["denied", "open"],
        ),
        ("{ingress: [{action: deny}]}", ["denied", "open"]),
        ("{ingress: [{}]}", ["denied", "open"]),
        (
            "{ingress: [{action: Allow, ipVersion: 5}]}",
            ["isolated", "open"],
        ),
        ("{ingress: 1}", ["denied", "open"]),
        ("{egress: {}}", ["open", "denied"]),
        // What may be a misspelling of a direction.
        ("{types: [ingress]}", ["isolated", "isolated"]),
        ("{types: Egress}", ["isolated", "isolated"]),
        ("{type: [Egress]}", ["isolated", "isolated"]),
        (
            "{ingres: [{action: Allow}], egress: [{action: Allow}]}",
            ["isolated", "isolated"],
        ),
    ] {
        for word in ["policy", "global"] {
            let all = isolation(word, spec);
            let [policy] = &all[..] else {
                panic!("{word} {spec}: {all:?}");
            };
            let found = Direction::BOTH.map(|direction| shown(policy.rules(direction)));
            assert_eq!(found, expected, "{word} {spec}");
        }
    }
}

/// What a policy selects cannot be guessed.
#[test]
fn what_isolates_nothing() {
    for (word, written) in [
        ("policy", "{selector: app}"),
        ("policy", "{selector: 1}"),
        ("policy", "{selctor: all(), order: x}"),
        ("policy", "{serviceAccountSelector: has}"),
        ("global", "{namespaceSelector: global(), order: x}"),
        ("global", "{namespaceSelectr: all(), order: x}"),
        ("object", "selector: all(), spec: {}"),
        ("object", "spec: []"),
        ("object", "metadata: {name: a, namespace: B}, spec: {}"),
        (
            "global",
            "{doNotTrack: true, applyOnForward: true, order: x}",
        ),
        ("global", "{doNotTrack: true}"),
        ("global", "{applyOnForward: 1}"),
        ("staged", "{order: x}"),
        ("staged-global", "{order: x}"),
        ("staged-kubernetes", "{podSelector: {}, policyTypes: [x]}"),
        ("tier", "{order: x}"),
        ("profile", "{ingress: [{}]}"),
    ] {
        assert_eq!(isolation(word, written), [], "{word} {written}");
    }
}

/// Host endpoints are never isolated.
#[test]
fn isolation_is_of_workloads() {
    let state = super::lowered::cluster();
    for spec in [
        "{order: x}",
        "{order: x, selector: has(app), applyOnForward: true}",
    ] {
        let all = isolation("global", spec);
        let [policy] = &all[..] else {
            panic!("{spec}: {all:?}");
        };
        let mut endpoints = state.endpoints.values();
        let selected = |endpoint| policy.subject.matches(&state.endpoint_labels(endpoint));
        assert!(
            endpoints.all(|endpoint| selected(endpoint) != endpoint.is_host()),
            "{spec}"
        );
        assert_eq!(policy.scope, TrafficScope::Endpoints, "{spec}");
    }
}

/// It stands where the policy does; before every other one of the default tier if that cannot be read.
#[test]
fn the_place_of_isolation() {
    for (spec, expected) in [
        ("{tier: security, order: 7, types: [x]}", "security At(7.0)"),
        ("{tier: security, types: [x]}", "security Last"),
        ("{types: [x]}", "default Last"),
        (
            "{tier: security, order: x}",
            "default At(-1.7976931348623157e308)",
        ),
        ("{tier: 1, order: 7}", "default At(-1.7976931348623157e308)"),
    ] {
        let all = isolation("policy", spec);
        let [policy] = &all[..] else {
            panic!("{spec}: {all:?}");
        };
        let place = format!("{} {:?}", policy.tier, policy.precedence.order);
        assert_eq!(place, expected, "{spec}");
        // The selector is that of the policy.
        let selector = isolation("policy", &spec.replacen('{', "{selector: has(a), ", 1));
        assert_ne!(selector[0].subject, policy.subject, "{spec}");
    }
}

/// An object of a misspelled kind, or of another version, is an invalid version of the policy.
#[test]
fn policies_of_a_misspelled_kind() {
    for (version, kind) in [
        ("projectcalico.org/v3", "Networkpolicy"),
        ("projectcalico.org/v3", "GlobalNetworkPolices"),
        ("projectcalico.org/v2", "NetworkPolicy"),
        ("crd.projectcalico.org/v1", "GlobalNetworkpolicy"),
        ("crd.projectcalico.org/v3", "NetworkPolicy"),
    ] {
        let text = format!(
            "{{apiVersion: {version}, kind: {kind}, metadata: {{name: a}}, spec: {{ingress: [{{action: Deny}}]}}}}"
        );
        let lowering = common::lowering("f", &text);
        assert!(!lowering.errors.is_empty(), "{text}");
        let entry = &lowering.entries[0];
        assert_eq!(entry.id.kind.group(), "projectcalico.org", "{text}");
        let [policy] = &entry.isolation[..] else {
            panic!("{text}: {:?}", entry.isolation);
        };
        assert_eq!(shown(policy.ingress.as_ref()), "denied", "{text}");
    }
}
