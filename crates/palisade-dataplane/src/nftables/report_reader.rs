//! Turns nflog messages into packet reports, and counts the packets that nflog did not deliver.
//!
//! Promises: each packet counted by a reporting chain is reported or counted as lost, exactly once when
//! packets stop arriving; before that, losses are never overstated. Never: waits for anything but packets.

use std::collections::BTreeMap;
use std::time::Duration;

use palisade_model::{L4, PreDnat, Str};
use palisade_nft::{Expr, counted_chains, parse_log_prefix};
use palisade_sys::conntrack::{ConntrackTuple, TupleProto};
use palisade_sys::link::KernelLinks;
use palisade_sys::nflog::{Nflog, NflogEvent, NflogPacket};
use palisade_sys::nfnetlink::KernelNfnetlink;
use palisade_tables::{Packet, ReportReason};

use super::packet_header::{self, PacketHeader};
use crate::error::DriverError;
use crate::packet_report::{PacketReport, PacketReportBatch};

/// Bytes of each packet that are copied.
pub(crate) const SNAP_LEN: u32 = 192;
/// After this time without a packet, the chains' counters are compared with the packets received.
const QUIET_PERIOD: Duration = Duration::from_millis(150);
/// Maximum number of packets in a batch.
const BATCH: usize = 256;
/// In steady traffic the counters are read after so many packets; as many may still be in flight.
const MAX_IN_FLIGHT: u64 = 1000;

/// Kernel queries that the reader needs.
pub(crate) trait ReportLookup {
    /// The packets that the chains of each reason counted since the table was created.
    fn packet_counts(&mut self) -> Result<BTreeMap<ReportReason, u64>, DriverError>;

    /// The names of interfaces by index.
    fn interfaces(&mut self) -> Result<BTreeMap<u32, Str>, DriverError>;
}

/// Turns nflog messages into packet reports.
pub(crate) struct ReportReader<N, K> {
    nflog: N,
    lookup: K,
    /// The chains' counters when read last.
    last_counts: BTreeMap<ReportReason, u64>,
    /// Packets counted since the start, less those received and those reported as lost.
    unaccounted: BTreeMap<ReportReason, i64>,
    interface_names: BTreeMap<u32, Str>,
    active: bool,
    since_comparison: u64,
}

impl<N: Nflog, K: ReportLookup> ReportReader<N, K> {
    /// Every packet counted from now on is reported or counted as lost.
    pub(crate) fn new(nflog: N, mut kernel: K) -> Result<Self, DriverError> {
        Ok(Self {
            last_counts: kernel.packet_counts()?,
            nflog,
            lookup: kernel,
            unaccounted: BTreeMap::new(),
            interface_names: BTreeMap::new(),
            active: false,
            since_comparison: 0,
        })
    }

    pub(crate) fn next(
        &mut self,
        timeout: Duration,
    ) -> Result<Option<PacketReportBatch>, DriverError> {
        let wait = if self.active {
            timeout.min(QUIET_PERIOD)
        } else {
            timeout
        };
        let mut batch = PacketReportBatch::default();
        let mut event = self.nflog.next_event(Some(wait))?;
        if event.is_none() {
            if !std::mem::take(&mut self.active) {
                return Ok(None);
            }
            // An index may belong to another interface by the next packet.
            self.interface_names.clear();
            batch.lost = self.take_lost(0)?;
            return Ok(Some(batch));
        }
        self.active = true;
        while let Some(next) = event {
            if let NflogEvent::Packet(packet) = next {
                batch.packets.extend(self.packet_report(&packet)?);
                self.since_comparison += 1;
            }
            if batch.packets.len() == BATCH {
                break;
            }
            event = self.nflog.next_event(Some(Duration::ZERO))?;
        }
        if self.since_comparison >= MAX_IN_FLIGHT {
            self.since_comparison = 0;
            batch.lost = self.take_lost(MAX_IN_FLIGHT)?;
        }
        Ok(Some(batch))
    }

    /// Packets counted and not received, less `on_the_way` that may be in flight.
    fn take_lost(&mut self, on_the_way: u64) -> Result<BTreeMap<ReportReason, u64>, DriverError> {
        let counted = self.lookup.packet_counts()?;
        for (why, count) in &counted {
            let last = self.last_counts.get(why).copied().unwrap_or_default();
            // A recreated table counts from 0.
            let more = count.checked_sub(last).unwrap_or(*count);
            *self.unaccounted.entry(*why).or_default() += i64::try_from(more).unwrap_or(i64::MAX);
        }
        self.last_counts = counted;
        let mut lost = BTreeMap::new();
        for (why, open) in &mut self.unaccounted {
            let now = u64::try_from(*open).unwrap_or(0);
            let now = now.saturating_sub(on_the_way);
            if now > 0 {
                *open -= i64::try_from(now).unwrap_or(i64::MAX);
                lost.insert(*why, now);
            }
        }
        Ok(lost)
    }

