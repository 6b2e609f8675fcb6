//! The criteria of a rule: each is a test, with the failure to report if it does not hold.
//!
//! Matching and reporting use the same list of criteria, so a trace never contradicts the verdict.

use crate::Question;
use crate::resolved_end::{Holder, ResolvedEnd, Viewpoint};
use crate::trace::{
    HolderMismatch, PeerFailure, PeerMiss, PortFailure, RuleMiss, TrafficFailure, TrafficMiss,
};
use alloc::vec::Vec;
use palisade_model::{
    Direction, Endpoint, IcmpMatch, L4, Peer, PolicyStage, PortMatch, PortSpec, Prefix, Protocol,
    Rule, State, Str, TrafficMatch,
};

/// The input of rule matching: the flow and both of its resolved ends.
pub(crate) struct MatchContext<'a> {
    pub(crate) state: &'a State,
    pub(crate) question: &'a Question,
    pub(crate) source: ResolvedEnd<'a>,
    pub(crate) destination: ResolvedEnd<'a>,
    /// The node of this host.
    pub(crate) host_node: Option<&'a Str>,
    /// The host endpoint that is asked, for which direction and stage; `None` where the endpoints at the ends are.
    pub(crate) host: Option<(&'a Endpoint, Direction, PolicyStage)>,
}

impl<'a> MatchContext<'a> {
    /// The endpoint whose named ports count at the sender (egress) or the receiver (ingress): a host endpoint at its
    /// local end, where it is known that the packet is to or from the host.
    fn port_owner(&self, end: Direction) -> Option<&'a Endpoint> {
        match (self.host, end) {
            (Some((host, local, PolicyStage::Normal)), end) if local == end => Some(host),
            (_, Direction::Egress) => self.source.endpoint,
            (_, Direction::Ingress) => self.destination.endpoint,
        }
    }
}

/// The ends of a flow from the viewpoint of one direction.
#[derive(Clone, Copy)]
pub(crate) struct DirectionEnds<'c, 'a> {
    /// The end of the endpoint whose policies apply.
    pub(crate) local: &'c ResolvedEnd<'a>,
    /// The other end.
    pub(crate) peer: &'c ResolvedEnd<'a>,
}

/// How an endpoint sees holders: the labels of one, the endpoint's own node, depend on who asks.
fn viewpoint<'a>(context: &MatchContext<'a>, ends: DirectionEnds<'_, 'a>) -> Viewpoint<'a> {
    let subject = context.host.map(|(endpoint, ..)| endpoint);
    Viewpoint::new(
        context.state,
        subject.or(ends.local.endpoint),
        context.host_node,
    )
}

/// A rule matches if the endpoint's own address, one of the peers and one of the traffic terms match.
pub(crate) fn rule_matches(
    context: &MatchContext<'_>,
    ends: DirectionEnds<'_, '_>,
    rule: &Rule,
) -> bool {
    local_address_matches(context, ends, rule)
        && any_peer_matches(context, ends, rule)
        && any_traffic_matches(context, rule)
}

fn local_address_matches(
    context: &MatchContext<'_>,
    ends: DirectionEnds<'_, '_>,
    rule: &Rule,
) -> bool {
    let local = rule.local.as_ref();
    local.is_none_or(|local| peer_matches(viewpoint(context, ends), local, ends.local))
}

fn any_peer_matches(context: &MatchContext<'_>, ends: DirectionEnds<'_, '_>, rule: &Rule) -> bool {
    let mut peers = rule.peers.iter();
    peers.any(|peer| peer_matches(viewpoint(context, ends), peer, ends.peer))
}

fn any_traffic_matches(context: &MatchContext<'_>, rule: &Rule) -> bool {
    rule.traffic
        .iter()
        .any(|term| traffic_matches(context, term))
}

