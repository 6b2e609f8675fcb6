//! The objects in force after a whole input, and how objects are identified.

use crate::common::{self, EntryStatus};
use palisade_model::{Object, ObjectKey};

const INPUT: &str = r#"
{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: sound}, spec: {podSelector: {}}}
---
{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: broken}, spec: {podSelector: {}, ingress: 1}}
---
{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: lost}, spec: {podSelector: 1}}
---
{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: sound, namespace: default}, spec: {podSelector: {}, policyTypes: [Egress]}}
---
{apiVersion: v1, kind: Pod, metadata: {name: done}, status: {phase: Failed, podIP: 10.0.0.1}}
---
{apiVersion: v1, kind: Pod, metadata: {name: host}, spec: {hostNetwork: true}, status: {podIP: 10.0.0.2}}
---
{apiVersion: v1, kind: Secret, metadata: {name: sound}}
"#;

#[test]
fn what_is_in_force_where_nothing_was_before() {
    let lowering = common::lowering("f", INPUT);
    let names: Vec<String> = lowering
        .objects()
        .map(|object| match object {
            Object::Policy(p) => {
                format!("{} {} {}", p.id, p.ingress.is_some(), p.egress.is_some())
            }
            Object::Endpoint(e) => format!("{} {:?}", e.id, e.addresses),
            other => format!("{:?}", other.key()),
        })
        .collect();
    assert_eq!(
        names,
        [
            "NetworkPolicy default/sound true false",
            "NetworkPolicy default/broken true false",
            "Pod default/done []",
        ]
    );
    let keys: Vec<ObjectKey> = lowering.state().objects().map(|o| o.key()).collect();
    assert_eq!(keys.len(), 3);
    let completed: Vec<String> = lowering.completed().map(ToString::to_string).collect();
    assert_eq!(completed, ["Pod default/done"]);
    assert_eq!(
        lowering.ignored.iter().collect::<Vec<_>>(),
        [(&"v1 Secret".to_owned(), &1)]
    );
}

#[test]
fn each_object_has_its_place_status_and_content() {
    let lowering = common::lowering("f", INPUT);
    let shown: Vec<String> = lowering
        .entries
        .iter()
        .map(|e| {
            format!(
                "{} {} {:?} {}",
                e.location,
                e.id,
                e.status,
                !e.isolation.is_empty()
            )
        })
        .collect();
    let first = lowering.entries[0].location.clone();
    assert_eq!(
        shown,
        [
            "f:2:1 NetworkPolicy default/sound Accepted false".to_owned(),
            "f:4:1 NetworkPolicy default/broken Rejected true".to_owned(),
            "f:6:1 NetworkPolicy default/lost Rejected false".to_owned(),
            format!(
                "f:8:1 NetworkPolicy default/sound {:?} false",
                EntryStatus::Duplicate { first }
            ),
            "f:10:1 Pod default/done Accepted false".to_owned(),
            "f:12:1 Pod default/host Accepted false".to_owned(),
        ]
    );
    let moved = common::lowering("g", &format!("# a line more\n{INPUT}"));
    let hashes = |l: &common::Lowering| -> Vec<_> { l.entries.iter().map(|e| e.hash).collect() };
    assert_eq!(hashes(&lowering), hashes(&moved));
    let mut different = hashes(&lowering);
    different.sort();
    different.dedup();
    assert_eq!(different.len(), lowering.entries.len());
}

#[test]
fn a_rule_is_known_by_what_it_says_and_how_often() {
    let prints = |rules: &str| -> Vec<u64> {
        let text = format!(
            "{{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {{name: a}}, \
             spec: {{podSelector: {{}}, ingress: [{rules}]}}}}"
        );
        let lowering = common::lowering("f", &text);
        let rules = lowering.objects().find_map(|object| match object {
            Object::Policy(policy) => policy.ingress.clone(),
            _ => None,
        });
        let rules = rules.unwrap().rules;
        rules.iter().map(|rule| rule.origin.fingerprint).collect()
    };
    let (web, dns) = ("{ports: [{port: 80}]}", "{ports: [{port: 53}]}");
    let both = prints(&format!("{web}, {dns}"));
    assert_eq!(prints(&format!("{dns}, {web}")), [both[1], both[0]]);
    let twice = prints(&format!("{web}, {dns}, {web}"));
    assert_eq!(twice[..2], both[..]);
    assert!(!both.contains(&twice[2]) && !twice.contains(&0));
}

#[test]
fn a_warning_about_a_spec_of_several_names_that_spec() {
    let input = r#"
{apiVersion: v1, kind: Pod, metadata: {name: host}, spec: {hostNetwork: true}, status: {podIP: 10.0.0.2}}
---
{apiVersion: cilium.io/v2, kind: CiliumNetworkPolicy, metadata: {name: one}, spec: {endpointSelector: {}, ingress: [{}]}}
---
{apiVersion: cilium.io/v2, kind: CiliumNetworkPolicy, metadata: {name: several}, specs: [{endpointSelector: {}, ingress: [{}]}]}
"#;
    let lowering = common::lowering("f", input);
    let warnings: Vec<(u32, &str)> = lowering
        .warnings
        .iter()
        .map(|problem| (problem.location.line, &*problem.field))
        .collect();
    assert_eq!(
        warnings,
        [
            (4, "spec.endpointSelector"),
            (6, "specs[0].endpointSelector")
        ]
    );
}