    /// `None` if the message is not ours, or its headers cannot be parsed; then it counts as lost.
    fn packet_report(
        &mut self,
        message: &NflogPacket,
    ) -> Result<Option<PacketReport>, DriverError> {
        let Some((why, reply)) = parse_log_prefix(&message.prefix) else {
            return Ok(None);
        };
        let Some(header) = packet_header::parse(&message.head) else {
            return Ok(None);
        };
        *self.unaccounted.entry(why).or_default() -= 1;
        let packet = Packet {
            input_interface: self.interface(message.iif)?,
            output_interface: self.interface(message.oif)?,
            source: header.source,
            destination: header.destination,
            pre_dnat: message
                .connection
                .and_then(|connection| pre_dnat(&connection, &header, reply)),
            protocol: header.protocol,
            l4: header.l4,
        };
        Ok(Some(PacketReport {
            time: message.time,
            reason: why,
            reply,
            packet,
            is_pre_dnat_known: self.nflog.reports_connections(),
            length: header.length,
        }))
    }

    fn interface(&mut self, index: Option<u32>) -> Result<Option<Str>, DriverError> {
        let Some(index) = index else {
            return Ok(None);
        };
        if !self.interface_names.contains_key(&index) {
            self.interface_names = self.lookup.interfaces()?;
            // An interface that is gone is named by its index, and not queried for each packet.
            self.interface_names
                .entry(index)
                .or_insert_with(|| format!("if{index}").into());
        }
        Ok(self.interface_names.get(&index).cloned())
    }
}

/// Where the first packet of a connection was sent, if that is not where it arrives. `None` for a packet that is not of
/// the connection itself, as an ICMP error about it.
fn pre_dnat(connection: &ConntrackTuple, header: &PacketHeader, reply: bool) -> Option<PreDnat> {
    let (client, (server, port)) = match (reply, header.l4) {
        (false, L4::Ports { destination, .. }) => {
            (header.source, (header.destination, destination))
        }
        (true, L4::Ports { source, .. }) => (header.destination, (header.source, source)),
        (false, _) => (header.source, (header.destination, 0)),
        (true, _) => (header.destination, (header.source, 0)),
    };
    let sent_to = PreDnat {
        destination: connection.destination,
        port: match connection.proto {
            TupleProto::Ports(_, to) => to,
            TupleProto::Icmp { .. } | TupleProto::None => port,
        },
    };
    let is_own = connection.source == client && connection.protocol == header.protocol.0;
    let is_translated = (sent_to.destination, sent_to.port) != (server, port);
    (is_own && is_translated).then_some(sent_to)
}

/// The kernel of one network namespace, and the table in it.
pub(crate) struct KernelReportLookup {
    pub(crate) table: Str,
    pub(crate) nfnetlink: KernelNfnetlink,
    pub(crate) links: KernelLinks,
}

impl ReportLookup for KernelReportLookup {
    fn packet_counts(&mut self) -> Result<BTreeMap<ReportReason, u64>, DriverError> {
        let mut counted = BTreeMap::new();
        for reason in ReportReason::ALL {
            let count = counted.entry(reason).or_default();
            for chain in counted_chains(reason) {
                let rules = super::netlink::rules(&mut self.nfnetlink, &self.table, &chain)?;
                let mut exprs = rules.iter().flat_map(|rule| &rule.exprs);
                *count += exprs
                    .find_map(|expr| match expr {
                        Expr::Counter(count) => Some(count.packets),
                        _ => None,
                    })
                    .unwrap_or_default();
            }
        }
        Ok(counted)
    }