/// Why a rule does not match: every failure of each part that fails.
pub(crate) fn rule_miss(
    context: &MatchContext<'_>,
    ends: DirectionEnds<'_, '_>,
    rule: &Rule,
) -> RuleMiss {
    let viewpoint = viewpoint(context, ends);
    let local = rule
        .local
        .as_ref()
        .filter(|_| !local_address_matches(context, ends, rule));
    RuleMiss {
        local: local.map(|local| peer_failures(viewpoint, local, ends.local)),
        peers: (!any_peer_matches(context, ends, rule)).then(|| {
            let miss = |(index, peer)| PeerMiss {
                index,
                failures: peer_failures(viewpoint, peer, ends.peer),
            };
            rule.peers.iter().enumerate().map(miss).collect()
        }),
        traffic: (!any_traffic_matches(context, rule)).then(|| {
            let miss = |(index, term)| TrafficMiss {
                index,
                failures: traffic_failures(context, term),
            };
            rule.traffic.iter().enumerate().map(miss).collect()
        }),
        unreadable_queries: false,
    }
}

#[derive(Clone, Copy)]
enum PeerCriterion {
    Selector,
    NotSelector,
    Nets,
    NotNets,
}

impl PeerCriterion {
    const ALL: [PeerCriterion; 4] = [
        PeerCriterion::Selector,
        PeerCriterion::NotSelector,
        PeerCriterion::Nets,
        PeerCriterion::NotNets,
    ];

    fn holds(self, viewpoint: Viewpoint<'_>, peer: &Peer, end: &ResolvedEnd<'_>) -> bool {
        match self {
            PeerCriterion::Selector => selector_holds(viewpoint, peer, end),
            PeerCriterion::NotSelector => not_selector_holds(viewpoint, peer, end),
            PeerCriterion::Nets => nets_hold(peer, end),
            PeerCriterion::NotNets => excluding_net(peer, end).is_none(),
        }
    }

    fn failure(
        self,
        viewpoint: Viewpoint<'_>,
        peer: &Peer,
        end: &ResolvedEnd<'_>,
    ) -> Option<PeerFailure> {
        match self {
            PeerCriterion::Selector => {
                let wanted = peer.selector.as_ref()?;
                let gap = |holder: Holder<'_>| HolderMismatch {
                    holder: holder.name(),
                    unmet_requirements: holder.unmet_requirements(viewpoint, wanted),
                };
                // Where a pod or workload is the end, a node that has its address as well explains nothing.
                let is_workload = end.endpoint.is_some_and(|endpoint| !endpoint.is_host());
                let explains =
                    |holder: &Holder<'_>| !(is_workload && matches!(holder, Holder::Node(_)));
                Some(PeerFailure::Selector {
                    selector: wanted.clone(),
                    holders: end.holders().filter(explains).map(gap).collect(),
                })
            }
            PeerCriterion::NotSelector => {
                let unwanted = peer.not_selector.as_ref()?;
                let mut holders = end.holders();
                let holder = holders.find(|holder| holder.matches(viewpoint, unwanted))?;
                Some(PeerFailure::NotSelector {
                    selector: unwanted.clone(),
                    holder: holder.name(),
                })
            }
            PeerCriterion::Nets => Some(PeerFailure::Nets {
                nets: peer.nets.clone()?,
                address: end.address,
            }),
            PeerCriterion::NotNets => Some(PeerFailure::NotNets {
                net: excluding_net(peer, end)?,
            }),
        }
    }
}

/// Whether a peer matches an end: all its criteria must hold.
pub(crate) fn peer_matches(viewpoint: Viewpoint<'_>, peer: &Peer, end: &ResolvedEnd<'_>) -> bool {
    let mut criteria = PeerCriterion::ALL.into_iter();
    criteria.all(|criterion| criterion.holds(viewpoint, peer, end))
}

fn peer_failures(viewpoint: Viewpoint<'_>, peer: &Peer, end: &ResolvedEnd<'_>) -> Vec<PeerFailure> {
    PeerCriterion::ALL
        .into_iter()
        .filter(|criterion| !criterion.holds(viewpoint, peer, end))
        .filter_map(|criterion| criterion.failure(viewpoint, peer, end))
        .collect()
}

/// A selector matches if it matches any holder of the address.
fn selector_holds(viewpoint: Viewpoint<'_>, peer: &Peer, end: &ResolvedEnd<'_>) -> bool {
    let wanted = peer.selector.as_ref();
    wanted.is_none_or(|wanted| {
        let mut holders = end.holders();
        holders.any(|holder| holder.matches(viewpoint, wanted))
    })
}

