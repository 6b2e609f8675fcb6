//! `palisade validate`: every problem is reported with its location, and by the exit code.

use super::{PODS, World, policy, run_with};
use serde_json::json;

#[test]
fn nothing_wrong_is_exit_code_0() {
    let nothing = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\ndata: {a: b}\n---\n\
                   apiVersion: example.com/v1\nkind: Widget\nmetadata: {name: w}\n";
    let cases: [(&[(&str, &str)], &str); 5] = [
        (&[], "0 files, 0 valid objects, 0 errors, 0 warnings\n"),
        (
            &[("a.yaml", "")],
            "1 file, 0 valid objects, 0 errors, 0 warnings\n",
        ),
        (
            &[("a.yaml", "---\n---\n# nothing\n"), ("readme.txt", "[")],
            "1 file, 0 valid objects, 0 errors, 0 warnings\n",
        ),
        (
            &[("sub/dir/a.yml", PODS)],
            "1 file, 4 valid objects, 0 errors, 0 warnings\n",
        ),
        (
            &[("a.yaml", nothing)],
            "1 file, 0 valid objects, 0 errors, 0 warnings, 2 objects ignored, not policy related \
             (example.com/v1 Widget, v1 ConfigMap)\n",
        ),
    ];
    for (files, expected) in cases {
        let ran = World::of(files).run("validate", "");
        assert_eq!((ran.code, &*ran.out, &*ran.err), (0, expected, ""));
    }
}

#[test]
fn every_problem_has_file_line_column_field_and_reason() {
    let wrong = policy(
        "policyTypes: [Both], ingress: [{from: [{ipBlock: {cidr: 10.0.0.0/33}}], \
         ports: [{port: 99999}, {port: 5, endPort: 3}, {protocol: QUIC}]}, {frm: []}]",
    );
    let ran = World::of(&[("p.yaml", &wrong)]).run("validate", "");
    assert_eq!(ran.code, 1);
    let mut expected = vec![
        ("policyTypes[0]", "\"Both\" is not a policy type"),
        (
            "ingress[0].from[0].ipBlock.cidr",
            "\"10.0.0.0/33\" is not a CIDR",
        ),
        (
            "ingress[0].ports[0].port",
            "99999 is not a port: 1 to 65535",
        ),
        ("ingress[0].ports[1].endPort", "endPort 3 is below port 5"),
        (
            "ingress[0].ports[2].protocol",
            "\"QUIC\" is not a supported protocol",
        ),
        (
            "ingress[1].frm",
            "unknown field `frm`; did you mean `from`?",
        ),
    ];
    let lines: Vec<&str> = ran.out.lines().collect();
    assert_eq!(
        lines.last(),
        Some(&"1 file, 0 valid objects, 6 errors, 0 warnings")
    );
    expected.retain(|(field, reason)| {
        let middle = format!(": error: NetworkPolicy shop/p: spec.{field}: {reason}");
        let told = |line: &str| line.starts_with("p.yaml:4:") && line.contains(&middle);
        !lines.iter().any(|line| told(line))
    });
    assert_eq!(expected, [], "{}", ran.out);
}

#[test]
fn broken_text_is_located_and_takes_only_its_document() {
    let world = World::of(&[
        (
            "tab.yaml",
            "apiVersion: v1\nkind: Pod\nmetadata:\n\tname: x\n",
        ),
        ("cut.json", "{\"apiVersion\":\"v1\",\"kind\":\"Pod\","),
        ("good.yaml", PODS),
    ]);
    let ran = world.run("validate", "");
    assert_eq!(ran.code, 1);
    let starts = [
        "cut.json:1:",
        "tab.yaml:4:2: error: ",
        "3 files, 4 valid objects, 2 errors",
    ];
    for (line, start) in ran.out.lines().zip(starts) {
        assert!(line.starts_with(start), "{line}");
    }
}

#[test]
fn a_network_policy_of_another_version_is_an_error() {
    for version in ["extensions/v1beta1", "networking.k8s.io/v2"] {
        let text = policy("ingress: []").replace("networking.k8s.io/v1", version);
        let ran = World::of(&[("p.yaml", &text)]).run("validate", "");
        assert_eq!(ran.code, 1);
        assert!(ran.out.contains(version) && ran.out.contains("served as networking.k8s.io/v1"));
    }
}

#[test]
fn an_object_defined_twice_is_an_error_with_both_places() {
    let pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: p, namespace: shop}\n";
    let ran = World::of(&[("a.yaml", pod), ("b.yaml", pod)]).run("validate", "");
    assert_eq!(ran.code, 1);
    let line = ran.out.lines().next().unwrap();
    assert!(line.contains("Pod shop/p is defined twice"), "{line}");
    assert!(
        line.contains("a.yaml:1:1") && line.contains("b.yaml:1:1"),
        "{line}"
    );
}

