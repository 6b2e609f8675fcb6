//! The subscribers of the stream of packets and flows, and the most recent packets.
//!
//! Publishing never blocks: a subscriber that is too slow misses lines and is sent their number. Every
//! subscriber receives the lines that match its query in order.

use bytes::Bytes;
use palisade_api::{FlowRecord, LossCause, LostEvents, MonitorLine, MonitorQuery, PacketEvent};
use palisade_flows::line_filter::{matches_flow, matches_packet};
use std::collections::VecDeque;
use std::sync::Arc;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::mpsc::{Receiver, Sender, channel};

/// The number of recent packets kept.
pub(crate) const MAX_RECENT: usize = 1024;
/// The queue length of a subscriber, in addition to the recent packets.
const SUBSCRIBER_QUEUE: usize = 1024;

struct MonitorSubscriber {
    sender: Sender<Bytes>,
    query: MonitorQuery,
    dropped: u64,
}

/// Publishes packets to the subscribers of the stream.
#[derive(Default)]
pub(crate) struct MonitorHub {
    subscribers: Vec<MonitorSubscriber>,
    recent: VecDeque<PacketEvent>,
}

impl MonitorHub {
    /// Adds a subscriber; returns its lines, each with a line feed.
    pub(crate) fn subscribe(&mut self, query: MonitorQuery) -> Receiver<Bytes> {
        self.subscribers.retain(|reader| !reader.sender.is_closed());
        let (lines, receiver) = channel(MAX_RECENT + SUBSCRIBER_QUEUE);
        let matching: Vec<&PacketEvent> = self
            .recent
            .iter()
            .filter(|e| matches_packet(&query, e))
            .collect();
        let skip = matching.len().saturating_sub(query.last);
        for event in &matching[skip..] {
            let line = encode_line(&MonitorLine::Packet(Box::new((*event).clone())));
            // The queue has room for all recent packets.
            let _ = lines.try_send(line);
        }
        if !query.stop {
            self.subscribers.push(MonitorSubscriber {
                sender: lines,
                query,
                dropped: 0,
            });
        }
        receiver
    }

    /// Publishes a packet.
    pub(crate) fn publish_packet(&mut self, event: PacketEvent) {
        let mut line = None;
        self.subscribers.retain_mut(|reader| {
            if !matches_packet(&reader.query, &event) {
                return true;
            }
            let line = line
                .get_or_insert_with(|| encode_line(&MonitorLine::Packet(Box::new(event.clone()))))
                .clone();
            reader.send(line, 1, &event.time)
        });
        if self.recent.len() == MAX_RECENT {
            self.recent.pop_front();
        }
        self.recent.push_back(event);
    }

    /// Whether a subscriber asks for flows.
    pub(crate) fn wants_flows(&mut self) -> bool {
        self.subscribers.retain(|reader| !reader.sender.is_closed());
        self.subscribers.iter().any(|reader| reader.query.flows)
    }

    /// Publishes a flow.
    pub(crate) fn publish_flow(&mut self, record: &Arc<FlowRecord>) {
        let time = record.ended.as_deref().or(record.began.as_deref());
        let time = time.unwrap_or_default();
        let mut line = None;
        self.subscribers.retain_mut(|reader| {
            if !matches_flow(&reader.query, record) {
                return true;
            }
            let line = line
                .get_or_insert_with(|| encode_line(&MonitorLine::Flow(Arc::clone(record))))
                .clone();
            reader.send(line, 1, time)
        });
    }

    /// Publishes that flows were lost to the subscribers that ask for flows.
    pub(crate) fn publish_flow_loss(&mut self, lost: LostEvents) {
        let time = lost.time.clone();
        let line = encode_line(&MonitorLine::Lost(Box::new(lost)));
        self.subscribers
            .retain_mut(|reader| !reader.query.flows || reader.send(line.clone(), 1, &time));
    }

    /// Publishes lost packets to every subscriber, whatever its query.
    pub(crate) fn publish_loss(&mut self, lost: LostEvents) {
        let (count, time) = (lost.count, lost.time.clone());
        let line = encode_line(&MonitorLine::Lost(Box::new(lost)));
        self.subscribers
            .retain_mut(|reader| reader.send(line.clone(), count, &time));
    }
}

