//! Warnings that a change locks people out of a host, or the host out of its API server.
//!
//! Promises: exact for the flows that it asks the oracle about; SSH counts as cut at an interface if the old state lets
//! some address connect and the new one none. Never: judges what a host forwards, or what stays within a host.

use crate::explain::host_ends::host_ends;
use crate::explain::report_builder::decision_report;
use crate::host_states::{HostState, HostStates, address_range_starts};
use crate::state_view::StateView;
use palisade_api::{HostAccess, LockoutReport};
use palisade_model::{Direction, FailsafePorts, Family, FlowOrigin, L4, Protocol, Str};
use palisade_oracle::{DecisionReason, FlowEnd, HostPath, OracleOptions, PreparedState, Question};
use std::collections::BTreeSet;
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
    let mut connections = Vec::new();
    for node in new.hosts.keys() {
        let (old, new) = (old.of_node(node), new.of_node(node));
        let change = HostChange {
            node,
            questions,
            old: AccessJudge::new(&old, questions),
            new: AccessJudge::new(&new, questions),
        };
        let interfaces = old.interfaces().into_iter().chain(new.interfaces());
        for interface in interfaces.collect::<BTreeSet<Str>>() {
            connections.extend(change.session(&interface));
            connections.extend(change.ssh(&interface));
            connections.extend(change.api_servers(&interface));
        }
    }
    connections
}

/// Asks the oracle about TCP connections to and from one host.
struct AccessJudge<'a> {
    prepared: PreparedState<'a>,
    options: OracleOptions,
}

impl<'a> AccessJudge<'a> {
    fn new(host: &'a HostState<'_>, questions: &HostAccessQuestions) -> Self {
        AccessJudge {
            prepared: host.prepared(&questions.failsafe),
            options: host.options(),
        }
    }

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
        let cut = self.cut(
            HostAccess::Session,
            &question,
            Direction::Ingress,
            interface,
        )?;
        Some(LockoutReport {
            peer: Some(client),
            ..cut
        })
    }

    /// SSH, if somebody could connect and nobody can any more.
    fn ssh(&self, interface: &Str) -> Option<LockoutReport> {
        let questions = |judge: &AccessJudge<'_>| -> Vec<Question> {
            let ends = host_ends(judge.prepared.state(), self.node);
            let states = [self.old.prepared.state(), self.new.prepared.state()];
            let sources = address_range_starts(&states, &self.questions.failsafe);
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
            let cut = asked.find_map(|question| {
                self.cut(
                    HostAccess::ApiServer,
                    &question,
                    Direction::Egress,
                    interface,
                )
            })?;
            Some(LockoutReport {
                peer: Some(server.ip()),
                ..cut
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
