//! Ports of Services in rules. A rule that names a Service is about its endpoints and the ports that each of them has
//! there, and which these are is in the EndpointSlices.
//!
//! A slice has one list of ports for all of its endpoints, so it gets a label with that list. A rule that names a
//! Service has a named port that no endpoint can have; once the lists of ports of the slices are known, the rule is
//! replaced by one for each list.
//!
//! Promises: a rule that is not resolved matches nothing; endpoints that come and go with the same ports change no
//! rule. Never: knows which slices there are.

use palisade_model::NetworkSetKind::{EndpointSlice, UnreadyEndpoints};
use palisade_model::{
    LabelKey, NetworkSet, Policy, PortMatch, PortRange, PortSpec, Protocol, Rule, Selector, State,
    Str, TrafficMatch,
};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

/// The label of an EndpointSlice with its ports. No object can have a label of this name.
const PORTS_LABEL: &str = "endpointslice:ports";

/// Adds the ports of a slice to its labels, if it has any.
pub(crate) fn add_label(slice: &mut NetworkSet, ports: &BTreeSet<(Protocol, u16)>) {
    if ports.is_empty() {
        return;
    }
    let texts = ports.iter();
    let texts: Vec<String> = texts
        .map(|(protocol, port)| format!("{}:{port}", protocol.0))
        .collect();
    slice
        .labels
        .insert(PORTS_LABEL.into(), texts.join(",").into());
}

/// The Service, as `namespace/name`, and the list of ports of a slice; `None` if it is no slice, is of no Service or has no ports.
#[must_use]
pub fn slice_ports(set: &NetworkSet) -> Option<(Str, Str)> {
    let (EndpointSlice | UnreadyEndpoints) = set.kind else {
        return None;
    };
    let service = set.labels.get(NetworkSet::SERVICE_LABEL)?;
    let namespace = set.id.namespace.as_ref()?;
    let ports = set.labels.get(PORTS_LABEL)?.clone();
    Some((format!("{namespace}/{service}").into(), ports))
}

/// Where the ready endpoints of a Service accept TCP connections, by its name as [`slice_ports`] has it.
#[must_use]
pub fn tcp_endpoints(state: &State, service: &str) -> BTreeSet<SocketAddr> {
    let mut endpoints = BTreeSet::new();
    let slices = state
        .network_sets
        .values()
        .filter(|set| set.kind == EndpointSlice);
    for set in slices {
        let Some((_, ports)) = slice_ports(set).filter(|(name, _)| **name == *service) else {
            continue;
        };
        let tcp = |item: &str| {
            let (protocol, port) = item.split_once(':')?;
            let is_tcp = protocol.parse() == Ok(Protocol::TCP.0);
            port.parse::<u16>().ok().filter(|_| is_tcp)
        };
        for port in ports.split(',').filter_map(tcp) {
            let addresses = set.nets.iter().filter(|net| net.is_host());
            endpoints.extend(addresses.map(|net| SocketAddr::new(net.address(), port)));
        }
    }
    endpoints
}

/// The Services whose ports the rules of a policy name, as [`slice_ports`] names them.
#[must_use]
pub fn named_services(policy: &Policy) -> BTreeSet<Str> {
    let rules = policy.ingress.iter().chain(&policy.egress);
    let rules = rules.flat_map(|rules| &rules.rules);
    rules.filter_map(service_of).collect()
}

/// The Service whose ports a rule names.
fn service_of(rule: &Rule) -> Option<Str> {
    let specs = rule
        .traffic
        .iter()
        .filter_map(|term| term.destination.any_of.as_ref());
    specs.flatten().find_map(PortSpec::service).map(Into::into)
}

/// The policy with every rule that names a Service replaced by one for each list of ports of its slices; `lists` are
/// those of the Services by name. A rule of a Service without any matches nothing.
#[must_use]
pub fn resolve(policy: &Policy, lists: &BTreeMap<Str, BTreeSet<Str>>) -> Policy {
    let mut resolved = policy.clone();
    for rules in [&mut resolved.ingress, &mut resolved.egress]
        .into_iter()
        .flatten()
    {
        let written = core::mem::take(&mut rules.rules);
        for rule in written {
            let Some(service) = service_of(&rule) else {
                rules.rules.push(rule);
                continue;
            };
            let lists = lists.get(&service).into_iter().flatten();
            let of_lists: Vec<Rule> = lists.map(|list| with_ports(&rule, list)).collect();
            if of_lists.is_empty() {
                rules.rules.push(Rule {
                    peers: Vec::new(),
                    ..rule
                });
            } else {
                rules.rules.extend(of_lists);
            }
        }
    }
    resolved
}

/// A rule for the slices with this list of ports.
fn with_ports(rule: &Rule, list: &Str) -> Rule {
    let mut rule = rule.clone();
    let has_list = Selector::equals(LabelKey::own(PORTS_LABEL), list.clone());
    for peer in &mut rule.peers {
        let slices = peer.selector.take().into_iter();
        peer.selector = Some(Selector::and(slices.chain([has_list.clone()])));
    }
    let mut ports: BTreeMap<Protocol, Vec<PortSpec>> = BTreeMap::new();
    for text in list.split(',') {
        let parsed = text.split_once(':');
        let parsed =
            parsed.and_then(|(protocol, port)| Some((protocol.parse().ok()?, port.parse().ok()?)));
        if let Some((protocol, port)) = parsed {
            let of_protocol = ports.entry(Protocol(protocol)).or_default();
            of_protocol.push(PortSpec::Range(PortRange::single(port)));
        }
    }
    let terms = rule.traffic.iter().flat_map(|term| {
        let of_protocol = |(protocol, ports): (&Protocol, &Vec<PortSpec>)| {
            let is_meant = term.protocol.is_none_or(|only| only == *protocol);
            is_meant.then(|| TrafficMatch {
                protocol: Some(*protocol),
                destination: PortMatch::one_of(ports.iter().cloned()),
                ..term.clone()
            })
        };
        ports.iter().filter_map(of_protocol)
    });
    rule.traffic = terms.collect();
    rule
}
