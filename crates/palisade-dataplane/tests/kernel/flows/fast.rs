//! The fast path with real packets: what it delivers, what it leaves to the stack, and what stays of it.

use std::net::{IpAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::time::Duration;

use palisade_bpf::FastPathSupport;
use palisade_dataplane::ebpf::{self, EbpfDataplane, FlowCounts, ProgramAttachment};
use palisade_dataplane::nftables::Config;
use palisade_dataplane::{Dataplane as _, PolicyDriver as _};
use palisade_generators::{Dice, cases, seeded_cases};
use palisade_model::Direction::{Egress, Ingress};
use palisade_model::{L4, Protocol};
use palisade_sys::bpf::{AttachPoint, attached_programs};
use palisade_sys::link::KernelLinks;
use palisade_sys::netns::run_in;
use palisade_tables::{Packet, Point, Verdict};
use palisade_testkit::CountedDriver;
use palisade_testkit::lab::craft::{fragments, tcp, udp};
use palisade_testkit::test_driver::{open_fast_path, open_nftables};

use super::need_root;
use super::place::{A, Allowed, B, INTERFACES, Place, tables, tag};
use crate::driver::MemoryJournal;

pub(crate) const SYN: u8 = 2;
pub(super) const SYN_ACK: u8 = 18;
pub(crate) const ACK: u8 = 16;

/// All directions of the two pods.
pub(crate) const CLOSED: [(usize, palisade_model::Direction); 4] =
    [(A, Ingress), (B, Ingress), (A, Egress), (B, Egress)];

pub(crate) fn config() -> Config {
    Config {
        deny_action: palisade_model::DenyAction::Drop,
        table: "t".into(),
        log: None,
        ..Config::default()
    }
}

pub(crate) fn driver(place: &Place) -> CountedDriver {
    let mut driver = open_fast_path(config(), &place.netns()).unwrap();
    if let Some(attachment) = place.attachment {
        driver.set_attachment(attachment);
    }
    driver.into()
}

/// The ways in which this kernel can attach programs.
pub(super) fn attachments() -> Vec<ProgramAttachment> {
    match FastPathSupport::probe().attachment {
        Some(ProgramAttachment::TcxLink) => {
            vec![ProgramAttachment::TcxLink, ProgramAttachment::TcFilter]
        }
        other => other.into_iter().collect(),
    }
}

/// Puts something in the place of a pin that the driver can neither use nor remove, until the folder that is returned is
/// removed.
pub(super) fn block_pin(pin: &Path) -> PathBuf {
    if !pin.is_dir() {
        // There is none before the interface is attached.
        let _ = std::fs::remove_file(pin);
    }
    let obstacle = pin.join("obstacle");
    std::fs::create_dir_all(&obstacle).unwrap();
    obstacle
}

/// How many programs see packets of the pods, by tcx and as filters.
pub(super) fn attached(place: &Place) -> [usize; 2] {
    let netns = place.netns();
    let mut links = KernelLinks::open(&netns).unwrap();
    let mut counts = [0; 2];
    for name in INTERFACES {
        let index = links.link(name).unwrap().unwrap().index;
        for point in AttachPoint::ALL {
            let programs = run_in(&netns, || attached_programs(index, point)).unwrap();
            counts[0] += programs.map_or(0, |programs| programs.len());
            counts[1] += links.filters(index, point).unwrap().len();
        }
    }
    counts
}

/// The same of a fast path that is attached at all of them.
pub(super) fn both_interfaces(attachment: ProgramAttachment) -> [usize; 2] {
    match attachment {
        ProgramAttachment::TcxLink => [4, 0],
        ProgramAttachment::TcFilter => [0, 4],
    }
}

pub(crate) fn datagram(from: usize, to: usize, family: usize, ports: [u16; 2]) -> Vec<u8> {
    let [source, destination] = ports;
    let (from, to) = (
        Place::at(from, family, source),
        Place::at(to, family, destination),
    );
    udp(from, to, 7, &tag())
}

pub(crate) fn segment(
    from: usize,
    to: usize,
    family: usize,
    ports: [u16; 2],
    flags: u8,
) -> Vec<u8> {
    let [source, destination] = ports;
    let (from, to) = (
        Place::at(from, family, source),
        Place::at(to, family, destination),
    );
    let numbers = match flags {
        SYN => (1000, 0),
        SYN_ACK => (1000, 1001),
        _ => (1001, 1001),
    };
    tcp(from, to, flags, numbers, &tag())
}

pub(crate) fn counts(driver: &EbpfDataplane) -> FlowCounts {
    driver.flow_counts().unwrap()
}

#[test]
fn what_is_allowed_is_delivered_by_the_fast_path_until_it_is_revoked() {
    if !need_root() {
        return;
    }
    for attachment in attachments() {
        allowed_is_delivered_until_it_is_revoked(attachment);
    }
}

/// With programs that are attached in one way.
fn allowed_is_delivered_until_it_is_revoked(attachment: ProgramAttachment) {
    let place = Place::quiet("fast").attached_by(attachment);
    let mut driver = driver(&place);
    let allowed = [(A, B, 17, Some(53)), (A, B, 6, Some(80))];
    driver.resync(&tables(&CLOSED, &allowed)).unwrap();
    assert!(driver.is_fast());
    assert_eq!(driver.conditions(), []);
    assert_eq!(attached(&place), both_interfaces(attachment));
    for family in [0, 1] {
        let (out, back) = ([40_000, 53], [53, 40_000]);
        let before = counts(&driver).owned;
        assert!(!place.arrives(B, A, datagram(B, A, family, back)));
        assert!(!place.arrives(A, B, datagram(A, B, family, [40_000, 54])));
        assert_eq!(counts(&driver).owned, before, "nothing of it is allowed");
        assert!(place.arrives(A, B, datagram(A, B, family, out)));
        assert!(place.arrives(B, A, datagram(B, A, family, back)), "answer");
        let (out, back) = ([40_000, 80], [80, 40_000]);
        assert!(place.arrives(A, B, segment(A, B, family, out, SYN)));
        assert!(place.arrives(B, A, segment(B, A, family, back, SYN_ACK)));
        assert!(place.arrives(A, B, segment(A, B, family, out, ACK)));
        assert_eq!(counts(&driver).owned, before + 2);
    }
    // Another port is allowed: what is there stays. Then UDP is not allowed any more.
    for (allowed, arrives) in [
        (
            &[
                (A, B, 17, Some(53)),
                (A, B, 6, Some(80)),
                (A, B, 6, Some(81)),
            ][..],
            true,
        ),
        (&[(A, B, 6, Some(80))][..], false),
        (&[(A, B, 17, Some(53)), (A, B, 6, Some(80))][..], true),
    ] {
        driver.resync(&tables(&CLOSED, allowed)).unwrap();
        for family in [0, 1] {
            let answer = datagram(B, A, family, [53, 40_000]);
            assert_eq!(place.arrives(B, A, answer), arrives, "{allowed:?}");
            let question = datagram(A, B, family, [40_000, 53]);
            assert_eq!(place.arrives(A, B, question), arrives, "{allowed:?}");
            assert!(place.arrives(A, B, segment(A, B, family, [40_000, 80], ACK)));
            assert!(place.arrives(B, A, segment(B, A, family, [80, 40_000], ACK)));
        }
    }
    assert_eq!(counts(&driver).owned, 4);
}

#[test]
fn packets_of_an_owned_flow_that_go_by_the_stack_are_not_judged_there() {
    if !need_root() {
        return;
    }
    for attachment in attachments() {
        proven_packets_are_not_judged(attachment);
    }
}

/// With programs that are attached in one way.
fn proven_packets_are_not_judged(attachment: ProgramAttachment) {
    let place = Place::quiet("proof").attached_by(attachment);
    let mut driver = driver(&place);
    driver
        .resync(&tables(&CLOSED, &[(A, B, 17, Some(53))]))
        .unwrap();
    for family in [0, 1] {
        let first = datagram(A, B, family, [40_000, 53]);
        assert!(place.arrives(A, B, first));
        // An answer in fragments: the stack puts it together, and would deny it.
        let (from, to) = (Place::at(B, family, 53), Place::at(A, family, 40_000));
        let data = [[7; 1_400].as_slice(), &tag()].concat();
        let answer = udp(from, to, 9, &data);
        let pieces = fragments(&answer, 800, 77);
        assert!(arrives_in_pieces(&place, pieces.clone()), "{family}");
        // Not of a flow that nobody began.
        let other = udp(
            from,
            Place::at(A, family, 40_001),
            9,
            &[[7; 1_400].as_slice(), &tag()].concat(),
        );
        assert!(
            !arrives_in_pieces(&place, fragments(&other, 800, 78)),
            "{family}"
        );
        // A sender cannot say that its packet is proven.
        place.nft(place.nodes[B], "add table inet marked { chain c { type filter hook output priority 0; meta mark set 0x2000; }; }");
        assert!(!place.arrives(B, A, datagram(B, A, family, [54, 40_000])));
        place.nft(place.nodes[B], "delete table inet marked");
    }
}

/// Sends the pieces of a packet from B to A, in the wrong order; whether the last one arrives at A's stack.
fn arrives_in_pieces(place: &Place, pieces: [Vec<u8>; 2]) -> bool {
    let [first, second] = pieces;
    let arrived = place.arrive(vec![(B, A, second), (B, A, first)]);
    arrived.iter().any(|arrived| *arrived)
}

#[test]
fn a_new_agent_takes_over_flows_and_counts() {
    if !need_root() {
        return;
    }
    for attachment in attachments() {
        flows_and_counts_are_taken_over(attachment);
    }
}

/// With programs that are attached in one way.
fn flows_and_counts_are_taken_over(attachment: ProgramAttachment) {
    let place = Place::quiet("fasttwo").attached_by(attachment);
    let allowed = [(A, B, 17, Some(53)), (A, B, 17, Some(54))];
    let closed = tables(&CLOSED, &allowed);
    let journal = MemoryJournal::default();
    let driver = || {
        let mut driver = driver(&place);
        let text = journal.0.lock().unwrap().clone();
        let error = driver.ledger.restore(Box::new(journal.clone()), &text);
        assert!(error.is_none(), "{error:?}");
        driver
    };
    let allowed_packets = |driver: &mut CountedDriver| {
        let counters = driver.counters().unwrap();
        let counts = counters.by_rule.values().map(|count| count.packets);
        counts.max().unwrap_or_default()
    };
    {
        let mut first = driver();
        // A workload that the second agent does not know: numbers of slots would be others without it.
        let mut more = closed.clone();
        let address = IpAddr::from([10, 1, 0, 1]);
        let point = Point::of_workload("pal-x".into(), address, Ingress);
        let set = more.points.values().next().copied().unwrap();
        more.points.insert(point, set);
        first.resync(&more).unwrap();
        for family in [0, 1] {
            assert!(place.arrives(A, B, datagram(A, B, family, [40_000, 53])));
            assert!(place.arrives(A, B, datagram(A, B, family, [40_000, 54])));
        }
    }
    // Without an agent its programs go on.
    for family in [0, 1] {
        assert!(place.arrives(B, A, datagram(B, A, family, [53, 40_000])));
    }
    let mut second = driver();
    second.resync(&tables(&CLOSED, &allowed[..1])).unwrap();
    // Four flows, each judged at its beginning at both ends.
    assert_eq!(allowed_packets(&mut second), 8);
    assert_eq!(counts(&second).owned, 4);
    for family in [0, 1] {
        assert!(place.arrives(B, A, datagram(B, A, family, [53, 40_000])));
        assert!(!place.arrives(B, A, datagram(B, A, family, [54, 40_000])));
    }
    let sets = std::fs::read_dir(ebpf::pin_folder(&place.netns()))
        .unwrap()
        .flat_map(|layout| {
            let path = layout.unwrap().path();
            std::fs::read_dir(path)
                .unwrap()
                .map(|entry| entry.unwrap().file_name())
        });
    let sets = sets
        .filter(|name| name.to_string_lossy().starts_with("set-"))
        .count();
    assert_eq!(sets, 1, "what the first agent had for itself is gone");
    assert_eq!(attached(&place), both_interfaces(attachment));
}

#[test]
fn without_the_fast_path_nothing_of_it_stays() {
    if !need_root() {
        return;
    }
    for attachment in attachments() {
        nothing_stays(attachment);
    }
}

/// Also run in a guest.
pub(super) fn nothing_stays(attachment: ProgramAttachment) {
    let place = Place::quiet("fastoff").attached_by(attachment);
    let closed = tables(&CLOSED, &[(A, B, 17, Some(53))]);
    let folder = ebpf::pin_folder(&place.netns());
    {
        let mut first = driver(&place);
        first.resync(&closed).unwrap();
        assert!(place.arrives(A, B, datagram(A, B, 0, [40_000, 53])));
        assert!(
            first
                .installed_objects()
                .unwrap()
                .iter()
                .any(|object| object.name == folder.display().to_string())
        );
    }
    // Another policy, by an agent without the fast path: its programs would allow what is not allowed.
    let mut second: CountedDriver = open_nftables(config(), &place.netns()).unwrap().into();
    second
        .resync(&tables(&CLOSED, &[(A, B, 17, Some(54))]))
        .unwrap();
    assert!(!folder.exists());
    assert_eq!(attached(&place), [0; 2]);
    assert!(!place.arrives(A, B, datagram(A, B, 0, [40_000, 53])));
    assert!(!place.arrives(A, B, datagram(A, B, 0, [40_001, 53])));
    assert!(place.arrives(A, B, datagram(A, B, 0, [40_001, 54])));
    assert_eq!(second.flow_counts(), None);
    let mut third = driver(&place);
    third.resync(&closed).unwrap();
    assert!(third.is_fast());
    third.remove().unwrap();
    assert!(!folder.exists());
    assert_eq!(attached(&place), [0; 2]);
    assert_eq!(third.installed_objects().unwrap(), []);
}

/// The port of the Services, and that of the pod.
const SERVICE_PORT: u16 = 53;
const POD_PORT: u16 = 5_353;
const SERVICES: [&str; 2] = ["198.18.0.1", "fd99::1"];
/// How long an answer may take, and how long one is awaited that must not come.
const PATIENCE: Duration = Duration::from_secs(5);
const BRIEF: Duration = Duration::from_millis(200);

/// A socket of A that takes answers of the Service alone.
fn client(place: &Place, family: usize) -> UdpSocket {
    let service: IpAddr = SERVICES[family].parse().unwrap();
    let open = || {
        let socket = UdpSocket::bind(Place::at(A, family, 0))?;
        socket.connect((service, SERVICE_PORT))?;
        socket.set_read_timeout(Some(BRIEF))?;
        std::io::Result::Ok(socket)
    };
    place.lab.run_in(place.nodes[A], open).unwrap().unwrap()
}

fn server(place: &Place, family: usize) -> UdpSocket {
    let open = || UdpSocket::bind(Place::at(B, family, POD_PORT));
    let socket = place.lab.run_in(place.nodes[B], open).unwrap().unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket
}

/// Whether a question to the Service is answered as by the Service.
fn is_answered(client: &UdpSocket, server: &UdpSocket) -> bool {
    let mut buffer = [0; 8];
    client.send(b"question").unwrap();
    let (_, from) = server.recv_from(&mut buffer).unwrap();
    server.send_to(b"answer", from).unwrap();
    client.recv(&mut buffer).is_ok()
}

#[test]
fn answers_of_a_service_are_translated_also_of_flows_from_before_the_fast_path() {
    if !need_root() {
        return;
    }
    for attachment in attachments() {
        answers_are_translated(attachment);
    }
}

/// With programs that are attached in one way.
fn answers_are_translated(attachment: ProgramAttachment) {
    let place = Place::new("fastdnat").attached_by(attachment);
    place.nft(
        place.lab.host(),
        "add table inet nat { chain pre { type nat hook prerouting priority -100; \
         ip daddr 198.18.0.1 udp dport 53 dnat ip to 10.88.0.2:5353; \
         ip6 daddr fd99::1 udp dport 53 dnat ip6 to [fd88::2]:5353; }; }",
    );
    let open = tables(&[], &[]);
    let mut alone: CountedDriver = open_nftables(config(), &place.netns()).unwrap().into();
    alone.resync(&open).unwrap();
    let servers = [0, 1].map(|family| server(&place, family));
    let before = [0, 1].map(|family| client(&place, family));
    for family in [0, 1] {
        assert!(is_answered(&before[family], &servers[family]), "{family}");
    }
    drop(alone);
    let mut driver = driver(&place);
    driver.resync(&open).unwrap();
    assert_eq!(
        counts(&driver),
        FlowCounts {
            via_stack: 2,
            ..FlowCounts::default()
        }
    );
    for family in [0, 1] {
        // What is answered first, after the fast path has come, is an answer.
        let to = before[family].local_addr().unwrap();
        servers[family].send_to(b"late", to).unwrap();
        assert!(before[family].recv(&mut [0; 8]).is_ok(), "{family}");
        assert!(is_answered(&before[family], &servers[family]), "{family}");
        assert!(
            is_answered(&client(&place, family), &servers[family]),
            "{family}"
        );
        // Without the Service, by the fast path.
        let direct = place.lab.run_in(place.nodes[A], || {
            let socket = UdpSocket::bind(Place::at(A, family, 0))?;
            socket.connect(Place::at(B, family, POD_PORT))?;
            socket.set_read_timeout(Some(PATIENCE))?;
            std::io::Result::Ok(socket)
        });
        assert!(
            is_answered(&direct.unwrap().unwrap(), &servers[family]),
            "{family}"
        );
    }
    assert_eq!(
        counts(&driver),
        FlowCounts {
            owned: 2,
            // Between the pods, and from the Service's address, which is one of other hosts.
            via_stack: 8,
            ..FlowCounts::default()
        }
    );
}

/// Packets of one policy.
const PACKETS: u16 = 20;

#[test]
fn first_packets_between_pods_have_the_verdict_of_the_tables_and_those_allowed_are_delivered() {
    if !need_root() {
        return;
    }
    let place = Place::quiet("fastdraw");
    let mut driver = driver(&place);
    let [mut sent, mut delivered] = [0, 0];
    for (seed, case) in seeded_cases(1, cases(60)) {
        let mut dice = Dice::new(seed, case);
        let isolated: Vec<_> = CLOSED.into_iter().filter(|_| dice.chance(60)).collect();
        let allowed = (0..dice.below(8)).map(|_| {
            let ends = *dice.pick(&[(A, B), (B, A)]);
            let port = *dice.pick(&[None, Some(53), Some(80), Some(81), Some(65_535)]);
            (ends.0, ends.1, *dice.pick(&[6, 17]), port)
        });
        let allowed: Vec<Allowed> = allowed.collect();
        let policy = tables(&isolated, &allowed);
        driver.resync(&policy).unwrap();
        driver.forget_flows();
        place.lab.flush_conntrack().unwrap();
        let mut packets = Vec::new();
        let mut expected = Vec::new();
        for number in 0..PACKETS {
            let (from, to) = *dice.pick(&[(A, B), (B, A)]);
            let family = dice.below(2);
            let ports = [20_000 + number, *dice.pick(&[53, 80, 81, 82, 65_535])];
            let is_tcp = dice.below(2) == 0;
            let (bytes, protocol) = if is_tcp {
                (segment(from, to, family, ports, SYN), Protocol::TCP)
            } else {
                (datagram(from, to, family, ports), Protocol::UDP)
            };
            let packet = Packet {
                input_interface: Some(INTERFACES[from].into()),
                output_interface: Some(INTERFACES[to].into()),
                source: Place::address(from, family),
                destination: Place::address(to, family),
                pre_dnat: None,
                protocol,
                l4: L4::Ports {
                    source: ports[0],
                    destination: ports[1],
                },
            };
            expected.push(policy.judge(&packet) == Verdict::Allow);
            packets.push((from, to, bytes));
        }
        let arrived = place.arrive(packets);
        assert_eq!(arrived, expected, "seed {seed}, case {case}");
        let allowed = expected.iter().filter(|is_allowed| **is_allowed).count();
        assert_eq!(
            counts(&driver).owned,
            allowed as u64,
            "seed {seed}, case {case}"
        );
        sent += expected.len();
        delivered += allowed;
    }
    println!(
        "account: of {sent} first packets between two pods the fast path delivers {delivered}: all that are allowed"
    );
    assert!(
        delivered > 100 && sent - delivered > 100,
        "{delivered} of {sent}"
    );
}
