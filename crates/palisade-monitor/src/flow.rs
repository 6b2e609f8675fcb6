//! The records of flows that policy let pass, when they begin and when they end.
//!
//! Promises: a flow is attributed to the rules of tables that let it pass when it was told, or to none. The kernel does not
//! tell when a flow began until it ends: if the rules change between a begin and its notification, and both let it pass,
//! the later rule is named. The record of an end has the names and the rules of its begin, if that was seen.
//!
//! Never: judges (`flow_decision`).

use super::event::PacketContext;
use palisade_api::{
    FlowIcmp, FlowRecord, FlowState, FlowTraffic, FlowTranslation, OriginalDestination,
};
use palisade_dataplane::{FlowEvent, FlowPhase};
use palisade_model::{L4, Protocol};
use palisade_node::clock::rfc3339_micros;
use palisade_tables::{CounterValue, Packet};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

/// The greatest number of open flows whose begin is remembered, about 1 KB each. The end of any other is attributed by
/// the tables of its end.
const MAX_OPEN: usize = 20_000;

/// The flows that have begun and not ended, with their records: the rules that let a flow pass are those of its begin,
/// when its ends existed.
#[derive(Default)]
pub(super) struct OpenFlows(BTreeMap<FlowKey, FlowRecord>);

/// What distinguishes a flow from all others that are open.
type FlowKey = (u32, IpAddr, IpAddr, Protocol, L4);

fn flow_key(event: &FlowEvent) -> FlowKey {
    let Packet {
        source,
        destination,
        protocol,
        l4,
        ..
    } = event.first;
    (event.number, source, destination, protocol, l4)
}

impl OpenFlows {
    /// Forgets all flows: nobody follows them.
    pub(super) fn clear(&mut self) {
        self.0 = BTreeMap::new();
    }

    /// The record of a flow at its begin or end; at its end with the ends and the rules of its begin, if that was seen.
    pub(super) fn record(
        &mut self,
        event: &FlowEvent,
        context: &PacketContext<'_>,
        now: Duration,
    ) -> FlowRecord {
        match event.phase {
            FlowPhase::Began => {
                let record = context.flow_record(event, now);
                if self.0.len() < MAX_OPEN {
                    self.0.insert(flow_key(event), record.clone());
                }
                record
            }
            FlowPhase::Ended => match self.0.remove(&flow_key(event)) {
                Some(begun) => FlowRecord {
                    state: FlowState::Ended,
                    // The kernel's own time of the begin is told with the end only.
                    began: event.began.map(rfc3339_micros).or(begun.began),
                    ended: Some(rfc3339_micros(event.ended.unwrap_or(now))),
                    traffic: event.traffic.map(flow_traffic),
                    ..begun
                },
                None => context.flow_record(event, now),
            },
        }
    }
}

fn flow_traffic([sent, received]: [CounterValue; 2]) -> FlowTraffic {
    FlowTraffic {
        packets_sent: sent.packets,
        bytes_sent: sent.bytes,
        packets_received: received.packets,
        bytes_received: received.bytes,
    }
}

impl PacketContext<'_> {
    /// The record of a flow at its begin or end. `now` is the time at which it was told.
    fn flow_record(&self, event: &FlowEvent, now: Duration) -> FlowRecord {
        let began = event.began.or(match event.phase {
            FlowPhase::Began => Some(now),
            FlowPhase::Ended => None,
        });
        let ended = match event.phase {
            FlowPhase::Began => None,
            FlowPhase::Ended => Some(event.ended.unwrap_or(now)),
        };
        // Policy judged its first packet; of a flow whose begin is not known, the last one is the best guess.
        let at = began.or(ended).unwrap_or(now);
        let packet = &event.first;
        let ports = match packet.l4 {
            L4::Ports {
                source,
                destination,
            } => Some((source, destination)),
            L4::Icmp { .. } | L4::None => None,
        };
        let endpoint = |address: IpAddr, port| OriginalDestination { address, port };
        let original_destination = packet
            .pre_dnat
            .map(|sent| endpoint(sent.destination, ports.map(|_| sent.port)));
        let translated_source = event
            .translated_source
            .map(|(address, port)| endpoint(address, ports.map(|_| port)));
        let is_translated = original_destination.is_some() || translated_source.is_some();
        let [sender, receiver] =
            [packet.source, packet.destination].map(|address| self.address_holder(address, at));
        let [egress, ingress] = self.flow_decisions(packet, [&sender, &receiver], at);
        FlowRecord {
            api_version: palisade_api::api_version(),
            state: match event.phase {
                FlowPhase::Began => FlowState::Began,
                FlowPhase::Ended => FlowState::Ended,
            },
            began: began.map(rfc3339_micros),
            ended: ended.map(rfc3339_micros),
            source: self.monitor_endpoint(
                (packet.source, ports.map(|(port, _)| port)),
                sender.as_ref(),
            ),
            destination: self.destination_endpoint(
                (packet.destination, ports.map(|(_, port)| port)),
                packet.pre_dnat.map(|sent| sent.destination),
                receiver.as_ref(),
            ),
            translation: is_translated.then_some(FlowTranslation {
                original_destination,
                translated_source,
            }),
            protocol: packet.protocol.into(),
            icmp: match packet.l4 {
                L4::Icmp { kind, code } => Some(FlowIcmp { kind, code }),
                L4::Ports { .. } | L4::None => None,
            },
            egress,
            ingress,
            traffic: event.traffic.map(flow_traffic),
        }
    }
}
