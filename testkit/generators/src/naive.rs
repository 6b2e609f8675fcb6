//! A second, naive reading of Kubernetes objects: what the documentation of NetworkPolicy, of the
//! cluster-wide policies, of Cilium's and of Calico's says, one flow at a time, straight from the objects' values.
//!
//! It promises to share nothing with the product: no model, no dialect, no index, only `std` and
//! `serde_json`, so that a mistake made there is not made here as well. It never validates: it is
//! given objects that a cluster would have accepted, and what it cannot read matches nothing.

mod calico;
mod cilium;
mod names;
mod policy_api;
mod tiers;

use crate::audit;
pub use names::{ANSWERS_GROUP, ANSWERS_KIND, NaiveQuery, QUERIES, inside_addresses};
use serde_json::{Map, Value};
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::net::IpAddr;

/// The first packet of a connection, after any translation of its destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NaiveFlow {
    /// Who sends it.
    pub source: IpAddr,
    /// Where it goes; of the same family.
    pub destination: IpAddr,
    /// The number of its IP protocol.
    pub protocol: u8,
    /// Source and destination port, of TCP, UDP and SCTP.
    pub ports: Option<(u16, u16)>,
    /// Type and code, of ICMP and ICMPv6.
    pub icmp: Option<(u8, u8)>,
    /// Where it crosses the interfaces of this host.
    pub path: NaivePath,
    /// What it asks for, if it is a DNS query.
    pub query: NaiveQuery,
}

/// The name of this host's node.
pub const OWN_NODE: &str = "node-1";

/// The interfaces of this host that a packet crosses, those of its pods left out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NaivePath {
    /// By which it comes in.
    pub input: Option<&'static str>,
    /// By which it goes out.
    pub output: Option<&'static str>,
    /// Whether it is neither to nor from the host itself.
    pub is_forwarded: bool,
    /// Where it was sent before its destination was translated, and to which port.
    pub sent_to: Option<(IpAddr, u16)>,
}

/// What a flow gets, and what had a say in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NaiveReading {
    /// Whether the sender may send it.
    pub egress: bool,
    /// Whether the receiver may have it.
    pub ingress: bool,
    /// Whether this host lets it through its interfaces.
    pub host: bool,
    /// The indices of the pods at its ends and the host endpoints on its path, of the policies that isolate
    /// them for it, and of the other policies, tiers and profiles that were asked.
    pub used: BTreeSet<usize>,
}

/// Whether the sender may send this flow, and whether the receiver may have it.
#[must_use]
pub fn verdicts(objects: &[Value], flow: &NaiveFlow) -> (bool, bool) {
    let reading = read(objects, flow);
    (reading.egress, reading.ingress)
}

/// What the flow would get if nothing were in audit.
#[must_use]
pub fn audit_verdicts(objects: &[Value], flow: &NaiveFlow) -> (bool, bool) {
    let reading = audit_read(objects, flow);
    (reading.egress, reading.ingress)
}

/// The same, with what had a say in it.
#[must_use]
pub fn audit_read(objects: &[Value], flow: &NaiveFlow) -> NaiveReading {
    NaiveObjects::without_audit(objects).read(flow)
}

/// Objects as each reading of a flow sees them: with what does not depend on the flow done once.
#[derive(Clone, Debug)]
pub struct NaiveObjects<'a> {
    objects: Cow<'a, [Value]>,
    /// Whether the query of each flow counts as unknown.
    has_unknown_queries: bool,
}

impl<'a> NaiveObjects<'a> {
    /// The objects, as they are enforced.
    #[must_use]
    pub fn new(objects: &'a [Value]) -> Self {
        let restored = calico::with_stored_metadata(objects);
        let labelled = match calico::with_applied_labels(&restored) {
            Cow::Owned(labelled) => Some(labelled),
            Cow::Borrowed(_) => None,
        };
        NaiveObjects {
            objects: labelled.map_or(restored, Cow::Owned),
            has_unknown_queries: false,
        }
    }

