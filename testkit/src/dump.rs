//! Dumps of whole clusters, as `kubectl get -A -o json` writes them, of any size.
//!
//! Pods are as long as real ones: with managed fields, annotations, volumes and conditions. Nothing is
//! random: the same numbers give the same text.

use std::io::{self, Write};

/// How big the cluster is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClusterDump {
    /// Pods; those of one workload differ in name and address alone.
    pub pods: usize,
    /// Workloads, spread over the namespaces.
    pub workloads: usize,
    /// Namespaces.
    pub namespaces: usize,
    /// Policies: of each workload about as many, that let other workloads in.
    pub policies: usize,
}

impl ClusterDump {
    /// Writes everything as one `List`.
    ///
    /// # Errors
    /// If the writer fails.
    pub fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        writeln!(out, "{{\n    \"apiVersion\": \"v1\",\n    \"items\": [")?;
        let mut first = true;
        let mut item = |text: String, out: &mut dyn Write| {
            let comma = if first { "" } else { ",\n" };
            first = false;
            write!(out, "{comma}{text}")
        };
        for number in 0..self.namespaces {
            item(namespace_json(number), out)?;
        }
        for number in 0..self.policies {
            item(self.policy_json(number), out)?;
        }
        for number in 0..self.pods {
            item(self.pod_json(number), out)?;
        }
        writeln!(
            out,
            "\n    ],\n    \"kind\": \"List\",\n    \"metadata\": {{\n        \
             \"resourceVersion\": \"\"\n    }}\n}}"
        )
    }

    fn workload_namespace(&self, workload: usize) -> usize {
        workload % self.namespaces.max(1)
    }

    fn policy_json(&self, number: usize) -> String {
        let workload = number % self.workloads.max(1);
        let round = number / self.workloads.max(1);
        let client = (workload * 7 + 13 + round * self.namespaces) % self.workloads.max(1);
        let port = 1_024 + number % 20_000;
        format!(
            r#"        {{
            "apiVersion": "networking.k8s.io/v1",
            "kind": "NetworkPolicy",
            "metadata": {{
                "creationTimestamp": "2026-01-01T00:00:00Z",
                "name": "app-{workload}-{round}",
                "namespace": "team-{namespace}"
            }},
            "spec": {{
                "ingress": [
                    {{
                        "from": [
                            {{
                                "namespaceSelector": {{"matchLabels": {{"team": "team-{client_namespace}"}}}},
                                "podSelector": {{"matchLabels": {{"app": "app-{client}"}}}}
                            }},
                            {{"ipBlock": {{"cidr": "192.{block}.0/24"}}}}
                        ],
                        "ports": [{{"port": {port}, "protocol": "TCP"}}]
                    }}
                ],
                "podSelector": {{"matchLabels": {{"app": "app-{workload}"}}}},
                "policyTypes": ["Ingress"]
            }}
        }}"#,
            namespace = self.workload_namespace(workload),
            client_namespace = self.workload_namespace(client),
            block = format_args!("{}.{}", number / 250 % 250, number % 250),
        )
    }

    fn pod_json(&self, number: usize) -> String {
        let workload = number % self.workloads.max(1);
        let namespace = self.workload_namespace(workload);
        let hash = format!("{:010x}", workload * 7_919 + 1);
        let address = format!("10.{}.{}.{}", number >> 16, number >> 8 & 255, number & 255);
        let managed = managed_fields_json();
        format!(
            r#"        {{
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {{
                "annotations": {{
                    "kubernetes.io/config.source": "api",
                    "checksum/config": "0f343b0931126a20f133d67c2b018a3b5e2f7b1c8d9e0a4c6b8d7e5f3a1b2c4d"
                }},
                "creationTimestamp": "2026-01-01T00:00:00Z",
                "generateName": "app-{workload}-{hash}-",
                "labels": {{
                    "app": "app-{workload}",
                    "app.kubernetes.io/managed-by": "Helm",
                    "pod-template-hash": "{hash}",
                    "version": "v{version}"
                }},
                "managedFields": {managed},
                "name": "app-{workload}-{hash}-{number:05x}",
                "namespace": "team-{namespace}",
                "ownerReferences": [
                    {{
                        "apiVersion": "apps/v1",
                        "blockOwnerDeletion": true,
                        "controller": true,
                        "kind": "ReplicaSet",
                        "name": "app-{workload}-{hash}",
                        "uid": "5d4f8c7b-9e1a-4b6c-8d2e-{workload:012x}"
                    }}
                ],
                "resourceVersion": "{number}",
                "uid": "0f343b09-3112-4a20-b133-{number:012x}"
            }},
            "spec": {{
                "containers": [
                    {{
                        "env": [
                            {{"name": "LOG_LEVEL", "value": "info"}},
                            {{"name": "POD_IP", "valueFrom": {{"fieldRef": {{"apiVersion": "v1", "fieldPath": "status.podIP"}}}}}}
                        ],
                        "image": "registry.example.com/team-{namespace}/app-{workload}:1.4.2",
                        "imagePullPolicy": "IfNotPresent",
                        "name": "main",
                        "ports": [{{"containerPort": 8080, "name": "http", "protocol": "TCP"}}],
                        "resources": {{"limits": {{"memory": "512Mi"}}, "requests": {{"cpu": "100m", "memory": "256Mi"}}}},
                        "volumeMounts": [
                            {{
                                "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount",
                                "name": "kube-api-access-x7k2p",
                                "readOnly": true
                            }}
                        ]
                    }}
                ],
                "dnsPolicy": "ClusterFirst",
                "nodeName": "node-{node}",
                "restartPolicy": "Always",
                "serviceAccountName": "default",
                "tolerations": [
                    {{"effect": "NoExecute", "key": "node.kubernetes.io/not-ready", "operator": "Exists", "tolerationSeconds": 300}}
                ],
                "volumes": [{{"name": "kube-api-access-x7k2p", "projected": {{"defaultMode": 420}}}}]
            }},
            "status": {{
                "conditions": [
                    {{"lastProbeTime": null, "lastTransitionTime": "2026-01-01T00:00:00Z", "status": "True", "type": "Initialized"}},
                    {{"lastProbeTime": null, "lastTransitionTime": "2026-01-01T00:00:00Z", "status": "True", "type": "Ready"}},
                    {{"lastProbeTime": null, "lastTransitionTime": "2026-01-01T00:00:00Z", "status": "True", "type": "PodScheduled"}}
                ],
                "phase": "Running",
                "podIP": "{address}",
                "podIPs": [{{"ip": "{address}"}}],
                "startTime": "2026-01-01T00:00:00Z"
            }}
        }}"#,
            version = workload % 4,
            node = number % 5_000,
        )
    }
}

