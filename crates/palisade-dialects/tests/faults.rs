//! Every named fault changes the lowered objects, so a test that compares them can detect it.
#![cfg(feature = "faults")]

mod common;

use palisade_dialects::faults::DialectFault;

const INPUT: &str = r#"
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: everything}
spec:
  podSelector: {}
  policyTypes: [Ingress, Egress]
  ingress:
  - {}
  - from:
    - podSelector: {matchLabels: {app: web}}
    - ipBlock: {cidr: 10.0.0.0/8, except: [10.1.0.0/16]}
    - ipBlock: {cidr: "fd00::/8"}
    - podSelector:
        matchExpressions:
        - {key: tier, operator: NotIn, values: [db]}
        - {key: app, operator: Exists}
      namespaceSelector: {matchLabels: {team: a}}
    ports:
    - {port: 8000, endPort: 8080}
    - {port: 53, protocol: UDP}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: egress-by-default}
spec:
  podSelector: {matchLabels: {app: web, tier: front}}
  egress: [{}]
---
apiVersion: v1
kind: Pod
metadata: {name: done}
spec:
  initContainers: [{name: i, ports: [{name: setup, containerPort: 1}]}]
  containers: [{name: c, ports: [{name: http, containerPort: 80}]}]
status: {phase: Succeeded, podIP: 10.0.0.1}
---
apiVersion: v1
kind: Pod
metadata: {name: on-the-node}
spec: {hostNetwork: true}
status: {phase: Running, podIP: 10.0.0.2}
---
apiVersion: policy.networking.k8s.io/v1alpha2
kind: ClusterNetworkPolicy
metadata: {name: admin}
spec:
  tier: Admin
  priority: 7
  subject: {pods: {namespaceSelector: {matchLabels: {team: a}}, podSelector: {}}}
  ingress:
  - {action: Pass, from: [{namespaces: {}}], protocols: [{tcp: {destinationPort: {range: {start: 1, end: 9}}}}]}
  - {action: Accept, from: [{later: {}}]}
  - {action: Deny, from: [{later: {}}]}
  - {action: Pass, from: [{later: {}}]}
  egress:
  - {action: Accept, to: [{namespaces: {}}], protocols: [{destinationNamedPort: http}]}
  - {action: Accept, to: [{domainNames: [a.example.com]}]}
  - action: Deny
    to: [{nodes: {matchLabels: {pool: infra}}}, {networks: [10.0.0.0/8, "fd00::/8"]}]
---
apiVersion: policy.networking.k8s.io/v1alpha2
kind: ClusterNetworkPolicy
metadata: {name: baseline}
spec:
  tier: Baseline
  priority: 8
  subject: {namespaces: {}}
  ingress: [{action: Deny, from: [{namespaces: {}}]}]
---
apiVersion: policy.networking.k8s.io/v1alpha1
kind: BaselineAdminNetworkPolicy
metadata: {name: default}
spec:
  subject: {namespaces: {}}
  ingress: [{action: Deny, from: [{namespaces: {}}]}]
"#;

#[test]
fn each_fault_changes_the_lowering() {
    DialectFault::inject(None);
    let right = common::lowering("f", INPUT);
    assert!(right.errors.is_empty(), "{:?}", right.errors);
    let mut seen = std::collections::BTreeMap::new();
    for fault in DialectFault::ALL.iter().copied() {
        DialectFault::inject(Some(fault));
        let wrong = common::lowering("f", INPUT);
        assert!(wrong.errors.is_empty(), "{fault:?}: {:?}", wrong.errors);
        let shown: Vec<_> = wrong.objects().map(|o| format!("{o:?}")).collect();
        assert_ne!(wrong, right, "{fault:?} changes nothing");
        let same = seen.insert(shown, fault);
        assert_eq!(same, None, "{fault:?} is the same as another");
    }
    DialectFault::inject(None);
    assert_eq!(common::lowering("f", INPUT), right);
}
