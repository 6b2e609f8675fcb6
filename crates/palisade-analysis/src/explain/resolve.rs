//! Resolves the ends of a query: names to endpoints, endpoints to addresses, services to backend pods.

use super::host_ends::{host_ends, host_names};
use super::query_traffic::{QueryPort, QueryTraffic};
use super::{ExplainError, TrafficError};
use crate::similar_names::similar_names;
use palisade_api::ExplainQuery;
use palisade_model::{
    DomainName, DomainNameError, Endpoint, Family, FlowOrigin, Protocol, Service, ServicePort,
    State, Str,
};
use palisade_oracle::{FlowEnd, HostPath, PreparedState, Question};
use std::net::IpAddr;

/// Why an end of a query is invalid or does not resolve.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FlowEndError {
    /// The text has no known form.
    #[error(
        "{0:?} is neither namespace/pod nor host:node nor an address (nor, as a destination, service:namespace/name or name:domain)"
    )]
    InvalidForm(String),
    /// The domain name is invalid.
    #[error("{name:?} is no domain name: {reason}")]
    InvalidName {
        /// The text.
        name: String,
        /// What is wrong with it.
        reason: String,
    },
    /// No endpoint has the name.
    #[error("there is no pod or workload {name}{}", format_suggestions(.near))]
    NoEndpoint {
        /// The requested name.
        name: String,
        /// Similar names that exist.
        near: Vec<String>,
    },
    /// The pod of this name has finished.
    #[error(
        "{0} has finished (Succeeded or Failed): it has no address any more, and no policy judges it"
    )]
    Finished(String),
    /// No node has the name.
    #[error("there is no host {name}: no Node and no HostEndpoint names it{}", format_suggestions(.near))]
    NoHost {
        /// The requested name.
        name: String,
        /// Similar names that exist.
        near: Vec<String>,
    },
    /// The flow crosses no interface that the query names.
    #[error("{flag}: the packet does not cross it, since {reason}")]
    NotCrossed {
        /// The flag.
        flag: &'static str,
        /// Why.
        reason: &'static str,
    },
    /// The query names an interface, but not of which host.
    #[error("name the host of the interface with --node{}", format_hosts(.nodes))]
    UnknownNode {
        /// The nodes that have host endpoints.
        nodes: Vec<String>,
    },
    /// No service has the name.
    #[error("there is no service {name}{}", format_suggestions(.near))]
    NoService {
        /// The requested name.
        name: String,
        /// Similar names that exist.
        near: Vec<String>,
    },
    /// A service cannot be a source.
    #[error("{0:?}: a service cannot be the source (--from); use a pod, a workload or an address")]
    ServiceAsSource(String),
    /// The service has no such port.
    #[error("service {service} has no port {port}; it has {has}")]
    NoServicePort {
        /// The service.
        service: String,
        /// The requested port.
        port: String,
        /// Its ports.
        has: String,
    },
    /// The service has no backend.
    #[error("port {port} of service {service} has no backend: {reason}")]
    NoBackends {
        /// The service.
        service: String,
        /// The requested port.
        port: String,
        /// Why there is no backend.
        reason: &'static str,
    },
    /// Other endpoints hold all addresses that the endpoint claims.
    #[error(
        "{name} has no address of its own: {address} is also claimed by {holder}, which takes precedence (local or newer)"
    )]
    AddressTaken {
        /// The endpoint.
        name: String,
        /// An address it claims.
        address: IpAddr,
        /// The endpoint that holds it.
        holder: String,
    },
    /// The destination has no port of this name.
    #[error("{name} has no {protocol} port named {port:?}")]
    NoNamedPort {
        /// The destination.
        name: String,
        /// The protocol.
        protocol: Protocol,
        /// The port's name.
        port: String,
    },
    /// The ends have no address family in common.
    #[error("no packet can go from {from} to {to}: they have no address family in common")]
    NoCommonFamily {
        /// The source.
        from: String,
        /// The destination.
        to: String,
    },
}

fn format_suggestions(near: &[String]) -> String {
    match near {
        [] => String::new(),
        names => format!("; did you mean {}?", names.join(" or ")),
    }
}

fn format_hosts(nodes: &[String]) -> String {
    match nodes {
        [] => ": no host has a host endpoint".to_owned(),
        names => format!(": {}", names.join(", ")),
    }
}

