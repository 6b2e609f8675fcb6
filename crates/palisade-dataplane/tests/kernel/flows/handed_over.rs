//! Flows of the fast path when it goes: connection tracking knows them afterwards, and nftables judges each at its next
//! packet, in the direction in which it began.

use std::path::PathBuf;
use std::time::Duration;

use palisade_bpf::{BpfObject, FastPathState, FlowTable};
use palisade_dataplane::ebpf::ProgramAttachment;
use palisade_dataplane::{Dataplane as _, FlowHandOver, ebpf};
use palisade_sys::bpf::BpfMap;
use palisade_sys::conntrack::{
    Conntrack as _, ConntrackEntry, ConntrackFilter, ConntrackTuple, KernelConntrack,
    NewConnection, TupleProto,
};
use palisade_sys::link::KernelLinks;
use palisade_testkit::CountedDriver;
use palisade_testkit::lab::craft::tcp;
use palisade_testkit::test_driver::{list_interfaces, open_nftables};

use super::fast::{
    ACK, CLOSED, SYN, attachments, block_pin, config, counts, datagram, driver, segment,
};
use super::need_root;
use super::place::{A, Allowed, B, Place, tables, tag};

const SYN_ACK: u8 = 18;

fn nftables_alone(place: &Place) -> CountedDriver {
    open_nftables(config(), &place.netns()).unwrap().into()
}

fn entries(place: &Place) -> Vec<ConntrackEntry> {
    let mut conntrack = KernelConntrack::open(&place.netns()).unwrap();
    conntrack.entries(&ConntrackFilter::default()).unwrap()
}

/// A segment of an established connection, some megabytes after its beginning.
fn far_segment(from: usize, to: usize, family: usize, ports: [u16; 2], far: u32) -> Vec<u8> {
    let [source, destination] = ports;
    let (from, to) = (
        Place::at(from, family, source),
        Place::at(to, family, destination),
    );
    tcp(from, to, ACK, (1001 + far, 1001 + far), &tag())
}

/// Begins a connection of each family to a port of B.
fn connect(place: &Place, ports: [u16; 2]) {
    let back = [ports[1], ports[0]];
    for family in [0, 1] {
        assert!(place.arrives(A, B, segment(A, B, family, ports, SYN)));
        assert!(place.arrives(B, A, segment(B, A, family, back, SYN_ACK)));
        assert!(place.arrives(A, B, segment(A, B, family, ports, ACK)));
    }
}

/// The same with datagrams.
fn exchange(place: &Place, ports: [u16; 2]) {
    let back = [ports[1], ports[0]];
    for family in [0, 1] {
        assert!(place.arrives(A, B, datagram(A, B, family, ports)));
        assert!(place.arrives(B, A, datagram(B, A, family, back)));
    }
}

/// Sends packets of flows that began at port 40000 of A, those of B first, of TCP with numbers far from its beginning;
/// which arrive.
fn go_on(place: &Place, [udp, tcp]: [u16; 2], family: usize, far: u32) -> Vec<bool> {
    let [question, answer] = [[40_000, udp], [udp, 40_000]];
    let [out, back] = [[40_000, tcp], [tcp, 40_000]];
    place.arrive(vec![
        (B, A, datagram(B, A, family, answer)),
        (A, B, datagram(A, B, family, question)),
        (B, A, far_segment(B, A, family, back, far)),
        (A, B, far_segment(A, B, family, out, far)),
        (B, A, far_segment(B, A, family, back, far + 900_000)),
        (A, B, far_segment(A, B, family, out, far + 900_000)),
    ])
}

fn created(created: usize) -> Option<FlowHandOver> {
    Some(FlowHandOver {
        created,
        ..FlowHandOver::default()
    })
}

#[test]
fn allowed_flows_live_and_revoked_ones_stop_when_the_fast_path_goes() {
    if !need_root() {
        return;
    }
    for attachment in attachments() {
        allowed_live_and_revoked_stop(attachment);
    }
}

