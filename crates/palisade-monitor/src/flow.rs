//! The records of flows that policy let pass, when they begin and when they end.
//!
//! Promises: a flow is attributed to the rules of tables that let it pass when it was told, or to none. The kernel does not
//! tell when a flow began until it ends: if the rules change between a begin and its notification, and both let it pass,
//! the later rule is named.
//!
//! Never: judges (`flow_decision`), or remembers flows (`open_flows`).

use super::event::PacketContext;
use super::open_flows::flow_traffic;
use palisade_api::{
    FlowIcmp, FlowRecord, FlowState, FlowTranslation, MonitorEndpoint, OriginalDestination,
};
use palisade_dataplane::{FlowEvent, FlowPhase};
use palisade_model::L4;
use palisade_node::clock::rfc3339_micros;
use std::net::IpAddr;
use std::time::Duration;

impl PacketContext<'_> {
    /// The record of a flow at its begin or end. `now` is the time at which that was told.
    pub(super) fn flow_record(&self, event: &FlowEvent, now: Duration) -> FlowRecord {
        let seen_at = match event.phase {
            FlowPhase::Began => Some(now),
            FlowPhase::Ended => None,
        };
        self.record_since(event, event.began.or(seen_at), now)
    }

    /// The record of a flow that was found open: it began at some time before.
    pub(super) fn found_record(&self, event: &FlowEvent, now: Duration) -> FlowRecord {
        self.record_since(event, event.began, now)
    }

    fn record_since(
        &self,
        event: &FlowEvent,
        began: Option<Duration>,
        now: Duration,
    ) -> FlowRecord {
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
        let ends = [packet.source, packet.destination].map(|address| self.address_end(address, at));
        let [egress, ingress] = self.flow_decisions(packet, &ends, at);
        let [sender, receiver] = ends.map(|end| end.names.clone());
        FlowRecord {
            api_version: palisade_api::api_version(),
            state: match event.phase {
                FlowPhase::Began => FlowState::Began,
                FlowPhase::Ended => FlowState::Ended,
            },
            began: began.map(rfc3339_micros),
            ended: ended.map(rfc3339_micros),
            source: MonitorEndpoint {
                port: ports.map(|(port, _)| port),
                ..sender
            },
            destination: MonitorEndpoint {
                port: ports.map(|(_, port)| port),
                service: self.service(packet),
                ..receiver
            },
            translation: is_translated.then(|| {
                Box::new(FlowTranslation {
                    original_destination,
                    translated_source,
                })
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
