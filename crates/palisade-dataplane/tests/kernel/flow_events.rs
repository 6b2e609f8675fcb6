//! Events of real flows: which flows, as policy judged them, and nothing of others.

use std::net::UdpSocket;
use std::time::Duration;

use palisade_dataplane::{Dataplane, FlowEvent, FlowEventBatch, FlowPhase, Subscription};
use palisade_model::{L4, Protocol};
use palisade_sys::link::{KernelLinks, LinkChange};
use palisade_sys::netns::run_in;
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
