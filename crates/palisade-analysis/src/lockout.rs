//! Warnings that a change locks people out of a host, or the host out of its API server.
//!
//! Promises: exact for the flows that it asks the oracle about; SSH counts as cut at an interface if the old state lets
//! some address connect and the new one none. Never: judges what a host forwards, or what stays within a host.

use crate::explain::host_paths::{host_ends, name_interfaces};
use crate::explain::report_builder::decision_report;
use crate::state_view::StateView;
use palisade_api::{HostAccess, LockoutReport};
use palisade_model::{
    Direction, Endpoint, EndpointId, FailsafePorts, Family, FlowOrigin, L4, Policy, PolicyId,
    Prefix, Protocol, Rule, State, Str, address_from_number,
};
use palisade_oracle::{DecisionReason, FlowEnd, HostPath, OracleOptions, PreparedState, Question};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

/// The port of SSH.
const SSH: u16 = 22;

/// The source port of the flows that are asked about: the first dynamic port.
const SOURCE_PORT: u16 = 49152;

/// A session of somebody on a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdminSession {
    /// The address of the client.
    pub client: IpAddr,
    /// The address and port of the host.
    pub server: SocketAddr,
}

impl AdminSession {
    /// A session as `SSH_CONNECTION` has it: client address and port, server address and port; `None` for any other
    /// text. Source: OpenSSH, ssh(1).
    pub fn parse(text: &str) -> Option<Self> {
        let [client, _, server, port] = text.split_whitespace().collect::<Vec<_>>()[..] else {
            return None;
        };
        // The zone of a link-local address is no part of what policy sees.
        let address = |text: &str| text.split('%').next()?.parse::<IpAddr>().ok();
        Some(AdminSession {
            client: address(client)?.to_canonical(),
            server: SocketAddr::new(address(server)?.to_canonical(), port.parse().ok()?),
        })
    }
}

/// What must stay possible on each host, beside SSH.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostAccessQuestions {
    /// The session by which the user came.
    pub session: Option<AdminSession>,
    /// The API servers.
    pub api_servers: BTreeSet<SocketAddr>,
    /// The failsafe ports of every host.
    pub failsafe: FailsafePorts,
}

/// What a change from `old` to `new` would cut of the access to hosts, by node, interface and kind.
pub fn lockouts<'a>(
    old: impl Into<StateView<'a>>,
    new: impl Into<StateView<'a>>,
    questions: &HostAccessQuestions,
) -> Vec<LockoutReport> {
    let (old, new) = (HostStates::new(old.into()), HostStates::new(new.into()));
    let mut found = Vec::new();
    for node in new.hosts.keys() {
        let (old, new) = (old.of_node(node), new.of_node(node));
        let change = HostChange {
            node,
            questions,
            old: old.judge(questions),
            new: new.judge(questions),
        };
        let interfaces = old.interfaces().into_iter().chain(new.interfaces());
        for interface in interfaces.collect::<BTreeSet<Str>>() {
            found.extend(change.session(&interface));
            found.extend(change.ssh(&interface));
            found.extend(change.api_servers(&interface));
        }
    }
    found
}

/// A state, from which those of single hosts are made: interfaces of several hosts have the same names.
struct HostStates<'a> {
    view: StateView<'a>,
    /// The state without host endpoints, and without policies that select none of them.
    base: State,
    hosts: BTreeMap<Str, BTreeMap<EndpointId, Endpoint>>,
}

impl<'a> HostStates<'a> {
    fn new(view: StateView<'a>) -> Self {
        let named = name_interfaces(view.state);
        let mut hosts: BTreeMap<Str, BTreeMap<EndpointId, Endpoint>> = BTreeMap::new();
        for endpoint in named.endpoints.values().filter(|endpoint| endpoint.host) {
            if let (Some(node), Some(_)) = (&endpoint.node, &endpoint.interface) {
                let of_node = hosts.entry(node.clone()).or_default();
                of_node.insert(endpoint.id.clone(), endpoint.clone());
            }
        }
        let selects_host = |policy: &Policy| {
            let mut all = hosts.values().flat_map(BTreeMap::values);
            all.any(|endpoint| policy.subject.matches(&named.endpoint_labels(endpoint)))
        };
        let policies = named.policies.iter();
        let policies: BTreeMap<PolicyId, Policy> = policies
            .filter(|(_, policy)| selects_host(policy))
            .map(|(id, policy)| (id.clone(), policy.clone()))
            .collect();
        let mut base = State {
            policies,
            ..named.into_owned()
        };
        base.endpoints.retain(|_, endpoint| !endpoint.host);
        HostStates { view, base, hosts }
    }

