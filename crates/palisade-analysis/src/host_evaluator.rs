//! What one host allows at its interfaces in one state, as sets of traffic.
//!
//! Promises: every verdict is the oracle's; traffic that no rule divides is asked about once. Never: chooses the ends.

use crate::host_states::HostState;
use crate::pair_evaluator::{icmp_cuts, port_cuts};
use crate::pair_set::{PairSet, ranges_between_cuts};
use crate::traffic::TrafficSet;
use palisade_model::{
    Direction, Endpoint, FailsafePorts, Family, L4, Peer, Protocol, Rule, State, Str, TrafficMatch,
};
use palisade_oracle::{FlowEnd, OracleOptions, PreparedState, Question};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::net::IpAddr;

/// What becomes a row's traffic, of what each state allows.
pub(crate) type RenderTraffic<'a> = &'a dyn Fn(&[TrafficSet]) -> TrafficSet;

/// What the only state allows.
pub(crate) fn allowed_traffic(sets: &[TrafficSet]) -> TrafficSet {
    sets.first().cloned().unwrap_or_default()
}

/// Lists what only the second state allows, and what only the first one does.
pub(crate) fn list_changes<T>(list: impl Fn(RenderTraffic<'_>) -> Vec<T>) -> [Vec<T>; 2] {
    [(1, 0), (0, 1)].map(|(at, other)| {
        list(&|sets| match (sets.get(at), sets.get(other)) {
            (Some(listed), Some(excluded)) => listed.subtract(excluded),
            _ => TrafficSet::none(),
        })
    })
}

/// Asks the oracle what one host allows in one state.
pub(crate) struct HostEvaluator<'a> {
    prepared: PreparedState<'a>,
    options: OracleOptions,
    failsafe: &'a FailsafePorts,
}

impl<'a> HostEvaluator<'a> {
    pub(crate) fn new(host: &'a HostState<'_>, failsafe: &'a FailsafePorts) -> Self {
        HostEvaluator {
            prepared: host.prepared(failsafe),
            options: host.options(),
            failsafe,
        }
    }

    pub(crate) fn state(&self) -> &'a State {
        self.prepared.state()
    }

    /// The host endpoint that governs an interface.
    pub(crate) fn host_endpoint(&self, interface: &str) -> Option<&'a Endpoint> {
        self.prepared.host_endpoint(interface)
    }

    /// The endpoint that holds an end.
    pub(crate) fn endpoint_at(&self, end: &FlowEnd) -> Option<&'a Endpoint> {
        self.prepared.endpoint_at(end)
    }

    fn rules(&self) -> impl Iterator<Item = &Rule> {
        let state = self.prepared.state();
        let policies = state.policies.values().flat_map(|policy| {
            let lists = policy.ingress.iter().chain(&policy.egress);
            lists.flat_map(|list| &list.rules)
        });
        let profiles = state.profiles.values();
        policies.chain(profiles.flat_map(|profile| profile.ingress.iter().chain(&profile.egress)))
    }

    /// What policy sees of an address: addresses of a family with equal ones are treated alike.
    pub(crate) fn signature(&self, node: &Str, address: IpAddr) -> Vec<u32> {
        let end = FlowEnd::Address(address);
        let state = self.prepared.state();
        let peers = self
            .rules()
            .flat_map(|rule| rule.peers.iter().chain(&rule.own));
        let matches = peers.map(|peer: &Peer| self.prepared.peer_matches(peer, &end));
        let failsafe = self.failsafe.inbound.iter().chain(&self.failsafe.outbound);
        let nets = failsafe.map(|port| port.net.is_some_and(|net| net.contains(address)));
        let own = state.nodes.get(node);
        let is_own = own.is_some_and(|node| node.addresses.contains(&address));
        let is_v6 = Family::of(address) == Family::V6;
        let bits = matches.chain(nets).chain([is_own, is_v6]).map(u32::from);
        let holder = self.prepared.endpoint_at(&end);
        let ports = holder.into_iter().flat_map(|endpoint| &endpoint.ports);
        let ports = ports.flat_map(|port| {
            let name = port.name.bytes().map(u32::from);
            name.chain([u32::MAX, port.protocol.0.into(), port.port.into()])
        });
        bits.chain(ports).collect()
    }

    /// The traffic that a direction of the host allows between the ends of a question, whatever its own traffic is.
    /// `endpoint` is what has the named ports of an end.
    pub(crate) fn traffic<'e>(
        &self,
        question: Question,
        direction: Direction,
        endpoint: &dyn Fn(&FlowEnd) -> Option<&'e Endpoint>,
    ) -> TrafficSet {
        let (source, destination) = (question.source.clone(), question.destination.clone());
        let question = RefCell::new(question);
        let allows = |protocol: Protocol, l4: L4| {
            let mut question = question.borrow_mut();
            (question.protocol, question.l4) = (protocol, l4);
            self.prepared
                .host_allows(&question, direction, &self.options)
        };
        let terms: Vec<&TrafficMatch> = self.rules().flat_map(|rule| &rule.traffic).collect();
        let named: BTreeSet<Protocol> = terms
            .iter()
            .flat_map(|term| term.protocol.iter().chain(&term.not_protocols))
            .copied()
            .collect();
        let unnamed = (0..=u8::MAX)
            .map(Protocol)
            .find(|p| !p.has_ports() && !p.is_icmp() && !named.contains(p));
        let rest = unnamed.is_some_and(|protocol| allows(protocol, L4::None));
        let failsafe = self.failsafe.inbound.iter().chain(&self.failsafe.outbound);
        let failsafe: BTreeSet<u32> = failsafe
            .flat_map(|port| [u32::from(port.port), u32::from(port.port) + 1])
            .collect();
        let cuts = |end: &FlowEnd,
                    end_ports: fn(&TrafficMatch) -> &palisade_model::PortMatch,
                    protocol| {
            let mut cuts = port_cuts(&terms, end_ports, endpoint(end), protocol);
            cuts.extend(&failsafe);
            ranges_between_cuts(&cuts, u16::MAX)
        };
        TrafficSet::from_parts(
            |protocol| {
                PairSet::from_grid(
                    &cuts(&source, |term| &term.source, protocol),
                    &cuts(&destination, |term| &term.destination, protocol),
                    |source, destination| {
                        let ports = L4::Ports {
                            source,
                            destination,
                        };
                        allows(protocol, ports)
                    },
                )
            },
            |protocol| {
                let (kinds, codes) = icmp_cuts(&terms);
                let byte = |n: u16| u8::try_from(n).unwrap_or(u8::MAX);
                let max = u16::from(u8::MAX);
                PairSet::from_grid(
                    &ranges_between_cuts(&kinds, max),
                    &ranges_between_cuts(&codes, max),
                    |kind, code| {
                        let (kind, code) = (byte(kind), byte(code));
                        allows(protocol, L4::Icmp { kind, code })
                    },
                )
            },
            |protocol| {
                if named.contains(&protocol) {
                    allows(protocol, L4::None)
                } else {
                    rest
                }
            },
        )
    }
}
