//! How often recorded flows used a connection that a listing has.
//!
//! A recorded end names a controller where a listing may name one of its pods: such a flow counts for each of them, so the
//! counts are at most what was seen of the listed connection.
//!
//! Promises: a flow counts for a connection only if both of its ends, its protocol and its port can be those of the
//! connection. Each end is compared once. Never: judges a flow.

use crate::record::{Record, RecordedHeader};
use palisade_analysis::{Connection, ConnectionEnd, ControllerIndex, HostConnection, TrafficSet};
use palisade_api::{RecordedEnd, RecordedUse, WorkloadRef};
use palisade_model::{Direction, DomainPattern, EndpointId, Family, L4, State};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::rc::Rc;

/// A source port that no service listens on: where policies restrict source ports, it is those of clients.
const CLIENT_PORT: u16 = 50_000;

/// A recorded end, as both states know it.
struct EndFacts<'a> {
    end: &'a RecordedEnd,
    /// Its pods.
    pods: BTreeSet<EndpointId>,
    /// Its own address, or those of its pods.
    addresses: BTreeSet<IpAddr>,
}

/// Counts the recorded flows of connections of two states.
pub struct ConnectionUses<'a> {
    record: &'a Record,
    pods: [ControllerIndex<'a>; 2],
    ends: Vec<EndFacts<'a>>,
    /// For each end of a connection, whether each recorded end can be it.
    compared: BTreeMap<ConnectionEnd, Rc<Vec<bool>>>,
}

