//! The criteria of a rule: each a test that holds or fails, and what to say when it fails.
//!
//! What matches and what is reported as failing come from the same list of criteria, so a narrative
//! can never tell another story than the verdict.

use crate::Question;
use crate::narrate::{
    HolderGap, PeerFailure, PeerMiss, PortFailure, RuleMiss, TrafficFailure, TrafficMiss,
};
use crate::place::Place;
use alloc::vec::Vec;
use palisade_model::{
    Endpoint, IcmpMatch, L4, Peer, PortMatch, PortSpec, Prefix, Protocol, Rule, State, Traffic,
};

/// Everything a rule can look at: the flow, and both its ends looked up.
pub(crate) struct Case<'a> {
    pub(crate) state: &'a State,
    pub(crate) question: &'a Question,
    pub(crate) source: Place<'a>,
    pub(crate) destination: Place<'a>,
}

/// The ends of a flow as a rule of one direction sees them.
#[derive(Clone, Copy)]
pub(crate) struct Sides<'c, 'a> {
    /// The end of the endpoint that judges.
    pub(crate) own: &'c Place<'a>,
    /// The other end.
    pub(crate) peer: &'c Place<'a>,
}

/// A rule matches if the own address, one of the peers and one of the traffic terms match.
pub(crate) fn rule_matches(case: &Case<'_>, sides: Sides<'_, '_>, rule: &Rule) -> bool {
    own_matches(case, sides, rule)
        && a_peer_matches(case, sides, rule)
        && a_traffic_matches(case, rule)
}

fn own_matches(case: &Case<'_>, sides: Sides<'_, '_>, rule: &Rule) -> bool {
    let own = rule.own.as_ref();
    own.is_none_or(|own| peer_matches(case.state, own, sides.own))
}

fn a_peer_matches(case: &Case<'_>, sides: Sides<'_, '_>, rule: &Rule) -> bool {
    let mut peers = rule.peers.iter();
    peers.any(|peer| peer_matches(case.state, peer, sides.peer))
}

fn a_traffic_matches(case: &Case<'_>, rule: &Rule) -> bool {
    rule.traffic.iter().any(|term| traffic_matches(case, term))
}

/// What keeps a rule from matching: for each part that fails, every failure in it.
pub(crate) fn rule_miss(case: &Case<'_>, sides: Sides<'_, '_>, rule: &Rule) -> RuleMiss {
    let own = rule
        .own
        .as_ref()
        .filter(|_| !own_matches(case, sides, rule));
    RuleMiss {
        own: own.map(|own| peer_failures(case.state, own, sides.own)),
        peers: (!a_peer_matches(case, sides, rule)).then(|| {
            let miss = |(index, peer)| PeerMiss {
                index,
                failures: peer_failures(case.state, peer, sides.peer),
            };
            rule.peers.iter().enumerate().map(miss).collect()
        }),
        traffic: (!a_traffic_matches(case, rule)).then(|| {
            let miss = |(index, term)| TrafficMiss {
                index,
                failures: traffic_failures(case, term),
            };
            rule.traffic.iter().enumerate().map(miss).collect()
        }),
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

    fn holds(self, state: &State, peer: &Peer, place: &Place<'_>) -> bool {
        match self {
            PeerCriterion::Selector => selector_holds(state, peer, place),
            PeerCriterion::NotSelector => not_selector_holds(state, peer, place),
            PeerCriterion::Nets => nets_hold(peer, place),
            PeerCriterion::NotNets => excluding_net(peer, place).is_none(),
        }
    }

    fn failure(self, state: &State, peer: &Peer, place: &Place<'_>) -> Option<PeerFailure> {
        match self {
            PeerCriterion::Selector => {
                let wanted = peer.selector.as_ref()?;
                let gap = |holder: crate::place::Holder<'_>| HolderGap {
                    holder: holder.name(),
                    unmet: holder.unmet(state, wanted),
                };
                Some(PeerFailure::Selector {
                    wanted: wanted.clone(),
                    holders: place.holders().map(gap).collect(),
                })
            }
            PeerCriterion::NotSelector => {
                let unwanted = peer.not_selector.as_ref()?;
                let mut holders = place.holders();
                let holder = holders.find(|holder| holder.matches(state, unwanted))?;
                Some(PeerFailure::NotSelector {
                    unwanted: unwanted.clone(),
                    holder: holder.name(),
                })
            }
            PeerCriterion::Nets => Some(PeerFailure::Nets {
                nets: peer.nets.clone()?,
                address: place.address,
            }),
            PeerCriterion::NotNets => Some(PeerFailure::NotNets {
                net: excluding_net(peer, place)?,
            }),
        }
    }
}