    fn of_node(&self, node: &Str) -> HostState<'a> {
        let mut state = self.base.clone();
        let endpoints = self.hosts.get(node).cloned().unwrap_or_default();
        state.endpoints.extend(endpoints);
        HostState {
            view: self.view,
            state,
        }
    }
}

/// The state as one host sees it.
struct HostState<'a> {
    view: StateView<'a>,
    state: State,
}

impl HostState<'_> {
    fn interfaces(&self) -> BTreeSet<Str> {
        let hosts = self.state.endpoints.values().filter(|e| e.host);
        hosts.filter_map(|e| e.interface.clone()).collect()
    }

    fn judge(&self, questions: &HostAccessQuestions) -> AccessJudge<'_> {
        AccessJudge {
            prepared: PreparedState::new(&self.state).with_failsafe(questions.failsafe.clone()),
            options: OracleOptions {
                view: self.view.view,
                ..OracleOptions::default()
            },
        }
    }
}

/// Asks the oracle about TCP connections to and from one host.
struct AccessJudge<'a> {
    prepared: PreparedState<'a>,
    options: OracleOptions,
}

impl AccessJudge<'_> {
    /// What denies a question; `None` if it is allowed.
    fn denied_by(&self, question: &Question, direction: Direction) -> Option<DecisionReason> {
        let answer = self.prepared.judge(question, &self.options);
        let mut judged = answer.host.into_iter();
        let denied =
            judged.find(|at| at.direction == direction && !at.judgement.verdict.is_allow());
        denied.map(|at| at.judgement.decided_by)
    }
}

/// The old and the new state of one host.
struct HostChange<'a> {
    node: &'a Str,
    questions: &'a HostAccessQuestions,
    old: AccessJudge<'a>,
    new: AccessJudge<'a>,
}

impl HostChange<'_> {
    /// The session, if it is one on this host and would be cut.
    fn session(&self, interface: &Str) -> Option<LockoutReport> {
        let AdminSession { client, server } = self.questions.session?;
        let state = self.new.prepared.state();
        let own = FlowEnd::Address(server.ip());
        if client.is_loopback() || !host_ends(state, self.node).contains(&own) {
            return None;
        }
        let question = question(FlowEnd::Address(client), own, server.port(), interface)?;
        let found = self.cut(
            HostAccess::Session,
            &question,
            Direction::Ingress,
            interface,
        )?;
        Some(LockoutReport {
            peer: Some(client),
            ..found
        })
    }

    /// SSH, if somebody could connect and nobody can any more.
    fn ssh(&self, interface: &Str) -> Option<LockoutReport> {
        let questions = |judge: &AccessJudge<'_>| -> Vec<Question> {
            let ends = host_ends(judge.prepared.state(), self.node);
            let sources = self.sources();
            let pairs = ends
                .iter()
                .flat_map(|end| sources.iter().map(move |source| (source, end)));
            let asked = pairs.filter_map(|(source, end)| {
                question(FlowEnd::Address(*source), end.clone(), SSH, interface)
            });
            asked.collect()
        };
        let is_open = |judge: &AccessJudge<'_>, question: &Question| {
            judge.denied_by(question, Direction::Ingress).is_none()
        };
        let asked = questions(&self.new);
        if asked.iter().any(|question| is_open(&self.new, question)) {
            return None;
        }
        let before = questions(&self.old);
        let open = before
            .iter()
            .find(|question| is_open(&self.old, question))?;
        self.cut(HostAccess::Ssh, open, Direction::Ingress, interface)
    }

    /// Each API server to which the host could connect, and cannot any more.
    fn api_servers(&self, interface: &Str) -> Vec<LockoutReport> {
        let own = host_ends(self.new.prepared.state(), self.node);
        let servers = self.questions.api_servers.iter();
        // To an API server on the host itself, packets cross no interface.
        let others = servers.filter(|server| !own.contains(&FlowEnd::Address(server.ip())));
        let cut = |server: &SocketAddr| {
            let destination = FlowEnd::Address(server.ip());
            let mut asked = own.iter().filter_map(|own| {
                let inward = question(own.clone(), destination.clone(), server.port(), interface)?;
                let path = HostPath {
                    output: Some(interface.clone()),
                    ..HostPath::default()
                };
                Some(Question {
                    origin: FlowOrigin::HostStack,
                    path,
                    ..inward
                })
            });
            let found = asked.find_map(|question| {
                self.cut(
                    HostAccess::ApiServer,
                    &question,
                    Direction::Egress,
                    interface,
                )
            })?;
            Some(LockoutReport {
                peer: Some(server.ip()),
                ..found
            })
        };
        others.filter_map(cut).collect()
    }

    /// A question that the old state allows and the new one denies.
    fn cut(
        &self,
        access: HostAccess,
        question: &Question,
        direction: Direction,
        interface: &Str,
    ) -> Option<LockoutReport> {
        let reason = self.new.denied_by(question, direction)?;
        if self.old.denied_by(question, direction).is_some() {
            return None;
        }
        let port = match question.l4 {
            L4::Ports { destination, .. } => destination,
            L4::Icmp { .. } | L4::None => return None,
        };
        let state = self.new.prepared.state();
        Some(LockoutReport {
            access,
            node: self.node.to_string(),
            interface: interface.to_string(),
            peer: None,
            port,
            decided_by: decision_report(state, question, direction, &reason),
        })
    }

    /// One address of each range that everything in both states treats as a whole: networks begin and end only
    /// between such ranges.
    fn sources(&self) -> BTreeSet<IpAddr> {
        let mut found: BTreeSet<IpAddr> = Family::BOTH
            .map(|family| Prefix::all(family).address())
            .into();
        let states = [self.old.prepared.state(), self.new.prepared.state()];
        let failsafe = self.questions.failsafe.inbound.iter();
        let failsafe = failsafe.filter_map(|port| port.net);
        for net in states.into_iter().flat_map(networks).chain(failsafe) {
            found.insert(net.address());
            if net.last() != Prefix::all(net.family()).last() {
                let (_, last) = net.bounds();
                found.insert(address_from_number(net.family(), last + 1));
            }
        }
        found
    }
}