impl MonitorSubscriber {
    /// Sends a line that stands for this many packets; false if the subscriber is gone.
    fn send(&mut self, line: Bytes, packets: u64, time: &str) -> bool {
        if self.dropped > 0 {
            let missed = LostEvents {
                api_version: palisade_api::api_version(),
                time: time.to_owned(),
                cause: LossCause::Client,
                count: self.dropped,
                reason: None,
                rule: None,
                policies: Vec::new(),
            };
            match self
                .sender
                .try_send(encode_line(&MonitorLine::Lost(Box::new(missed))))
            {
                Ok(()) => self.dropped = 0,
                Err(TrySendError::Full(_)) => {
                    self.dropped += packets;
                    return true;
                }
                Err(TrySendError::Closed(_)) => return false,
            }
        }
        match self.sender.try_send(line) {
            Ok(()) => true,
            Err(TrySendError::Full(_)) => {
                self.dropped += packets;
                true
            }
            Err(TrySendError::Closed(_)) => false,
        }
    }
}

fn encode_line(line: &MonitorLine) -> Bytes {
    // These types contain no map with non-string keys, so serialization cannot fail.
    let json = serde_json::to_string(line).unwrap_or_default();
    let mut text = palisade_text::printable_json(&json).into_owned();
    text.push('\n');
    text.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use palisade_api::{
        FlowDecision, FlowState, MonitorEndpoint, MonitorVerdict, PacketAudit, PacketReason,
        ProtocolName,
    };

    fn end(address: &str, name: Option<(&str, &str)>) -> MonitorEndpoint {
        MonitorEndpoint {
            address: address.into(),
            port: None,
            namespace: name.map(|(namespace, _)| namespace.into()),
            name: name.map(|(_, name)| name.into()),
            ..MonitorEndpoint::default()
        }
    }

    fn event(length: u32) -> PacketEvent {
        PacketEvent {
            original_destination: None,
            stage: None,
            api_version: palisade_api::api_version(),
            time: "t".to_owned(),
            rejected: false,
            verdict: MonitorVerdict::Denied,
            audit: None,
            reason: PacketReason::Rule,
            direction: None,
            endpoint: Some("shop/db".to_owned()),
            source: end("10.0.0.9", None),
            destination: end("10.0.0.1", Some(("shop", "db"))),
            protocol: ProtocolName::Udp,
            icmp_type: None,
            icmp_code: None,
            reply: false,
            rule: None,
            policies: Vec::new(),
            logged: Vec::new(),
            length,
            interface: None,
            revision: None,
            stale: false,
        }
    }

    fn read(receiver: &mut Receiver<Bytes>) -> Vec<MonitorLine> {
        let lines = std::iter::from_fn(|| receiver.try_recv().ok());
        lines
            .map(|line| serde_json::from_slice(&line).unwrap())
            .collect()
    }

    #[test]
    fn a_reader_that_is_too_slow_is_told_what_it_missed_and_holds_nobody_up() {
        let mut hub = MonitorHub::default();
        let mut slow = hub.subscribe(MonitorQuery::default());
        let mut fast = hub.subscribe(MonitorQuery::default());
        let all = (MAX_RECENT + SUBSCRIBER_QUEUE + 500) as u32;
        let mut got = 0;
        for length in 0..all {
            hub.publish_packet(event(length));
            got += read(&mut fast).len();
        }
        assert_eq!(got, all as usize);
        assert_eq!(read(&mut slow).len(), MAX_RECENT + SUBSCRIBER_QUEUE);
        hub.publish_packet(event(all));
        let late = read(&mut slow);
        let [MonitorLine::Lost(lost), MonitorLine::Packet(packet)] = &late[..] else {
            panic!("{late:?}");
        };
        assert_eq!((lost.cause, lost.count), (LossCause::Client, 500));
        assert_eq!(packet.length, all);
        drop((slow, fast));
        hub.publish_packet(event(0));
        assert!(hub.subscribers.is_empty());
    }

    fn flow() -> FlowRecord {
        let denied = PacketAudit {
            verdict: MonitorVerdict::Denied,
            reason: PacketReason::DefaultDeny,
            rule: None,
            policies: Vec::new(),
        };
        FlowRecord {
            api_version: palisade_api::api_version(),
            state: FlowState::Began,
            began: Some("t".to_owned()),
            ended: None,
            source: end("10.0.0.9", None),
            destination: end("10.0.0.1", Some(("shop", "db"))),
            translation: None,
            protocol: ProtocolName::Udp,
            icmp: None,
            egress: None,
            ingress: Some(Arc::new(FlowDecision {
                reason: PacketReason::Rule,
                rule: None,
                policies: Vec::new(),
                stage: None,
                audit: Some(denied),
                revision: Some(1),
                stale: false,
            })),
            traffic: None,
        }
    }

    #[test]
    fn flows_go_to_those_that_ask_for_them() {
        let text = |text: &str| Some(text.to_owned());
        let flows = || MonitorQuery {
            flows: true,
            ..MonitorQuery::default()
        };
        let queries = [
            (MonitorQuery::default(), false),
            (flows(), true),
            (
                MonitorQuery {
                    to: text("shop/db"),
                    ..flows()
                },
                true,
            ),
            (
                MonitorQuery {
                    from: text("shop/db"),
                    ..flows()
                },
                false,
            ),
            (
                MonitorQuery {
                    from: text("10.0.0.9"),
                    ..flows()
                },
                true,
            ),
            (
                MonitorQuery {
                    endpoint: text("shop/db"),
                    ..flows()
                },
                true,
            ),
            (
                MonitorQuery {
                    endpoint: text("shop/web"),
                    ..flows()
                },
                false,
            ),
            (
                MonitorQuery {
                    namespace: text("shop"),
                    ..flows()
                },
                true,
            ),
            (
                MonitorQuery {
                    namespace: text("other"),
                    ..flows()
                },
                false,
            ),
            (
                MonitorQuery {
                    verdict: Some(MonitorVerdict::Allowed),
                    ..flows()
                },
                true,
            ),
            (
                MonitorQuery {
                    verdict: Some(MonitorVerdict::Denied),
                    ..flows()
                },
                false,
            ),
            (
                MonitorQuery {
                    audit: true,
                    ..flows()
                },
                true,
            ),
        ];
        for (query, is_sent) in queries {
            let mut hub = MonitorHub::default();
            assert!(!hub.wants_flows());
            let mut receiver = hub.subscribe(query.clone());
            assert_eq!(hub.wants_flows(), query.flows);
            hub.publish_flow(&Arc::new(flow()));
            let expected = is_sent.then(|| MonitorLine::Flow(Arc::new(flow())));
            assert_eq!(read(&mut receiver), Vec::from_iter(expected), "{query:?}");
            hub.publish_flow_loss(LostEvents {
                api_version: palisade_api::api_version(),
                time: "t".to_owned(),
                cause: LossCause::Flows,
                count: 1,
                reason: None,
                rule: None,
                policies: Vec::new(),
            });
            assert_eq!(
                read(&mut receiver).len(),
                usize::from(query.flows),
                "{query:?}"
            );
            drop(receiver);
            assert!(!hub.wants_flows());
        }
    }

    #[test]
    fn the_last_packets_come_first() {
        let mut hub = MonitorHub::default();
        for length in 0..MAX_RECENT as u32 + 5 {
            hub.publish_packet(event(length));
        }
        let lengths = |lines: Vec<MonitorLine>| -> Vec<u32> {
            let length = |line| match line {
                MonitorLine::Packet(packet) => packet.length,
                other => panic!("{other:?}"),
            };
            lines.into_iter().map(length).collect()
        };
        let query = MonitorQuery {
            last: 2,
            stop: true,
            ..MonitorQuery::default()
        };
        let mut receiver = hub.subscribe(query.clone());
        assert_eq!(lengths(read(&mut receiver)), [1027, 1028]);
        assert!(receiver.is_closed() && hub.subscribers.is_empty());
        let last = MAX_RECENT + 100;
        let mut receiver = hub.subscribe(MonitorQuery { last, ..query });
        assert_eq!(lengths(read(&mut receiver)).len(), MAX_RECENT);
    }
}