/// No holder of the address may match. An address without a holder therefore passes.
fn not_selector_holds(viewpoint: Viewpoint<'_>, peer: &Peer, end: &ResolvedEnd<'_>) -> bool {
    let unwanted = peer.not_selector.as_ref();
    unwanted.is_none_or(|unwanted| {
        let mut holders = end.holders();
        !holders.any(|holder| holder.matches(viewpoint, unwanted))
    })
}

/// The address is in one of the networks; an unknown address is in none.
fn nets_hold(peer: &Peer, end: &ResolvedEnd<'_>) -> bool {
    let Some(nets) = &peer.nets else { return true };
    let address = end.address;
    address.is_some_and(|address| nets.iter().any(|net| net.contains(address)))
}

/// The excluded network that contains the address; an unknown address is in none.
fn excluding_net(peer: &Peer, end: &ResolvedEnd<'_>) -> Option<Prefix> {
    let address = end.address?;
    let mut nets = peer.not_nets.iter();
    nets.find(|net| net.contains(address)).copied()
}

#[derive(Clone, Copy)]
enum TrafficCriterion {
    Family,
    Protocol,
    NotProtocol,
    Destination,
    Source,
    Icmp,
    NotIcmp,
}

impl TrafficCriterion {
    const ALL: [TrafficCriterion; 7] = [
        TrafficCriterion::Family,
        TrafficCriterion::Protocol,
        TrafficCriterion::NotProtocol,
        TrafficCriterion::Destination,
        TrafficCriterion::Source,
        TrafficCriterion::Icmp,
        TrafficCriterion::NotIcmp,
    ];

    fn holds(self, context: &MatchContext<'_>, term: &TrafficMatch) -> bool {
        let question = context.question;
        match self {
            TrafficCriterion::Family => term.family.is_none_or(|f| f == question.family),
            TrafficCriterion::Protocol => term.protocol.is_none_or(|p| p == question.protocol),
            TrafficCriterion::NotProtocol => !term.not_protocols.contains(&question.protocol),
            TrafficCriterion::Destination => destination_failure(context, term).is_none(),
            TrafficCriterion::Source => source_failure(context, term).is_none(),
            TrafficCriterion::Icmp => term.icmp.is_none_or(|icmp| is_icmp_message(question, icmp)),
            TrafficCriterion::NotIcmp => term
                .not_icmp
                .is_none_or(|icmp| !is_icmp_message(question, icmp)),
        }
    }

    fn failure(self, context: &MatchContext<'_>, term: &TrafficMatch) -> Option<TrafficFailure> {
        let question = context.question;
        Some(match self {
            TrafficCriterion::Family => TrafficFailure::Family(term.family?),
            TrafficCriterion::Protocol => TrafficFailure::Protocol(term.protocol?),
            TrafficCriterion::NotProtocol => TrafficFailure::NotProtocol(question.protocol),
            TrafficCriterion::Destination => {
                TrafficFailure::Destination(destination_failure(context, term)?.into_owned())
            }
            TrafficCriterion::Source => {
                TrafficFailure::Source(source_failure(context, term)?.into_owned())
            }
            TrafficCriterion::Icmp => TrafficFailure::Icmp(term.icmp?),
            TrafficCriterion::NotIcmp => TrafficFailure::NotIcmp(term.not_icmp?),
        })
    }
}

fn traffic_matches(context: &MatchContext<'_>, term: &TrafficMatch) -> bool {
    let mut criteria = TrafficCriterion::ALL.into_iter();
    criteria.all(|criterion| criterion.holds(context, term))
}

fn traffic_failures(context: &MatchContext<'_>, term: &TrafficMatch) -> Vec<TrafficFailure> {
    TrafficCriterion::ALL
        .into_iter()
        .filter(|criterion| !criterion.holds(context, term))
        .filter_map(|criterion| criterion.failure(context, term))
        .collect()
}

/// Whether the flow is this ICMP or ICMPv6 message; false for any other protocol.
fn is_icmp_message(question: &Question, wanted: IcmpMatch) -> bool {
    match question.l4 {
        L4::Icmp { kind, code } if question.protocol.is_icmp() => {
            kind == wanted.kind && wanted.code.is_none_or(|wanted| wanted == code)
        }
        _ => false,
    }
}

