//! What suggested policies allow although it was not recorded, and why.
//!
//! Promises: everything that the analysis of connections lists for the suggested workloads was recorded, or is listed
//! here with its reason; what has no reason is an error.

use crate::record::{FlowTotal, Record, RecordedHeader};
use crate::suggested_policy::{SuggestedPeer, SuggestedPolicy};
use crate::tested_facts::address_holders;
use crate::workload_labels::has_labels;
use palisade_analysis::{
    Connection, ConnectionEnd, ControllerIndex, IpBlock, TrafficSet, connections,
};
use palisade_api::{WidenedConnection, WorkloadRef};
use palisade_convert::TargetDialect;
use palisade_model::{
    Direction, Endpoint, EndpointId, Family, L4, Labels, ObjectId, Prefix, Protocol, State,
};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// A workload with its suggested policy.
pub(crate) struct SuggestedWorkload {
    /// As messages name it.
    pub(crate) name: String,
    pub(crate) policy: SuggestedPolicy,
}

impl SuggestedWorkload {
    /// Whether the policy selects a pod.
    pub(crate) fn selects(&self, pod: &Endpoint) -> bool {
        pod.id.namespace.as_deref() == Some(&*self.policy.namespace)
            && has_labels(&pod.labels, &self.policy.labels)
    }
}

/// Why all of the outside is allowed in ingress.
const OPEN_TO_OUTSIDE: &str = "a ClusterNetworkPolicy cannot deny what comes from outside";

/// A recorded end, as the analysis may list it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum SeenEnd {
    Pod(EndpointId),
    Address(IpAddr),
    Name(String),
}

/// The recorded traffic between two ends.
type SeenTraffic = BTreeMap<(SeenEnd, SeenEnd), Vec<(Protocol, RecordedHeader)>>;

/// What the policies allow beside the flows.
///
/// # Errors
/// A connection that nothing explains.
pub(crate) fn find_widened(
    record: &Record,
    flows: &[FlowTotal],
    state: &State,
    suggested: &[SuggestedWorkload],
    dialect: TargetDialect,
) -> Result<Vec<WidenedConnection>, String> {
    let holders = address_holders(state).into_iter();
    let of_workloads =
        holders.filter(|(_, holder)| !holder.is_host() && !holder.uses_host_network());
    let search = WideningSearch {
        state,
        workload_addresses: of_workloads.map(|(address, _)| address).collect(),
        pods: ControllerIndex::new(state),
        seen: seen_traffic(record, flows, state),
        suggested,
        dialect,
    };
    let mut widened = BTreeSet::new();
    for row in connections(state) {
        search.check(&row, &mut widened)?;
    }
    Ok(widened.into_iter().collect())
}

fn seen_traffic(record: &Record, flows: &[FlowTotal], state: &State) -> SeenTraffic {
    let pods = ControllerIndex::new(state);
    let ends: Vec<Vec<SeenEnd>> = record
        .ends
        .iter()
        .map(|end| match (&end.namespace, &end.controller, &end.name) {
            (Some(namespace), Some(controller), _) => {
                let pods = pods.pods(namespace, &controller.kind, &controller.name);
                pods.iter()
                    .map(|pod| SeenEnd::Pod(pod.id.clone()))
                    .collect()
            }
            (Some(namespace), None, Some(name)) => {
                let pods = pods.named(namespace, name);
                pods.iter()
                    .map(|pod| SeenEnd::Pod(pod.id.clone()))
                    .collect()
            }
            _ => {
                let address = end.address.as_ref().and_then(|text| text.parse().ok());
                let node = end.node.as_ref().and_then(|node| state.nodes.get(&**node));
                let own = node.filter(|_| address.is_none());
                let own = own
                    .into_iter()
                    .flat_map(|node| node.addresses.iter().copied());
                let addresses = address.into_iter().chain(own).map(SeenEnd::Address);
                let names = end.names.iter().cloned().map(SeenEnd::Name);
                addresses.chain(names).collect()
            }
        })
        .collect();
    let mut seen = SeenTraffic::new();
    for flow in flows {
        let Some(protocol) = flow.key.protocol else {
            continue;
        };
        let ends_of = |id: u32| ends.get(id as usize).map_or(&[][..], Vec::as_slice);
        for source in ends_of(flow.key.source) {
            for destination in ends_of(flow.key.destination) {
                let traffic = seen.entry((source.clone(), destination.clone()));
                traffic.or_default().push((protocol, flow.key.header));
            }
        }
    }
    seen
}