    /// The objects, as if nothing were in audit.
    #[must_use]
    pub fn without_audit(objects: &[Value]) -> NaiveObjects<'static> {
        let staged = objects.iter().cloned();
        let mut objects: Vec<Value> = staged.filter_map(calico::without_staging).collect();
        for object in &mut objects {
            if audit::is_in_audit(object) {
                object["metadata"]["annotations"][audit::ANNOTATION] = Value::Null;
            }
        }
        NaiveObjects {
            objects: Cow::Owned(NaiveObjects::new(&objects).objects.into_owned()),
            // Which names are asked for is not known: a flow whose queries rules would judge counts as allowed.
            has_unknown_queries: true,
        }
    }

    /// What a flow gets, with what had a say in it.
    #[must_use]
    pub fn read(&self, flow: &NaiveFlow) -> NaiveReading {
        let query = if self.has_unknown_queries {
            NaiveQuery::Unknown
        } else {
            flow.query
        };
        read_prepared(&self.objects, &NaiveFlow { query, ..*flow })
    }
}

/// Whether a pod is in audit, by itself or with its namespace: no policy is enforced for it.
fn is_audited_pod(objects: &[Value], pod: &Value) -> bool {
    let is_home = |object: &&Value| {
        is_kind(object, "", "Namespace") && text(object, "/metadata/name") == Some(namespace(pod))
    };
    let home = objects.iter().find(is_home);
    audit::is_in_audit(pod) || home.is_some_and(audit::is_in_audit)
}

/// What a flow gets, with what had a say in it.
#[must_use]
pub fn read(objects: &[Value], flow: &NaiveFlow) -> NaiveReading {
    NaiveObjects::new(objects).read(flow)
}

fn read_prepared(objects: &[Value], flow: &NaiveFlow) -> NaiveReading {
    let mut used = BTreeSet::new();
    let host = calico::host_allows(objects, flow, &mut used);
    let sender = pod_at(objects, flow.source);
    if let Some(pod) = sender.filter(|_| sender == pod_at(objects, flow.destination)) {
        used.insert(pod);
        let of_pod = &objects[pod];
        // Nothing but cluster-wide policies cuts a pod off from itself.
        let mut side = |egress: bool| {
            let other = if egress {
                flow.destination
            } else {
                flow.source
            };
            is_audited_pod(objects, of_pod)
                || tiers::allows_hairpin(objects, of_pod, (egress, other), flow, &mut used)
        };
        return NaiveReading {
            egress: side(true),
            ingress: side(false),
            host,
            used,
        };
    }
    let mut side = |egress: bool| {
        let (own, other) = if egress {
            (flow.source, flow.destination)
        } else {
            (flow.destination, flow.source)
        };
        let Some(pod) = pod_at(objects, own) else {
            return true;
        };
        used.insert(pod);
        if egress && is_tunnel(flow) {
            return false;
        }
        let of_pod = &objects[pod];
        if is_audited_pod(objects, of_pod) {
            for (index, object) in objects.iter().enumerate() {
                if is_kind(object, "", "Namespace")
                    && text(object, "/metadata/name") == Some(namespace(of_pod))
                {
                    used.insert(index);
                }
            }
            return true;
        }
        tiers::decide(objects, of_pod, (egress, other), flow, &mut used)
    };
    let egress = side(true);
    let ingress = side(false);
    NaiveReading {
        egress,
        ingress,
        host,
        used,
    }
}

/// Whether a flow is VXLAN, Geneve, IP in IP or GRE, which no pod may send: what goes within it would
/// be seen by no policy. That is Palisade's default, and Calico's for the first and the third.
fn is_tunnel(flow: &NaiveFlow) -> bool {
    match (flow.protocol, flow.ports) {
        (17, Some((_, port))) => [4789, 8472, 6081].contains(&port),
        (protocol, _) => [4, 41, 47].contains(&protocol),
    }
}

