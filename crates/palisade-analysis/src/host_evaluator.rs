//! What one host allows at its interfaces in one state, as sets of traffic.
//!
//! Promises: every verdict is the oracle's; traffic that no rule divides is asked about once. Never: chooses the ends.

use crate::host_states::HostState;
use crate::traffic::TrafficSet;
use crate::traffic_grid::{port_cuts, traffic_between_cuts};
use palisade_model::{
    Direction, Endpoint, FailsafePorts, Family, L4, Peer, Protocol, Rule, State, Str, TrafficMatch,
};
use palisade_oracle::{FlowEnd, OracleOptions, PreparedState, Question};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::net::IpAddr;

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
            .flat_map(|rule| rule.peers.iter().chain(&rule.local));
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
        let failsafe = self.failsafe.inbound.iter().chain(&self.failsafe.outbound);
        let failsafe: BTreeSet<u32> = failsafe
            .flat_map(|port| [u32::from(port.port), u32::from(port.port) + 1])
            .collect();
        let cuts = |protocol| {
            let mut cuts = [
                port_cuts(&terms, |term| &term.source, endpoint(&source), protocol),
                port_cuts(
                    &terms,
                    |term| &term.destination,
                    endpoint(&destination),
                    protocol,
                ),
            ];
            for cuts in &mut cuts {
                cuts.extend(&failsafe);
            }
            cuts
        };
        traffic_between_cuts(&terms, cuts, allows)
    }
}
