//! What is told of packets of revoked flows: each once, as it was, or as a loss.

use std::net::SocketAddr;
use std::time::Duration;

use palisade_bpf::{DenialRing, DeniedPacket};
use palisade_sys::notify::monotonic_micros;
use palisade_testkit::lab::craft;
use palisade_testkit::need_root;

use crate::fast_path::Outcome::{Delivered, Dropped};
use crate::fast_path::{ACK, SYN, World, addresses, back, flow, tcp, udp};
use crate::rows::Rows;

/// The reader of the ring of these maps.
pub(crate) fn ring(rows: &Rows) -> DenialRing {
    let map = |name| rows.loaded.map(name).unwrap();
    DenialRing::new(map("events"), map("lost_events")).unwrap()
}

/// The packets in the ring.
fn taken(ring: &mut DenialRing) -> Vec<DeniedPacket> {
    std::iter::from_fn(|| ring.take_packet()).collect()
}

/// The interfaces of the packets that were dropped, by which each came and would have gone.
pub(crate) fn interfaces(rows: &Rows) -> Vec<(u32, Option<u32>)> {
    let denied = taken(&mut ring(rows)).into_iter();
    denied.map(|packet| (packet.input, packet.output)).collect()
}

fn now() -> Duration {
    Duration::from_micros(monotonic_micros().unwrap())
}

/// What is to be told of a packet between the workloads.
fn expected(world: &World, [source, to]: [SocketAddr; 2], packet: &[u8]) -> DeniedPacket {
    let is_answer = source.ip() == addresses(1)[usize::from(source.is_ipv6())];
    let [input, output] = if is_answer { [1, 0] } else { [0, 1] };
    DeniedPacket {
        time: Duration::ZERO,
        source: source.ip(),
        destination: to.ip(),
        input: world.ifindexes[input],
        output: Some(world.ifindexes[output]),
        protocol: 0,
        source_port: source.port(),
        destination_port: to.port(),
        length: packet.len() as u16,
        is_answer,
    }
}

pub(crate) fn check_reports(fault: u64) {
    for family in [0, 1] {
        let world = World::new(fault);
        let mut ring = ring(&world.rows);
        let (http, datagram) = (flow(family, 80), flow(family, 1_500));
        let kinds = [[8, 0], [128, 129]][family];
        let echo = |[source, to]: [SocketAddr; 2], kind: u8| {
            let id = [0, 8, 0, 1];
            craft::icmp(source.ip(), to.ip(), (kind, 0), id, b"sixteen bytes...")
        };
        // Of an echo the type and the code stand for the destination port.
        let ends = flow(family, 0).map(|end| SocketAddr::new(end.ip(), 0));
        let header = |[source, to]: [SocketAddr; 2], kind: u8| {
            let port = u16::from_be_bytes([kind, 0]);
            [source, SocketAddr::new(to.ip(), port)]
        };
        let protocol = [1, 58][family];
        let packets = [
            (6, http, tcp(http, ACK)),
            (6, back(http), tcp(back(http), ACK)),
            (17, datagram, udp(datagram)),
            (17, back(datagram), udp(back(datagram))),
            (protocol, header(ends, kinds[0]), echo(ends, kinds[0])),
            (
                protocol,
                header(back(ends), kinds[1]),
                echo(back(ends), kinds[1]),
            ),
        ];
        for packet in [tcp(http, SYN), udp(datagram), echo(ends, kinds[0])] {
            assert_eq!(world.from(0, &packet), Delivered);
        }
        assert_eq!(ring.take_packet(), None, "nothing was dropped");
        world.rows.set_class(2, 100, 3);
        world.rows.set_generation(2);
        let before = now();
        for (_, [source, _], packet) in &packets {
            let pod = usize::from(source.ip() == addresses(1)[family]);
            assert_eq!(world.from(pod, packet), Dropped);
        }
        let after = now() + Duration::from_micros(1);
        let denied = taken(&mut ring);
        let all = packets.iter().map(|(protocol, ends, packet)| DeniedPacket {
            protocol: *protocol,
            ..expected(&world, *ends, packet)
        });
        let found = denied.iter().map(|packet| DeniedPacket {
            time: Duration::ZERO,
            ..*packet
        });
        assert!(found.eq(all), "{denied:#?}");
        for packet in &denied {
            assert!(before <= packet.time && packet.time <= after, "{packet:?}");
        }
        assert_eq!(world.rows.packets(5), packets.len() as u64);
        assert_eq!(ring.lost(), 0);
    }
}

/// A ring that is full loses packets, and counts each.
pub(crate) fn check_losses(fault: u64) {
    const PACKETS: u64 = 1_200;
    let world = World::new(fault);
    let mut ring = ring(&world.rows);
    let datagram = flow(0, 1_500);
    assert_eq!(world.from(0, &udp(datagram)), Delivered);
    world.rows.set_class(2, 100, 3);
    world.rows.set_generation(2);
    for _ in 0..PACKETS {
        assert_eq!(world.from(0, &udp(datagram)), Dropped);
    }
    assert_eq!(world.rows.packets(5), PACKETS);
    let seen = taken(&mut ring).len() as u64;
    assert_eq!((seen + ring.lost(), seen), (PACKETS, 1_023));
    // There is room again.
    assert_eq!(world.from(1, &udp(back(datagram))), Dropped);
    assert_eq!(taken(&mut ring).len(), 1);
    assert_eq!(ring.lost(), PACKETS - seen);
}

#[test]
fn each_packet_that_is_dropped_is_told_as_it_was() {
    if need_root() {
        check_reports(0);
    }
}

#[test]
fn a_full_ring_counts_what_it_loses() {
    if need_root() {
        check_losses(0);
    }
}