struct WideningSearch<'a> {
    state: &'a State,
    /// The addresses that only workloads have.
    workload_addresses: BTreeSet<IpAddr>,
    pods: ControllerIndex<'a>,
    seen: SeenTraffic,
    suggested: &'a [SuggestedWorkload],
    dialect: TargetDialect,
}

impl WideningSearch<'_> {
    /// Compares a row of the listing with what was seen.
    fn check(
        &self,
        row: &Connection,
        widened: &mut BTreeSet<WidenedConnection>,
    ) -> Result<(), String> {
        let restricted = [
            (&row.src, Direction::Egress),
            (&row.dst, Direction::Ingress),
        ]
        .map(|(end, direction)| (self.suggested_at(end), direction));
        if restricted.iter().all(|(found, _)| found.is_empty()) {
            return Ok(());
        }
        let Some(extra) = self.unseen(row) else {
            return Ok(());
        };
        let other = |direction| match direction {
            Direction::Egress => &row.dst,
            Direction::Ingress => &row.src,
        };
        // Every end that is restricted has to allow it, by one of the policies that select it.
        let restricted = restricted.iter().filter(|(found, _)| !found.is_empty());
        let reasons = restricted.map(|(found, direction)| {
            let end = match direction {
                Direction::Egress => &row.src,
                Direction::Ingress => &row.dst,
            };
            let mut pods = self.pods_at(end).into_iter();
            if !pods.all(|pod| found.iter().any(|workload| workload.selects(pod))) {
                return Some(format!("only some pods of {end} are selected by a policy"));
            }
            let other = other(*direction);
            let by_one = found
                .iter()
                .find_map(|workload| self.reason(workload, *direction, other));
            by_one.or_else(|| self.common_reason(found, *direction, other))
        });
        let reasons: Option<BTreeSet<String>> = reasons.collect();
        let shown = [&row.src, &row.dst].map(ToString::to_string);
        let [from, to] = shown;
        let Some(reasons) = reasons.filter(|reasons| !reasons.is_empty()) else {
            return Err(format!("{from} to {to}, {extra}"));
        };
        let reason = reasons.into_iter().collect::<Vec<_>>().join("; ");
        // One line in place of one for each network.
        let (from, traffic) = if reason == OPEN_TO_OUTSIDE {
            ("every address outside".to_owned(), "everything".to_owned())
        } else {
            (from, extra)
        };
        widened.insert(WidenedConnection {
            from,
            to,
            traffic,
            reason,
        });
        Ok(())
    }

    /// The suggested workloads whose policies select the pods of an end.
    fn suggested_at(&self, end: &ConnectionEnd) -> Vec<&SuggestedWorkload> {
        let pods = self.pods_at(end);
        let selects = |workload: &&SuggestedWorkload| pods.iter().any(|pod| workload.selects(pod));
        self.suggested.iter().filter(selects).collect()
    }

    fn pods_at(&self, end: &ConnectionEnd) -> Vec<&Endpoint> {
        let pods = |workload: &WorkloadRef| {
            let namespace = workload.namespace.as_deref().unwrap_or_default();
            self.pods
                .pods(namespace, &workload.kind, &workload.name)
                .to_vec()
        };
        end.workloads().iter().flat_map(pods).collect()
    }

    /// The traffic of a row that was not seen between its ends, as text; `None` if all was seen.
    fn unseen(&self, row: &Connection) -> Option<String> {
        let [sources, destinations] = [&row.src, &row.dst].map(|end| self.seen_ends(end));
        let is_seen = |protocol: Protocol, l4: L4| match (&sources, &destinations) {
            (Some(sources), Some(destinations)) => sources.iter().all(|source| {
                destinations
                    .iter()
                    .all(|destination| self.was_seen(source, destination, protocol, l4))
            }),
            _ => false,
        };
        let extra = unseen_traffic(&row.connections, &is_seen);
        (!extra.is_empty()).then(|| extra.join("; "))
    }

    fn was_seen(
        &self,
        source: &SeenEnd,
        destination: &SeenEnd,
        protocol: Protocol,
        l4: L4,
    ) -> bool {
        let key = (source.clone(), destination.clone());
        let traffic = self.seen.get(&key).map_or(&[][..], Vec::as_slice);
        traffic.iter().any(|(recorded, header)| {
            *recorded == protocol
                && match (header, l4) {
                    (RecordedHeader::Port(port), L4::Ports { destination, .. }) => {
                        *port == destination
                    }
                    (RecordedHeader::Icmp(kind, code), L4::Icmp { kind: k, code: c }) => {
                        (*kind, *code) == (k, c)
                    }
                    (_, L4::None) => true,
                    _ => false,
                }
        })
    }

    /// The single ends that an end of a row stands for; `None` if there are too many to have been seen.
    fn seen_ends(&self, end: &ConnectionEnd) -> Option<Vec<SeenEnd>> {
        match end {
            ConnectionEnd::Workload(_) | ConnectionEnd::Group(_) => {
                let pods = self.pods_at(end).into_iter();
                Some(pods.map(|pod| SeenEnd::Pod(pod.id.clone())).collect())
            }
            ConnectionEnd::Outside(network) => addresses_of(*network),
            ConnectionEnd::Networks(blocks) => {
                let blocks = blocks.0.iter();
                let all: Option<Vec<Vec<SeenEnd>>> = blocks.map(block_addresses).collect();
                // The fewest networks may have addresses of workloads, which the row is not about.
                let mut all = all?.concat();
                all.retain(|end| !matches!(end, SeenEnd::Address(address) if self.workload_addresses.contains(address)));
                Some(all)
            }
            ConnectionEnd::Names(names) => {
                let names = names.iter();
                Some(names.map(|name| SeenEnd::Name(name.name.clone())).collect())
            }
        }
    }

    /// What has an address of an end, and is selected by the rules for pods: a network set, as in Calico, or another
    /// endpoint with the address, as a pod in the network of its node.
    fn selected_object(
        &self,
        workload: &SuggestedWorkload,
        direction: Direction,
        end: &ConnectionEnd,
    ) -> Option<String> {
        let mut networks = networks_of(end);
        let pods = self.pods_at(end);
        let addresses = pods.iter().flat_map(|pod| &pod.addresses);
        networks.extend(addresses.map(|address| Prefix::host(*address)));
        let rules = workload.policy.rules(direction);
        let is_selected = |id: &ObjectId, own: &Labels| {
            let mut peers = rules.iter().flat_map(|rule| &rule.peers);
            peers.any(|peer| match peer {
                SuggestedPeer::Pods { namespace, labels } => {
                    id.namespace.as_deref() == Some(&**namespace) && has_labels(own, labels)
                }
                _ => false,
            })
        };
        let is_in = |network: Prefix| networks.iter().any(|own| overlap(network, *own));
        let mut sets = self.state.network_sets.values();
        let set = sets.find(|set| {
            is_selected(&set.id, &set.labels) && set.nets.iter().any(|network| is_in(*network))
        });
        let mut endpoints = self.state.endpoints.values();
        let name = workload.name.as_str();
        set.map(|set| {
            format!(
                "the labels of peers of {name} select the network set {}",
                set.id
            )
        })
        .or_else(|| {
            let holder = endpoints.find(|endpoint| {
                let mut own = endpoint.addresses.iter();
                is_selected(&endpoint.id, &endpoint.labels)
                    && own.any(|address| is_in(Prefix::host(*address)))
            })?;
            Some(format!(
                "the labels of peers of {name} select {}, which has an address of it",
                holder.id
            ))
        })
    }

    /// Whether each address or name of an end outside is one of these peers.
    fn are_named<'p>(
        &self,
        peers: impl Iterator<Item = &'p SuggestedPeer> + Clone,
        end: &ConnectionEnd,
    ) -> bool {
        let listed = self.seen_ends(end).unwrap_or_default();
        let is_named = |end: &SeenEnd| {
            peers.clone().any(|peer| match (peer, end) {
                (SuggestedPeer::Name(name), SeenEnd::Name(end)) => name == end,
                (SuggestedPeer::Network(network), SeenEnd::Address(address)) => {
                    network.contains(*address)
                }
                _ => false,
            })
        };
        !listed.is_empty() && listed.iter().all(is_named)
    }

    /// Why several policies that select the same pods together allow traffic with an end outside.
    fn common_reason(
        &self,
        workloads: &[&SuggestedWorkload],
        direction: Direction,
        other: &ConnectionEnd,
    ) -> Option<String> {
        let rules = workloads
            .iter()
            .flat_map(|workload| workload.policy.rules(direction));
        let peers = rules.flat_map(|rule| &rule.peers);
        self.are_named(peers, other).then(|| {
            let names: Vec<&str> = workloads
                .iter()
                .map(|workload| workload.name.as_str())
                .collect();
            format!("the policies of {} select the same pods", names.join(", "))
        })
    }

    /// Why a suggested policy allows traffic with another end that was not recorded.
    fn reason(
        &self,
        workload: &SuggestedWorkload,
        direction: Direction,
        other: &ConnectionEnd,
    ) -> Option<String> {
        let rules = workload.policy.rules(direction);
        let peers = || rules.iter().flat_map(|rule| &rule.peers);
        let name = &workload.name;
        if other.workloads().is_empty() {
            if direction == Direction::Ingress
                && self.dialect == TargetDialect::ClusterNetworkPolicy
            {
                return Some(OPEN_TO_OUTSIDE.to_owned());
            }
            if peers().any(|peer| *peer == SuggestedPeer::Nodes) {
                return Some(format!(
                    "{name} was seen with a node: every node is allowed"
                ));
            }
            if self.are_named(peers(), other) {
                return Some(format!(
                    "{name} and what it was seen with have rules in common with others"
                ));
            }
            return self.selected_object(workload, direction, other);
        }
        let others = self.pods_at(other);
        let selects = |peer: &&SuggestedPeer| match peer {
            SuggestedPeer::Pods { namespace, labels } => others.iter().any(|pod| {
                pod.id.namespace.as_deref() == Some(&**namespace) && has_labels(&pod.labels, labels)
            }),
            _ => false,
        };
        let by_labels = peers().find(selects).map(|peer| match peer {
            SuggestedPeer::Pods { labels, .. } if labels.is_empty() => {
                format!("a peer of {name} has no labels: its whole namespace is allowed")
            }
            _ => format!("the labels of peers of {name} select it"),
        });
        by_labels.or_else(|| self.selected_object(workload, direction, other))
    }
}