/// Whether a test of an address holds: all its criteria must.
pub(crate) fn peer_matches(state: &State, peer: &Peer, place: &Place<'_>) -> bool {
    let mut criteria = PeerCriterion::ALL.into_iter();
    criteria.all(|criterion| criterion.holds(state, peer, place))
}

fn peer_failures(state: &State, peer: &Peer, place: &Place<'_>) -> Vec<PeerFailure> {
    PeerCriterion::ALL
        .into_iter()
        .filter(|criterion| !criterion.holds(state, peer, place))
        .filter_map(|criterion| criterion.failure(state, peer, place))
        .collect()
}

/// A selector matches if it matches any one of the things that hold the address.
fn selector_holds(state: &State, peer: &Peer, place: &Place<'_>) -> bool {
    let wanted = peer.selector.as_ref();
    wanted.is_none_or(|wanted| place.holders().any(|holder| holder.matches(state, wanted)))
}

/// Nothing that holds the address matches; so an address that nothing holds passes.
fn not_selector_holds(state: &State, peer: &Peer, place: &Place<'_>) -> bool {
    let unwanted = peer.not_selector.as_ref();
    unwanted.is_none_or(|unwanted| {
        !place
            .holders()
            .any(|holder| holder.matches(state, unwanted))
    })
}

/// The address lies in one of the networks; an unknown address lies in none.
fn nets_hold(peer: &Peer, place: &Place<'_>) -> bool {
    let Some(nets) = &peer.nets else { return true };
    let address = place.address;
    address.is_some_and(|address| nets.iter().any(|net| net.contains(address)))
}

/// The excluded network that the address lies in; an unknown address lies in none.
fn excluding_net(peer: &Peer, place: &Place<'_>) -> Option<Prefix> {
    let address = place.address?;
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

    fn holds(self, case: &Case<'_>, term: &Traffic) -> bool {
        let question = case.question;
        match self {
            TrafficCriterion::Family => term.family.is_none_or(|f| f == question.family),
            TrafficCriterion::Protocol => term.protocol.is_none_or(|p| p == question.protocol),
            TrafficCriterion::NotProtocol => {
                term.not_protocol.is_none_or(|p| p != question.protocol)
            }
            TrafficCriterion::Destination => destination_failure(case, term).is_none(),
            TrafficCriterion::Source => source_failure(case, term).is_none(),
            TrafficCriterion::Icmp => term.icmp.is_none_or(|icmp| is_message(question, icmp)),
            TrafficCriterion::NotIcmp => {
                term.not_icmp.is_none_or(|icmp| !is_message(question, icmp))
            }
        }
    }

    fn failure(self, case: &Case<'_>, term: &Traffic) -> Option<TrafficFailure> {
        Some(match self {
            TrafficCriterion::Family => TrafficFailure::Family(term.family?),
            TrafficCriterion::Protocol => TrafficFailure::Protocol(term.protocol?),
            TrafficCriterion::NotProtocol => TrafficFailure::NotProtocol(term.not_protocol?),
            TrafficCriterion::Destination => {
                TrafficFailure::Destination(destination_failure(case, term)?.told())
            }
            TrafficCriterion::Source => TrafficFailure::Source(source_failure(case, term)?.told()),
            TrafficCriterion::Icmp => TrafficFailure::Icmp(term.icmp?),
            TrafficCriterion::NotIcmp => TrafficFailure::NotIcmp(term.not_icmp?),
        })
    }
}

fn traffic_matches(case: &Case<'_>, term: &Traffic) -> bool {
    let mut criteria = TrafficCriterion::ALL.into_iter();
    criteria.all(|criterion| criterion.holds(case, term))
}

