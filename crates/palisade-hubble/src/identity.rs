//! The ends of flows as Cilium identifies them: labels with their sources, and numbers of identities.
//!
//! Promises: the same labels have the same number on every node and in every release; the reserved numbers are Cilium's.
//! A workload's number is not one that Cilium would give: it is a hash of its labels, above 65,536 and below 2^24.
//!
//! Never: knows which identities there are.

use crate::proto::flow::{Endpoint, Workload};
use palisade_api::MonitorEndpoint;
use std::net::IpAddr;

/// Cilium's reserved identities.
pub(crate) const HOST_IDENTITY: u32 = 1;
const WORLD: u32 = 2;

/// The label of all that is outside.
pub(crate) const WORLD_LABEL: &str = "reserved:world";
const REMOTE_NODE: u32 = 6;

/// The first number of workloads, and the first beyond them.
const FIRST: u32 = 1 << 16;
const END: u32 = 1 << 24;

/// A hash that is the same everywhere and always: FNV-1a.
pub(crate) fn stable_hash<'a>(parts: impl IntoIterator<Item = &'a str>) -> u64 {
    const PRIME: u64 = 0x0100_0000_01b3;
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    for part in parts {
        // No text has the byte 255, which separates them.
        for byte in part.bytes().chain([255]) {
            hash = (hash ^ u64::from(byte)).wrapping_mul(PRIME);
        }
    }
    hash
}

/// The number of a workload with these labels, which are sorted.
fn workload_identity(labels: &[String]) -> u32 {
    let hash = stable_hash(labels.iter().map(String::as_str));
    // The high bits are mixed best.
    let offset = (hash >> 32) % u64::from(END - FIRST);
    FIRST + u32::try_from(offset).unwrap_or_default()
}

/// An end of a flow, seen from this node.
pub(crate) fn endpoint(end: &MonitorEndpoint, node: &str, cluster: &str) -> Endpoint {
    match (&end.name, &end.node) {
        (Some(name), _) => workload(end, name, cluster),
        (None, Some(other)) if other != node => reserved(REMOTE_NODE, "reserved:remote-node"),
        (None, Some(_)) => reserved(HOST_IDENTITY, "reserved:host"),
        (None, None) => {
            let mut world = reserved(WORLD, WORLD_LABEL);
            world.labels.extend(cidr_label(&end.address));
            world.labels.sort();
            world
        }
    }
}

fn reserved(identity: u32, label: &str) -> Endpoint {
    Endpoint {
        identity,
        labels: vec![label.to_owned()],
        ..Endpoint::default()
    }
}

fn workload(end: &MonitorEndpoint, name: &str, cluster: &str) -> Endpoint {
    let namespace = end.namespace.as_deref().unwrap_or_default();
    let own = end
        .labels
        .iter()
        .map(|(key, value)| format!("k8s:{key}={value}"));
    let mut labels: Vec<String> = own.collect();
    labels.push(format!("k8s:io.cilium.k8s.policy.cluster={cluster}"));
    labels.push(format!("k8s:io.kubernetes.pod.namespace={namespace}"));
    labels.sort();
    let controller = end.controller.iter().map(|controller| Workload {
        name: controller.name.to_string(),
        kind: controller.kind.to_string(),
    });
    Endpoint {
        id: 0,
        identity: workload_identity(&labels),
        cluster_name: cluster.to_owned(),
        namespace: namespace.to_owned(),
        labels,
        pod_name: name.to_owned(),
        workloads: controller.collect(),
    }
}

/// The label of a single address: labels have no colons, so IPv6 addresses have hyphens.
fn cidr_label(address: &str) -> Option<String> {
    Some(match address.parse().ok()? {
        IpAddr::V4(address) => format!("cidr:{address}/32"),
        IpAddr::V6(address) => {
            let text = address.to_string().replace(':', "-");
            // Nor does a key begin or end with a hyphen.
            let front = if text.starts_with('-') { "0" } else { "" };
            let back = if text.ends_with('-') { "0" } else { "" };
            format!("cidr:{front}{text}{back}/128")
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use palisade_api::ControllerRef;
    use std::sync::Arc;

    #[test]
    fn a_workload_has_labels_and_a_number() {
        let end = MonitorEndpoint {
            address: "10.0.0.1".into(),
            namespace: Some("shop".into()),
            name: Some("web-5b-x".into()),
            labels: Arc::new([("app".into(), "web".into())].into()),
            controller: Some(
                ControllerRef {
                    kind: "Deployment".into(),
                    name: "web".into(),
                }
                .into(),
            ),
            ..MonitorEndpoint::default()
        };
        let endpoint = endpoint(&end, "n1", "default");
        let labels = [
            "k8s:app=web",
            "k8s:io.cilium.k8s.policy.cluster=default",
            "k8s:io.kubernetes.pod.namespace=shop",
        ];
        assert_eq!(endpoint.labels, labels);
        assert_eq!(
            (endpoint.pod_name.as_str(), endpoint.namespace.as_str()),
            ("web-5b-x", "shop")
        );
        assert_eq!(endpoint.workloads[0].kind, "Deployment");
        // Fixed: numbers of former releases are in what users have written down.
        assert_eq!(endpoint.identity, 7_011_211);
    }

    #[test]
    fn other_ends_have_reserved_identities() {
        let end = |address: &str, node: Option<&str>| {
            let end = MonitorEndpoint {
                address: address.into(),
                node: node.map(Into::into),
                ..MonitorEndpoint::default()
            };
            let endpoint = endpoint(&end, "n1", "default");
            (endpoint.identity, endpoint.labels.join(" "))
        };
        assert_eq!(end("10.0.0.1", Some("n1")), (1, "reserved:host".to_owned()));
        assert_eq!(
            end("10.0.0.2", Some("n2")),
            (6, "reserved:remote-node".to_owned())
        );
        let world = |label: &str| (2, format!("{label} reserved:world"));
        assert_eq!(end("1.2.3.4", None), world("cidr:1.2.3.4/32"));
        assert_eq!(end("2001:db8::1", None), world("cidr:2001-db8--1/128"));
        assert_eq!(end("::1", None), world("cidr:0--1/128"));
        assert_eq!(end("fe80::", None), world("cidr:fe80--0/128"));
    }
}
