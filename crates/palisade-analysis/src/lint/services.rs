//! Two mistakes with Services: a rule with the port of a Service behind which the pods listen on another port, and a
//! peer that is a cluster IP.
//!
//! Policy is evaluated after the translation to a pod, so the first matches none of the traffic of the Service, and
//! the second nothing at all.
//!
//! Promises: a port is reported only if every pod that the rule is about is behind a Service with this port, and
//! neither listens on it behind any Service nor declares it, and no rule of the policy with the same peers matches the
//! target port.
//! Never: looks at policies that are evaluated before translation, at headless Services, which translate nothing, or
//! at ranges.

use super::finding::FindingKey;
use super::references::ReferencePlace;
use palisade_api::{LintCode, LintFinding};
use palisade_model::{
    Action, Direction, DirectionRules, Endpoint, EndpointId, Policy, PortRange, PortSpec, Prefix,
    Protocol, Rule, Selector, Service, ServicePort, State, Str, TrafficMatch,
};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// The ports without a name that the containers of pods and workloads declare.
pub type UnnamedPorts = BTreeMap<EndpointId, Vec<(Protocol, u16)>>;

/// The findings about ports of Services and cluster IPs, with their places in a report.
pub(super) fn find_service_mistakes(
    state: &State,
    unnamed: &UnnamedPorts,
) -> Vec<(FindingKey, LintFinding)> {
    let services = TranslatingServices::new(state, unnamed);
    let mut findings = Vec::new();
    let mut reported = BTreeSet::new();
    let policies = state.policies.values();
    for policy in policies.filter(|policy| !policy.scope.is_early()) {
        for direction in Direction::BOTH {
            let Some(list) = policy.rules(direction) else {
                continue;
            };
            for rule in list.rules.iter().filter(|rule| rule.action != Action::Log) {
                let mut mistakes = services.cluster_ips(rule);
                mistakes.extend(services.service_ports(policy, direction, list, rule));
                for (code, message, suggestion) in mistakes {
                    // One rule as written may be several of the model.
                    let place = (&policy.id.object, direction, rule.origin.index);
                    if !reported.insert((place, rule.origin.line.as_ref(), message.clone())) {
                        continue;
                    }
                    let place = ReferencePlace::of_rule(policy, direction, &rule.origin);
                    findings.push(place.finding(code, message, suggestion));
                }
            }
        }
    }
    findings
}

/// What is wrong, and what to do.
type Mistake = (LintCode, String, String);

/// The Services with cluster IPs, and the pods of the state.
struct TranslatingServices<'a> {
    state: &'a State,
    unnamed: &'a UnnamedPorts,
    by_address: BTreeMap<IpAddr, &'a Service>,
    /// By namespace, with those that translate nothing.
    all_by_namespace: BTreeMap<&'a Str, Vec<&'a Service>>,
    by_port: BTreeMap<(Protocol, u16), Vec<(&'a Service, &'a ServicePort)>>,
    by_namespace: BTreeMap<Option<&'a Str>, Vec<&'a Endpoint>>,
}

impl<'a> TranslatingServices<'a> {
    fn new(state: &'a State, unnamed: &'a UnnamedPorts) -> Self {
        let mut services = TranslatingServices {
            state,
            unnamed,
            by_address: BTreeMap::new(),
            all_by_namespace: BTreeMap::new(),
            by_port: BTreeMap::new(),
            by_namespace: BTreeMap::new(),
        };
        for service in state.services.values() {
            let listed = services.all_by_namespace.entry(&service.namespace);
            listed.or_default().push(service);
            if service.headless {
                continue;
            }
            for address in &service.addresses {
                services.by_address.entry(*address).or_insert(service);
            }
            for port in &service.ports {
                let key = (port.protocol, port.port);
                let listed = services.by_port.entry(key).or_default();
                listed.push((service, port));
            }
        }
        for endpoint in state.endpoints.values() {
            let key = endpoint.id.namespace.as_ref();
            services.by_namespace.entry(key).or_default().push(endpoint);
            for address in &endpoint.addresses {
                services.by_address.remove(address);
            }
        }
        for address in state.nodes.values().flat_map(|node| &node.addresses) {
            services.by_address.remove(address);
        }
        services
    }