/// Whether an object is a pod, or a workload that somebody else than Kubernetes runs.
#[must_use]
pub fn is_workload(object: &Value) -> bool {
    is_kind(object, "", "Pod") || calico::is_calico(object, "WorkloadEndpoint")
}

/// The name of the node that a workload runs on.
fn node_of(workload: &Value) -> Option<&str> {
    text(workload, "/spec/nodeName").or_else(|| text(workload, "/spec/node"))
}

/// The index of the pod, or other workload, that holds an address: one that has its own network and has not run to
/// its end; of several the youngest, then the one whose namespace and name come last.
#[must_use]
pub fn pod_at(objects: &[Value], address: IpAddr) -> Option<usize> {
    let holds = |pod: &Value| {
        is_workload(pod)
            && at(pod, "/spec/hostNetwork") != Some(&Value::Bool(true))
            && !matches!(text(pod, "/status/phase"), Some("Succeeded" | "Failed"))
            && addresses(pod).contains(&address)
    };
    let age = |pod: &Value| {
        (
            text(pod, "/metadata/creationTimestamp")
                .unwrap_or("")
                .to_owned(),
            namespace(pod).to_owned(),
            text(pod, "/metadata/name").unwrap_or("").to_owned(),
        )
    };
    objects
        .iter()
        .enumerate()
        .filter(|(_, object)| holds(object))
        .max_by_key(|(_, pod)| age(pod))
        .map(|(index, _)| index)
}

/// Every address in a pod's status, or in a WorkloadEndpoint.
#[must_use]
pub fn addresses(pod: &Value) -> Vec<IpAddr> {
    if calico::is_calico(pod, "WorkloadEndpoint") {
        let networks = list(at(pod, "/spec/ipNetworks")).iter();
        let address = |network: &str| network.split('/').next()?.parse().ok();
        return networks
            .filter_map(Value::as_str)
            .filter_map(address)
            .collect();
    }
    let one = text(pod, "/status/podIP").into_iter();
    let many = list(at(pod, "/status/podIPs"))
        .iter()
        .filter_map(|entry| text(entry, "/ip"));
    one.chain(many).filter_map(|ip| ip.parse().ok()).collect()
}

/// The addresses that an object holds: of a pod, a node, or the endpoints of a Service.
#[must_use]
pub fn holder_addresses(object: &Value) -> Vec<IpAddr> {
    cilium::holder_addresses(object)
}

/// Whether an address is held by a set of networks or a host endpoint of Calico.
#[must_use]
pub fn in_calico_set(object: &Value, address: IpAddr) -> bool {
    calico::holds(object, address)
}

/// A NetworkPolicy that is never enforced.
fn is_staged_kubernetes(policy: &Value) -> bool {
    calico::is_calico(policy, "StagedKubernetesNetworkPolicy")
}

fn isolates(policy: &Value, pod: &Value, egress: bool) -> bool {
    (is_kind(policy, "networking.k8s.io", "NetworkPolicy") || is_staged_kubernetes(policy))
        && namespace(policy) == namespace(pod)
        && applies_to_direction(policy, egress)
        && selects(at(policy, "/spec/podSelector"), &labels(pod))
}

fn applies_to_direction(policy: &Value, egress: bool) -> bool {
    let types = list(at(policy, "/spec/policyTypes"));
    if types.is_empty() {
        return !egress || !rules(policy, true).is_empty();
    }
    let wanted = if egress { "Egress" } else { "Ingress" };
    types.iter().any(|t| t == wanted)
}

fn rules(policy: &Value, egress: bool) -> &[Value] {
    list(at(
        policy,
        if egress {
            "/spec/egress"
        } else {
            "/spec/ingress"
        },
    ))
}