/// The source and destination port of the flow; `None` for a protocol without ports.
fn flow_ports(question: &Question) -> Option<(u16, u16)> {
    match question.l4 {
        L4::Ports {
            source,
            destination,
        } if question.protocol.has_ports() => Some((source, destination)),
        _ => None,
    }
}

/// Named destination ports resolve at the destination endpoint.
fn destination_failure<'t>(
    context: &MatchContext<'_>,
    term: &'t TrafficMatch,
) -> Option<PortFailureRef<'t>> {
    let port = flow_ports(context.question).map(|(_, destination)| destination);
    port_failure(
        &term.destination,
        port,
        context.port_owner(Direction::Ingress),
        context.question.protocol,
    )
}

/// Named source ports resolve at the source endpoint.
fn source_failure<'t>(
    context: &MatchContext<'_>,
    term: &'t TrafficMatch,
) -> Option<PortFailureRef<'t>> {
    let port = flow_ports(context.question).map(|(source, _)| source);
    port_failure(
        &term.source,
        port,
        context.port_owner(Direction::Egress),
        context.question.protocol,
    )
}

/// Borrowed form of [`PortFailure`].
enum PortFailureRef<'t> {
    NoPorts,
    NotListed {
        port: u16,
        specs: &'t [PortSpec],
        unresolved: Vec<&'t PortSpec>,
    },
    Excluded {
        port: u16,
        excluded_by: &'t PortSpec,
    },
}

impl PortFailureRef<'_> {
    fn into_owned(self) -> PortFailure {
        match self {
            PortFailureRef::NoPorts => PortFailure::NoPorts,
            PortFailureRef::NotListed {
                port,
                specs: wanted,
                unresolved,
            } => PortFailure::NotListed {
                port,
                specs: wanted.to_vec(),
                unresolved: unresolved.into_iter().cloned().collect(),
            },
            PortFailureRef::Excluded {
                port,
                excluded_by: by,
            } => PortFailure::Excluded {
                port,
                excluded_by: by.clone(),
            },
        }
    }
}

/// Why a port test fails, if it does. An empty test never fails; any other fails for protocols without
/// ports.
fn port_failure<'t>(
    test: &'t PortMatch,
    port: Option<u16>,
    endpoint: Option<&Endpoint>,
    protocol: Protocol,
) -> Option<PortFailureRef<'t>> {
    if test.is_any() {
        return None;
    }
    let Some(port) = port else {
        return Some(PortFailureRef::NoPorts);
    };
    let contains_port = |spec: &PortSpec| spec_contains(spec, endpoint, protocol, port);
    if let Some(wanted) = &test.any_of
        && !wanted.iter().any(contains_port)
    {
        let unresolved = |spec: &&PortSpec| is_unresolved(spec, endpoint, protocol);
        return Some(PortFailureRef::NotListed {
            port,
            specs: wanted,
            unresolved: wanted.iter().filter(unresolved).collect(),
        });
    }
    let excluding = test.not.iter().find(|spec| contains_port(spec));
    excluding.map(|by| PortFailureRef::Excluded {
        port,
        excluded_by: by,
    })
}

/// Whether a spec contains a port; a name that does not resolve contains none.
fn spec_contains(
    spec: &PortSpec,
    endpoint: Option<&Endpoint>,
    protocol: Protocol,
    port: u16,
) -> bool {
    match spec {
        PortSpec::Range(range) => range.contains(port),
        PortSpec::Named(name) => resolve_named_port(name, endpoint, protocol) == Some(port),
    }
}

fn is_unresolved(spec: &PortSpec, endpoint: Option<&Endpoint>, protocol: Protocol) -> bool {
    match spec {
        PortSpec::Range(_) => false,
        PortSpec::Named(name) => resolve_named_port(name, endpoint, protocol).is_none(),
    }
}

/// The number of a named port at the endpoint at this end, for the flow's protocol.
fn resolve_named_port(name: &str, at: Option<&Endpoint>, protocol: Protocol) -> Option<u16> {
    at.and_then(|endpoint| endpoint.named_port(name, protocol))
}