    /// The peers that are cluster IPs of Services.
    fn cluster_ips(&self, rule: &Rule) -> Vec<Mistake> {
        let nets = (rule.peers.iter()).flat_map(|peer| peer.nets.iter().flatten());
        let single = nets.filter(|net| **net == Prefix::host(net.address()));
        let of_services = single.filter_map(|net| {
            let service = self.by_address.get(&net.address())?;
            Some(cluster_ip_mistake(net.address(), service))
        });
        of_services.collect()
    }

    /// The ports of Services, where all pods that the rule is about listen on other ports behind them.
    fn service_ports(
        &self,
        policy: &Policy,
        direction: Direction,
        list: &DirectionRules,
        rule: &Rule,
    ) -> Vec<Mistake> {
        let mut ports: Vec<(Protocol, u16)> = Vec::new();
        for term in &rule.traffic {
            for spec in term.destination.any_of.iter().flatten() {
                let (Some(protocol), PortSpec::Range(range)) = (term.protocol, spec) else {
                    continue;
                };
                let key = (protocol, range.first);
                if *range == PortRange::single(range.first) && self.by_port.contains_key(&key) {
                    ports.push(key);
                }
            }
        }
        let same_peers: Vec<&Rule> = (list.rules.iter())
            .filter(|other| other.origin.index == rule.origin.index || other.peers == rule.peers)
            .collect();
        ports
            .into_iter()
            .filter_map(|port| self.mistaken_port(policy, direction, (rule, &same_peers), port))
            .collect()
    }

    fn mistaken_port(
        &self,
        policy: &Policy,
        direction: Direction,
        (rule, same_peers): (&Rule, &[&Rule]),
        port: (Protocol, u16),
    ) -> Option<Mistake> {
        let (protocol, number) = port;
        let services = self.by_port.get(&port)?;
        let mut service = None;
        let mut targets = BTreeSet::new();
        let mut is_receiver = |endpoint: &Endpoint| {
            let (found, target) = self.translation_of(services, endpoint, port)?;
            let terms = same_peers.iter().flat_map(|rule| &rule.traffic);
            let mut terms = terms.filter(|term| is_matched(term, endpoint, protocol, target));
            if terms.next().is_some() {
                return None;
            }
            service.get_or_insert(found);
            targets.insert(target);
            Some(())
        };
        match direction {
            Direction::Ingress => self.visit_pods(
                policy.id.object.namespace.as_ref(),
                &policy.subject,
                &mut is_receiver,
            )?,
            Direction::Egress => {
                for peer in &rule.peers {
                    let selector = peer.selector.as_ref().filter(|_| peer.nets.is_none())?;
                    self.visit_pods(None, selector, &mut is_receiver)?;
                    if self.has_others(selector) {
                        return None;
                    }
                }
            }
        }
        let service = service?;
        let numbers: Vec<String> = targets.iter().map(u16::to_string).collect();
        let numbers = numbers.join(" or ");
        let message = format!(
            "{number}/{protocol} is the port of Service {}/{}, and its pods listen on {numbers}: policy is evaluated \
             after the translation, so this port matches nothing that is sent to the Service",
            service.namespace, service.name
        );
        let suggestion = format!("write {numbers} in place of {number}");
        Some((LintCode::ServicePort, message, suggestion))
    }