fn traffic_failures(case: &Case<'_>, term: &Traffic) -> Vec<TrafficFailure> {
    TrafficCriterion::ALL
        .into_iter()
        .filter(|criterion| !criterion.holds(case, term))
        .filter_map(|criterion| criterion.failure(case, term))
        .collect()
}

/// Whether the flow is this ICMP or ICMPv6 message; no other protocol has any.
fn is_message(question: &Question, wanted: IcmpMatch) -> bool {
    match question.l4 {
        L4::Icmp { kind, code } if question.protocol.is_icmp() => {
            kind == wanted.kind && wanted.code.is_none_or(|wanted| wanted == code)
        }
        _ => false,
    }
}

/// The ports of the flow, source then destination; `None` for a protocol without ports.
fn ports(question: &Question) -> Option<(u16, u16)> {
    match question.l4 {
        L4::Ports {
            source,
            destination,
        } if question.protocol.has_ports() => Some((source, destination)),
        _ => None,
    }
}

/// Destination port names stand for ports of the endpoint at the destination.
fn destination_failure<'t>(case: &Case<'_>, term: &'t Traffic) -> Option<PortTest<'t>> {
    let port = ports(case.question).map(|(_, destination)| destination);
    port_failure(
        &term.destination,
        port,
        case.destination.endpoint,
        case.question.protocol,
    )
}

/// Source port names stand for ports of the endpoint at the source.
fn source_failure<'t>(case: &Case<'_>, term: &'t Traffic) -> Option<PortTest<'t>> {
    let port = ports(case.question).map(|(source, _)| source);
    port_failure(
        &term.source,
        port,
        case.source.endpoint,
        case.question.protocol,
    )
}

/// Why a port test fails, borrowed.
enum PortTest<'t> {
    NoPorts,
    NotListed {
        port: u16,
        wanted: &'t [PortSpec],
        unresolved: Vec<&'t PortSpec>,
    },
    Excluded {
        port: u16,
        by: &'t PortSpec,
    },
}

impl PortTest<'_> {
    fn told(self) -> PortFailure {
        match self {
            PortTest::NoPorts => PortFailure::NoPorts,
            PortTest::NotListed {
                port,
                wanted,
                unresolved,
            } => PortFailure::NotListed {
                port,
                wanted: wanted.to_vec(),
                unresolved: unresolved.into_iter().cloned().collect(),
            },
            PortTest::Excluded { port, by } => PortFailure::Excluded {
                port,
                by: by.clone(),
            },
        }
    }
}

/// An empty test holds for everything; any other only for protocols with ports.
fn port_failure<'t>(
    test: &'t PortMatch,
    port: Option<u16>,
    at: Option<&Endpoint>,
    protocol: Protocol,
) -> Option<PortTest<'t>> {
    if test.is_any() {
        return None;
    }
    let Some(port) = port else {
        return Some(PortTest::NoPorts);
    };
    let is = |spec: &PortSpec| stands_for(spec, at, protocol, port);
    if let Some(wanted) = &test.is
        && !wanted.iter().any(is)
    {
        let unresolved = |spec: &&PortSpec| is_unresolved(spec, at, protocol);
        return Some(PortTest::NotListed {
            port,
            wanted,
            unresolved: wanted.iter().filter(unresolved).collect(),
        });
    }
    let excluding = test.not.iter().find(|spec| is(spec));
    excluding.map(|by| PortTest::Excluded { port, by })
}

/// Whether a port is one of those a spec stands for; a name that resolves to nothing stands for none.
fn stands_for(spec: &PortSpec, at: Option<&Endpoint>, protocol: Protocol, port: u16) -> bool {
    match spec {
        PortSpec::Range(range) => range.contains(port),
        PortSpec::Named(name) => resolved(name, at, protocol) == Some(port),
    }
}

fn is_unresolved(spec: &PortSpec, at: Option<&Endpoint>, protocol: Protocol) -> bool {
    match spec {
        PortSpec::Range(_) => false,
        PortSpec::Named(name) => resolved(name, at, protocol).is_none(),
    }
}

/// The number behind a name: that of the endpoint at this end, for the flow's protocol.
fn resolved(name: &str, at: Option<&Endpoint>, protocol: Protocol) -> Option<u16> {
    at.and_then(|endpoint| endpoint.named_port(name, protocol))
}
