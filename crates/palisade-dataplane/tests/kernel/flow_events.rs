//! Events of real flows: which flows, as policy judged them, and nothing of others.

use std::collections::BTreeSet;
use std::net::UdpSocket;
use std::time::Duration;

use palisade_dataplane::{Dataplane, FlowEvent, FlowEventBatch, FlowPhase, Subscription};
use palisade_model::{L4, Protocol};
use palisade_sys::conntrack::{Conntrack, ConntrackFilter, KernelConntrack, TupleProto};
use palisade_sys::link::{KernelLinks, LinkChange};
use palisade_sys::netns::run_in;
use palisade_sys::sysctl::{KernelSysctl, Sysctl};
use palisade_tables::Packet;

use crate::driver::{A, B, Place, is_dropped, passes, tables};
use crate::need_root;

/// How long no event is awaited.
const QUIET: Duration = Duration::from_millis(300);

fn until_quiet(watch: &mut Subscription<FlowEventBatch>) -> Vec<FlowEvent> {
    let mut events = Vec::new();
    while let Some(batch) = watch.wait(QUIET).unwrap() {
        assert_eq!(batch.lost, 0);
        events.extend(batch.events);
    }
    events
}

fn first_packet(from: &UdpSocket, port: u16) -> Packet {
    Packet {
        input_interface: None,
        output_interface: None,
        source: A.into(),
        destination: B.into(),
        pre_dnat: None,
        protocol: Protocol::UDP,
        l4: L4::Ports {
            source: from.local_addr().unwrap().port(),
            destination: port,
        },
    }
}

#[test]
fn a_flow_that_passes_is_told_at_its_begin_and_its_end_and_no_other_is() {
    if !need_root() {
        return;
    }
    let place = Place::new();
    let mut driver = place.driver();
    driver.resync(&tables()).unwrap();
    let mut watch = driver.flow_events().unwrap().remove(0);
    let mut second = driver.flow_events().unwrap().remove(0);

    let (from, to) = place.sockets(5001);
    assert!(passes(&from, &to) && passes(&from, &to));
    let (_, closed) = place.sockets(5002);
    assert!(is_dropped(&from, &closed));
    // A flow of the host itself is tracked, too, and no policy judges it.
    let mut links = KernelLinks::open(&place.host.netns).unwrap();
    links.change_link("lo", &LinkChange::Up).unwrap();
    let at_host = run_in(&place.host.netns, || {
        UdpSocket::bind("127.0.0.1:0").unwrap()
    })
    .unwrap();
    at_host
        .send_to(b"x", at_host.local_addr().unwrap())
        .unwrap();

    let began = until_quiet(&mut watch);
    let told = |events: &[FlowEvent]| -> Vec<(FlowPhase, Packet)> {
        let told = events.iter();
        told.map(|event| (event.phase, event.first.clone()))
            .collect()
    };
    let flow = first_packet(&from, 5001);
    assert_eq!(told(&began), [(FlowPhase::Began, flow.clone())]);
    place.host.flush_conntrack();
    let ended = until_quiet(&mut watch);
    assert_eq!(told(&ended), [(FlowPhase::Ended, flow.clone())]);
    assert_eq!(ended[0].number, began[0].number);
    assert_eq!(ended[0].translated_source, None);

    let both = until_quiet(&mut second);
    assert_eq!(both, [began, ended].concat(), "each subscriber sees all");
}

/// Flows for whose begins the kernel's queue has no room: it has some for about twenty-five thousand.
const MANY: u16 = 40_000;

/// The flows that are open in the kernel.
fn tracked_flows(place: &Place) -> BTreeSet<L4> {
    let mut conntrack = KernelConntrack::open(&place.host.netns).unwrap();
    let entries = conntrack.entries(&ConntrackFilter::default()).unwrap();
    let ports = entries.iter().map(|entry| match entry.original.proto {
        TupleProto::Ports(source, destination) => L4::Ports {
            source,
            destination,
        },
        other => panic!("{other:?}"),
    });
    ports.collect()
}

#[test]
fn flows_that_did_not_fit_into_the_queue_are_in_a_snapshot() {
    if !need_root() {
        return;
    }
    let place = Place::new();
    place.host.flush_conntrack();
    let mut driver = place.driver();
    driver.resync(&tables()).unwrap();
    let mut sysctl = KernelSysctl::new(&place.host.netns);
    sysctl
        .set("net/netfilter/nf_conntrack_udp_timeout", "600")
        .unwrap();
    let mut watch = driver.flow_events().unwrap().remove(0);
    let (_, to) = place.sockets(5001);
    let destination = to.local_addr().unwrap();
    place.send_from(10_000..10_000 + MANY, destination);

    let tracked = tracked_flows(&place);
    assert!(
        tracked.len() > usize::from(MANY) * 9 / 10,
        "{}",
        tracked.len()
    );
    let (mut begun, mut lost, mut snapshots) = (BTreeSet::new(), 0, Vec::new());
    while let Some(batch) = watch.wait(QUIET).unwrap() {
        for event in batch.events {
            assert_eq!(event.phase, FlowPhase::Began);
            assert!(begun.insert(event.first.l4), "told twice: {event:?}");
        }
        lost += batch.lost;
        snapshots.extend(batch.snapshot);
    }
    assert!(lost > 1_000, "{lost}");
    assert_eq!(begun.len() + usize::try_from(lost).unwrap(), tracked.len());
    let [snapshot] = &snapshots[..] else {
        panic!("{} snapshots", snapshots.len())
    };
    assert!(snapshot.is_complete && snapshot.undecided.is_empty());
    let open: BTreeSet<L4> = snapshot.open.iter().map(|flow| flow.first.l4).collect();
    assert_eq!(open, tracked);
    assert_eq!(snapshot.open.len(), tracked.len());
    println!(
        "account: flows: {} at once, {lost} begins lost and told, every open flow in the snapshot",
        tracked.len()
    );
}