#[test]
fn json_carries_the_same() {
    let world = World::of(&[
        ("p.yaml", &policy("ingress: [{ports: [{port: 0}]}]")),
        ("x.yaml", PODS),
    ]);
    let ran = world.run("validate", "-o json");
    assert_eq!(ran.code, 1);
    let told = ran.json();
    assert_eq!(
        (
            &told["valid"],
            &told["files"],
            &told["objects"],
            &told["ignored"]
        ),
        (&json!(false), &json!(2), &json!(4), &json!({}))
    );
    let problem = &told["problems"][0];
    assert_eq!(
        (
            &problem["file"],
            &problem["line"],
            &problem["severity"],
            &problem["object"]
        ),
        (
            &json!("p.yaml"),
            &json!(4),
            &json!("Error"),
            &json!("NetworkPolicy shop/p")
        )
    );
    assert_eq!(problem["field"], "spec.ingress[0].ports[0].port");
    assert!(problem["column"].is_u64() && problem["reason"].is_string());
}

#[test]
fn the_standard_input_is_a_file_like_others() {
    let good = run_with(&["validate", "-f", "-"], PODS);
    assert_eq!(
        (good.code, &*good.out),
        (0, "1 file, 4 valid objects, 0 errors, 0 warnings\n")
    );
    let bad = run_with(&["validate", "-f", "-"], "kind: [\n");
    assert_eq!(bad.code, 1);
    assert!(bad.out.starts_with("-:"), "{}", bad.out);
    let answered = run_with(&["connections", "-f", "-", "-o", "json"], PODS);
    assert_eq!(answered.code, 0);
    assert!(
        !answered.json()["connections"]
            .as_array()
            .unwrap()
            .is_empty()
    );
}

#[test]
fn parts_held_closed_and_unknown_fields_are_named_with_their_paths_and_are_no_errors() {
    let policies = "\
apiVersion: policy.networking.k8s.io/v1alpha1
kind: AdminNetworkPolicy
metadata: {name: a, team: x}
spec:
  priority: 1
  subject: {namespaces: {}}
  egress:
  - action: Allow
    to: [{domainNames: [a.example.com]}, {zones: {}}]
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: b, namespace: shop}
spec:
  podSelector: {}
  ingress:
  - from: [{podSelector: {}, zone: a}]
";
    let ran = World::of(&[("p.yaml", policies)]).run("validate", "");
    let lines: Vec<&str> = ran.out.lines().collect();
    assert_eq!(
        lines,
        [
            "p.yaml:3:21: warning: AdminNetworkPolicy a: metadata.team: unknown field `team`: it is ignored; known \
             fields: name, generateName, namespace, selfLink, uid, resourceVersion, generation, creationTimestamp, \
             deletionTimestamp, deletionGracePeriodSeconds, labels, annotations, ownerReferences, finalizers, \
             managedFields, clusterName",
            "p.yaml:9:50: held closed: AdminNetworkPolicy a: spec.egress[0].to[1].zones: unknown peer `zones` (known \
             fields: namespaces, pods, nodes, networks, domainNames): the rule fails closed, Allow matches nothing",
            "p.yaml:17:30: held closed: NetworkPolicy shop/b: spec.ingress[0].from[0].zone: unknown field `zone`: the \
             rule fails closed; known fields: podSelector, namespaceSelector, ipBlock",
            "1 file, 2 valid objects, 0 errors, 1 warning, 2 parts held closed",
        ]
    );
    assert_eq!(ran.code, 0);
    let report = World::of(&[("p.yaml", policies)]).json("validate", "");
    assert_eq!(report["valid"], json!(true));
    let severities: Vec<&str> = report["problems"]
        .as_array()
        .unwrap()
        .iter()
        .map(|problem| problem["severity"].as_str().unwrap())
        .collect();
    assert_eq!(severities, ["Warning", "HeldClosed", "HeldClosed"]);
}

/// What Calico's policies name and nothing has.
#[test]
fn names_of_calico_without_an_effect_are_warnings() {
    let text = r#"
apiVersion: projectcalico.org/v3
kind: NetworkPolicy
metadata: {name: p, namespace: shop}
spec:
  selector: all()
  ingress:
  - action: Allow
    protocol: TCP
    source: {namespaceSelector: team == 'slaes'}
    destination: {ports: [80, htpp, http]}
  - {action: Allow, source: {namespaceSelector: global()}}
  egress:
  - action: Allow
    protocol: UDP
    destination: {namespaceSelector: team == 'sales', ports: [http]}
  - {action: Allow, destination: {services: {name: nowhere}}}
---
apiVersion: projectcalico.org/v3
kind: GlobalNetworkPolicy
metadata: {name: q}
spec: {namespaceSelector: has(tema), ingress: [{action: Allow}]}
"#;
    let ran = World::of(&[("pods.yaml", PODS), ("p.yaml", text)]).run("validate", "");
    let lines: Vec<&str> = ran.out.lines().collect();
    assert_eq!(
        lines,
        [
            "p.yaml:10:33: warning: NetworkPolicy shop/p: spec.ingress[0].source.namespaceSelector: \
             it matches none of the namespaces of the input, so it has no effect",
            "p.yaml:11:31: warning: NetworkPolicy shop/p: spec.ingress[0].destination.ports[1]: none \
             of the destination pods has a TCP port named `htpp`, so it has no effect",
            "p.yaml:16:63: warning: NetworkPolicy shop/p: spec.egress[0].destination.ports[0]: none \
             of the destination pods has a UDP port named `http` (there is one for TCP), so it has no effect",
            "p.yaml:22:27: warning: GlobalNetworkPolicy q: spec.namespaceSelector: it matches none of the namespaces \
             of the input, so it has no effect",
            "2 files, 6 valid objects, 0 errors, 4 warnings",
        ]
    );
}
