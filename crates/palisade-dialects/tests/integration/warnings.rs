//! Warnings about valid objects that have no effect with the pods and namespaces of the input.

use crate::common::{self, lint, lower};

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

const CLUSTER_POLICIES: &str = r#"
apiVersion: policy.networking.k8s.io/v1alpha2
kind: ClusterNetworkPolicy
metadata: {name: b}
spec:
  tier: Admin
  priority: 7
  subject: {namespaces: {matchLabels: {team: a}}}
  ingress:
  - action: Deny
    from: [{pods: {namespaceSelector: {matchLabels: {team: z}}, podSelector: {}}}]
    protocols: [{destinationNamedPort: http}, {destinationNamedPort: dns}, {destinationNamedPort: pg}]
---
apiVersion: policy.networking.k8s.io/v1alpha1
kind: AdminNetworkPolicy
metadata: {name: a}
spec:
  priority: 7
  subject: {pods: {namespaceSelector: {matchLabels: {team: none}}, podSelector: {}}}
  egress: [{action: Deny, to: [{namespaces: {}}], ports: [{namedPort: ssh}]}]
---
apiVersion: policy.networking.k8s.io/v1alpha2
kind: ClusterNetworkPolicy
metadata: {name: a}
spec:
  tier: Admin
  priority: 7
  subject: {namespaces: {}}
  egress: [{action: Deny, to: [{nodes: {}}]}]
---
apiVersion: policy.networking.k8s.io/v1alpha2
kind: ClusterNetworkPolicy
metadata: {name: c}
spec:
  tier: Baseline
  priority: 7
  subject: {namespaces: {}}
  egress: [{action: Deny, to: [{nodes: {}}]}]
---
apiVersion: policy.networking.k8s.io/v1alpha1
kind: BaselineAdminNetworkPolicy
metadata: {name: default}
spec:
  subject: {namespaces: {}}
  ingress: [{action: Deny, from: [{namespaces: {}}]}]
---
{apiVersion: v1, kind: Namespace, metadata: {name: default, labels: {team: a}}}
---
{apiVersion: v1, kind: Namespace, metadata: {name: other}}
---
"#;

/// Where an equal policy comes first, port names and namespaces of cluster-wide policies.
#[test]
fn cluster_wide_policies() {
    let first = |policy: &str| {
        format!(
            "{policy} has the same priority: the API leaves open which comes first; here it is {policy} (by \
             kind, then name)"
        )
    };
    let mut expected = [
        "AdminNetworkPolicy a: f:19:39: spec.subject.pods.namespaceSelector: it matches none of the \
         namespaces of the input, so it has no effect"
            .to_owned(),
        "AdminNetworkPolicy a: f:20:71: spec.egress[0].ports[0].namedPort: none of the destination pods has a \
         port named `ssh`, so it has no effect"
            .to_owned(),
        "ClusterNetworkPolicy b: f:11:39: spec.ingress[0].from[0].pods.namespaceSelector: it matches none of \
         the namespaces of the input, so it has no effect"
            .to_owned(),
        "ClusterNetworkPolicy b: f:12:99: spec.ingress[0].protocols[2].destinationNamedPort: none of the \
         destination pods has a port named `pg`, so it has no effect"
            .to_owned(),
        format!(
            "ClusterNetworkPolicy b: f:7:13: spec.priority: {}",
            first("ClusterNetworkPolicy a")
        ),
        format!(
            "AdminNetworkPolicy a: f:18:13: spec.priority: {}",
            first("ClusterNetworkPolicy b")
        ),
    ];
    expected.sort();
    let mut found = of(&format!("{CLUSTER_POLICIES}{PODS}"));
    found.sort();
    assert_eq!(found, expected);
}

/// Pods on the host network are no subjects, also where the labels of their namespace select them.
#[test]
fn cluster_wide_policies_and_the_host_network() {
    let host = "{apiVersion: v1, kind: Pod, metadata: {name: agent}, spec: {hostNetwork: true}, \
                status: {podIP: 192.0.2.1}}";
    let lowering = lower(&common::raw("f", &format!("{CLUSTER_POLICIES}{host}")));
    let found: Vec<String> = lowering.warnings.iter().map(common::problem).collect();
    let selects = |policy: &str, at: &str| {
        format!(
            "{policy}: f:{at}: spec.subject: it selects Pod default/agent on the host network; policies do \
             not apply to host-network pods"
        )
    };
    assert_eq!(
        found,
        [
            selects("ClusterNetworkPolicy b", "8:12"),
            selects("ClusterNetworkPolicy a", "28:12"),
            selects("ClusterNetworkPolicy c", "37:12"),
            selects("BaselineAdminNetworkPolicy default", "44:12"),
        ]
    );
    assert!(
        !lowering
            .objects()
            .any(|object| matches!(object, palisade_model::Object::Endpoint(_)))
    );
}