    /// The Service with this port that translates it for an endpoint, and the port on which the endpoint listens;
    /// `None` if there is none, or if the endpoint may listen on the Service's port as well.
    fn translation_of(
        &self,
        services: &[(&'a Service, &'a ServicePort)],
        endpoint: &Endpoint,
        port: (Protocol, u16),
    ) -> Option<(&'a Service, u16)> {
        let (protocol, number) = port;
        let declares = |ports: &Vec<(Protocol, u16)>| ports.contains(&port);
        let mut named = endpoint.ports.iter();
        if named.any(|own| (own.protocol, own.port) == port)
            || self.unnamed.get(&endpoint.id).is_some_and(declares)
        {
            return None;
        }
        let all = (endpoint.id.namespace.as_ref())
            .and_then(|namespace| self.all_by_namespace.get(namespace));
        let mut own = (all.into_iter().flatten()).filter(|service| service.selects(endpoint));
        let listens = own.any(|service| {
            let mut ports = service
                .ports
                .iter()
                .filter(|port| port.protocol == protocol);
            ports.any(|port| service.target_port(port, endpoint) == Some(number))
        });
        if listens {
            return None;
        }
        let mut services = services
            .iter()
            .filter(|(service, _)| service.selects(endpoint));
        services.find_map(|(service, port)| Some((*service, service.target_port(port, endpoint)?)))
    }

    /// Whether a selector matches a network set or a node.
    fn has_others(&self, selector: &Selector) -> bool {
        let state = self.state;
        let mut sets = state.network_sets.values();
        let mut nodes = state.nodes.values();
        sets.any(|set| selector.matches(&state.network_set_labels(set)))
            || nodes.any(|node| selector.matches(&state.node_labels(node, None)))
    }

    /// Visits what a selector matches, in one namespace or in all, until the visitor returns `None`.
    fn visit_pods(
        &self,
        namespace: Option<&Str>,
        selector: &Selector,
        visit: &mut dyn FnMut(&Endpoint) -> Option<()>,
    ) -> Option<()> {
        let mut named: BTreeSet<Option<&Str>> = BTreeSet::new();
        match (namespace, selector.required_namespaces()) {
            (Some(namespace), _) => named.extend([Some(namespace)]),
            (None, Some(values)) => named.extend(values.iter().map(Some)),
            (None, None) => named.extend(self.by_namespace.keys().copied()),
        }
        for endpoints in named.iter().filter_map(|name| self.by_namespace.get(name)) {
            for endpoint in endpoints {
                if selector.matches(&self.state.endpoint_labels(endpoint)) {
                    visit(endpoint)?;
                }
            }
        }
        Some(())
    }
}

/// What is wrong with a peer that is a cluster IP.
fn cluster_ip_mistake(address: IpAddr, service: &Service) -> Mistake {
    let (namespace, name) = (&service.namespace, &service.name);
    let message = format!(
        "{address} is the cluster IP of Service {namespace}/{name}: policy is evaluated after its translation to \
         a pod, so no packet has this address"
    );
    let labels: Vec<String> = (service.selector.iter())
        .map(|(key, value)| format!("{key}={value}"))
        .collect();
    let suggestion = if labels.is_empty() {
        format!(
            "write the addresses of its endpoints: kubectl -n {namespace} get endpointslices -l \
             kubernetes.io/service-name={name}"
        )
    } else {
        format!(
            "select the pods behind the Service: {} in namespace {namespace}",
            labels.join(",")
        )
    };
    (LintCode::ClusterIpPeer, message, suggestion)
}

/// Whether a term matches this port of an endpoint.
fn is_matched(term: &TrafficMatch, endpoint: &Endpoint, protocol: Protocol, port: u16) -> bool {
    let is_spec = |spec: &PortSpec| match spec {
        PortSpec::Range(range) => range.contains(port),
        PortSpec::Named(name) => endpoint.named_port(name, protocol) == Some(port),
    };
    let specs = term.destination.any_of.as_ref();
    term.protocol.is_none_or(|tested| tested == protocol)
        && specs.is_none_or(|specs| specs.iter().any(is_spec))
}
