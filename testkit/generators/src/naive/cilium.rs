//! The naive reading of Cilium's policies: every address has labels, as Cilium's documentation lists them, and a
//! selector is compared with them, label by label.
//!
//! It promises, as all of the naive reading, to share nothing with the product. It never validates.

mod host;
mod peer;

pub(super) use host::{allows_at_node, host_verdict};

use super::{
    NaiveFlow, addresses, at, is_kind, labels, list, named_port, names, namespace, node_of, pod_at,
    present, text,
};
use crate::audit;
use peer::{
    NaiveLabel, NaivePeer, NaiveRequirement, compare, node_addresses, served, slices_of,
    written_requirements,
};
use serde_json::Value;
use std::collections::BTreeSet;
use std::net::IpAddr;

/// What Cilium's policies say of a flow in one direction at a pod.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct NaiveCiliumVerdict {
    /// A rule denies it.
    pub(super) denied: bool,
    /// A rule allows it.
    pub(super) allowed: bool,
    /// What no rule allows is denied.
    pub(super) default_deny: bool,
}

/// Asks every policy that selects the pod; those that were asked are added to `used`.
pub(super) fn verdict(
    objects: &[Value],
    pod: &Value,
    (egress, other): (bool, IpAddr),
    flow: &NaiveFlow,
    used: &mut BTreeSet<usize>,
) -> NaiveCiliumVerdict {
    let asked = NaiveAsked {
        objects,
        own: NaivePeer::of_pod(objects, pod),
        peer: NaivePeer::of(objects, other, node_of(pod)),
        egress,
        receiver: pod_at(objects, flow.destination).map(|index| &objects[index]),
        is_host: false,
    };
    let mut verdict = NaiveCiliumVerdict::default();
    for (index, policy) in objects.iter().enumerate() {
        for spec in specs(policy, pod) {
            if let Some(selector) = present(spec.get("endpointSelector")) {
                let of = (index, policy, spec);
                asked.ask(of, selector, flow, &mut verdict, used);
            }
        }
    }
    verdict
}

/// Who is asked for a flow.
struct NaiveAsked<'a> {
    objects: &'a [Value],
    own: NaivePeer<'a>,
    peer: NaivePeer<'a>,
    egress: bool,
    /// What gives names to the ports of the receiver.
    receiver: Option<&'a Value>,
    /// Whether it is the host itself, whose queries nobody reads.
    is_host: bool,
}

impl NaiveAsked<'_> {
    /// Asks the lists of a spec, if its selector selects who is asked.
    fn ask(
        &self,
        (index, policy, spec): (usize, &Value, &Value),
        selector: &Value,
        flow: &NaiveFlow,
        verdict: &mut NaiveCiliumVerdict,
        used: &mut BTreeSet<usize>,
    ) {
        if !self.own.has(&subject_requirements(policy, selector)) {
            return;
        }
        let lists = if self.egress {
            ["egress", "egressDeny"]
        } else {
            ["ingress", "ingressDeny"]
        };
        let [allow, deny] = lists.map(|name| list(spec.get(name)));
        let enabled = if self.egress {
            "/enableDefaultDeny/egress"
        } else {
            "/enableDefaultDeny/ingress"
        };
        let default = at(spec, enabled).and_then(Value::as_bool);
        let default = default.unwrap_or(!allow.is_empty() || !deny.is_empty());
        if default || !allow.is_empty() || !deny.is_empty() {
            used.insert(index);
        }
        if audit::is_in_audit(policy) {
            return;
        }
        let of = NaiveRuleOwner {
            objects: self.objects,
            namespace: is_namespaced(policy).then(|| namespace(policy)),
            egress: self.egress,
            receiver: self.receiver,
            is_host: self.is_host,
        };
        verdict.default_deny |= default;
        verdict.denied |= deny.iter().any(|rule| of.denies(rule, &self.peer, flow));
        verdict.allowed |= allow.iter().any(|rule| of.allows(rule, &self.peer, flow));
    }
}

/// What is asked of the pods of a policy: in a namespace, a label with the name of a namespace that has the source
/// `k8s` says nothing, since it is overwritten.
fn subject_requirements(policy: &Value, selector: &Value) -> Vec<NaiveRequirement> {
    let mut selector = selector.clone();
    let labels = selector
        .get_mut("matchLabels")
        .and_then(Value::as_object_mut);
    if let Some(labels) = labels.filter(|_| is_namespaced(policy)) {
        labels.remove("k8s:io.kubernetes.pod.namespace");
    }
    written_requirements(&selector)
}

