//! What hosts let in and out at their interfaces, and what a change opens and closes there.
//!
//! Promises: exact for every address of the other end, whoever holds it; failsafe ports are among what is allowed.
//! Never: lists what a host forwards ([`crate::forwarded_connections`]), what stays within it, or peers without an
//! address.

use crate::connection_end::IpBlocks;
use crate::explain::host_ends::host_ends;
use crate::host_evaluator::HostEvaluator;
use crate::host_rows::{HostInStates, HostRowDiff, RenderTraffic, rows_of_change, rows_of_state};
use crate::state_view::StateView;
use crate::traffic::TrafficSet;
use palisade_api::{HostConnectionReport, TrafficReport};
use palisade_model::{
    Direction, FailsafePorts, Family, FlowOrigin, L4, NumberRange, Prefix, Protocol, RangeSet, Str,
    address_to_number,
};
use palisade_oracle::{FlowEnd, HostPath, Question};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::rc::Rc;

/// Addresses of one family, from the first to the last of each range.
pub(crate) type AddressRangeList = Vec<NumberRange<u128>>;

/// What an interface of a host lets in or out.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct HostConnection {
    /// The node of the host.
    pub node: Str,
    /// The interface; `*` for every one that no other host endpoint of the node governs.
    pub interface: Str,
    /// Ingress: what the host accepts. Egress: what it may send.
    pub direction: Direction,
    /// The address of the host, where it has several of one family.
    pub address: Option<IpAddr>,
    /// The addresses of the other end.
    pub peers: IpBlocks,
    /// The allowed traffic; never empty.
    pub connections: Rc<TrafficSet>,
}

impl HostConnection {
    /// The connection for output.
    pub fn report(&self) -> HostConnectionReport {
        HostConnectionReport {
            node: self.node.to_string(),
            interface: self.interface.to_string(),
            direction: self.direction,
            address: self.address,
            peers: self.peers.0.iter().map(ToString::to_string).collect(),
            connections: TrafficReport::from(&*self.connections),
            recorded: None,
        }
    }
}

/// What a change opens and closes at interfaces of hosts.
pub type HostDiff = HostRowDiff<HostConnection>;

/// Everything that hosts with a host endpoint let in and out, by node, interface and direction.
pub fn host_connections<'a>(
    state: impl Into<StateView<'a>>,
    failsafe: &FailsafePorts,
) -> Vec<HostConnection> {
    rows_of_state(state.into(), failsafe, rows_of_host)
}

/// What a change from `old` to `new` opens and closes. An interface that no host endpoint governs is open.
pub fn host_diff<'a>(
    old: impl Into<StateView<'a>>,
    new: impl Into<StateView<'a>>,
    failsafe: &FailsafePorts,
) -> HostDiff {
    rows_of_change(old.into(), new.into(), failsafe, rows_of_host)
}

/// The rows of a host, by interface and direction.
fn rows_of_host(host: &HostInStates<'_>, render: RenderTraffic<'_>) -> Vec<HostConnection> {
    let starts = host.address_range_starts();
    let own: BTreeSet<FlowEnd> = host
        .states()
        .into_iter()
        .flat_map(|state| host_ends(state, host.node))
        .collect();
    let mut rows = Vec::new();
    for interface in &host.interfaces {
        for direction in Direction::BOTH {
            let place = InterfaceDirection {
                node: host.node,
                interface,
                direction,
            };
            rows.extend(place.rows(host.judges, &own, &starts, render));
        }
    }
    rows
}

/// One direction at one interface of a host.
struct InterfaceDirection<'a> {
    node: &'a Str,
    interface: &'a Str,
    direction: Direction,
}

impl InterfaceDirection<'_> {
    fn rows(
        &self,
        judges: &[HostEvaluator<'_>],
        own: &BTreeSet<FlowEnd>,
        starts: &BTreeSet<IpAddr>,
        render: RenderTraffic<'_>,
    ) -> Vec<HostConnection> {
        let family_of = |end: &FlowEnd| match end {
            FlowEnd::Address(address) => Some(Family::of(*address)),
            FlowEnd::Endpoint(_) => None,
        };
        let mut rows: BTreeMap<(Option<IpAddr>, TrafficSet), [AddressRangeList; 2]> =
            BTreeMap::new();
        for end in own {
            let alike = own
                .iter()
                .filter(|other| family_of(other) == family_of(end));
            let address = match end {
                FlowEnd::Address(address) if alike.count() > 1 => Some(*address),
                FlowEnd::Address(_) | FlowEnd::Endpoint(_) => None,
            };
            let mut known: BTreeMap<Vec<Vec<u32>>, TrafficSet> = BTreeMap::new();
            for family in Family::BOTH {
                if family_of(end).is_some_and(|other| other != family) {
                    continue;
                }
                for (peer, range) in ranges(starts, family) {
                    let signature = judges.iter().map(|judge| judge.signature(self.node, peer));
                    let set = known.entry(signature.collect()).or_insert_with(|| {
                        let sets = judges.iter().map(|judge| self.allowed(judge, end, peer));
                        render(&sets.collect::<Vec<_>>())
                    });
                    if !set.is_empty() {
                        let found = rows.entry((address, set.clone())).or_default();
                        found[family as usize].push(range);
                    }
                }
            }
        }
        let none = [(); 2].map(|()| RangeSet::default());
        let rows = rows.into_iter().map(|((address, set), ranges)| {
            let regions = ranges.map(RangeSet::from_iter);
            HostConnection {
                node: self.node.clone(),
                interface: self.interface.clone(),
                direction: self.direction,
                address,
                peers: IpBlocks::from_address_sets(&regions, &none),
                connections: Rc::new(set),
            }
        });
        rows.collect()
    }

    fn allowed(&self, judge: &HostEvaluator<'_>, own: &FlowEnd, peer: IpAddr) -> TrafficSet {
        let peer = FlowEnd::Address(peer);
        let at = Some(self.interface.clone());
        let (input, output, origin, source, destination) = match self.direction {
            Direction::Ingress => (at, None, FlowOrigin::Network, &peer, own),
            Direction::Egress => (None, at, FlowOrigin::HostStack, own, &peer),
        };
        let family = match (source, destination) {
            (FlowEnd::Address(known), _) | (_, FlowEnd::Address(known)) => Family::of(*known),
            (FlowEnd::Endpoint(_), FlowEnd::Endpoint(_)) => return TrafficSet::none(),
        };
        let question = Question {
            source: source.clone(),
            destination: destination.clone(),
            family,
            protocol: Protocol::TCP,
            l4: L4::None,
            origin,
            path: HostPath {
                input,
                output,
                ..HostPath::default()
            },
        };
        // Of an end that is an interface of the host, the host endpoint has the named ports.
        judge.traffic(question, self.direction, &|end| {
            if end == own {
                judge.host_endpoint(self.interface)
            } else {
                judge.endpoint_at(end)
            }
        })
    }
}

/// The ranges of a family that begin at these addresses, each with its first address.
pub(crate) fn ranges(
    starts: &BTreeSet<IpAddr>,
    family: Family,
) -> impl Iterator<Item = (IpAddr, NumberRange<u128>)> {
    let (_, end) = Prefix::all(family).bounds();
    let of_family = move |start: &&IpAddr| Family::of(**start) == family;
    let first = starts
        .iter()
        .copied()
        .filter(move |start| of_family(&start));
    let next = starts.iter().filter(of_family).skip(1);
    let last = next.map(|next| address_to_number(*next) - 1).chain([end]);
    first.zip(last).map(|(start, last)| {
        let first = address_to_number(start);
        (start, NumberRange { first, last })
    })
}
