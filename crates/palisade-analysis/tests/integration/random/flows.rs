//! Every flow of a small random state that its policies can distinguish, judged by the oracle in two states.
//!
//! The addresses, ports and messages are those at which the generated rules can change, and are chosen without the
//! analysis.

use palisade_model::*;
use palisade_oracle::{FlowEnd, OracleOptions, PreparedState, Question};
use std::collections::BTreeSet;
use std::net::IpAddr;

/// An end of flows: what the oracle is asked about, and the endpoint there.
#[derive(Clone)]
struct End {
    end: FlowEnd,
    family: Option<Family>,
    endpoint: Option<EndpointId>,
}

/// Every end that the generated rules can distinguish: the endpoints, and addresses outside, of which each
/// network that the generator makes contains one that none of the smaller ones does.
fn ends(state: &State) -> Vec<End> {
    let prepared = PreparedState::new(state);
    let mut addresses: BTreeSet<IpAddr> = prepared.claims().keys().copied().collect();
    for last in 0..16 {
        addresses.insert(format!("fd00::{last:x}").parse().unwrap());
        for net in ["10.0.0", "10.0.1", "192.0.2"] {
            addresses.insert(format!("{net}.{last}").parse().unwrap());
        }
    }
    let far = "fd00::c8 fd00::100c 2001:db8::1 10.0.0.200 10.0.1.200 10.0.9.9 192.0.2.200 192.0.9.9 203.0.113.1";
    addresses.extend(
        far.split(' ')
            .map(|address| address.parse::<IpAddr>().unwrap()),
    );
    // One address of those outside that are in the same networks.
    let nets = networks(state);
    let mut known = BTreeSet::new();
    addresses.retain(|address| {
        let within: Vec<bool> = nets.iter().map(|net| net.contains(*address)).collect();
        let is_held = prepared.address_holder(*address).is_some();
        is_held || known.insert((Family::of(*address), within))
    });
    let of_addresses = addresses.into_iter().map(|address| End {
        end: FlowEnd::Address(address),
        family: Some(Family::of(address)),
        endpoint: prepared.address_holder(address).map(|e| e.id.clone()),
    });
    let unknown = state
        .endpoints
        .values()
        .filter(|e| e.addresses.is_empty() && !e.is_host());
    let of_endpoints = unknown.map(|endpoint| End {
        end: FlowEnd::Endpoint(endpoint.id.clone()),
        family: None,
        endpoint: Some(endpoint.id.clone()),
    });
    of_endpoints.chain(of_addresses).collect()
}

/// Every network that something in a state names.
fn networks(state: &State) -> BTreeSet<Prefix> {
    let rules = state.policies.values().flat_map(|policy| {
        let lists = [&policy.ingress, &policy.egress].into_iter().flatten();
        lists.flat_map(|list| &list.rules)
    });
    let profiles = state.profiles.values();
    let rules = rules.chain(profiles.flat_map(|p| p.ingress.iter().chain(&p.egress)));
    let peers = rules.flat_map(|rule| rule.peers.iter().chain(&rule.local));
    let nets = peers
        .flat_map(|peer| peer.nets.iter().flatten().chain(&peer.not_nets))
        .copied();
    let sets = state
        .network_sets
        .values()
        .flat_map(|set| set.nets.iter().copied());
    let nodes = state.nodes.values().flat_map(|node| &node.addresses);
    nets.chain(sets)
        .chain(nodes.map(|address| Prefix::host(*address)))
        .collect()
}

/// Every packet that the generated rules can distinguish.
fn packets(state: &State) -> Vec<(Protocol, L4)> {
    let of_policies = || {
        state.policies.values().flat_map(|policy| {
            let lists = [&policy.ingress, &policy.egress].into_iter().flatten();
            lists.flat_map(|list| &list.rules)
        })
    };
    let profiles = || state.profiles.values();
    let rules = || of_policies().chain(profiles().flat_map(|p| p.ingress.iter().chain(&p.egress)));
    let terms: Vec<&TrafficMatch> = rules().flat_map(|rule| &rule.traffic).collect();
    let mut all = Vec::new();
    // That of an encapsulation, which rules by name do not match.
    let of_queries = rules().any(|rule| rule.dns_names.is_some());
    let tests_source = terms.iter().any(|term| !term.source.is_any());
    let ports = [0, 1, 53, 54, 80, 81, 443, 444, 65535];
    for protocol in Protocol::WITH_PORTS {
        let encapsulation = of_queries.then_some(4789);
        for destination in ports.into_iter().chain(encapsulation) {
            let sources = if tests_source { &ports[..] } else { &[50000] };
            all.extend(sources.iter().map(|source| {
                let source = *source;
                (
                    protocol,
                    L4::Ports {
                        source,
                        destination,
                    },
                )
            }));
        }
    }
    let tests_icmp = terms
        .iter()
        .any(|t| t.icmp.is_some() || t.not_icmp.is_some());
    let kinds: &[u8] = if tests_icmp {
        &[0, 1, 3, 8, 9, 128, 255]
    } else {
        &[8]
    };
    let codes: &[u8] = if tests_icmp { &[0, 1, 2, 4, 5] } else { &[0] };
    for protocol in [Protocol::ICMP, Protocol::ICMPV6] {
        for kind in kinds {
            all.extend(codes.iter().map(|code| {
                let (kind, code) = (*kind, *code);
                (protocol, L4::Icmp { kind, code })
            }));
        }
    }
    all.extend([47, 99, 255].map(|number| (Protocol(number), L4::None)));
    all
}

