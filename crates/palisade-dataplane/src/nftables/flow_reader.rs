//! Turns notifications of connection tracking into flow events.
//!
//! Promises: only flows that this table has judged, which their marks tell; translated flows as policy judged them; after
//! a loss, the flows that are open ([`FlowListing`]).
//!
//! Never: waits for anything but notifications, or lists connections without a loss.

use std::time::{Duration, Instant};

use palisade_model::{L4, PreDnat, Protocol};
use palisade_nft::Config;
use palisade_sys::conntrack::{
    ConntrackEvent, ConntrackFilter, ConntrackRecord, ConntrackTuple, KernelConntrack,
    KernelConntrackEvents, TupleProto,
};
use palisade_sys::fault;
use palisade_sys::netns::NetNs;
use palisade_tables::{CounterValue, Packet};

use super::flow_listing::{FlowListing, ListedFlows};
use crate::error::DriverError;
use crate::flow_event::{FlowEvent, FlowEventBatch, FlowPhase};

/// Maximum number of notifications that are read for a batch, those of other programs' flows included: events do not wait
/// for others to come to rest.
const BATCH: usize = 256;

/// How long notifications gather after one that was waited for. Meanwhile the kernel wakes no thread for them, which costs
/// a connection about as much as the notification itself. Of 100,000 connections a second the queue then holds 500.
const GATHER_TIME: Duration = Duration::from_millis(5);

/// The greatest number of flows of a list, about 300 bytes each. A list with more is incomplete.
const MAX_LISTED: usize = 100_000;

/// Turns notifications of connection tracking into flow events.
pub(crate) struct FlowReader {
    events: KernelConntrackEvents,
    /// The namespace of the connections.
    netns: NetNs,
    config: Config,
    listing: FlowListing,
}

impl FlowReader {
    pub(crate) fn new(events: KernelConntrackEvents, netns: &NetNs, config: Config) -> Self {
        FlowReader {
            events,
            netns: netns.clone(),
            config,
            listing: FlowListing::default(),
        }
    }

    /// The events that wait, at least one, a loss or a snapshot if it comes within the time; `None` if there are none.
    pub(crate) fn next(
        &mut self,
        timeout: Duration,
    ) -> Result<Option<FlowEventBatch>, DriverError> {
        let end = now().checked_add(timeout);
        loop {
            let now = now();
            let remaining = end.map_or(Duration::MAX, |end| end.saturating_duration_since(now));
            let limit = self.listing.wait_limit(now).unwrap_or(Duration::MAX);
            if let Some(batch) = self.read(limit.min(remaining))? {
                return Ok(Some(batch));
            }
            if remaining < limit {
                return Ok(None);
            }
        }
    }

    /// The same, but for a list that is still held back.
    fn read(&mut self, timeout: Duration) -> Result<Option<FlowEventBatch>, DriverError> {
        let mut batch = FlowEventBatch::default();
        let mut remaining = BATCH;
        let mut event = self.next_event(timeout)?;
        while let Some(next) = event {
            let (phase, record) = match next {
                ConntrackEvent::Began(record) => (FlowPhase::Began, record),
                ConntrackEvent::Ended(record) => (FlowPhase::Ended, record),
            };
            if self.is_judged(&record) && !self.is_handed_over(phase, &record) {
                let event = flow_event(phase, &record);
                self.listing.add_event(&event);
                batch.events.push(event);
            }
            remaining -= 1;
            if remaining == 0 {
                break;
            }
            event = self.events.next_event(Some(Duration::ZERO))?;
        }
        batch.lost = u64::from(self.events.take_lost()?);
        if batch.lost > 0 && !fault::is_injected("open-flows-not-listed") {
            self.listing.add_loss();
        }
        if remaining > 0 {
            let (netns, config) = (&self.netns, &self.config);
            // Without a list what was lost stays lost; it is tried again.
            let list = || list_flows(netns, config).ok();
            batch.snapshot = self.listing.take(now(), list);
        }
        let is_quiet = remaining == BATCH && batch.lost == 0 && batch.snapshot.is_none();
        Ok((!is_quiet).then_some(batch))
    }

    /// The next notification if it comes within the time. If none waits yet, others gather behind it.
    fn next_event(&mut self, timeout: Duration) -> Result<Option<ConntrackEvent>, DriverError> {
        let waiting = self.events.next_event(Some(Duration::ZERO))?;
        if waiting.is_some() {
            return Ok(waiting);
        }
        let event = self.events.next_event(Some(timeout))?;
        if event.is_some() {
            #[allow(
                clippy::disallowed_methods,
                reason = "it is what keeps the kernel from waking this thread for each notification"
            )]
            std::thread::sleep(GATHER_TIME);
        }
        Ok(event)
    }

    /// Whether the table has let this flow pass: its mark has a generation. Flows of other zones are other programs'.
    fn is_judged(&self, record: &ConntrackRecord) -> bool {
        let generation = self.config.generation(record.entry.mark);
        record.entry.zone == 0 && generation >= self.config.least_generation()
    }

    /// Whether this is the begin of an entry that a fast path has made of its flow, which began before: only its end is
    /// told. No packet begins a flow with this mark.
    fn is_handed_over(&self, phase: FlowPhase, record: &ConntrackRecord) -> bool {
        let generation = self.config.generation(record.entry.mark);
        phase == FlowPhase::Began && generation == self.config.stale_generation()
    }
}