fn is_namespaced(policy: &Value) -> bool {
    is_kind(policy, "cilium.io", "CiliumNetworkPolicy")
}

/// The rules of a policy that may select this pod: `spec` and `specs`, in the namespace of the policy.
fn specs<'a>(policy: &'a Value, pod: &Value) -> Vec<&'a Value> {
    let everywhere = is_kind(policy, "cilium.io", "CiliumClusterwideNetworkPolicy");
    let at_home = is_namespaced(policy) && namespace(policy) == namespace(pod);
    if everywhere || at_home {
        all_specs(policy)
    } else {
        Vec::new()
    }
}

/// Every `spec` of a policy.
fn all_specs(policy: &Value) -> Vec<&Value> {
    let one = present(policy.get("spec")).into_iter();
    one.chain(list(policy.get("specs"))).collect()
}

/// The policy that rules belong to.
struct NaiveRuleOwner<'a> {
    objects: &'a [Value],
    /// Its namespace; nothing for a policy of the cluster.
    namespace: Option<&'a str>,
    egress: bool,
    receiver: Option<&'a Value>,
    is_host: bool,
}

/// What cannot be decided here: an allowing rule allows nothing by it, and a denying one denies everything.
struct Undecidable;

impl NaiveRuleOwner<'_> {
    fn allows(&self, rule: &Value, peer: &NaivePeer<'_>, flow: &NaiveFlow) -> bool {
        let authenticated =
            text(rule, "/authentication/mode").is_none_or(|mode| mode == "disabled");
        let is_peer = || self.is_peer(rule, peer).unwrap_or(false);
        authenticated && is_peer() && self.is_traffic(rule, flow)
    }

    fn denies(&self, rule: &Value, peer: &NaivePeer<'_>, flow: &NaiveFlow) -> bool {
        let alternatives = peer.alternatives();
        let peers = if alternatives.is_empty() {
            std::slice::from_ref(peer)
        } else {
            &alternatives
        };
        let mut peers = peers.iter();
        peers.any(|peer| self.is_peer(rule, peer).unwrap_or(true)) && self.is_traffic(rule, flow)
    }

    fn is_peer(&self, rule: &Value, peer: &NaivePeer<'_>) -> Result<bool, Undecidable> {
        let word = if self.egress { "to" } else { "from" };
        let mut restricted = false;
        let mut found = false;
        let mut undecidable = false;
        for kind in [
            "Endpoints",
            "CIDR",
            "CIDRSet",
            "Entities",
            "Nodes",
            "Services",
            "Groups",
            "FQDNs",
        ] {
            let Some(items) = present(rule.get(format!("{word}{kind}"))) else {
                continue;
            };
            restricted = true;
            if list(Some(items)).is_empty() {
                // Nothing is selected by nothing, whatever else is there.
                return Ok(false);
            }
            for item in list(Some(items)) {
                let is_it = match kind {
                    "Endpoints" => {
                        let wanted = self.scoped(item);
                        (peer.is_known() || is_api_server(&wanted)) && peer.has(&wanted)
                    }
                    "CIDR" => peer.outside && item.as_str().is_some_and(|c| self.in_block(c, peer)),
                    "CIDRSet" => peer.outside && self.in_cidr_set(item, peer),
                    "Entities" => is_entity(item.as_str().unwrap_or_default(), peer),
                    "Nodes" => is_node(item, peer),
                    "Services" => self.is_service(item, peer),
                    "FQDNs" => peer.address.is_some_and(|address| {
                        let is_named = |name: &str| names::is_cilium_name(item, name);
                        names::is_answer(self.objects, address, is_named)
                    }),
                    _ => {
                        undecidable = true;
                        false
                    }
                };
                found |= is_it;
            }
        }
        if undecidable && !found {
            Err(Undecidable)
        } else {
            Ok(found || !restricted)
        }
    }

    /// A selector of endpoints: it gains the namespace of the policy unless it names one, and that of a policy of
    /// the cluster selects what has a namespace at all. Reserved labels need none.
    fn scoped(&self, selector: &Value) -> Vec<NaiveRequirement> {
        let mut all = written_requirements(selector);
        let of_pods = |source: &str| source == "any" || source == "k8s";
        let reserved = all.iter().any(|(source, ..)| source == "reserved");
        let named = all
            .iter()
            .any(|(source, key, ..)| of_pods(source) && key == "io.kubernetes.pod.namespace");
        let labelled = all.iter().any(|(source, key, ..)| {
            of_pods(source) && key.starts_with("io.cilium.k8s.namespace.labels.")
        });
        if reserved || named || labelled && self.namespace.is_some() {
            return all;
        }
        let key = "io.kubernetes.pod.namespace".to_owned();
        all.push(match self.namespace {
            Some(name) => (
                "k8s".to_owned(),
                key,
                "In".to_owned(),
                vec![name.to_owned()],
            ),
            None => ("k8s".to_owned(), key, "Exists".to_owned(), Vec::new()),
        });
        all
    }

    /// A network, or a single address.
    fn in_block(&self, cidr: &str, peer: &NaivePeer<'_>) -> bool {
        if cidr.contains('/') {
            peer.is_in(cidr)
        } else {
            cidr.parse().ok() == peer.address
        }
    }

    fn in_cidr_set(&self, item: &Value, peer: &NaivePeer<'_>) -> bool {
        if let Some(cidr) = text(item, "/cidr") {
            let except = list(item.get("except")).iter();
            return peer.is_in(cidr) && !except.filter_map(Value::as_str).any(|c| peer.is_in(c));
        }
        let groups = self
            .objects
            .iter()
            .filter(|object| is_kind(object, "cilium.io", "CiliumCIDRGroup"));
        let mut chosen = groups.filter(|group| match text(item, "/cidrGroupRef") {
            Some(name) => text(group, "/metadata/name") == Some(name),
            None => {
                let selector = item.get("cidrGroupSelector").unwrap_or(&Value::Null);
                let wanted = written_requirements(selector);
                wanted.iter().all(|(_, key, operator, values)| {
                    let value = labels(group);
                    compare(value.get(key).and_then(Value::as_str), operator, values)
                })
            }
        });
        chosen.any(|group| peer.is_in_cidrs(group))
    }

    fn is_service(&self, item: &Value, peer: &NaivePeer<'_>) -> bool {
        let Some(address) = peer.address else {
            return false;
        };
        if let Some(service) = present(item.get("k8sService")) {
            let name = text(service, "/serviceName").unwrap_or_default();
            let of = text(service, "/namespace");
            return slices_of(self.objects, name, of).any(|slice| served(slice).contains(&address));
        }
        let selected = item.get("k8sServiceSelector").unwrap_or(&Value::Null);
        let wanted = written_requirements(selected.get("selector").unwrap_or(&Value::Null));
        let of = text(selected, "/namespace");
        self.objects.iter().any(|slice| {
            is_kind(slice, "discovery.k8s.io", "EndpointSlice")
                && of.is_none_or(|of| namespace(slice) == of)
                && wanted.iter().all(|(_, key, operator, values)| {
                    let value = labels(slice);
                    compare(value.get(key).and_then(Value::as_str), operator, values)
                })
                && served(slice).contains(&address)
        })
    }

    fn is_traffic(&self, rule: &Value, flow: &NaiveFlow) -> bool {
        let ports = list(rule.get("toPorts"));
        let messages = list(rule.get("icmps"));
        if ports.is_empty() && messages.is_empty() {
            // A rule that names neither peers nor ports matches nothing.
            return rule.as_object().into_iter().flatten().any(|(key, value)| {
                let is_list = key.starts_with("from") || key.starts_with("to");
                is_list && key != "toPorts" && !value.is_null()
            });
        }
        let port = |item: &Value| {
            // What is asked of connections besides their ports is not known here.
            let asks = ["terminatingTLS", "originatingTLS", "listener"]
                .into_iter()
                .any(|key| present(item.get(key)).is_some());
            let asks = asks
                || item
                    .get("rules")
                    .is_some_and(|rules| !self.may_carry(rules, flow));
            let names = !list(item.get("serverNames")).is_empty();
            !asks
                && !names
                && list(item.get("ports"))
                    .iter()
                    .any(|p| self.is_port(p, flow))
        };
        let message = |item: &Value| list(item.get("fields")).iter().any(|f| is_message(f, flow));
        ports.iter().any(port) || messages.iter().any(message)
    }

    /// Whether rules about what is inside connections allow a flow: only names of DNS are known here.
    fn may_carry(&self, rules: &Value, flow: &NaiveFlow) -> bool {
        let items = list(rules.get("dns"));
        if rules.is_null() {
            return true;
        }
        let is_every = |item: &Value| text(item, "/matchPattern") == Some("*");
        let has_every = items.iter().any(is_every);
        if self.is_host {
            return has_every;
        }
        let is_asked = |name: &str| items.iter().any(|item| names::is_cilium_name(item, name));
        let is_asked = !items.is_empty() && (has_every || flow.query.is_one(is_asked));
        is_asked && [6, 17].contains(&flow.protocol)
    }

    fn is_port(&self, port: &Value, flow: &NaiveFlow) -> bool {
        let wanted: &[u8] = match text(port, "/protocol") {
            Some("TCP") => &[6],
            Some("UDP") => &[17],
            Some("SCTP") => &[132],
            Some("VRRP") => &[112],
            Some("IGMP") => &[2],
            _ => &[6, 17, 132],
        };
        if !wanted.contains(&flow.protocol) {
            return false;
        }
        let written = text(port, "/port").unwrap_or("0");
        let Ok(first) = written.parse::<u64>() else {
            let Some((_, number)) = flow.ports else {
                return false;
            };
            let receiver = self.receiver;
            let found = receiver.and_then(|of| named_port(of, written, flow.protocol));
            return found == Some(u64::from(number));
        };
        if first == 0 {
            return true;
        }
        let end = port.get("endPort").and_then(Value::as_u64).unwrap_or(0);
        let last = if end == 0 { first } else { end };
        flow.ports
            .is_some_and(|(_, number)| (first..=last).contains(&u64::from(number)))
    }
}