/// One of the flows that a query covers.
pub(super) struct QueryFlow {
    pub(super) question: Question,
    /// The service through which the destination was reached, with its port.
    pub(super) service: Option<String>,
}

/// Every flow that a query covers.
pub(super) struct QueryFlows {
    pub(super) flows: Vec<QueryFlow>,
    pub(super) notes: Vec<String>,
}

/// A destination with the port at which packets arrive.
struct QueryTarget {
    end: FlowEnd,
    port: Option<u16>,
    service: Option<String>,
}

impl QueryFlows {
    pub(super) fn resolve(
        prepared: &PreparedState<'_>,
        query: &ExplainQuery,
    ) -> Result<Self, ExplainError> {
        let traffic = QueryTraffic::from_query(query)?;
        if query.from.starts_with(SERVICE) {
            return Err(FlowEndError::ServiceAsSource(query.from.clone()).into());
        }
        let mut notes = Vec::new();
        let sources = resolve_ends(prepared, &query.from, &mut notes)?;
        let targets = match query.to.strip_prefix(SERVICE) {
            Some(service) => resolve_service(prepared, service, &traffic)?,
            None => resolve_targets(prepared, &query.to, &traffic, &mut notes)?,
        };
        if sources
            .iter()
            .any(|s| targets.iter().any(|t| t.end == *s && t.service.is_none()))
        {
            notes.push(
                "a pod's packets to its own address never leave the pod, so policy does not see them; \
                 this is the result for traffic that reaches the pod through a Service"
                    .to_owned(),
            );
        }
        let mut flows = Vec::new();
        for target in &targets {
            for source in &sources {
                for family in common_families(source, &target.end) {
                    flows.push(QueryFlow {
                        question: Question {
                            source: source.clone(),
                            destination: target.end.clone(),
                            family,
                            protocol: traffic.protocol,
                            l4: traffic.l4(target.port),
                            origin: FlowOrigin::Network,
                            path: HostPath {
                                pre_dnat: traffic.pre_dnat(target.port),
                                ..HostPath::default()
                            },
                        },
                        service: target.service.clone(),
                    });
                }
            }
        }
        let is_any = !flows.is_empty();
        flows.retain(|flow| {
            let sent_to = flow.question.path.pre_dnat;
            sent_to.is_none_or(|sent| Family::of(sent.destination) == flow.question.family)
        });
        if let (true, Some(sent)) = (is_any && flows.is_empty(), traffic.pre_dnat(None)) {
            return Err(TrafficError::OriginalFamily(sent.destination).into());
        }
        let fitting = |flow: &QueryFlow| traffic.family().is_none_or(|f| f == flow.question.family);
        if flows.iter().any(fitting) {
            flows.retain(fitting);
        }
        if flows.is_empty() {
            let (from, to) = (query.from.clone(), query.to.clone());
            return Err(FlowEndError::NoCommonFamily { from, to }.into());
        }
        Ok(QueryFlows { flows, notes })
    }
}

const SERVICE: &str = "service:";
const HOST: &str = "host:";
const NAME: &str = "name:";

/// The domain name that a destination names.
pub(super) fn destination_name(text: &str) -> Result<Option<DomainName>, FlowEndError> {
    let name = text.strip_prefix(NAME).map(|name| {
        name.parse()
            .map_err(|error: DomainNameError| FlowEndError::InvalidName {
                name: name.to_owned(),
                reason: error.to_string(),
            })
    });
    name.transpose()
}

/// The addresses that a state knows of a name.
fn name_ends(state: &State, name: &DomainName) -> Vec<FlowEnd> {
    let set = state.network_sets.get(&name.network_set_id());
    let nets = set.into_iter().flat_map(|set| &set.nets);
    nets.map(|net| FlowEnd::Address(net.address())).collect()
}

/// The families that two ends have in common.
fn common_families(source: &FlowEnd, destination: &FlowEnd) -> Vec<Family> {
    let families = |end: &FlowEnd| match end {
        FlowEnd::Address(address) => vec![Family::of(*address)],
        FlowEnd::Endpoint(_) => Family::BOTH.to_vec(),
    };
    let destination_families = families(destination);
    families(source)
        .into_iter()
        .filter(|f| destination_families.contains(f))
        .collect()
}

