//! The records of several nodes as one: each flow once, with its ends as numbers.
//!
//! Promises: entries that differ in time, traffic, rules or Service alone are one flow; a flow that both of its ends
//! recorded counts once. The cost is one pass over the entries. Never: judges a flow, or knows the present objects.

use foldhash::fast::FixedState;
use hashbrown::hash_map::Entry;
use hashbrown::{HashMap, HashTable};
use palisade_api::{
    FlowIcmp, FlowSummary, MonitorVerdict, ProtocolName, RecordSummary, RecordedEnd, RecordedFlow,
    RecordedFlowList,
};
use palisade_model::Protocol;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher, Hash, Hasher};

/// The number of an end in [`Record::ends`].
pub(crate) type EndId = u32;

/// The header of a flow, as far as it is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum RecordedHeader {
    /// The destination port.
    Port(u16),
    /// Type and code.
    Icmp(u8, u8),
    /// Nothing.
    Absent,
}

/// What tells flows apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct FlowKey {
    pub(crate) source: EndId,
    pub(crate) destination: EndId,
    /// `None` if the record does not say which.
    pub(crate) protocol: Option<Protocol>,
    pub(crate) header: RecordedHeader,
    pub(crate) is_allowed: bool,
    /// Whether the node that recorded it sent it.
    pub(crate) is_from_own_node: bool,
}

/// An entry of a list: a flow of one node and one time.
pub(crate) struct FlowEntry<'a> {
    pub(crate) source: EndId,
    pub(crate) destination: EndId,
    /// The node that recorded it.
    pub(crate) node: &'a str,
    pub(crate) protocol: ProtocolName,
    pub(crate) port: Option<u16>,
    pub(crate) icmp: Option<FlowIcmp>,
    pub(crate) verdict: MonitorVerdict,
    /// Whether it was judged where it came from.
    pub(crate) has_egress: bool,
    pub(crate) first: &'a str,
    pub(crate) last: &'a str,
    pub(crate) count: u64,
}

/// All entries of one flow.
#[derive(Clone, Debug)]
pub(crate) struct FlowTotal {
    pub(crate) key: FlowKey,
    /// How often the source recorded it.
    at_source: u64,
    /// How often the destination alone recorded it.
    at_destination: u64,
    pub(crate) first: String,
    pub(crate) last: String,
}

impl FlowTotal {
    /// How often it was seen.
    pub(crate) fn count(&self) -> u64 {
        self.at_source.max(self.at_destination)
    }
}

/// The recorded flows of some nodes.
#[derive(Debug, Default)]
pub struct Record {
    pub(crate) ends: Vec<RecordedEnd>,
    pub(crate) flows: Vec<FlowTotal>,
    /// The numbers of ends, by their content.
    end_table: HashTable<EndId>,
    flow_table: HashMap<FlowKey, u32, FixedState>,
    entries: usize,
    since: Option<String>,
    nodes: BTreeSet<String>,
    truncated: BTreeSet<String>,
    /// By node: records of one node that overlap tell of the same loss.
    lost: BTreeMap<String, u64>,
}

impl Record {
    /// Adds the record of a node: the flows that were seen at or after `since`, a time as records write it.
    pub fn add(&mut self, list: RecordedFlowList, since: Option<&str>) {
        let begins = list.since.map(|begins| match since {
            Some(since) if begins.as_str() < since => since.to_owned(),
            _ => begins,
        });
        self.since = match (self.since.take(), begins) {
            (Some(known), Some(begins)) => Some(known.min(begins)),
            (known, begins) => known.or(begins),
        };
        if list.truncated {
            self.truncated.insert(list.node.clone());
        }
        let lost = self.lost.entry(list.node.clone()).or_default();
        *lost = list.lost.max(*lost);
        for flow in list.flows {
            if since.is_none_or(|since| flow.last.as_str() >= since) {
                self.add_flow(flow, &list.node);
            }
        }
        self.nodes.insert(list.node);
    }

    fn add_flow(&mut self, flow: RecordedFlow, node: &str) {
        let (source, destination) = (self.intern(flow.source), self.intern(flow.destination));
        self.add_entry(&FlowEntry {
            source,
            destination,
            node,
            protocol: flow.protocol,
            port: flow.port,
            icmp: flow.icmp,
            verdict: flow.verdict,
            has_egress: flow.egress.is_some(),
            first: &flow.first,
            last: &flow.last,
            count: flow.count,
        });
    }