/// Every network and address in a state.
fn networks(state: &State) -> Vec<Prefix> {
    let lists = state.policies.values().flat_map(|policy| {
        let lists = policy.ingress.iter().chain(&policy.egress);
        lists.flat_map(|list| &list.rules)
    });
    let profiles = state.profiles.values();
    let of_profiles = profiles.flat_map(|profile| profile.ingress.iter().chain(&profile.egress));
    let of_rule = |rule: &Rule| -> Vec<Prefix> {
        let peers = rule.peers.iter().chain(&rule.own);
        let nets = peers.flat_map(|peer| peer.nets.iter().flatten().chain(&peer.not_nets));
        nets.copied().collect()
    };
    let sets = state.network_sets.values().flat_map(|set| set.nets.clone());
    let pods = state
        .nodes
        .values()
        .flat_map(|node| node.pod_networks.clone());
    let of_nodes = state.nodes.values().flat_map(|node| node.addresses.clone());
    let of_endpoints = state.endpoints.values().flat_map(|e| e.addresses.clone());
    let addresses = of_nodes.chain(of_endpoints).map(Prefix::host);
    let of_rules = lists.chain(of_profiles).flat_map(of_rule);
    of_rules.chain(sets).chain(pods).chain(addresses).collect()
}

/// The first packet of a TCP connection that arrives by an interface; `None` if the ends have different families.
fn question(source: FlowEnd, destination: FlowEnd, port: u16, interface: &Str) -> Option<Question> {
    let family = match (&source, &destination) {
        (FlowEnd::Address(a), FlowEnd::Address(b)) => {
            let family = Family::of(*a);
            (family == Family::of(*b)).then_some(family)?
        }
        (FlowEnd::Address(known), _) | (_, FlowEnd::Address(known)) => Family::of(*known),
        (FlowEnd::Endpoint(_), FlowEnd::Endpoint(_)) => return None,
    };
    Some(Question {
        source,
        destination,
        family,
        protocol: Protocol::TCP,
        l4: L4::Ports {
            source: SOURCE_PORT,
            destination: port,
        },
        origin: FlowOrigin::default(),
        path: HostPath {
            input: Some(interface.clone()),
            ..HostPath::default()
        },
    })
}