/// The ends that a name or an address resolves to: each address of an endpoint, or the endpoint itself.
fn resolve_ends(
    prepared: &PreparedState<'_>,
    text: &str,
    notes: &mut Vec<String>,
) -> Result<Vec<FlowEnd>, FlowEndError> {
    if let Ok(address) = text.parse::<IpAddr>() {
        notes.extend(virtual_address_note(prepared.state(), address));
        return Ok(vec![FlowEnd::Address(address)]);
    }
    if let Some(node) = text.strip_prefix(HOST) {
        let ends = host_ends(prepared.state(), node);
        return if ends.is_empty() {
            Err(FlowEndError::NoHost {
                name: node.to_owned(),
                near: similar_names(node, host_names(prepared.state())),
            })
        } else {
            Ok(ends)
        };
    }
    let is_unqualified = !text.is_empty() && !text.contains(['/', ':']);
    let (namespace, name) = if is_unqualified {
        ("default", text)
    } else {
        split_name(text)?
    };
    let endpoint = find_endpoint(prepared.state(), namespace, name, notes);
    let endpoint = endpoint.map_err(|error| match error {
        // No endpoint has this or a similar name: the text may have been meant as another form.
        FlowEndError::NoEndpoint { near, .. } if is_unqualified && near.is_empty() => {
            FlowEndError::InvalidForm(text.to_owned())
        }
        error => error,
    })?;
    endpoint_ends(prepared, endpoint)
}

fn split_name(text: &str) -> Result<(&str, &str), FlowEndError> {
    let parts = text.split_once('/');
    let fits = |(namespace, name): &(&str, &str)| {
        !namespace.is_empty() && !name.is_empty() && !name.contains('/')
    };
    parts
        .filter(fits)
        .ok_or_else(|| FlowEndError::InvalidForm(text.to_owned()))
}

fn virtual_address_note(state: &State, address: IpAddr) -> Option<String> {
    let mut services = state.services.values();
    let service = services.find(|service| service.addresses.contains(&address))?;
    Some(format!(
        "{address} is the cluster IP of service {0}; policy is evaluated after NAT to a backend: \
         query service:{0} instead",
        service_name(service)
    ))
}

fn service_name(service: &Service) -> String {
    format!("{}/{}", service.namespace, service.name)
}

/// The endpoint of a name: a pod, else a template, else any pod of an owner of that name.
fn find_endpoint<'a>(
    state: &'a State,
    namespace: &str,
    name: &str,
    notes: &mut Vec<String>,
) -> Result<&'a Endpoint, FlowEndError> {
    let in_namespace = |e: &&Endpoint| e.id.namespace.as_deref() == Some(namespace);
    let named = |e: &&&Endpoint| *e.id.name == *name;
    let in_namespace_endpoints: Vec<&Endpoint> =
        state.endpoints.values().filter(in_namespace).collect();
    let exact = in_namespace_endpoints
        .iter()
        .filter(named)
        .min_by_key(|e| (e.is_template(), e.is_host()));
    match exact {
        Some(pod) if pod.is_completed() => {
            return Err(FlowEndError::Finished(format!("{namespace}/{name}")));
        }
        Some(endpoint) => return Ok(endpoint),
        None => {}
    }
    let owned = |e: &&&Endpoint| {
        !e.is_completed()
            && e.metadata
                .owner
                .as_ref()
                .is_some_and(|owner| *owner.name == *name)
    };
    if let Some(endpoint) = in_namespace_endpoints.iter().find(owned) {
        notes.push(format!(
            "{namespace}/{name} is the owner of several pods; explaining {}",
            endpoint.id
        ));
        return Ok(endpoint);
    }
    let wanted = format!("{namespace}/{name}");
    let full_name = |e: &Endpoint| {
        let namespace = e.id.namespace.as_ref()?;
        Some(format!("{namespace}/{}", e.id.name))
    };
    Err(FlowEndError::NoEndpoint {
        near: similar_names(&wanted, state.endpoints.values().filter_map(full_name)),
        name: wanted,
    })
}

/// The addresses that an endpoint holds; the endpoint itself where its addresses are unknown.
fn endpoint_ends(
    prepared: &PreparedState<'_>,
    endpoint: &Endpoint,
) -> Result<Vec<FlowEnd>, FlowEndError> {
    let holder = |address: &IpAddr| prepared.address_holder(*address);
    let mut ends: Vec<FlowEnd> = Vec::new();
    for address in &endpoint.addresses {
        let end = FlowEnd::Address(*address);
        if holder(address).is_some_and(|h| h.id == endpoint.id) && !ends.contains(&end) {
            ends.push(end);
        }
    }
    match endpoint.addresses.first() {
        Some(address) if ends.is_empty() => Err(FlowEndError::AddressTaken {
            name: endpoint.id.to_string(),
            address: *address,
            holder: holder(address).map_or_else(String::new, |h| h.id.to_string()),
        }),
        None => Ok(vec![FlowEnd::Endpoint(endpoint.id.clone())]),
        Some(_) => Ok(ends),
    }
}