/// The networks of an end outside.
fn networks_of(end: &ConnectionEnd) -> Vec<Prefix> {
    match end {
        ConnectionEnd::Outside(network) => vec![*network],
        ConnectionEnd::Networks(blocks) => blocks.0.iter().map(|block| block.cidr).collect(),
        ConnectionEnd::Workload(_) | ConnectionEnd::Group(_) | ConnectionEnd::Names(_) => {
            Vec::new()
        }
    }
}

fn overlap(a: Prefix, b: Prefix) -> bool {
    let ((a_first, a_last), (b_first, b_last)) = (a.bounds(), b.bounds());
    a.family() == b.family() && a_first <= b_last && b_first <= a_last
}

/// The traffic of a set that was not seen, as text.
fn unseen_traffic(set: &TrafficSet, is_seen: &dyn Fn(Protocol, L4) -> bool) -> Vec<String> {
    /// Larger ranges cannot have been seen.
    const MAX_LISTED: u32 = 4_096;
    let mut extra = Vec::new();
    for entry in set.entries() {
        let protocol = match crate::record::protocol_of(entry.protocol) {
            Some(protocol) => protocol,
            None => {
                extra.push("every other protocol".to_owned());
                continue;
            }
        };
        let ranges = entry.ports.as_ref().or(entry.types.as_ref());
        let Some(ranges) = ranges else {
            if !is_seen(protocol, L4::None) {
                extra.push(protocol.to_string());
            }
            continue;
        };
        let is_icmp = protocol.is_icmp();
        let has_all_codes = entry.codes.is_none() && is_icmp;
        let count: u32 = ranges.iter().map(|[a, b]| u32::from(b - a) + 1).sum();
        let unseen: Vec<[u16; 2]> = if count > MAX_LISTED || has_all_codes {
            ranges.clone()
        } else {
            let numbers = ranges.iter().flat_map(|[first, last]| *first..=*last);
            let unseen = numbers.filter(|number| {
                let l4 = match u8::try_from(*number) {
                    Ok(kind) if is_icmp => L4::Icmp { kind, code: 0 },
                    _ => L4::Ports {
                        source: 40_000,
                        destination: *number,
                    },
                };
                !is_seen(protocol, l4)
            });
            ranges_of(unseen)
        };
        if unseen.is_empty() {
            continue;
        }
        let numbers = match (is_icmp, unseen.as_slice()) {
            (false, [[0, u16::MAX]]) => " every port".to_owned(),
            (true, [[0, 255]]) => " every message".to_owned(),
            (false, ranges) => format!(" {}", ranges_text(ranges)),
            (true, ranges) => format!(" type {}", ranges_text(ranges)),
        };
        let codes = if has_all_codes { ", every code" } else { "" };
        extra.push(format!("{protocol}{numbers}{codes}"));
    }
    extra
}