fn rule_allows(
    objects: &[Value],
    policy: &Value,
    rule: &Value,
    egress: bool,
    other: IpAddr,
    flow: &NaiveFlow,
) -> bool {
    let peers = list(rule.get(if egress { "to" } else { "from" }));
    let ports = list(rule.get("ports"));
    let peer_matches = |peer: &Value| match peer.get("ipBlock") {
        Some(block) if !block.is_null() => in_block(block, other),
        _ => pod_at(objects, other)
            .is_some_and(|pod| peer_selects(objects, policy, peer, &objects[pod])),
    };
    (peers.is_empty() || peers.iter().any(peer_matches))
        && (ports.is_empty() || ports.iter().any(|port| in_port(objects, port, flow)))
}

fn peer_selects(objects: &[Value], policy: &Value, peer: &Value, pod: &Value) -> bool {
    let in_namespace = match present(peer.get("namespaceSelector")) {
        None => namespace(policy) == namespace(pod),
        selector => selects(selector, &namespace_labels(objects, namespace(pod))),
    };
    in_namespace && selects(present(peer.get("podSelector")), &labels(pod))
}

fn in_block(block: &Value, address: IpAddr) -> bool {
    text(block, "/cidr").is_some_and(|cidr| in_cidr(cidr, address))
        && !list(block.get("except"))
            .iter()
            .any(|cidr| cidr.as_str().is_some_and(|cidr| in_cidr(cidr, address)))
}

/// Whether an address lies in a network written as `address/length`.
#[must_use]
pub fn in_cidr(cidr: &str, address: IpAddr) -> bool {
    let Some((network, length)) = cidr.split_once('/') else {
        return false;
    };
    let (Some(network), Ok(length)) = (read_address(network), length.parse::<usize>()) else {
        return false;
    };
    // To the API server `::ffff:10.0.0.0/104` is 10.0.0.0/8.
    if let (IpAddr::V6(mapped), IpAddr::V4(address), 96..) = (network, address, length) {
        let inside = mapped.to_ipv4_mapped();
        return inside.is_some_and(|v4| same_bits(&v4.octets(), &address.octets(), length - 96));
    }
    match (network, address) {
        (IpAddr::V4(a), IpAddr::V4(b)) => same_bits(&a.octets(), &b.octets(), length),
        (IpAddr::V6(a), IpAddr::V6(b)) => same_bits(&a.octets(), &b.octets(), length),
        _ => false,
    }
}

/// An address, whose octets may begin with zeros: `010.0.0.1` is 10.0.0.1 to the API server.
fn read_address(text: &str) -> Option<IpAddr> {
    if text.contains(':') {
        return text.parse().ok();
    }
    let octets: Option<Vec<u8>> = text.split('.').map(|octet| octet.parse().ok()).collect();
    let octets: [u8; 4] = octets?.try_into().ok()?;
    Some(octets.into())
}

fn same_bits(a: &[u8], b: &[u8], length: usize) -> bool {
    let bit = |octets: &[u8], i: usize| octets[i / 8] >> (7 - i % 8) & 1;
    (0..length).all(|i| bit(a, i) == bit(b, i))
}

fn in_port(objects: &[Value], port: &Value, flow: &NaiveFlow) -> bool {
    let wanted = protocol(port.get("protocol"));
    if Some(flow.protocol) != wanted {
        return false;
    }
    let Some((_, number)) = flow.ports else {
        return false;
    };
    match present(port.get("port")) {
        None => true,
        Some(Value::String(name)) => {
            pod_at(objects, flow.destination)
                .and_then(|pod| named_port(&objects[pod], name, flow.protocol))
                == Some(u64::from(number))
        }
        Some(first) => {
            let first = first.as_u64();
            let last = present(port.get("endPort")).map_or(first, Value::as_u64);
            first.is_some_and(|first| first <= u64::from(number))
                && last.is_some_and(|last| u64::from(number) <= last)
        }
    }
}