/// With programs that are attached in one way.
fn allowed_live_and_revoked_stop(attachment: ProgramAttachment) {
    let place = Place::quiet("handover").attached_by(attachment);
    let (dns, http): (Allowed, Allowed) = ((A, B, 17, Some(53)), (A, B, 6, Some(80)));
    let (dns_later, http_later) = ((A, B, 17, Some(54)), (A, B, 6, Some(81)));
    let (dns_before, http_before) = ((A, B, 17, Some(55)), (A, B, 6, Some(82)));
    // B may begin flows to the ports that A's come from: an entry that is judged the other way round would pass.
    let others: [Allowed; 2] = [(B, A, 17, Some(40_000)), (B, A, 6, Some(40_000))];
    let policy = |more: &[Allowed]| {
        let allowed: Vec<Allowed> = others
            .iter()
            .chain(&[dns, http])
            .chain(more)
            .copied()
            .collect();
        tables(&CLOSED, &allowed)
    };
    {
        let mut fast = driver(&place);
        let all = [dns_later, http_later, dns_before, http_before];
        fast.resync(&policy(&all)).unwrap();
        for port in [53, 54, 55] {
            exchange(&place, [40_000, port]);
        }
        for port in [80, 81, 82] {
            connect(&place, [40_000, port]);
        }
        // One that closes is not handed over.
        connect(&place, [40_002, 80]);
        for family in [0, 1] {
            assert!(place.arrives(A, B, segment(A, B, family, [40_002, 80], 4)));
        }
        // Of these only the first packet was seen: they end soon, also where all is slow.
        for family in [0, 1] {
            assert!(place.arrives(A, B, segment(A, B, family, [40_001, 80], SYN)));
            assert!(place.arrives(A, B, datagram(A, B, family, [40_001, 53])));
        }
        assert_eq!(counts(&fast).owned, 18);
        assert_eq!(entries(&place), [], "connection tracking has seen none");
        // Revoked while the fast path has them, and no packet follows.
        fast.resync(&policy(&[dns_later, http_later])).unwrap();
    }
    let mut alone = nftables_alone(&place);
    let mut events = alone.flow_events().unwrap().remove(0);
    alone.resync(&policy(&[dns_later, http_later])).unwrap();
    let told = events.wait(Duration::from_millis(100)).unwrap();
    assert_eq!(told.unwrap_or_default().events, [], "they began before");
    assert!(!ebpf::pin_folder(&place.netns()).exists());
    for family in [0, 1] {
        let answer = segment(B, A, family, [80, 40_001], SYN_ACK);
        assert!(place.arrives(B, A, answer), "{family}: of a SYN");
        assert!(place.arrives(A, B, segment(A, B, family, [40_001, 80], ACK)));
        assert!(place.arrives(B, A, datagram(B, A, family, [53, 40_001])));
    }
    for family in [0, 1] {
        assert_eq!(
            go_on(&place, [55, 82], family, 3_000_000),
            [false; 6],
            "{family}: revoked before"
        );
        assert_eq!(
            go_on(&place, [53, 80], family, 3_000_000),
            [true; 6],
            "{family}"
        );
    }
    assert_eq!(alone.take_hand_over(), created(16));
    assert_eq!(alone.take_hand_over(), None, "once");
    assert_eq!(entries(&place).len(), 16);
    // Revoked afterwards, without a packet since then.
    alone.resync(&policy(&[])).unwrap();
    for family in [0, 1] {
        assert_eq!(
            go_on(&place, [54, 81], family, 3_000_000),
            [false; 6],
            "{family}: revoked"
        );
        assert_eq!(
            go_on(&place, [53, 80], family, 6_000_000),
            [true; 6],
            "{family}"
        );
    }
}

#[test]
fn flows_that_are_revoked_with_the_switch_stop() {
    if !need_root() {
        return;
    }
    let place = Place::quiet("handrevoke");
    {
        let mut fast = driver(&place);
        let allowed = [(A, B, 17, None), (A, B, 6, None)];
        fast.resync(&tables(&CLOSED, &allowed)).unwrap();
        for port in [53, 54] {
            exchange(&place, [40_000, port]);
        }
        for port in [80, 81] {
            connect(&place, [40_000, port]);
        }
    }
    let mut alone = nftables_alone(&place);
    let allowed = [(A, B, 17, Some(53)), (A, B, 6, Some(80))];
    alone.resync(&tables(&CLOSED, &allowed)).unwrap();
    for family in [0, 1] {
        for (ports, arrives) in [([53, 80], true), ([54, 81], false)] {
            assert_eq!(
                go_on(&place, ports, family, 0),
                [arrives; 6],
                "{family} {ports:?}"
            );
        }
    }
    assert_eq!(alone.take_hand_over(), created(8));
}

/// The folder of the layout that an agent has pinned.
fn pinned_layout(place: &Place) -> PathBuf {
    let folder = ebpf::pin_folder(&place.netns());
    let mut layouts = std::fs::read_dir(folder).unwrap();
    layouts.next().unwrap().unwrap().path()
}

#[test]
fn flows_are_handed_over_where_the_fast_path_fails_and_it_starts_again_without_them() {
    if !need_root() {
        return;
    }
    for attachment in attachments() {
        failure_hands_over(attachment);
    }
}