fn is_entity(name: &str, peer: &NaivePeer<'_>) -> bool {
    let is = |name: &str| {
        let mut all = peer.labels.iter();
        all.any(|(source, key, _)| *source == "reserved" && key == name)
    };
    let is_pod = peer.labels.iter().any(|(source, ..)| *source == "k8s");
    match name {
        "all" => true,
        "cluster" => {
            let is_node = !peer.is_known() || is("host") || is("remote-node");
            is_pod || is_node || is("unmanaged") || is("kube-apiserver")
        }
        other => is(other),
    }
}

fn is_node(selector: &Value, peer: &NaivePeer<'_>) -> bool {
    let node = |(source, key, _): &NaiveLabel| *source == "reserved" && key == "remote-node";
    peer.labels.iter().any(node) && peer.has(&written_requirements(selector))
}

/// Whether a selector is about the API server alone, whatever it runs on.
fn is_api_server(wanted: &[NaiveRequirement]) -> bool {
    matches!(wanted, [(source, key, operator, _)]
        if source == "reserved" && key == "kube-apiserver" && ["In", "Exists"].contains(&operator.as_str()))
}

/// The types of ICMP that the generated rules call by a name.
const MESSAGES: [(&str, &str, u64); 5] = [
    ("IPv4", "EchoRequest", 8),
    ("IPv4", "DestinationUnreachable", 3),
    ("IPv4", "Timestamp", 13),
    ("IPv6", "EchoRequest", 128),
    ("IPv6", "TimeExceeded", 3),
];

fn is_message(field: &Value, flow: &NaiveFlow) -> bool {
    let family = text(field, "/family").unwrap_or("IPv4");
    let protocol = if family == "IPv6" { 58 } else { 1 };
    let is_named = |name: &str, of: &(&str, &str, u64)| of.0 == family && of.1 == name;
    let named = |name| MESSAGES.iter().find(|of| is_named(name, of));
    let kind = match (text(field, "/type"), at(field, "/type")) {
        (Some(name), _) => name.parse().ok().or_else(|| named(name).map(|of| of.2)),
        (None, written) => written.and_then(Value::as_u64),
    };
    flow.protocol == protocol && flow.icmp.is_some_and(|(is, _)| Some(u64::from(is)) == kind)
}

/// The addresses of a node, an EndpointSlice or a pod.
pub(super) fn holder_addresses(object: &Value) -> Vec<IpAddr> {
    let is_slice = is_kind(object, "discovery.k8s.io", "EndpointSlice");
    if is_kind(object, "", "Node") {
        node_addresses(object)
    } else if is_slice {
        served(object)
    } else {
        addresses(object)
    }
}

#[cfg(test)]
mod tests;