fn protocol(name: Option<&Value>) -> Option<u8> {
    match present(name).map(|name| name.as_str()) {
        None | Some(Some("TCP")) => Some(6),
        Some(Some("UDP")) => Some(17),
        Some(Some("SCTP")) => Some(132),
        Some(_) => None,
    }
}

/// The number a pod's containers, or its sidecars, give to a port name.
fn named_port(pod: &Value, name: &str, of: u8) -> Option<u64> {
    if calico::is_calico(pod, "WorkloadEndpoint") || calico::is_calico(pod, "HostEndpoint") {
        let is_it = |port: &&Value| {
            text(port, "/name") == Some(name) && protocol(port.get("protocol")) == Some(of)
        };
        let port = list(at(pod, "/spec/ports")).iter().find(is_it)?;
        return port.get("port").and_then(Value::as_u64);
    }
    let containers = list(at(pod, "/spec/containers")).iter();
    let sidecars = list(at(pod, "/spec/initContainers"))
        .iter()
        .filter(|container| text(container, "/restartPolicy") == Some("Always"));
    containers
        .chain(sidecars)
        .flat_map(|container| list(container.get("ports")))
        .find(|port| {
            text(port, "/name") == Some(name) && protocol(port.get("protocol")) == Some(of)
        })
        .and_then(|port| port.get("containerPort").and_then(Value::as_u64))
}

/// Whether a label selector selects these labels; one that is not there selects everything.
fn selects(selector: Option<&Value>, labels: &Map<String, Value>) -> bool {
    let Some(selector) = present(selector) else {
        return true;
    };
    let equal = match selector.get("matchLabels").and_then(Value::as_object) {
        Some(wanted) => wanted.iter().all(|(k, v)| labels.get(k) == Some(v)),
        None => true,
    };
    equal
        && list(selector.get("matchExpressions"))
            .iter()
            .all(|expression| {
                let value = text(expression, "/key").and_then(|key| labels.get(key));
                let listed = value.is_some_and(|v| list(expression.get("values")).contains(v));
                match text(expression, "/operator") {
                    Some("In") => listed,
                    Some("NotIn") => !listed,
                    Some("Exists") => value.is_some(),
                    Some("DoesNotExist") => value.is_none(),
                    _ => false,
                }
            })
}

fn labels(object: &Value) -> Map<String, Value> {
    at(object, "/metadata/labels")
        .and_then(Value::as_object)
        .cloned()
        .unwrap_or_default()
}

fn namespace_labels(objects: &[Value], name: &str) -> Map<String, Value> {
    let mut found = objects
        .iter()
        .find(|o| is_kind(o, "", "Namespace") && text(o, "/metadata/name") == Some(name))
        .map(labels)
        .unwrap_or_default();
    found.insert("kubernetes.io/metadata.name".into(), name.into());
    found
}

fn namespace(object: &Value) -> &str {
    text(object, "/metadata/namespace").unwrap_or("default")
}

fn is_kind(object: &Value, group: &str, kind: &str) -> bool {
    let version = || text(object, "/apiVersion").unwrap_or("");
    let of = || version().split_once('/').map_or("", |(group, _)| group);
    text(object, "/kind") == Some(kind) && of() == group
}

fn text<'a>(value: &'a Value, path: &str) -> Option<&'a str> {
    at(value, path).and_then(Value::as_str)
}

/// The value at a path of fields, `/metadata/name`. A JSON pointer would do, but allocates twice for each field.
fn at<'a>(value: &'a Value, path: &str) -> Option<&'a Value> {
    let mut fields = path.split('/').skip(1);
    fields.try_fold(value, |value, field| value.get(field))
}

fn list(value: Option<&Value>) -> &[Value] {
    value.and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn present(value: Option<&Value>) -> Option<&Value> {
    value.filter(|value| !value.is_null())
}

#[cfg(test)]
mod tests;
