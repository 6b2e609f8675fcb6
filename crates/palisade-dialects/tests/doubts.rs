//! Warnings about valid objects that have no effect with the pods and namespaces of the input.

mod common;

use common::{lint, lower};

fn of(text: &str) -> Vec<String> {
    let raw = common::raw("f", text);
    let lowering = lower(&raw);
    assert!(lowering.errors.is_empty(), "{:?}", lowering.errors);
    lint(&raw, &lowering).iter().map(common::problem).collect()
}

const POLICIES: &str = r#"
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: web}
spec:
  podSelector: {matchLabels: {app: web}}
  ingress:
  - from:
    - podSelector: {}
    - namespaceSelector: {matchLabels: {team: b}}
    - namespaceSelector: {}
    ports:
    - port: 80
    - port: http
    - {port: dns, protocol: UDP}
  egress:
  - to:
    - namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: other}}
      podSelector: {matchLabels: {app: db}}
    ports:
    - port: pg
    - port: http
"#;

const PODS: &str = r#"
{apiVersion: v1, kind: Pod, metadata: {name: web, labels: {app: web}}, spec: {containers: [
  {ports: [{name: http, containerPort: 80}, {name: dns, containerPort: 53}]}]}}
---
{apiVersion: v1, kind: Pod, metadata: {name: db, namespace: other, labels: {app: db}}, spec: {containers: [
  {ports: [{name: pg, containerPort: 5432}]}]}}
"#;

#[test]
fn nothing_is_said_without_pods_and_namespaces() {
    assert_eq!(of(POLICIES), Vec::<String>::new());
}

#[test]
fn port_names_that_no_receiver_has() {
    assert_eq!(
        of(&format!("{POLICIES}---{PODS}")),
        [
            "NetworkPolicy default/web: f:15:14: spec.ingress[0].ports[2].port: none of the destination \
             pods has a UDP port named `dns` (there is one for TCP), so it has no \
             effect",
            "NetworkPolicy default/web: f:22:13: spec.egress[0].ports[1].port: none of the destination pods \
             has a TCP port named `http`, so it has no effect",
        ]
    );
}

#[test]
fn namespace_selectors_that_match_no_namespace() {
    let namespace =
        "{apiVersion: v1, kind: Namespace, metadata: {name: default, labels: {team: a}}}";
    assert_eq!(
        of(&format!("{POLICIES}---\n{namespace}\n")),
        [
            "NetworkPolicy default/web: f:10:26: spec.ingress[0].from[1].namespaceSelector: it matches none \
             of the namespaces of the input, so it has no effect",
            "NetworkPolicy default/web: f:18:26: spec.egress[0].to[0].namespaceSelector: it matches none of \
             the namespaces of the input, so it has no effect",
        ]
    );
    let also = "{apiVersion: v1, kind: Namespace, metadata: {name: x, labels: {team: b}}}";
    let pods = "{apiVersion: v1, kind: Pod, metadata: {name: a, namespace: other}}";
    assert_eq!(
        of(&format!(
            "{POLICIES}---\n{namespace}\n---\n{also}\n---\n{pods}\n"
        )),
        Vec::<String>::new()
    );
}