/// Numbers in ascending order as ranges.
fn ranges_of(numbers: impl Iterator<Item = u16>) -> Vec<[u16; 2]> {
    let mut ranges: Vec<[u16; 2]> = Vec::new();
    for number in numbers {
        match ranges.last_mut() {
            Some([_, last]) if last.checked_add(1) == Some(number) => *last = number,
            _ => ranges.push([number, number]),
        }
    }
    ranges
}

fn ranges_text(ranges: &[[u16; 2]]) -> String {
    let ranges = ranges.iter().map(|[first, last]| {
        if first == last {
            first.to_string()
        } else {
            format!("{first}-{last}")
        }
    });
    ranges.collect::<Vec<_>>().join(",")
}

/// The addresses of a network, if they are few.
fn addresses_of(network: Prefix) -> Option<Vec<SeenEnd>> {
    const MAX_ADDRESSES: u128 = 1 << 12;
    let (first, last) = network.bounds();
    (last - first < MAX_ADDRESSES).then(|| {
        let numbers = first..=last;
        let family: Family = network.family();
        numbers
            .map(|number| SeenEnd::Address(palisade_model::address_from_number(family, number)))
            .collect()
    })
}

fn block_addresses(block: &IpBlock) -> Option<Vec<SeenEnd>> {
    let mut addresses = addresses_of(block.cidr)?;
    let is_excepted = |address: &IpAddr| block.except.iter().any(|net| net.contains(*address));
    addresses.retain(|end| !matches!(end, SeenEnd::Address(address) if is_excepted(address)));
    Some(addresses)
}