fn namespace_json(number: usize) -> String {
    format!(
        r#"        {{
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {{
                "labels": {{"kubernetes.io/metadata.name": "team-{number}", "team": "team-{number}"}},
                "name": "team-{number}"
            }}
        }}"#
    )
}

fn managed_fields_json() -> String {
    let entry = |manager: &str, fields: &str| {
        format!(
            r#"{{
                        "apiVersion": "v1",
                        "fieldsType": "FieldsV1",
                        "fieldsV1": {{{fields}}},
                        "manager": "{manager}",
                        "operation": "Update",
                        "time": "2026-01-01T00:00:00Z"
                    }}"#
        )
    };
    let spec = r#""f:metadata": {"f:generateName": {}, "f:labels": {".": {}, "f:app": {}, "f:pod-template-hash": {}}, "f:ownerReferences": {".": {}}}, "f:spec": {"f:containers": {"k:{\"name\":\"main\"}": {".": {}, "f:env": {}, "f:image": {}, "f:imagePullPolicy": {}, "f:name": {}, "f:ports": {}, "f:resources": {}}}, "f:dnsPolicy": {}, "f:restartPolicy": {}, "f:schedulerName": {}}"#;
    let status = r#""f:status": {"f:conditions": {"k:{\"type\":\"Ready\"}": {".": {}, "f:lastProbeTime": {}, "f:status": {}, "f:type": {}}}, "f:containerStatuses": {}, "f:hostIP": {}, "f:phase": {}, "f:podIP": {}, "f:podIPs": {".": {}}, "f:startTime": {}}"#;
    format!(
        "[{}, {}]",
        entry("kube-controller-manager", spec),
        entry("kubelet", status)
    )
}
