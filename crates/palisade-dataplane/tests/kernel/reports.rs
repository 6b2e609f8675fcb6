//! Reports of real packets: which packets, the reason, and the number.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use palisade_dataplane::{Dataplane, PacketReport, PacketReportBatch, Subscription};
use palisade_model::{Direction, L4, Protocol};
use palisade_tables::ReportReason;
use palisade_tables::{Cell, ClassId, Packet, Program, RuleId, Tables, Verdict};

use crate::driver::{A, B, Place, is_dropped, passes, ports, tables};
use crate::need_root;

/// The tables of the driver's tests, with Log rules that match everything allowed.
fn logging() -> Tables {
    let mut tables = tables();
    let allow = Cell {
        verdict: Verdict::Allow,
        causes: vec![RuleId(1)],
        log: Some(Direction::Egress),
        audit: None,
        redirect: None,
    };
    let logs = |cell: &Cell| Cell {
        log: (cell.verdict == Verdict::Allow).then_some(Direction::Ingress),
        ..cell.clone()
    };
    let ingress = ports(&[5001], 2, 3);
    let protocols = ingress.protocols().iter();
    let protocols = protocols.map(|(p, map)| (*p, map.map(|values| values.map(logs))));
    let ingress = Program::new(protocols, ingress.default().clone());
    tables
        .programs
        .insert(ClassId(1), Arc::new(Program::constant(allow)));
    tables.programs.insert(ClassId(2), Arc::new(ingress));
    tables
}

/// The packets until no more arrive, and the number lost.
fn until_quiet(
    watch: &mut Subscription<PacketReportBatch>,
) -> (Vec<PacketReport>, BTreeMap<ReportReason, u64>) {
    let (mut packets, mut lost) = (Vec::new(), BTreeMap::<ReportReason, u64>::new());
    let began = Instant::now();
    while let Some(seen) = watch.wait(Duration::from_millis(500)).unwrap() {
        packets.extend(seen.packets);
        for (why, count) in seen.lost {
            *lost.entry(why).or_default() += count;
        }
        assert!(
            began.elapsed() < Duration::from_secs(30),
            "packets do not stop arriving"
        );
    }
    (packets, lost)
}

fn seen(packets: &[PacketReport]) -> Vec<(ReportReason, bool, u16)> {
    let port = |packet: &Packet| match packet.l4 {
        L4::Ports { destination, .. } => destination,
        _ => 0,
    };
    let seen = packets.iter();
    seen.map(|s| (s.reason, s.reply, port(&s.packet))).collect()
}

#[test]
fn a_log_rule_tells_the_first_packet_of_a_flow_and_a_denial_tells_each() {
    if !need_root() {
        return;
    }
    let place = Place::new();
    let tables = logging();
    let mut driver = place.driver();
    let mut watch = driver.packet_reports().unwrap().remove(0);
    assert!(driver.packet_reports().is_err(), "one listener at a time");
    driver.resync(&tables).unwrap();
    assert_eq!(driver.resync(&tables).unwrap().writes, 0);
    assert_eq!(place.driver().resync(&tables).unwrap().writes, 0, "adopted");

    let (from, to) = place.sockets(5001);
    assert!(passes(&from, &to) && passes(&from, &to));
    let (_, closed) = place.sockets(5002);
    assert!(is_dropped(&from, &closed) && is_dropped(&from, &closed));
    let (packets, lost) = until_quiet(&mut watch);
    let out = ReportReason::Logged(Direction::Egress);
    let wanted = [
        (out, false, 5001),
        (ReportReason::Logged(Direction::Ingress), false, 5001),
        (out, false, 5002),
        (ReportReason::Denied, false, 5002),
        (out, false, 5002),
        (ReportReason::Denied, false, 5002),
    ];
    assert_eq!(seen(&packets), wanted);
    assert_eq!(lost, BTreeMap::new());
    let denied = &packets[3];
    assert_eq!((denied.length, denied.time.is_some()), (29, true));
    let packet = Packet {
        input_interface: Some("pal-a".into()),
        output_interface: Some("pal-b".into()),
        source: A.into(),
        destination: B.into(),
        protocol: Protocol::UDP,
        l4: L4::Ports {
            source: from.local_addr().unwrap().port(),
            destination: 5002,
        },
        pre_dnat: None,
    };
    assert_eq!(denied.packet, packet);
}

#[test]
fn a_flood_is_seen_or_lost_to_the_packet() {
    if !need_root() {
        return;
    }
    let place = Place::new();
    let tables = tables();
    let mut driver = place.driver();
    driver.resync(&tables).unwrap();
    let mut watch = driver.packet_reports().unwrap().remove(0);
    let (from, to) = place.sockets(5002);
    let address = to.local_addr().unwrap();
    let denied = &tables.rules[&RuleId(3)];
    let (mut seen, mut lost, mut counted) = (0, 0, 0);
    let began = Instant::now();
    let mut took = Duration::ZERO;
    // A reader that keeps up with one flood loses nothing of it.
    while lost == 0 || seen + lost < counted {
        assert!(
            began.elapsed() < Duration::from_secs(60),
            "{counted} denied: {seen} seen, {lost} lost"
        );
        let flood = Instant::now();
        if lost == 0 {
            for _ in 0..30_000 {
                // A full queue refuses the packet; it is then not sent.
                let _ = from.send_to(b"x", address);
            }
            took += flood.elapsed();
        }
        let (packets, reports_lost) = until_quiet(&mut watch);
        assert!(packets.iter().all(|s| s.reason == ReportReason::Denied));
        seen += packets.len() as u64;
        lost += reports_lost
            .get(&ReportReason::Denied)
            .copied()
            .unwrap_or_default();
        // Read only now: a busy kernel counts the last packets some time after they were sent.
        counted = driver.counters().unwrap().by_rule[denied].packets;
    }
    println!("{counted} denied in {took:?}: {seen} seen, {lost} lost");
    assert_eq!(seen + lost, counted);
    assert!(counted > 10_000 && seen > 0, "{counted} {seen}");

    // The same flood without a listener, for comparison.
    drop(watch);
    let began = Instant::now();
    for _ in 0..30_000 {
        let _ = from.send_to(b"x", address);
    }
    println!("without a listener {:?}", began.elapsed());
}
