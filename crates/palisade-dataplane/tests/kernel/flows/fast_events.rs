//! Flow events of the fast path: of every flow that it owns one begin and one end, and none of what the stack delivers.

use std::time::{Duration, Instant};

use palisade_dataplane::{Dataplane as _, FlowEvent, FlowEventBatch, FlowPhase, Subscription};
use palisade_model::{L4, Protocol};
use palisade_tables::Packet;

use super::fast::{CLOSED, SYN, datagram, driver, segment};
use super::need_root;
use super::place::{A, B, Place, tables};

/// The greatest time from what happens to its event, several sweeps of the table.
const LIMIT: Duration = Duration::from_secs(10);

/// How long no event is awaited, several looks at the table.
const QUIET: Duration = Duration::from_millis(1500);

fn events_of(watch: &mut Subscription<FlowEventBatch>, count: usize) -> Vec<FlowEvent> {
    let started_at = Instant::now();
    let mut events = Vec::new();
    while events.len() < count && started_at.elapsed() < LIMIT {
        let batch = watch.wait(QUIET).unwrap().unwrap_or_default();
        assert_eq!((batch.lost, batch.snapshot), (0, None));
        events.extend(batch.events);
    }
    let further = watch.wait(QUIET).unwrap();
    assert_eq!(further, None, "after {events:?}");
    events.sort_by_key(|event| event.first.destination);
    events
}

fn first_packet(family: usize, protocol: Protocol, ports: [u16; 2]) -> Packet {
    let [source, destination] = ports;
    Packet {
        input_interface: None,
        output_interface: None,
        source: Place::address(A, family),
        destination: Place::address(B, family),
        pre_dnat: None,
        protocol,
        l4: L4::Ports {
            source,
            destination,
        },
    }
}

#[test]
fn each_owned_flow_is_told_when_it_begins_and_when_it_ends() {
    if !need_root() {
        return;
    }
    let place = Place::quiet("fastev");
    let mut driver = driver(&place);
    let allowed = [(A, B, 17, Some(53)), (A, B, 6, Some(80))];
    driver.resync(&tables(&CLOSED, &allowed)).unwrap();
    let mut subscriptions = driver.flow_events().unwrap();
    assert_eq!(subscriptions.len(), 2, "connection tracking, and the table");
    let mut watch = subscriptions.pop().unwrap();
    let mut tracked = subscriptions.pop().unwrap();

    for family in [0, 1] {
        assert!(place.arrives(A, B, datagram(A, B, family, [40_000, 53])));
        assert!(place.arrives(B, A, datagram(B, A, family, [53, 40_000])));
        assert!(!place.arrives(A, B, datagram(A, B, family, [40_000, 54])));
    }
    let began = events_of(&mut watch, 2);
    let first: Vec<_> = began.iter().map(|event| event.first.clone()).collect();
    let expected = [0, 1].map(|family| first_packet(family, Protocol::UDP, [40_000, 53]));
    assert_eq!(first, expected);
    assert!(began.iter().all(|event| event.phase == FlowPhase::Began));

    // Who comes later sees the end of what began before, and begins from then on.
    let mut second = driver.flow_events().unwrap().pop().unwrap();
    assert!(place.arrives(A, B, segment(A, B, 0, [40_001, 80], SYN)));
    let expected = first_packet(0, Protocol::TCP, [40_001, 80]);
    for watch in [&mut watch, &mut second] {
        let events = events_of(watch, 1);
        assert_eq!(events.len(), 1, "{events:?}");
        assert_eq!(
            (events[0].phase, &events[0].first),
            (FlowPhase::Began, &expected)
        );
    }
    driver.forget_flows();
    for watch in [&mut watch, &mut second] {
        let ended = events_of(watch, 3);
        assert_eq!(ended.len(), 3, "{ended:?}");
        assert!(ended.iter().all(|event| event.phase == FlowPhase::Ended));
        let same = began.iter().all(|one| {
            let mut others = ended.iter();
            others.any(|other| other.key() == one.key())
        });
        assert!(same, "{began:?} {ended:?}");
    }
    assert_eq!(tracked.wait(Duration::ZERO).unwrap(), None);
}

#[test]
fn a_flow_that_goes_over_to_the_stack_ends_here() {
    if !need_root() {
        return;
    }
    let place = Place::quiet("fastev2");
    let mut driver = driver(&place);
    driver
        .resync(&tables(&CLOSED, &[(A, B, 17, Some(53))]))
        .unwrap();
    let mut watch = driver.flow_events().unwrap().pop().unwrap();
    assert!(place.arrives(A, B, datagram(A, B, 0, [40_000, 53])));
    assert_eq!(events_of(&mut watch, 1).len(), 1);
    // Revoked: its packets are dropped, and its entry goes with its time.
    driver.resync(&tables(&CLOSED, &[])).unwrap();
    assert!(!place.arrives(A, B, datagram(A, B, 0, [40_000, 53])));
    assert_eq!(events_of(&mut watch, 0), []);
    // The programs go, and the flow with them.
    driver.forget_flows();
    let events = events_of(&mut watch, 1);
    assert_eq!(events.len(), 1);
    assert_eq!(events[0].phase, FlowPhase::Ended);
}