impl<'a> ConnectionUses<'a> {
    /// The uses that a record has of connections of these states.
    pub fn new(record: &'a Record, states: [&'a State; 2]) -> Self {
        let pods = states.map(ControllerIndex::new);
        let facts = |end: &'a RecordedEnd| {
            let found = pods.iter().flat_map(|index| recorded_pods(index, end));
            let (mut pods, mut addresses) = (BTreeSet::new(), BTreeSet::new());
            for pod in found {
                pods.insert(pod.id.clone());
                addresses.extend(pod.addresses.iter().copied());
            }
            if let Some(own) = end.address.as_ref().and_then(|text| text.parse().ok()) {
                addresses = BTreeSet::from([own]);
            }
            EndFacts {
                end,
                pods,
                addresses,
            }
        };
        let ends = record.ends.iter().map(facts).collect();
        ConnectionUses {
            record,
            pods,
            ends,
            compared: BTreeMap::new(),
        }
    }

    /// How often a connection between workloads, or with the outside, was used.
    pub fn of_connection(&mut self, connection: &Connection) -> RecordedUse {
        let sources = self.compare(&connection.src);
        let destinations = self.compare(&connection.dst);
        let can_be = |ends: &[bool], end: u32| ends.get(end as usize).copied().unwrap_or_default();
        self.count(&connection.connections, |source, destination| {
            let has_family = connection
                .family
                .is_none_or(|family| self.can_have_family([source, destination], family));
            has_family && can_be(&sources, source) && can_be(&destinations, destination)
        })
    }

    /// How often a connection of a host was used, at whichever interface.
    pub fn of_host(&self, connection: &HostConnection) -> RecordedUse {
        self.count(&connection.connections, |source, destination| {
            let (own, peer) = match connection.direction {
                Direction::Ingress => (destination, source),
                Direction::Egress => (source, destination),
            };
            let [Some(own), Some(peer)] = [own, peer].map(|end| self.ends.get(end as usize)) else {
                return false;
            };
            let is_host = own.end.namespace.is_none()
                && own.end.node.as_deref() == Some(&*connection.node)
                && (connection.address).is_none_or(|address| own.addresses.contains(&address));
            is_host && (peer.addresses.iter()).any(|address| connection.peers.contains(*address))
        })
    }

    fn count(&self, traffic: &TrafficSet, is_between: impl Fn(u32, u32) -> bool) -> RecordedUse {
        let mut uses = RecordedUse::default();
        for flow in &self.record.flows {
            let key = flow.key;
            if !is_between(key.source, key.destination) {
                continue;
            }
            let l4 = match key.header {
                RecordedHeader::Port(destination) => L4::Ports {
                    source: CLIENT_PORT,
                    destination,
                },
                RecordedHeader::Icmp(kind, code) => L4::Icmp { kind, code },
                RecordedHeader::Absent => L4::None,
            };
            let is_listed = |protocol| traffic.contains(protocol, l4);
            if !key.protocol.is_some_and(is_listed) {
                continue;
            }
            let count = if key.is_allowed {
                &mut uses.allowed
            } else {
                &mut uses.denied
            };
            *count += flow.count();
            uses.last = uses.last.max(Some(flow.last.clone()));
        }
        uses
    }

    fn can_have_family(&self, ends: [u32; 2], family: Family) -> bool {
        ends.into_iter().all(|end| {
            let facts = self.ends.get(end as usize);
            facts.is_none_or(|facts| {
                facts.addresses.is_empty()
                    || (facts.addresses.iter()).any(|address| Family::of(*address) == family)
            })
        })
    }

    fn compare(&mut self, listed: &ConnectionEnd) -> Rc<Vec<bool>> {
        if let Some(known) = self.compared.get(listed) {
            return Rc::clone(known);
        }
        let workloads: Vec<(&WorkloadRef, BTreeSet<EndpointId>)> = listed
            .workloads()
            .iter()
            .map(|workload| (workload, self.listed_pods(workload)))
            .collect();
        let is_outside = |facts: &EndFacts<'_>, contains: &dyn Fn(IpAddr) -> bool| {
            facts.end.namespace.is_none() && facts.addresses.iter().copied().any(contains)
        };
        let can_be = |facts: &EndFacts<'_>| match listed {
            ConnectionEnd::Workload(_) | ConnectionEnd::Group(_) => workloads
                .iter()
                .any(|(workload, pods)| is_workload(facts, workload, pods)),
            ConnectionEnd::Outside(prefix) => {
                is_outside(facts, &|address| prefix.contains(address))
            }
            ConnectionEnd::Networks(blocks) => {
                is_outside(facts, &|address| blocks.contains(address))
            }
            ConnectionEnd::Names(names) => {
                let mut patterns = names
                    .iter()
                    .filter_map(|name| DomainPattern::glob(&name.name).ok());
                patterns.any(|pattern| facts.end.names.iter().any(|name| pattern.matches(name)))
            }
        };
        let compared = Rc::new(self.ends.iter().map(can_be).collect());
        (self.compared).insert(listed.clone(), Rc::clone(&compared));
        compared
    }

    /// The pods of a listed workload in both states.
    fn listed_pods(&self, workload: &WorkloadRef) -> BTreeSet<EndpointId> {
        let namespace = workload.namespace.as_deref().unwrap_or_default();
        let found = self.pods.iter().flat_map(|index| {
            let pods = index.pods(namespace, &workload.kind, &workload.name);
            pods.iter().map(|pod| pod.id.clone())
        });
        found.collect()
    }
}

/// The pods of a state that a recorded end stands for.
fn recorded_pods<'i, 'a>(
    index: &'i ControllerIndex<'a>,
    end: &RecordedEnd,
) -> impl Iterator<Item = &'a palisade_model::Endpoint> + use<'i, 'a> {
    let namespace = end.namespace.as_deref().unwrap_or_default();
    let pods = match (&end.name, &end.controller) {
        (Some(name), _) => index.named(namespace, name),
        (None, Some(controller)) => index.pods(namespace, &controller.kind, &controller.name),
        (None, None) => &[],
    };
    pods.iter().copied()
}

/// Whether a recorded end can be this workload, which has these pods.
fn is_workload(facts: &EndFacts<'_>, workload: &WorkloadRef, pods: &BTreeSet<EndpointId>) -> bool {
    let end = facts.end;
    if end.namespace.as_deref() != workload.namespace.as_deref() {
        return false;
    }
    let has_address = workload
        .address
        .is_none_or(|address| facts.addresses.contains(&address));
    let is_named = match (&end.name, &end.controller) {
        (Some(name), _) => **name == *workload.name,
        (None, Some(controller)) => {
            controller.kind == *workload.kind && controller.name == *workload.name
        }
        (None, None) => false,
    };
    has_address && (is_named || facts.pods.intersection(pods).next().is_some())
}