/// With programs that are attached in one way.
fn failure_hands_over(attachment: ProgramAttachment) {
    let mut place = Place::quiet("handfail").attached_by(attachment);
    let policy = |more: &[Allowed]| {
        let (dns, http): (Allowed, Allowed) = ((A, B, 17, Some(53)), (A, B, 6, Some(80)));
        let allowed: Vec<Allowed> = [dns, http].iter().chain(more).copied().collect();
        tables(&CLOSED, &allowed)
    };
    let mut fast = driver(&place);
    let revoked = [(A, B, 17, Some(54)), (A, B, 6, Some(81))];
    fast.resync(&policy(&revoked)).unwrap();
    for port in [53, 54] {
        exchange(&place, [40_000, port]);
    }
    for port in [80, 81] {
        connect(&place, [40_000, port]);
    }
    // Revoked, and no packet follows.
    fast.resync(&policy(&[])).unwrap();
    // The pin of an interface that goes cannot be removed.
    let netns = place.netns();
    let link = KernelLinks::open(&netns).unwrap().link("pal-b").unwrap();
    let links = pinned_layout(&place).join("links");
    let obstacle = block_pin(&links.join(format!("{}-ingress", link.unwrap().index)));
    place.remake(B);
    list_interfaces(&mut fast, &place.netns()).unwrap();
    assert!(!fast.is_fast());
    assert_eq!(fast.conditions()[0].reason, "Failed");
    let goes_on = |family| [[53, 80], [54, 81]].map(|ports| go_on(&place, ports, family, 0));
    let expected = [vec![true; 6], vec![false; 6]];
    for family in [0, 1] {
        assert_eq!(goes_on(family), expected, "{family}");
    }
    assert_eq!(fast.take_hand_over(), created(8));
    std::fs::remove_dir(&obstacle).unwrap();
    // Again with the fast path: the stack has these flows, and the fast path has those that begin.
    fast.verify(&policy(&[])).unwrap();
    assert!(fast.is_fast());
    assert_eq!(fast.conditions(), []);
    for family in [0, 1] {
        assert_eq!(goes_on(family), expected, "{family}");
    }
    assert_eq!(counts(&fast).owned, 0);
    exchange(&place, [40_001, 53]);
    assert_eq!(counts(&fast).owned, 2);
}

/// The table of flows that an agent has pinned.
fn pinned_flows(place: &Place) -> FlowTable {
    let layout = pinned_layout(place);
    let open = |name: &str| {
        let shape = BpfObject::FAST_PATH.map_shape(name).unwrap();
        BpfMap::open_pinned(&layout.join(name), shape).unwrap()
    };
    FlowTable::new(&open("config"), &open("flows")).unwrap()
}

/// Where an agent is killed while it hands flows over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum KilledAfter {
    /// No flow begins any more.
    OwnedOnly,
    /// Some entries exist.
    SomeEntries,
    /// All entries exist, and packets pass.
    Off,
}

/// The mark that a flow has before it is judged: the generation's bits of the mask of tests.
const STALE: u32 = 0x7fff_ff00;

fn kill(place: &Place, killed: KilledAfter) {
    let flows = pinned_flows(place);
    flows.set_state(FastPathState::OwnedOnly);
    let connections = [0, 1].map(|family| NewConnection {
        original: ConntrackTuple {
            source: Place::address(A, family),
            destination: Place::address(B, family),
            protocol: 17,
            proto: TupleProto::Ports(40_000, 53),
        },
        mark: STALE,
        timeout: 30,
        is_answered: true,
    });
    if killed != KilledAfter::OwnedOnly {
        let mut conntrack = KernelConntrack::open(&place.netns()).unwrap();
        assert_eq!(conntrack.create(&connections).unwrap().created, 2);
    }
    if killed == KilledAfter::Off {
        flows.set_state(FastPathState::Off);
    }
}

#[test]
fn a_hand_over_that_was_killed_is_finished_by_the_next_start() {
    if !need_root() {
        return;
    }
    let allowed = [(A, B, 17, Some(53)), (A, B, 6, Some(80))];
    let closed = tables(&CLOSED, &allowed);
    for (killed, is_fast) in [
        (KilledAfter::OwnedOnly, false),
        (KilledAfter::SomeEntries, false),
        (KilledAfter::Off, false),
        (KilledAfter::OwnedOnly, true),
        (KilledAfter::SomeEntries, true),
        (KilledAfter::Off, true),
    ] {
        let context = format!("{killed:?}, then fast: {is_fast}");
        let place = Place::quiet("handkill");
        {
            let mut first = driver(&place);
            first.resync(&closed).unwrap();
            exchange(&place, [40_000, 53]);
            connect(&place, [40_000, 80]);
        }
        kill(&place, killed);
        let mut next = if is_fast {
            driver(&place)
        } else {
            nftables_alone(&place)
        };
        next.resync(&closed).unwrap();
        let expected = match (killed, is_fast) {
            (KilledAfter::OwnedOnly, false) => created(4),
            (KilledAfter::SomeEntries, false) => Some(FlowHandOver {
                created: 2,
                existing: 2,
                ..FlowHandOver::default()
            }),
            _ => None,
        };
        assert_eq!(next.take_hand_over(), expected, "{context}");
        assert_eq!(
            ebpf::pin_folder(&place.netns()).exists(),
            is_fast,
            "{context}"
        );
        if is_fast {
            assert_eq!(pinned_flows(&place).state(), FastPathState::On, "{context}");
            // After the last step the stack has them.
            let owned = if killed == KilledAfter::Off { 0 } else { 4 };
            assert_eq!(counts(&next).owned, owned, "{context}");
        }
        for family in [0, 1] {
            let answer = datagram(B, A, family, [53, 40_000]);
            assert!(place.arrives(B, A, answer), "{context} {family}");
            let data = segment(B, A, family, [80, 40_000], ACK);
            assert!(place.arrives(B, A, data), "{context} {family}");
            let denied = datagram(B, A, family, [53, 40_001]);
            assert!(!place.arrives(B, A, denied), "{context} {family}");
        }
    }
}
