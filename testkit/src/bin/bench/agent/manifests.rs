//! Manifests as a cluster's owners write them, and as `kubectl get` dumps them.

use std::fmt::Write;
use std::net::IpAddr;

/// A NetworkPolicy that lets pods with some labels reach pods of one app on some ports.
pub(super) fn policy(
    namespace: &str,
    name: &str,
    app: &str,
    from: &[(&str, &str)],
    ports: &[(&str, u16)],
) -> String {
    let from: Vec<String> = from.iter().map(|(k, v)| format!("{k}: {v}")).collect();
    let from = from.join(", ");
    let ports = ports
        .iter()
        .map(|(protocol, port)| format!("    - {{protocol: {protocol}, port: {port}}}\n"));
    let ports: String = ports.collect();
    format!(
        "apiVersion: networking.k8s.io/v1\n\
         kind: NetworkPolicy\n\
         metadata:\n  name: {name}\n  namespace: {namespace}\n\
         spec:\n  podSelector:\n    matchLabels: {{app: {app}}}\n  policyTypes: [Ingress]\n  ingress:\n  \
         - from:\n    - podSelector:\n        matchLabels: {{{from}}}\n    ports:\n{ports}"
    )
}

/// A namespace.
pub(super) fn namespace(name: &str) -> String {
    format!(
        "---\napiVersion: v1\nkind: Namespace\nmetadata:\n  name: {name}\n  labels: {{team: {name}}}\n"
    )
}

/// A node of a cluster.
pub(super) fn node(name: &str, address: IpAddr) -> String {
    format!(
        "---\napiVersion: v1\nkind: Node\nmetadata:\n  name: {name}\n  labels:\n    \
         kubernetes.io/hostname: {name}\n    kubernetes.io/os: linux\n    \
         topology.kubernetes.io/zone: zone-1\n\
         status:\n  addresses:\n  - {{type: InternalIP, address: {address}}}\n  \
         - {{type: Hostname, address: {name}}}\n"
    )
}

/// A pod, running on a node.
pub(super) fn pod(
    namespace: &str,
    name: &str,
    labels: &[(&str, String)],
    node: &str,
    addresses: &[IpAddr],
) -> String {
    let mut text = format!(
        "---\napiVersion: v1\nkind: Pod\nmetadata:\n  name: {name}\n  namespace: {namespace}\n  labels:\n"
    );
    for (key, value) in labels {
        let _ = writeln!(text, "    {key}: \"{value}\"");
    }
    let _ = write!(
        text,
        "spec:\n  nodeName: {node}\n  serviceAccountName: default\n  containers:\n  - name: main\n    \
         image: registry.example.com/{namespace}/{name}:1.0\n    ports:\n    \
         - {{name: http, containerPort: 8080, protocol: TCP}}\n\
         status:\n  phase: Running\n"
    );
    if let Some(first) = addresses.first() {
        let _ = writeln!(text, "  podIP: {first}\n  podIPs:");
    }
    for address in addresses {
        let _ = writeln!(text, "  - ip: {address}");
    }
    text
}
