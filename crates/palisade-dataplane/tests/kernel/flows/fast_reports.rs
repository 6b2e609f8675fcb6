//! Reports of the fast path: each packet that it drops is one, or is counted as lost, and none that nftables judges is.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use palisade_dataplane::nftables::Config;
use palisade_dataplane::{
    Dataplane as _, PacketReport, PacketReportBatch, PolicyDriver as _, Subscription,
};
use palisade_model::{L4, Protocol};
use palisade_nft::NflogConfig;
use palisade_tables::{Packet, ReportReason, RuleId};
use palisade_testkit::CountedDriver;
use palisade_testkit::lab::craft::udp;
use palisade_testkit::test_driver::open_fast_path;

use super::fast::{ACK, CLOSED, SYN, SYN_ACK, config, datagram, segment};
use super::need_root;
use super::place::{A, Allowed, B, INTERFACES, Place, tables, tag};

const ALLOWED: [Allowed; 2] = [(A, B, 17, Some(53)), (A, B, 6, Some(80))];

fn driver(place: &Place) -> CountedDriver {
    let config = Config {
        log: Some(NflogConfig::default()),
        ..config()
    };
    open_fast_path(config, &place.netns()).unwrap().into()
}

/// The subscriptions: that of nftables, and that of the fast path.
fn subscribe(driver: &CountedDriver) -> [Subscription<PacketReportBatch>; 2] {
    driver.packet_reports().unwrap().try_into().unwrap()
}

/// The packets until no more arrive, and the number lost.
fn until_quiet(watch: &mut Subscription<PacketReportBatch>) -> (Vec<PacketReport>, u64) {
    let (mut packets, mut lost) = (Vec::new(), 0);
    let began = Instant::now();
    while let Some(batch) = watch.wait(Duration::from_millis(1_500)).unwrap() {
        packets.extend(batch.packets);
        for (reason, count) in batch.lost {
            assert_eq!(reason, ReportReason::Denied);
            lost += count;
        }
        assert!(began.elapsed() < Duration::from_secs(60));
    }
    (packets, lost)
}

/// How many packets were counted on the rule that denies.
fn denied(driver: &mut CountedDriver) -> u64 {
    let rule = tables(&CLOSED, &[]).rules[&RuleId(2)].clone();
    let counters = driver.counters().unwrap();
    counters.by_rule.get(&rule).map_or(0, |count| count.packets)
}

/// What is to be told of a packet between the pods.
fn report(
    [from, to]: [usize; 2],
    family: usize,
    protocol: Protocol,
    [source, destination]: [u16; 2],
    length: usize,
) -> PacketReport {
    PacketReport {
        time: None,
        reason: ReportReason::Denied,
        reply: from == B,
        packet: Packet {
            input_interface: Some(INTERFACES[from].into()),
            output_interface: Some(INTERFACES[to].into()),
            source: Place::address(from, family),
            destination: Place::address(to, family),
            pre_dnat: None,
            protocol,
            l4: L4::Ports {
                source,
                destination,
            },
        },
        is_pre_dnat_known: true,
        length: length as u32,
    }
}

