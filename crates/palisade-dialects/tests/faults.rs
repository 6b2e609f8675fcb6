//! Every named fault changes the lowered objects, so a test that compares them can detect it.
#![cfg(feature = "faults")]

#[path = "integration/common/mod.rs"]
#[allow(
    dead_code,
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::unwrap_used,
    reason = "of the integration tests, which use the rest of it, read files, and fail by panicking"
)]
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
apiVersion: cilium.io/v2
kind: CiliumNetworkPolicy
metadata: {name: nothing-is-sent}
spec: {endpointSelector: {}, egress: [{}]}
---
apiVersion: projectcalico.org/v3
kind: NetworkPolicy
metadata: {name: to-a-service}
spec: {types: [Egress], egress: [{action: Allow, destination: {services: {name: db}}}]}
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
---
apiVersion: v1
kind: Namespace
metadata: {name: watched, annotations: {palisade.dev/mode: audit}}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: watched, annotations: {palisade.dev/mode: audit}}
spec: {podSelector: {}}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: shop, labels: {kubernetes.io/service-name: shop}}
addressType: IPv4
endpoints:
- {addresses: [192.0.2.1], conditions: {ready: true}}
- {addresses: [192.0.2.2], conditions: {ready: false}}
- {addresses: [192.0.2.3], conditions: {ready: false, serving: true, terminating: true}}
---
apiVersion: v1
kind: Service
metadata: {name: shop, labels: {app: shop}}
spec: {ports: [{port: 80}]}
---
apiVersion: cilium.io/v2
kind: CiliumCIDRGroup
metadata: {name: partners, labels: {kind: partner}}
spec: {externalCIDRs: [198.51.100.0/24]}
---
apiVersion: cilium.io/v2
kind: CiliumNetworkPolicy
metadata: {name: of-no-pod}
spec:
  endpointSelector: {matchExpressions: [{key: io.kubernetes.pod.namespace, operator: In, values: [other]}]}
  ingress: [{}]
---
apiVersion: cilium.io/v2
kind: CiliumNetworkPolicy
metadata: {name: cilium}
spec:
  endpointSelector: {matchLabels: {"k8s:app": web}}
  ingress:
  - fromEndpoints:
    - {matchLabels: {"any:app": client}}
    - {matchLabels: {"k8s:io.kubernetes.pod.namespace": other}}
  - fromEndpoints: []
  - fromEntities: [world]
  - fromEntities: [cluster]
  - fromEntities: [host]
  - fromEntities: [remote-node]
  - fromEntities: [kube-apiserver]
  - fromNodes: [{matchLabels: {pool: infra}}]
  - fromCIDRSet:
    - {cidr: 10.0.0.0/8, except: [10.1.0.0/16]}
    - {cidrGroupRef: partners}
    - {cidrGroupSelector: {matchLabels: {kind: partner}}}
  - fromGroups: [{aws: {region: eu}}]
  - authentication: {mode: required}
    fromEndpoints: [{}]
  egress:
  - toServices:
    - {k8sService: {serviceName: shop, namespace: default}}
    - {k8sServiceSelector: {namespace: default, selector: {matchLabels: {app: shop}}}}
  - toPorts:
    - ports: [{port: "8000", endPort: 8080, protocol: TCP}, {port: "53", protocol: ANY}]
    - ports: [{port: "80", protocol: TCP}]
      rules: {http: [{method: GET}]}
    - ports: [{port: "5353", protocol: UDP}]
      rules: {dns: [{matchPattern: "*.example.com"}]}
  - icmps: [{fields: [{family: IPv6, type: 128}]}]
  egressDeny:
  - toCIDR: [203.0.113.0/24]
specs:
- endpointSelector: {matchLabels: {app: batch}}
  enableDefaultDeny: {ingress: false}
  ingress: [{fromEndpoints: [{}]}]
---
apiVersion: cilium.io/v2
kind: CiliumClusterwideNetworkPolicy
metadata: {name: cilium-clusterwide}
spec:
  endpointSelector: {}
  ingress: [{fromEndpoints: [{}]}]
---
apiVersion: cilium.io/v2
kind: CiliumClusterwideNetworkPolicy
metadata: {name: cilium-host}
spec:
  nodeSelector: {matchLabels: {pool: edge}}
  ingress: [{fromEntities: [cluster]}]
---
apiVersion: projectcalico.org/v3
kind: Tier
metadata: {name: security}
spec: {order: 100, defaultAction: Pass}
---
apiVersion: projectcalico.org/v3
kind: Tier
metadata: {name: default}
spec: {order: 1000000}
---
apiVersion: projectcalico.org/v3
kind: NetworkPolicy
metadata: {name: calico}
spec:
  order: 10
  selector: app != 'web'
  ingress:
  - action: Allow
    protocol: TCP
    source: {selector: app == 'client', notSelector: tier == 'db', ports: [1024], notPorts: [1025]}
    destination: {ports: [80]}
  - {action: Pass, notProtocol: UDP}
  - {action: Log, ipVersion: 6}
  - {action: Allow, protocol: ICMP, notICMP: {type: 8}}
  - {action: Deny, source: {notNets: [10.0.0.0/8]}}
  - {action: Deny, destination: {nets: [192.0.2.0/24]}}
  - {action: Allow, http: {methods: [GET]}}
  - {action: Allow, destination: {ports: [web]}}
  - {action: Allow, destination: {notPorts: [web]}}
---
apiVersion: projectcalico.org/v3
kind: GlobalNetworkPolicy
metadata: {name: calico-global}
spec:
  tier: security
  namespaceSelector: team == 'a'
  serviceAccountSelector: role == 'front'
  ingress: [{action: Deny}]
---
apiVersion: projectcalico.org/v3
kind: GlobalNetworkPolicy
metadata: {name: calico-host}
spec: {doNotTrack: true, applyOnForward: true, ingress: [{action: Allow}]}
---
apiVersion: projectcalico.org/v3
kind: StagedNetworkPolicy
metadata: {name: calico-staged}
spec: {types: [Ingress], order: 1}
---
apiVersion: projectcalico.org/v3
kind: StagedNetworkPolicy
metadata: {name: calico-ignored}
spec: {stagedAction: Ignore}
---
apiVersion: projectcalico.org/v3
kind: Profile
metadata: {name: one}
spec: {labelsToApply: {zone: dmz}}
---
apiVersion: projectcalico.org/v3
kind: WorkloadEndpoint
metadata: {name: vm}
spec: {ipNetworks: [10.9.9.9/32], profiles: [one, two]}
---
apiVersion: crd.projectcalico.org/v1
kind: GlobalNetworkSet
metadata: {name: stored, annotations: {projectcalico.org/metadata: '{"labels": {"kind": "partner"}}'}}
spec: {nets: [192.0.2.0/24]}
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
        assert!(wrong != right, "{fault:?} changes nothing");
        let same = seen.insert(shown, fault);
        assert_eq!(same, None, "{fault:?} is the same as another");
    }
    DialectFault::inject(None);
    assert!(
        common::lowering("f", INPUT) == right,
        "a fault outlives its test"
    );
}
