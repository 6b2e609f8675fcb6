//! Addresses with the labels that Cilium's documentation lists, and selectors over them.
//!
//! It promises, as all of the naive reading, to share nothing with the product. It never validates.

use super::super::{at, in_cidr, is_kind, labels, list, namespace, namespace_labels, pod_at, text};
use serde_json::Value;
use std::net::IpAddr;

/// A label: source, key, value.
pub(super) type NaiveLabel = (&'static str, String, String);

/// An address, with its labels.
#[derive(Clone)]
pub(super) struct NaivePeer<'a> {
    objects: &'a [Value],
    pub(super) address: Option<IpAddr>,
    pub(super) labels: Vec<NaiveLabel>,
    /// Whether it is outside of the cluster.
    pub(super) outside: bool,
    /// Whether it is a node, and it is not known whether it is the own one.
    is_unknown_node: bool,
}

/// A requirement: source, key, operator, values.
pub(super) type NaiveRequirement = (String, String, String, Vec<String>);

impl<'a> NaivePeer<'a> {
    pub(super) fn of_pod(objects: &'a [Value], pod: &Value) -> Self {
        let mut all: Vec<NaiveLabel> = Vec::new();
        let mut add = |key: &str, value: &Value| {
            let value = value.as_str().unwrap_or_default();
            all.push(("k8s", key.to_owned(), value.to_owned()));
        };
        for (key, value) in &labels(pod) {
            add(key, value);
        }
        let of = namespace(pod);
        add("io.kubernetes.pod.namespace", &of.into());
        for (key, value) in &namespace_labels(objects, of) {
            add(&format!("io.cilium.k8s.namespace.labels.{key}"), value);
        }
        let named = text(pod, "/spec/serviceAccountName");
        // Only Kubernetes gives one to those that name none.
        if let Some(account) = named.or(is_kind(pod, "", "Pod").then_some("default")) {
            add("io.cilium.k8s.policy.serviceaccount", &account.into());
        }
        add("io.cilium.k8s.policy.cluster", &"default".into());
        NaivePeer {
            objects,
            address: None,
            labels: all,
            outside: false,
            is_unknown_node: false,
        }
    }

    /// The labels of a node itself, by which it is selected.
    pub(super) fn of_host(objects: &'a [Value], node: &Value) -> Self {
        let all = labels(node);
        let of_kubernetes = |(key, value): (&String, &Value)| {
            let value = value.as_str().unwrap_or_default();
            ("k8s", key.clone(), value.to_owned())
        };
        let mut host = NaivePeer {
            objects,
            address: None,
            labels: all.iter().map(of_kubernetes).collect(),
            outside: false,
            is_unknown_node: false,
        };
        host.add_reserved("host");
        host
    }

    /// The labels of an address, as a pod on this node sees it.
    pub(super) fn of(objects: &'a [Value], address: IpAddr, node: Option<&str>) -> Self {
        let mut peer = match pod_at(objects, address) {
            Some(pod) => NaivePeer::of_pod(objects, &objects[pod]),
            None => Self::without_pod(objects, address, node),
        };
        peer.address = Some(address);
        if slices_of(objects, "kubernetes", Some("default"))
            .any(|slice| served(slice).contains(&address))
        {
            peer.add_reserved("kube-apiserver");
        }
        peer
    }

    fn without_pod(objects: &'a [Value], address: IpAddr, node: Option<&str>) -> Self {
        let mut peer = NaivePeer {
            objects,
            address: None,
            labels: Vec::new(),
            outside: false,
            is_unknown_node: false,
        };
        let nodes: Vec<&Value> = objects
            .iter()
            .filter(|object| is_kind(object, "", "Node"))
            .collect();
        let at: Vec<&Value> = nodes
            .iter()
            .copied()
            .filter(|object| node_addresses(object).contains(&address))
            .collect();
        if !at.is_empty() {
            let own = node.is_some()
                && at
                    .iter()
                    .any(|object| text(object, "/metadata/name") == node);
            peer.is_unknown_node = node.is_none();
            if !peer.is_unknown_node {
                peer.add_reserved(if own { "host" } else { "remote-node" });
            }
            for object in at {
                for (key, value) in &labels(object) {
                    let value = value.as_str().unwrap_or_default().to_owned();
                    peer.labels.push(("node", key.clone(), value));
                }
            }
            return peer;
        }
        if nodes.iter().any(|object| in_pod_network(object, address)) {
            peer.add_reserved("unmanaged");
            return peer;
        }
        peer.outside = true;
        peer.add_reserved("world");
        peer.add_reserved(match address {
            IpAddr::V4(_) => "world-ipv4",
            IpAddr::V6(_) => "world-ipv6",
        });
        peer
    }

    fn add_reserved(&mut self, name: &str) {
        self.labels
            .push(("reserved", name.to_owned(), String::new()));
    }

    /// Whether it is no node, or it is known whether it is the own one.
    pub(super) fn is_known(&self) -> bool {
        !self.is_unknown_node
    }