    /// Adds an entry.
    pub(crate) fn add_entry(&mut self, flow: &FlowEntry<'_>) {
        self.entries += 1;
        let header = match (flow.port, flow.icmp) {
            (Some(port), _) => RecordedHeader::Port(port),
            (None, Some(icmp)) => RecordedHeader::Icmp(icmp.kind, icmp.code),
            (None, None) => RecordedHeader::Absent,
        };
        let source = self.ends.get(flow.source as usize);
        let source_node = source.and_then(|end| end.node.as_deref());
        let is_from_own_node = source_node == Some(flow.node);
        let key = FlowKey {
            source: flow.source,
            destination: flow.destination,
            protocol: protocol_of(flow.protocol),
            header,
            is_allowed: flow.verdict == MonitorVerdict::Allowed,
            is_from_own_node,
        };
        let index = match self.flow_table.entry(key) {
            Entry::Occupied(found) => *found.get(),
            Entry::Vacant(free) => {
                free.insert(to_u32(self.flows.len()));
                self.flows.push(FlowTotal {
                    key,
                    at_source: 0,
                    at_destination: 0,
                    first: flow.first.to_owned(),
                    last: flow.last.to_owned(),
                });
                to_u32(self.flows.len() - 1)
            }
        };
        let Some(total) = self.flows.get_mut(index as usize) else {
            return;
        };
        let counter = if flow.has_egress {
            &mut total.at_source
        } else {
            &mut total.at_destination
        };
        *counter = counter.saturating_add(flow.count);
        if *flow.first < *total.first {
            flow.first.clone_into(&mut total.first);
        }
        if *flow.last > *total.last {
            flow.last.clone_into(&mut total.last);
        }
    }

    /// The number of an end.
    pub(crate) fn intern(&mut self, mut end: RecordedEnd) -> EndId {
        // Policy judges behind the Service.
        end.service = None;
        if end.names.len() > 1 {
            end.names.sort_unstable();
            end.names.dedup();
        }
        let hasher = FixedState::default();
        let hash = hash_end(&end, hasher.build_hasher());
        let known = |id: &EndId| self.ends.get(*id as usize) == Some(&end);
        if let Some(id) = self.end_table.find(hash, known) {
            return *id;
        }
        let id = to_u32(self.ends.len());
        self.ends.push(end);
        let ends = &self.ends;
        let rehash = |id: &EndId| {
            let end = ends.get(*id as usize);
            end.map_or(0, |end| hash_end(end, hasher.build_hasher()))
        };
        self.end_table.insert_unique(hash, id, rehash);
        id
    }

    /// A record of some of the flows, with all ends.
    pub(crate) fn with_flows(&self, flows: Vec<FlowTotal>) -> Record {
        Record {
            ends: self.ends.clone(),
            flows,
            ..Record::default()
        }
    }

    /// Whether nothing was recorded.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.flows.is_empty()
    }

    pub(crate) fn end(&self, id: EndId) -> RecordedEnd {
        self.ends.get(id as usize).cloned().unwrap_or_default()
    }

    /// A flow as reports have it.
    pub(crate) fn summary_of(&self, total: &FlowTotal) -> FlowSummary {
        let key = total.key;
        let (port, icmp) = match key.header {
            RecordedHeader::Port(port) => (Some(port), None),
            RecordedHeader::Icmp(kind, code) => (None, Some(FlowIcmp { kind, code })),
            RecordedHeader::Absent => (None, None),
        };
        FlowSummary {
            source: self.end(key.source),
            destination: self.end(key.destination),
            protocol: key.protocol.map_or(ProtocolName::Other, Into::into),
            port,
            icmp,
            recorded: if key.is_allowed {
                MonitorVerdict::Allowed
            } else {
                MonitorVerdict::Denied
            },
            count: total.count(),
            first: total.first.clone(),
            last: total.last.clone(),
        }
    }

    /// What was read; `nodes`: those that there are.
    pub fn summary<'n>(&self, nodes: impl Iterator<Item = &'n str>) -> RecordSummary {
        let missing = nodes.filter(|node| !self.nodes.contains(*node));
        RecordSummary {
            since: self.since.clone(),
            until: self.flows.iter().map(|flow| flow.last.clone()).max(),
            nodes: self.nodes.iter().cloned().collect(),
            nodes_missing: missing.map(str::to_owned).collect(),
            lost: self.lost.values().sum(),
            truncated: self.truncated.iter().cloned().collect(),
            entries: self.entries,
            flows: self.flows.len(),
        }
    }
}

fn hash_end(end: &RecordedEnd, mut hasher: impl Hasher) -> u64 {
    (&end.namespace, &end.name, &end.address, &end.node).hash(&mut hasher);
    if let Some(controller) = &end.controller {
        (&controller.kind, &controller.name).hash(&mut hasher);
    }
    (&end.labels, &end.names).hash(&mut hasher);
    hasher.finish()
}

pub(crate) fn protocol_of(name: ProtocolName) -> Option<Protocol> {
    match name {
        ProtocolName::Tcp => Some(Protocol::TCP),
        ProtocolName::Udp => Some(Protocol::UDP),
        ProtocolName::Sctp => Some(Protocol::SCTP),
        ProtocolName::Icmp => Some(Protocol::ICMP),
        ProtocolName::Icmpv6 => Some(Protocol::ICMPV6),
        ProtocolName::Number(number) => Some(Protocol(number)),
        ProtocolName::Other => None,
    }
}

/// The number of something in a list that fits in memory.
pub(crate) fn to_u32(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}