    fn interfaces(&mut self) -> Result<BTreeMap<u32, Str>, DriverError> {
        let links = self.links.links()?;
        let named = links
            .into_iter()
            .map(|link| (link.index, link.name.as_str().into()));
        Ok(named.collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use palisade_model::{Direction, Protocol};
    use palisade_sys::nflog::NflogError;
    use std::collections::VecDeque;

    /// The next events.
    struct FakeNflog(VecDeque<NflogEvent>);

    impl Nflog for FakeNflog {
        fn next_event(&mut self, _: Option<Duration>) -> Result<Option<NflogEvent>, NflogError> {
            Ok(self.0.pop_front())
        }

        fn reports_connections(&self) -> bool {
            true
        }
    }

    /// Counter values set by a test, in the order they are read; the last one repeats.
    struct FakeReportLookup(Vec<u64>);

    impl ReportLookup for FakeReportLookup {
        fn packet_counts(&mut self) -> Result<BTreeMap<ReportReason, u64>, DriverError> {
            let now = if self.0.len() > 1 {
                self.0.remove(0)
            } else {
                self.0[0]
            };
            Ok([(ReportReason::Denied, now)].into())
        }

        fn interfaces(&mut self) -> Result<BTreeMap<u32, Str>, DriverError> {
            Ok([(3, "pal0".into())].into())
        }
    }

    fn nflog_event(prefix: &str) -> NflogEvent {
        let mut head = vec![0x45, 0, 0, 40, 0, 0, 0, 0, 64, 6, 0, 0];
        head.extend([10, 0, 0, 1, 10, 0, 0, 2, 0, 80, 0x10, 0]);
        NflogEvent::Packet(NflogPacket {
            prefix: prefix.to_owned(),
            hook: 2,
            iif: Some(3),
            oif: Some(9),
            time: None,
            connection: None,
            head,
        })
    }

    #[test]
    fn what_was_counted_is_seen_or_lost() {
        let queue = [
            nflog_event("palisade denied reply"),
            NflogEvent::Overrun(7),
            nflog_event("somebody else's"),
            nflog_event("palisade denied"),
        ];
        let nflog = FakeNflog(queue.into());
        // Ten before the start, twelve counted since, then a recreated table that counts three.
        let mut reports = ReportReader::new(nflog, FakeReportLookup(vec![10, 22, 3])).unwrap();
        let seen = reports.next(Duration::ZERO).unwrap().unwrap();
        assert_eq!(seen.packets.len(), 2);
        assert_eq!(seen.lost, BTreeMap::new());
        let first = &seen.packets[0];
        assert!(first.reply && first.reason == ReportReason::Denied && first.length == 40);
        let judged = Packet {
            input_interface: Some("if9".into()),
            output_interface: Some("pal0".into()),
            source: [10, 0, 0, 2].into(),
            destination: [10, 0, 0, 1].into(),
            protocol: Protocol::TCP,
            l4: L4::Ports {
                source: 4096,
                destination: 80,
            },
            pre_dnat: None,
        };
        assert_eq!(first.judged_packet(), judged);
        let quiet = reports.next(Duration::ZERO).unwrap().unwrap();
        assert_eq!(quiet.lost, [(ReportReason::Denied, 10)].into());
        assert_eq!(reports.next(Duration::ZERO).unwrap(), None);
        let denied = nflog_event("palisade denied");
        reports.nflog.0.push_back(denied);
        let seen = reports.next(Duration::ZERO).unwrap().unwrap();
        assert_eq!((seen.packets.len(), seen.lost.len()), (1, 0));
        let quiet = reports.next(Duration::ZERO).unwrap().unwrap();
        assert_eq!(quiet.lost, [(ReportReason::Denied, 2)].into());
    }

    #[test]
    fn a_flood_tells_its_losses_while_it_lasts() {
        let packets = MAX_IN_FLIGHT as usize + 10;
        let queue = vec![nflog_event("palisade denied"); packets];
        let nflog = FakeNflog(queue.into());
        let mut reports = ReportReader::new(nflog, FakeReportLookup(vec![0, 50_000])).unwrap();
        let (mut seen, mut lost, mut first) = (0, 0, None);
        while let Some(next) = reports.next(Duration::ZERO).unwrap() {
            seen += next.packets.len() as u64;
            lost += next.lost.values().sum::<u64>();
            first = first.or(next.lost.values().next().copied());
        }
        assert_eq!((seen, seen + lost), (packets as u64, 50_000));
        assert!(first.is_some_and(|first| first < lost), "{first:?} {lost}");
    }

    #[test]
    fn the_original_destination_is_that_of_the_packets_own_connection() {
        let header = |source: &str, destination: &str, ports: (u16, u16)| PacketHeader {
            source: source.parse().unwrap(),
            destination: destination.parse().unwrap(),
            protocol: Protocol::TCP,
            l4: L4::Ports {
                source: ports.0,
                destination: ports.1,
            },
            length: 40,
        };
        let connection = ConntrackTuple {
            source: "198.51.100.2".parse().unwrap(),
            destination: "192.0.2.1".parse().unwrap(),
            protocol: Protocol::TCP.0,
            proto: TupleProto::Ports(4000, 30080),
        };
        let sent_to = Some(PreDnat {
            destination: "192.0.2.1".parse().unwrap(),
            port: 30080,
        });
        let request = header("198.51.100.2", "10.0.0.3", (4000, 8080));
        assert_eq!(pre_dnat(&connection, &request, false), sent_to);
        let reply = header("10.0.0.3", "198.51.100.2", (8080, 4000));
        assert_eq!(pre_dnat(&connection, &reply, true), sent_to);
        let plain = header("198.51.100.2", "192.0.2.1", (4000, 30080));
        assert_eq!(pre_dnat(&connection, &plain, false), None);
        // An error about the connection, by a router on its way.
        let error = PacketHeader {
            protocol: Protocol::ICMP,
            l4: L4::Icmp { kind: 3, code: 1 },
            ..header("203.0.113.1", "198.51.100.2", (0, 0))
        };
        assert_eq!(pre_dnat(&connection, &error, true), None);
    }

    #[test]
    fn an_answer_to_a_ping_is_judged_as_the_ping() {
        let sighting = PacketReport {
            time: None,
            reason: ReportReason::Logged(Direction::Egress),
            reply: true,
            packet: Packet {
                input_interface: None,
                output_interface: None,
                source: [10, 0, 0, 1].into(),
                destination: [10, 0, 0, 2].into(),
                protocol: Protocol::ICMP,
                l4: L4::Icmp { kind: 0, code: 0 },
                pre_dnat: None,
            },
            is_pre_dnat_known: true,
            length: 0,
        };
        assert_eq!(sighting.judged_packet().l4, L4::Icmp { kind: 8, code: 0 });
    }
}
