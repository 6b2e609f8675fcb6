//! Bounds of a bucket, and what is counted once.

use super::*;
use palisade_api::{FlowTraffic, ProtocolName};
use std::sync::Arc;

const BEGIN: Duration = Duration::from_secs(1_790_000_100);

fn end(address: [u8; 4], port: u16) -> MonitorEndpoint {
    let [a, b, c, d] = address;
    MonitorEndpoint {
        address: format!("{a}.{b}.{c}.{d}").into(),
        port: Some(port),
        ..MonitorEndpoint::default()
    }
}

fn flow(state: FlowState, source: MonitorEndpoint, port: u16) -> MonitorLine {
    MonitorLine::Flow(Arc::new(FlowRecord {
        api_version: palisade_api::api_version(),
        state,
        began: None,
        ended: None,
        source,
        destination: MonitorEndpoint {
            namespace: Some("shop".into()),
            name: Some("web".into()),
            ..end([10, 0, 0, 1], port)
        },
        translation: None,
        protocol: ProtocolName::Tcp,
        icmp: None,
        egress: None,
        ingress: None,
        traffic: Some(FlowTraffic {
            packets_sent: 1,
            bytes_sent: 60,
            packets_received: 0,
            bytes_received: 0,
        }),
    }))
}

fn scanned(lines: impl Iterator<Item = MonitorLine>, max_keys: usize) -> Aggregate {
    let mut aggregate = Aggregate::with_max_keys(max_keys);
    aggregate.begin_bucket(BEGIN);
    for line in lines {
        aggregate.add(BEGIN, &line);
    }
    aggregate
}

#[test]
fn a_scan_from_many_addresses_or_to_many_ports_does_not_grow_a_bucket() {
    let source = |n: u32| n.to_be_bytes();
    let addresses = (0..200_000).map(|n| flow(FlowState::Began, end(source(n), 1), 80));
    let aggregate = scanned(addresses, MAX_KEYS);
    let snapshot = aggregate.snapshot();
    assert_eq!(snapshot.rows(), MAX_KEYS + 1);
    assert_eq!((snapshot.count(), snapshot.folded), (200_000, 180_000));
    assert!(snapshot.texts.len() <= MAX_TEXTS);
    let others = snapshot.rows.iter().find(|(_, counts)| counts.count > 1);
    let (key, counts) = others.unwrap();
    assert_eq!(snapshot.text(key.source), Some(&b"{}"[..]));
    assert_eq!((key.port, counts.count), (RowPort::Port(80), 180_000));

    let ports = (0..50_000).map(|n| flow(FlowState::Began, end([192, 0, 2, 1], n), n));
    let snapshot = scanned(ports, 1_000).snapshot();
    // Without the address there are a tenth more, then all ports are one.
    assert_eq!(snapshot.rows(), 1_101);
    let others = snapshot
        .rows
        .iter()
        .find(|(key, _)| key.port == RowPort::Absent);
    assert_eq!(others.unwrap().1.count, 50_000 - 1_100);
}

#[test]
fn ends_are_not_counted_again_however_many_flows_are_open() {
    // More than are remembered.
    const FLOWS: u32 = 200_000;
    let source = |n: u32| end([10, 1, (n >> 16) as u8, 1], n as u16);
    let mut aggregate = scanned(
        (0..FLOWS).map(|n| flow(FlowState::Began, source(n), 80)),
        MAX_KEYS,
    );
    for n in 0..FLOWS {
        aggregate.add(BEGIN, &flow(FlowState::Ended, source(n), 80));
    }
    let snapshot = aggregate.snapshot();
    assert_eq!(snapshot.count(), u64::from(FLOWS));
    let traffic = snapshot
        .rows
        .iter()
        .filter_map(|(_, counts)| counts.traffic);
    let packets: u64 = traffic.map(|traffic| traffic.packets_sent).sum();
    assert_eq!(packets, u64::from(FLOWS));
    // One whose begin was not seen counts.
    aggregate.add(BEGIN, &flow(FlowState::Ended, source(FLOWS), 80));
    assert_eq!(aggregate.snapshot().count(), u64::from(FLOWS) + 1);
}

#[test]
fn a_dictionary_is_replaced_and_open_flows_keep_their_rows() {
    let mut aggregate = Aggregate::new();
    aggregate.begin_bucket(BEGIN);
    let source = || end([192, 0, 2, 1], 40_000);
    aggregate.add(BEGIN, &flow(FlowState::Began, source(), 80));
    aggregate.add(BEGIN, &flow(FlowState::Ended, end([192, 0, 2, 2], 1), 80));
    assert_eq!(aggregate.snapshot().texts.len(), 3);
    let mut time = BEGIN;
    for _ in 0..BUCKETS_OF_DICTIONARY {
        time += Duration::from_secs(BUCKET_SECONDS);
        assert!(!aggregate.covers(time));
        aggregate.begin_bucket(time);
    }
    let snapshot = aggregate.snapshot();
    assert_eq!((snapshot.generation, snapshot.texts.len()), (1, 2));
    aggregate.add(time, &flow(FlowState::Ended, source(), 80));
    let snapshot = aggregate.snapshot();
    let [(key, counts)] = &snapshot.rows[..] else {
        panic!("{:?}", snapshot.rows);
    };
    assert_eq!(
        snapshot.text(key.source),
        Some(&br#"{"address":"192.0.2.1"}"#[..])
    );
    assert_eq!(counts.count, 0);
    assert_eq!(counts.traffic.unwrap().bytes_sent, 60);
}

#[test]
fn a_late_line_is_of_the_present_bucket_and_a_clock_set_back_is_not() {
    let mut aggregate = Aggregate::new();
    assert!(!aggregate.covers(BEGIN));
    aggregate.add_lost(7);
    assert!(!aggregate.take_changed());
    aggregate.begin_bucket(BEGIN);
    assert_eq!(aggregate.snapshot().lost, 7);
    assert!(aggregate.take_changed() && !aggregate.take_changed());
    let start = Duration::from_secs(aggregate.snapshot().start);
    for (time, is_covered) in [
        (start, true),
        (start + Duration::from_secs(BUCKET_SECONDS - 1), true),
        (start + Duration::from_secs(BUCKET_SECONDS), false),
        (start - Duration::from_secs(LATE_SECONDS), true),
        (start - Duration::from_secs(LATE_SECONDS + 1), false),
    ] {
        assert_eq!(aggregate.covers(time), is_covered, "{time:?}");
    }
}