fn resolve_targets(
    prepared: &PreparedState<'_>,
    text: &str,
    traffic: &QueryTraffic,
    notes: &mut Vec<String>,
) -> Result<Vec<QueryTarget>, FlowEndError> {
    let target = |end: FlowEnd| {
        let port = match &traffic.port {
            None => None,
            Some(port) => {
                let at = prepared.endpoint_at(&end);
                let number = port.resolve(at, traffic.protocol);
                Some(number.ok_or_else(|| FlowEndError::NoNamedPort {
                    name: text.to_owned(),
                    protocol: traffic.protocol,
                    port: port.to_string(),
                })?)
            }
        };
        Ok(QueryTarget {
            end,
            port,
            service: None,
        })
    };
    let ends = match destination_name(text)? {
        Some(name) => name_ends(prepared.state(), &name),
        None => resolve_ends(prepared, text, notes)?,
    };
    ends.into_iter().map(target).collect()
}

impl std::fmt::Display for QueryPort {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            QueryPort::Number(port) => port.fmt(f),
            QueryPort::Named(name) => f.write_str(name),
        }
    }
}

/// The backends of a service port, each with its target port.
fn resolve_service(
    prepared: &PreparedState<'_>,
    text: &str,
    traffic: &QueryTraffic,
) -> Result<Vec<QueryTarget>, ExplainError> {
    let state = prepared.state();
    let (namespace, name) = split_name(text)?;
    let key: (Str, Str) = (namespace.into(), name.into());
    let service = state
        .services
        .get(&key)
        .ok_or_else(|| FlowEndError::NoService {
            name: text.to_owned(),
            near: similar_names(text, state.services.values().map(service_name)),
        })?;
    let Some(wanted) = &traffic.port else {
        return Err(TrafficError::NeedsPort {
            protocol: Protocol::TCP,
        }
        .into());
    };
    let port = service_port(service, wanted, traffic.protocol)?;
    let none = |reason| FlowEndError::NoBackends {
        service: text.to_owned(),
        port: wanted.to_string(),
        reason,
    };
    if service.selector.is_empty() {
        return Err(none("it has no selector; its endpoints are managed manually").into());
    }
    let backends = backends(state, service);
    if backends.is_empty() {
        return Err(none("its selector matches no pod").into());
    }
    let mut targets = Vec::new();
    for backend in backends {
        let Some(number) = service.target_port(port, backend) else {
            continue;
        };
        for end in endpoint_ends(prepared, backend)? {
            targets.push(QueryTarget {
                end,
                port: Some(number),
                service: Some(format!("{text}:{}", port.port)),
            });
        }
    }
    if targets.is_empty() {
        return Err(none("no selected pod has a port with the name in targetPort").into());
    }
    Ok(targets)
}

fn service_port<'s>(
    service: &'s Service,
    wanted: &QueryPort,
    protocol: Protocol,
) -> Result<&'s ServicePort, FlowEndError> {
    let is_wanted = |port: &&ServicePort| {
        port.protocol == protocol
            && match wanted {
                QueryPort::Number(number) => port.port == *number,
                QueryPort::Named(name) => port.name.as_deref() == Some(name.as_str()),
            }
    };
    let shown = |port: &ServicePort| format!("{}/{}", port.port, port.protocol);
    let ports = || service.ports.iter();
    ports()
        .find(is_wanted)
        .ok_or_else(|| FlowEndError::NoServicePort {
            service: service_name(service),
            port: format!("{wanted}/{protocol}"),
            has: ports().map(shown).collect::<Vec<_>>().join(", "),
        })
}

/// The pods that a service's selector matches, or the templates if no pod exists.
fn backends<'a>(state: &'a State, service: &Service) -> Vec<&'a Endpoint> {
    let all = state.endpoints.values();
    let all: Vec<&Endpoint> = all.filter(|e| service.selects(e)).collect();
    let pods: Vec<&Endpoint> = all.iter().copied().filter(|e| !e.is_template()).collect();
    if pods.is_empty() { all } else { pods }
}