/// Lists the flows whose mark has a generation.
fn list_flows(netns: &NetNs, config: &Config) -> Result<ListedFlows, DriverError> {
    let least = config.mark(config.least_generation());
    // Every generation from here on has the highest bit.
    let filter = ConntrackFilter {
        mark: Some((least, least)),
    };
    let (mut count, mut is_complete) = (0, true);
    let flows = KernelConntrack::open(netns)?.map_records(&filter, |record| {
        if record.entry.zone != 0 {
            return None;
        }
        if count == MAX_LISTED {
            is_complete = false;
            return None;
        }
        count += 1;
        let event = flow_event(FlowPhase::Began, &record);
        // A flow that was marked because the generations came round may have been judged or not.
        let is_stale = config.generation(record.entry.mark) == config.stale_generation();
        let is_undecided = is_stale || record.entry.is_dying();
        Some((event.key(), (!is_undecided).then_some(event)))
    })?;
    Ok(ListedFlows::new(flows, is_complete))
}

#[allow(
    clippy::disallowed_methods,
    reason = "how long notifications are awaited; no event has this time"
)]
fn now() -> Instant {
    Instant::now()
}

fn flow_event(phase: FlowPhase, record: &ConntrackRecord) -> FlowEvent {
    let ConntrackRecord {
        entry,
        traffic,
        began,
        ended,
    } = record;
    let (sent, answered) = (&entry.original, &entry.reply);
    let server = (answered.source, source_port(answered));
    let sent_to = (sent.destination, destination_port(sent));
    let is_translated = sent_to != server && !fault::is_injected("flow-as-translated");
    let client = (sent.source, source_port(sent));
    let seen_from = (answered.destination, destination_port(answered));
    let l4 = match sent.proto {
        TupleProto::Ports(source, _) => L4::Ports {
            source,
            destination: server.1,
        },
        TupleProto::Icmp { kind, code, .. } => L4::Icmp { kind, code },
        TupleProto::None => L4::None,
    };
    let first = Packet {
        input_interface: None,
        output_interface: None,
        source: sent.source,
        destination: server.0,
        pre_dnat: is_translated.then_some(PreDnat {
            destination: sent_to.0,
            port: sent_to.1,
        }),
        protocol: Protocol(sent.protocol),
        l4,
    };
    FlowEvent {
        number: entry.id,
        phase,
        first,
        translated_source: (seen_from != client).then_some(seen_from),
        began: *began,
        ended: *ended,
        traffic: traffic.map(|counts| {
            counts.map(|count| CounterValue {
                packets: count.packets,
                bytes: count.bytes,
            })
        }),
    }
}

/// The port from which a direction is sent; 0 where the protocol has none.
fn source_port(tuple: &ConntrackTuple) -> u16 {
    match tuple.proto {
        TupleProto::Ports(source, _) => source,
        TupleProto::Icmp { .. } | TupleProto::None => 0,
    }
}

/// The port to which a direction is sent; 0 where the protocol has none.
fn destination_port(tuple: &ConntrackTuple) -> u16 {
    match tuple.proto {
        TupleProto::Ports(_, destination) => destination,
        TupleProto::Icmp { .. } | TupleProto::None => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use palisade_sys::conntrack::{ConntrackEntry, TrafficCount};

    fn tuple(source: (&str, u16), destination: (&str, u16)) -> ConntrackTuple {
        ConntrackTuple {
            source: source.0.parse().unwrap(),
            destination: destination.0.parse().unwrap(),
            protocol: 6,
            proto: TupleProto::Ports(source.1, destination.1),
        }
    }

    fn record(original: ConntrackTuple, reply: ConntrackTuple) -> ConntrackRecord {
        ConntrackRecord {
            entry: ConntrackEntry {
                original,
                reply,
                zone: 0,
                mark: 0,
                status: 0,
                id: 7,
                timeout: None,
            },
            traffic: Some([(1, 2), (3, 4)].map(|(packets, bytes)| TrafficCount { packets, bytes })),
            began: None,
            ended: None,
        }
    }

    #[test]
    fn translated_flows_are_as_policy_judged_them() {
        let (client, service) = (("10.0.0.1", 4000), ("10.96.0.1", 80));
        let (server, node) = (("10.0.1.2", 8080), ("192.0.2.1", 61_000));
        let plain = record(tuple(client, server), tuple(server, client));
        let event = flow_event(FlowPhase::Began, &plain);
        assert_eq!(
            (event.first.pre_dnat, event.translated_source),
            (None, None)
        );
        let both = record(tuple(client, service), tuple(server, node));
        let event = flow_event(FlowPhase::Ended, &both);
        let pre_dnat = PreDnat {
            destination: service.0.parse().unwrap(),
            port: 80,
        };
        let first = Packet {
            input_interface: None,
            output_interface: None,
            source: client.0.parse().unwrap(),
            destination: server.0.parse().unwrap(),
            pre_dnat: Some(pre_dnat),
            protocol: Protocol::TCP,
            l4: L4::Ports {
                source: 4000,
                destination: 8080,
            },
        };
        let expected = FlowEvent {
            number: 7,
            phase: FlowPhase::Ended,
            first,
            translated_source: Some((node.0.parse().unwrap(), node.1)),
            began: None,
            ended: None,
            traffic: Some([(1, 2), (3, 4)].map(|(packets, bytes)| CounterValue { packets, bytes })),
        };
        assert_eq!(event, expected);
        // Only the port may be translated.
        let port = record(tuple(client, ("10.0.1.2", 80)), tuple(server, client));
        let event = flow_event(FlowPhase::Began, &port);
        assert_eq!(event.first.pre_dnat.map(|before| before.port), Some(80));
    }
}