#[test]
fn packets_of_a_revoked_flow_are_reported_as_nftables_reports_denials() {
    if !need_root() {
        return;
    }
    let place = Place::quiet("fastrep");
    let mut driver = driver(&place);
    // Before the fast path starts, as an agent does.
    let [mut by_nftables, mut by_fast_path] = subscribe(&driver);
    driver.resync(&tables(&CLOSED, &ALLOWED)).unwrap();
    assert!(driver.is_fast());
    let (out, back) = ([40_000, 53], [53, 40_000]);
    let (there, here) = ([40_000, 80], [80, 40_000]);
    for family in [0, 1] {
        assert!(place.arrives(A, B, datagram(A, B, family, out)));
        assert!(place.arrives(A, B, segment(A, B, family, there, SYN)));
        assert!(place.arrives(B, A, segment(B, A, family, here, SYN_ACK)));
    }
    driver.resync(&tables(&CLOSED, &[])).unwrap();
    let began = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let mut expected = Vec::new();
    for family in [0, 1] {
        for (ends, protocol, ports, packet) in [
            ([A, B], Protocol::UDP, out, datagram(A, B, family, out)),
            ([B, A], Protocol::UDP, back, datagram(B, A, family, back)),
            (
                [A, B],
                Protocol::TCP,
                there,
                segment(A, B, family, there, ACK),
            ),
            (
                [B, A],
                Protocol::TCP,
                here,
                segment(B, A, family, here, ACK),
            ),
        ] {
            expected.push(report(ends, family, protocol, ports, packet.len()));
            assert!(!place.arrives(ends[0], ends[1], packet));
        }
    }
    let (packets, lost) = until_quiet(&mut by_fast_path);
    let ended = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    assert_eq!(lost, 0);
    for packet in &packets {
        let time = packet.time.unwrap();
        // Clocks are corrected meanwhile.
        let slack = Duration::from_secs(1);
        assert!(began <= time + slack && time <= ended + slack, "{time:?}");
    }
    let without_time = packets.into_iter().map(|packet| PacketReport {
        time: None,
        ..packet
    });
    let found: Vec<PacketReport> = without_time.collect();
    assert_eq!(found, expected);
    assert_eq!(until_quiet(&mut by_nftables), (Vec::new(), 0));
    assert_eq!(denied(&mut driver), expected.len() as u64);

    // A new flow is nftables' to deny, with a report of the same form.
    let ports = [40_001, 53];
    let packet = datagram(A, B, 0, ports);
    let denial = report([A, B], 0, Protocol::UDP, ports, packet.len());
    assert!(!place.arrives(A, B, packet));
    let (packets, _) = until_quiet(&mut by_nftables);
    let expected = PacketReport {
        time: packets[0].time,
        is_pre_dnat_known: packets[0].is_pre_dnat_known,
        ..denial
    };
    assert_eq!(packets, [expected]);
    assert_eq!(until_quiet(&mut by_fast_path), (Vec::new(), 0));
}

#[test]
fn what_is_dropped_by_the_fast_path_is_seen_or_lost_to_the_packet() {
    if !need_root() {
        return;
    }
    let place = Place::quiet("fastflood");
    let mut driver = driver(&place);
    driver.resync(&tables(&CLOSED, &ALLOWED)).unwrap();
    let address = |end, port| Place::at(end, 0, port);
    assert!(place.arrives(A, B, datagram(A, B, 0, [40_000, 53])));
    driver.resync(&tables(&CLOSED, &[])).unwrap();
    // Nobody reads: the ring becomes full.
    let flood = |count: u32| {
        let packet = udp(address(A, 40_000), address(B, 53), 7, &tag());
        let packets = vec![(A, B, packet); count as usize];
        assert!(!place.arrive(packets).contains(&true));
    };
    flood(1_500);
    let before = denied(&mut driver);
    assert_eq!(before, 1_500);
    // A reader begins with what is dropped from then on.
    let [_, mut watch] = subscribe(&driver);
    assert_eq!(until_quiet(&mut watch), (Vec::new(), 0));
    let (mut seen, mut lost) = (0, 0);
    for count in [10, 3_000, 1] {
        flood(count);
        let (packets, reports_lost) = until_quiet(&mut watch);
        seen += packets.len() as u64;
        lost += reports_lost;
    }
    assert_eq!((seen + lost, denied(&mut driver) - before), (3_011, 3_011));
    assert!(lost > 0, "{seen} seen");
    println!("{seen} seen, {lost} lost");
    drop(watch);

    // The ring outlives the agent, and what is dropped while there is none is nobody's.
    drop(driver);
    flood(5);
    let mut second = self::driver(&place);
    let [_, mut watch] = subscribe(&second);
    second.resync(&tables(&CLOSED, &[])).unwrap();
    flood(3);
    let (packets, lost) = until_quiet(&mut watch);
    assert_eq!((packets.len(), lost), (3, 0));

    // Without the fast path there is nothing that is dropped by it.
    second.remove().unwrap();
    assert_eq!(until_quiet(&mut watch), (Vec::new(), 0));
    assert!(!second.is_fast());
}