/// Every flow of a state that policies can distinguish.
pub(crate) struct Flows {
    pairs: Vec<(End, End, Family)>,
    packets: Vec<(Protocol, L4)>,
}

impl Flows {
    /// The flows between endpoints of a state, and between them and the outside.
    pub(crate) fn of(state: &State) -> Self {
        let ends = ends(state);
        let mut pairs = Vec::new();
        for from in &ends {
            for to in &ends {
                let outside = from.endpoint.is_none() && to.endpoint.is_none();
                if outside || (from.endpoint == to.endpoint) {
                    continue;
                }
                let families = Family::BOTH.into_iter().filter(|family| {
                    let is = |end: &End| end.family.is_none_or(|f| f == *family);
                    is(from) && is(to)
                });
                pairs.extend(families.map(|family| (from.clone(), to.clone(), family)));
            }
        }
        Flows {
            pairs,
            packets: packets(state),
        }
    }

    /// The first flow for which `is_sought` is true.
    pub(crate) fn find(&self, mut is_sought: impl FnMut(&Question) -> bool) -> Option<Question> {
        for (from, to, family) in &self.pairs {
            let mut question = Question {
                source: from.end.clone(),
                destination: to.end.clone(),
                family: *family,
                protocol: Protocol::TCP,
                l4: L4::None,
                origin: FlowOrigin::Network,
                path: palisade_oracle::HostPath::default(),
            };
            for (protocol, l4) in &self.packets {
                (question.protocol, question.l4) = (*protocol, *l4);
                if is_sought(&question) {
                    return Some(question);
                }
            }
        }
        None
    }

    /// The first flow that `differs` in two states.
    fn find_other(
        &self,
        old: &State,
        new: &State,
        differs: impl Fn(&JudgedFlow, &JudgedFlow) -> bool,
    ) -> Option<Question> {
        let (old, new) = (PreparedState::new(old), PreparedState::new(new));
        self.find(|question| {
            let [old, new] = [&old, &new].map(|state| JudgedFlow::of(state, question));
            differs(&old, &new)
        })
    }

    /// The first flow that one of its ends judges differently in two states, or of which other DNS queries are.
    pub(crate) fn find_other_verdict(&self, old: &State, new: &State) -> Option<Question> {
        self.find_other(old, new, |a, b| a != b)
    }

    /// The same, without queries for names that rules name.
    pub(crate) fn find_other_verdict_without_names(
        &self,
        old: &State,
        new: &State,
    ) -> Option<Question> {
        self.find_other(old, new, |a, b| {
            (a.egress, a.ingress) != (b.egress, b.ingress)
        })
    }

    /// The first flow, or DNS query, that only one of two states allows.
    pub(crate) fn find_other_connection(&self, old: &State, new: &State) -> Option<Question> {
        self.find_other(old, new, |a, b| {
            let names = [a, b].into_iter().flat_map(|flow| flow.names.iter());
            let mut names = names.flatten().map(Some).chain([None]);
            names.any(|name| a.allows(name) != b.allows(name))
        })
    }
}

/// The options of questions about policy alone. No generated policy is in audit where flows are compared.
pub(crate) fn options() -> OracleOptions {
    OracleOptions {
        allowed_encapsulation: Encapsulations::ALL,
        ..OracleOptions::default()
    }
}

/// What the oracle says of a flow.
#[derive(PartialEq, Eq)]
struct JudgedFlow {
    egress: bool,
    ingress: bool,
    /// The names of the queries that are allowed, if rules by name match.
    names: Option<BTreeSet<DomainPattern>>,
}

impl JudgedFlow {
    fn of(state: &PreparedState<'_>, question: &Question) -> Self {
        let options = options();
        let (egress, ingress) = state.verdict(question, &options);
        JudgedFlow {
            egress,
            ingress,
            names: state.redirect(question, Direction::Egress, &options),
        }
    }

    /// Whether it is allowed if it asks for a name of the pattern; `None` for another name.
    fn allows(&self, pattern: Option<&DomainPattern>) -> bool {
        let is_named = pattern.is_some_and(|pattern| {
            let mut names = self.names.iter().flatten();
            names.any(|name| name == pattern)
        });
        (self.egress || is_named) && self.ingress
    }
}