    /// What it may be: a node that may be the own one or not is both for a rule that denies. A rule that allows
    /// has none of them.
    pub(super) fn alternatives(&self) -> Vec<NaivePeer<'a>> {
        let names = ["host", "remote-node"].into_iter();
        let names = names.filter(|_| self.is_unknown_node);
        names
            .map(|name| {
                let mut known = self.clone();
                known.is_unknown_node = false;
                known.add_reserved(name);
                known
            })
            .collect()
    }

    /// Whether its labels meet all requirements.
    pub(super) fn has(&self, requirements: &[NaiveRequirement]) -> bool {
        requirements.iter().all(|(source, key, operator, values)| {
            if source == "cidr" {
                let network = key.replace('-', ":");
                let inside = self.outside && self.is_in(&network);
                return compare(inside.then_some(""), operator, values);
            }
            if source == "cidrgroup" {
                return self.is_in_group(key, operator, values);
            }
            let is_it =
                |(of, name, _): &&NaiveLabel| (source == "any" || source == of) && name == key;
            let value = self.labels.iter().find(is_it);
            compare(value.map(|(_, _, value)| value.as_str()), operator, values)
        })
    }

    pub(super) fn is_in(&self, network: &str) -> bool {
        self.address
            .is_some_and(|address| in_cidr(network, address))
    }

    /// Whether a group that contains the address has such a label; or none has, for what is negative.
    fn is_in_group(&self, key: &str, operator: &str, values: &[String]) -> bool {
        let (positive, wanted) = match operator {
            "NotIn" => ("In", false),
            "DoesNotExist" => ("Exists", false),
            other => (other, true),
        };
        let found = self.outside
            && self.objects.iter().any(|group| {
                is_kind(group, "cilium.io", "CiliumCIDRGroup")
                    && self.is_in_cidrs(group)
                    && compare(
                        labels(group).get(key).and_then(Value::as_str),
                        positive,
                        values,
                    )
            });
        found == wanted
    }

    pub(super) fn is_in_cidrs(&self, group: &Value) -> bool {
        let cidrs = list(at(group, "/spec/externalCIDRs")).iter();
        cidrs.filter_map(Value::as_str).any(|cidr| self.is_in(cidr))
    }
}

pub(super) fn compare(value: Option<&str>, operator: &str, values: &[String]) -> bool {
    let listed = value.is_some_and(|value| values.iter().any(|other| other == value));
    match operator {
        "In" => listed,
        "NotIn" => !listed,
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        _ => false,
    }
}

/// The requirements of a label selector, with the sources of their keys.
pub(super) fn written_requirements(selector: &Value) -> Vec<NaiveRequirement> {
    let mut all = Vec::new();
    let split = |key: &str| match key.split_once(':') {
        Some((source, key)) => (source.to_owned(), key.to_owned()),
        None => ("any".to_owned(), key.to_owned()),
    };
    for (key, value) in selector
        .get("matchLabels")
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
    {
        let (source, key) = split(key);
        let value = value.as_str().unwrap_or_default().to_owned();
        all.push((source, key, "In".to_owned(), vec![value]));
    }
    for expression in list(selector.get("matchExpressions")) {
        let (source, key) = split(text(expression, "/key").unwrap_or_default());
        let operator = text(expression, "/operator").unwrap_or_default().to_owned();
        let values = list(expression.get("values")).iter();
        let values = values
            .filter_map(|v| v.as_str().map(str::to_owned))
            .collect();
        all.push((source, key, operator, values));
    }
    all
}

pub(super) fn node_addresses(node: &Value) -> Vec<IpAddr> {
    list(at(node, "/status/addresses"))
        .iter()
        .filter(|entry| matches!(text(entry, "/type"), Some("InternalIP" | "ExternalIP")))
        .filter_map(|entry| text(entry, "/address")?.parse().ok())
        .collect()
}

pub(super) fn in_pod_network(node: &Value, address: IpAddr) -> bool {
    let listed = list(at(node, "/spec/podCIDRs")).iter();
    let one = at(node, "/spec/podCIDR").into_iter();
    listed
        .chain(one)
        .filter_map(Value::as_str)
        .any(|cidr| in_cidr(cidr, address))
}

/// The EndpointSlices of a Service; of every namespace where none is given.
pub(super) fn slices_of<'a>(
    objects: &'a [Value],
    service: &str,
    of: Option<&str>,
) -> impl Iterator<Item = &'a Value> {
    objects.iter().filter(move |object| {
        is_kind(object, "discovery.k8s.io", "EndpointSlice")
            && of.is_none_or(|of| namespace(object) == of)
            && labels(object)
                .get("kubernetes.io/service-name")
                .is_some_and(|name| name == service)
    })
}

/// The addresses of an EndpointSlice that are ready, or that still serve while they end.
pub(super) fn served(slice: &Value) -> Vec<IpAddr> {
    let serves = |endpoint: &&Value| {
        let is = |pointer: &str| at(endpoint, pointer).and_then(Value::as_bool);
        is("/conditions/ready") != Some(false) || is("/conditions/terminating") == Some(true)
    };
    list(slice.get("endpoints"))
        .iter()
        .filter(serves)
        .flat_map(|endpoint| list(endpoint.get("addresses")))
        .filter_map(|address| address.as_str()?.parse().ok())
        .collect()
}
