//! The fast path by test runs: what it delivers, what it passes, and what it drops. Nothing is attached.

use std::net::{IpAddr, SocketAddr};

use palisade_sys::link::{KernelLinks, LinkChange, MacAddr, VethEnd};
use palisade_sys::netns::run_in;
use palisade_testkit::lab::{TestNetNs, craft};
use palisade_testkit::need_root;

use crate::denials::{check_losses, check_reports};
#[cfg(feature = "faults")]
use crate::flood::check_echo;
#[cfg(feature = "faults")]
use crate::outside::check_outside;
use crate::rows::{ALLOWED, DENIED, PROOF, Rows, Slot, State};

pub(crate) const SYN: u8 = 2;
pub(crate) const SYN_ACK: u8 = 18;
pub(crate) const ACK: u8 = 16;
const FIN_ACK: u8 = 17;
const MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];

/// What the program does with a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It passes to the stack, unproven.
    Passes,
    /// It passes to the stack with the proof bit.
    Proven,
    Delivered,
    Dropped,
}

use Outcome::{Delivered, Dropped, Passes, Proven};

/// A namespace with the interfaces of two workloads, and the fast path.
pub(crate) struct World {
    pub(crate) netns: TestNetNs,
    pub(crate) rows: Rows,
    pub(crate) ifindexes: [u32; 2],
}

/// Adds an interface whose other end is a workload's; its index.
pub(crate) fn add_interface(netns: &TestNetNs, name: &str) -> u32 {
    let mut links = KernelLinks::open(netns.netns()).unwrap();
    let end = VethEnd {
        name: name.to_owned(),
        mac: Some(MacAddr(MAC)),
        ..VethEnd::default()
    };
    let peer = VethEnd {
        name: format!("{name}-peer"),
        ..VethEnd::default()
    };
    links.create_veth(&end, &peer).unwrap();
    links.change_link(name, &LinkChange::Up).unwrap();
    links.link(name).unwrap().unwrap().index
}

/// The frame of a packet, and its `struct __sk_buff`: it comes from the interface with this index, with the mark that a
/// sender cannot set.
pub(crate) fn frame(packet: &[u8], ifindex: u32) -> (Vec<u8>, [u8; 192]) {
    let mut frame = MAC.to_vec();
    frame.extend([2, 0, 0, 0, 0, 9]);
    frame.extend(if packet[0] >> 4 == 4 {
        [0x08, 0x00]
    } else {
        [0x86, 0xdd]
    });
    frame.extend(packet);
    let mut context = [0_u8; 192];
    context[8..12].copy_from_slice(&PROOF.to_ne_bytes());
    context[40..44].copy_from_slice(&ifindex.to_ne_bytes());
    (frame, context)
}

/// The addresses of a workload.
pub(crate) fn addresses(pod: usize) -> [IpAddr; 2] {
    let last = pod as u8 + 1;
    [
        [10, 0, 0, last].into(),
        [0xfd00, 0, 0, 0, 0, 0, 0, last.into()].into(),
    ]
}

/// Two workloads. The first may send anything; the second takes TCP to port 80, UDP to ports 1000 to 2000, and echo
/// requests, from the first.
impl World {
    pub(crate) fn new(fault: u64) -> Self {
        let netns = TestNetNs::new("bpf-path").unwrap();
        let ifindexes = ["pod0", "pod1"].map(|name| add_interface(&netns, name));
        let rows = Rows::reset(fault);
        let world = World {
            netns,
            rows,
            ifindexes,
        };
        for pod in 0..2 {
            world.set_pod(pod, 1, true);
        }
        let rows = &world.rows;
        rows.set_default_class(1, 1);
        rows.set_descriptor(1, [ALLOWED | 1; 4], &[], &[]);
        rows.set_class(2, 100, 2);
        let echo = |kind: u8| u16::from_be_bytes([kind, 0]);
        let ports = [
            (6, 80, ALLOWED | 2),
            (1, echo(8), ALLOWED | 4),
            (58, echo(128), ALLOWED | 4),
        ];
        rows.set_descriptor(3, [DENIED | 5; 4], &[], &[]);
        rows.set_descriptor(
            2,
            [DENIED | 5; 4],
            &ports,
            &[(17, [1_000, 2_000], ALLOWED | 3)],
        );
        world
    }

    fn set_pod(&self, pod: usize, incarnation: u16, is_armed: bool) {
        let slot = Slot {
            ifindex: self.ifindexes[pod],
            identity: [100, 200][pod],
            egress_set: 1,
            ingress_set: [3, 2][pod],
            incarnation,
            is_armed,
        };
        self.rows.set_slot(pod as u16 + 1, &addresses(pod), slot);
    }

    /// Runs a program on a packet that comes from a workload, or goes to it.
    fn run(&self, program: &str, pod: usize, packet: &[u8]) -> Outcome {
        self.run_at(program, self.ifindexes[pod], packet).0
    }

    /// Runs a program on a packet at an interface; what becomes of it, and the frame afterwards.
    pub(crate) fn run_at(&self, program: &str, ifindex: u32, packet: &[u8]) -> (Outcome, Vec<u8>) {
        let (frame, context) = frame(packet, ifindex);
        let program = self.rows.loaded.program(program).unwrap();
        let run = run_in(self.netns.netns(), || program.test_run(&frame, &context, 1));
        let run = run.unwrap().unwrap();
        let mark = u32::from_ne_bytes(run.context[8..12].try_into().unwrap());
        let outcome = match (run.verdict.cast_signed(), mark & PROOF != 0) {
            (-1, false) => Passes,
            (-1, true) => Proven,
            (7, false) => Delivered,
            (2, false) => Dropped,
            other => panic!("{other:?}"),
        };
        (outcome, run.packet)
    }

    pub(crate) fn from(&self, pod: usize, packet: &[u8]) -> Outcome {
        self.run("from_pod", pod, packet)
    }
}

/// The sockets of a flow between the workloads, of either family.
pub(crate) fn flow(family: usize, port: u16) -> [SocketAddr; 2] {
    [0, 1].map(|pod| (addresses(pod)[family], [40_000, port][pod]).into())
}

pub(crate) fn tcp([source, to]: [SocketAddr; 2], flags: u8) -> Vec<u8> {
    craft::tcp(source, to, flags, (1, 1), &[])
}

pub(crate) fn udp([source, to]: [SocketAddr; 2]) -> Vec<u8> {
    craft::udp(source, to, 1, b"data of a datagram")
}

pub(crate) fn back([source, to]: [SocketAddr; 2]) -> [SocketAddr; 2] {
    [to, source]
}

fn check_connections(fault: u64) {
    for family in [0, 1] {
        let world = World::new(fault);
        let http = flow(family, 80);
        assert_eq!(
            world.from(1, &tcp(back(http), SYN_ACK)),
            Passes,
            "nothing is open"
        );
        assert_eq!(world.from(0, &tcp(http, ACK)), Passes, "no beginning");
        assert_eq!(world.from(0, &tcp(http, SYN)), Delivered);
        assert_eq!(world.from(1, &tcp(back(http), SYN_ACK)), Delivered);
        assert_eq!(world.from(0, &tcp(http, ACK)), Delivered);
        assert_eq!(
            world.from(1, &tcp(back(http), SYN)),
            Passes,
            "a connection of the other"
        );
        assert_eq!(world.rows.packets(1), 1, "judged once at each end");
        assert_eq!(world.rows.packets(2), 1);
        assert_eq!(
            world.from(0, &tcp(flow(family, 81), SYN)),
            Passes,
            "not allowed"
        );
        // Other rules: it is judged again, from either side as its first packet.
        world.rows.set_generation(2);
        assert_eq!(world.from(1, &tcp(back(http), ACK)), Delivered);
        assert_eq!(world.rows.packets(2), 2);
        world.rows.set_class(2, 100, 3);
        assert_eq!(
            world.from(0, &tcp(http, ACK)),
            Delivered,
            "nothing was revoked"
        );
        world.rows.set_generation(3);
        assert_eq!(world.from(1, &tcp(back(http), ACK)), Dropped);
        assert_eq!(world.from(0, &tcp(http, ACK)), Dropped);
        assert_eq!(world.rows.packets(5), 2, "counted as denied");
        world.rows.set_class(2, 100, 2);
        assert_eq!(world.from(0, &tcp(http, ACK)), Delivered, "allowed again");
        // A closed connection is begun anew.
        assert_eq!(world.from(0, &tcp(http, FIN_ACK)), Delivered);
        assert_eq!(world.from(0, &tcp(http, SYN)), Delivered);
        world.rows.set_class(2, 100, 3);
        assert_eq!(world.from(0, &tcp(http, FIN_ACK)), Delivered);
        assert_eq!(
            world.from(0, &tcp(http, SYN)),
            Passes,
            "a new one is not allowed"
        );
    }
}

/// What is neither allowed nor denied any more goes by the stack, and stays there.
fn check_unproven(fault: u64) {
    for family in [0, 1] {
        let world = World::new(fault);
        let http = flow(family, 80);
        assert_eq!(world.from(0, &tcp(http, SYN)), Delivered);
        world.rows.set_class(2, 100, 4);
        world.rows.set_generation(2);
        assert_eq!(world.from(1, &tcp(back(http), SYN_ACK)), Passes);
        world.rows.set_class(2, 100, 2);
        world.rows.set_generation(3);
        assert_eq!(world.from(0, &tcp(http, ACK)), Passes, "the stack has it");
        assert_eq!(world.from(0, &tcp(http, FIN_ACK)), Passes);
        assert_eq!(world.from(0, &tcp(http, SYN)), Delivered, "another one");
    }
}

/// While no flow begins, owned flows go on; a connection with the ports of one that closes is the stack's for good.
fn check_owned_only(fault: u64) {
    for family in [0, 1] {
        let world = World::new(fault);
        let (open, closing) = (flow(family, 80), {
            let [_, to] = flow(family, 80);
            [(addresses(0)[family], 40_001).into(), to]
        });
        for http in [open, closing] {
            assert_eq!(world.from(0, &tcp(http, SYN)), Delivered);
            assert_eq!(world.from(1, &tcp(back(http), SYN_ACK)), Delivered);
        }
        assert_eq!(world.from(0, &tcp(closing, FIN_ACK)), Delivered);
        world.rows.set_state(State::OwnedOnly);
        assert_eq!(world.from(0, &tcp(open, ACK)), Delivered);
        assert_eq!(world.from(1, &tcp(back(closing), ACK)), Delivered);
        assert_eq!(world.from(0, &tcp(closing, SYN)), Passes);
        assert_eq!(world.from(1, &tcp(back(closing), SYN_ACK)), Passes);
        assert_eq!(world.from(0, &tcp(closing, ACK)), Passes);
        world.rows.set_state(State::On);
        assert_eq!(world.from(0, &tcp(closing, ACK)), Passes);
        assert_eq!(world.from(0, &tcp(open, ACK)), Delivered);
    }
}

/// Policy has two halves, and one of them is in force.
fn check_halves(fault: u64) {
    let world = World::new(fault);
    let datagram = flow(0, 1_500);
    assert_eq!(world.from(0, &udp(datagram)), Delivered);
    world.rows.set_second_half(1);
    assert_eq!(
        world.from(0, &udp(datagram)),
        Delivered,
        "of the same generation"
    );
    assert_eq!(world.from(0, &udp(flow(0, 1_501))), Passes);
    world.rows.set_second_half(2);
    assert_eq!(world.from(0, &udp(datagram)), Passes);
}

fn check_datagrams(fault: u64) {
    for family in [0, 1] {
        let world = World::new(fault);
        for (port, first) in [
            (999, Passes),
            (1_000, Delivered),
            (2_000, Delivered),
            (2_001, Passes),
        ] {
            let datagram = flow(family, port);
            assert_eq!(world.from(1, &udp(back(datagram))), Passes, "{port}");
            assert_eq!(world.from(0, &udp(datagram)), first, "{port}");
            assert_eq!(world.from(1, &udp(back(datagram))), first, "{port}");
        }
        let [source, to] = flow(family, 0).map(|end| end.ip());
        let kinds = [[8, 0], [128, 129]][family];
        let id = [0, 8, 0, 1];
        let request = craft::icmp(source, to, (kinds[0], 0), id, b"sixteen bytes...");
        let answer = craft::icmp(to, source, (kinds[1], 0), id, b"sixteen bytes...");
        assert_eq!(world.from(1, &answer), Passes);
        assert_eq!(world.from(0, &request), Delivered);
        assert_eq!(world.from(1, &answer), Delivered);
        let other = craft::icmp(to, source, (kinds[0], 0), id, b"sixteen bytes...");
        assert_eq!(
            world.from(1, &other),
            Passes,
            "its own request, with the same number"
        );
        let unreachable = |quoted: &[u8]| {
            let error = craft::icmp(to, source, ([3, 1][family], 1), [0; 4], quoted);
            world.from(1, &error)
        };
        let owned = udp(flow(family, 1_500));
        assert_eq!(unreachable(&owned), Passes, "about nothing");
        assert_eq!(world.from(0, &owned), Delivered);
        assert_eq!(unreachable(&request), Delivered);
        assert_eq!(unreachable(&owned), Delivered);
        assert_eq!(
            unreachable(&owned[..owned.len() - 10]),
            Delivered,
            "cut, as errors do"
        );
        assert_eq!(unreachable(&owned[..24]), Passes, "without its ports");
        assert_eq!(
            unreachable(&udp(back(flow(family, 1_500)))),
            Passes,
            "its own packet"
        );
        world.rows.set_generation(2);
        assert_eq!(unreachable(&owned), Passes, "not judged again");
    }
}

fn check_passed(fault: u64) {
    for family in [0, 1] {
        let world = World::new(fault);
        let datagram = flow(family, 1_500);
        let packet = udp(datagram);
        assert_eq!(world.from(1, &packet), Passes, "spoofed");
        let own = [datagram[0], (addresses(0)[family], 1_500).into()];
        assert_eq!(world.from(0, &udp(own)), Passes, "to itself");
        let outside: IpAddr = ["192.0.2.1", "2001:db8::1"][family].parse().unwrap();
        assert_eq!(
            world.from(0, &udp([datagram[0], (outside, 1_500).into()])),
            Passes
        );
        for piece in craft::fragments(&packet, 16, 7) {
            assert_eq!(world.from(0, &piece), Passes);
        }
        assert_eq!(world.from(0, &packet[..packet.len() - 1]), Passes, "cut");
        assert_eq!(
            world.from(0, &craft::sctp(datagram[0], datagram[1], 1, &[0; 8])),
            Passes
        );
        assert_eq!(
            world.from(0, &tcp(flow(family, 80), SYN | 1)),
            Passes,
            "SYN and FIN"
        );
        world.set_pod(1, 1, false);
        assert_eq!(world.from(0, &packet), Passes, "not armed");
        world.set_pod(1, 1, true);
        world.rows.set_state(State::OwnedOnly);
        assert_eq!(world.from(0, &packet), Passes);
        world.rows.set_state(State::On);
        assert_eq!(world.from(0, &packet), Delivered);
        let mut last_hop = packet.clone();
        last_hop[[8, 7][family]] = 1;
        assert_eq!(world.from(0, &last_hop), Proven, "the stack answers it");
        let [first, second] = craft::fragments(&packet, 16, 7);
        assert_eq!(world.from(0, &first), Proven);
        assert_eq!(world.from(0, &second), Passes);
        let large = craft::udp(datagram[0], datagram[1], 1, &[0; 1_480]);
        assert_eq!(
            world.from(0, &large),
            Proven,
            "larger than the interface takes"
        );
        world.rows.set_state(State::OwnedOnly);
        assert_eq!(world.from(0, &packet), Delivered);
        world.rows.set_state(State::Off);
        assert_eq!(world.from(0, &packet), Passes);
    }
}

fn check_inheritance(fault: u64) {
    let world = World::new(fault);
    let datagram = flow(0, 1_500);
    assert_eq!(world.from(0, &udp(datagram)), Delivered);
    world.set_pod(1, 2, true);
    assert_eq!(world.from(0, &udp(datagram)), Passes);
    assert_eq!(world.from(1, &udp(back(datagram))), Passes);
}

fn check_via_stack(fault: u64) {
    for family in [0, 1] {
        let world = World::new(fault);
        let datagram = flow(family, 1_500);
        assert_eq!(
            world.run("to_pod", 1, &udp(datagram)),
            Proven,
            "the mark is as it was"
        );
        assert_eq!(world.from(1, &udp(back(datagram))), Passes);
        assert_eq!(world.from(0, &udp(datagram)), Passes);
        let other = flow(family, 1_501);
        assert_eq!(world.from(0, &udp(other)), Delivered);
        world.run("to_pod", 1, &udp(other));
        assert_eq!(world.from(0, &udp(other)), Delivered, "it stays owned");
    }
}

fn check_expiry(fault: u64) {
    let world = World::new(fault);
    world.rows.use_one_bucket();
    for port in [1_000, 1_001, 1_002] {
        assert_eq!(world.from(0, &udp(flow(0, port))), Delivered);
    }
    world.rows.age_flows();
    let again = flow(0, 1_001);
    assert_eq!(world.from(1, &udp(back(again))), Passes, "it is over");
    assert_eq!(world.from(0, &udp(again)), Delivered);
    assert_eq!(
        world.from(1, &udp(back(again))),
        Delivered,
        "its former entry is gone"
    );
    assert_eq!(world.rows.evictions(), 0);
}

fn check_full_table(fault: u64) {
    let world = World::new(fault);
    for port in 1_000..1_200 {
        assert_eq!(world.from(0, &udp(flow(0, port))), Delivered);
    }
    // Eight buckets of eight.
    assert_eq!(world.rows.evictions(), 200 - 64);
    let answered =
        (1_000..1_200).filter(|port| world.from(1, &udp(back(flow(0, *port)))) == Delivered);
    assert_eq!(answered.count(), 64);
}

#[test]
fn a_connection_is_delivered_in_both_directions_while_it_is_allowed() {
    if need_root() {
        check_connections(0);
    }
}

#[test]
fn a_flow_of_which_nothing_is_proven_any_more_goes_by_the_stack() {
    if need_root() {
        check_unproven(0);
    }
}

#[test]
fn while_no_flow_begins_owned_flows_go_on_and_the_stack_has_what_begins() {
    if need_root() {
        check_owned_only(0);
    }
}

#[test]
fn one_half_of_the_policy_is_in_force() {
    if need_root() {
        check_halves(0);
    }
}

#[test]
fn datagrams_and_echo_requests_are_delivered_with_their_answers() {
    if need_root() {
        check_datagrams(0);
    }
}

#[test]
fn what_is_not_proven_passes() {
    if need_root() {
        check_passed(0);
    }
}

#[test]
fn a_flow_is_not_inherited_by_who_gets_its_place() {
    if need_root() {
        check_inheritance(0);
    }
}

#[test]
fn answers_of_what_the_stack_delivered_go_by_it_as_well() {
    if need_root() {
        check_via_stack(0);
    }
}

#[test]
fn a_flow_that_is_over_is_begun_anew_in_its_own_place() {
    if need_root() {
        check_expiry(0);
    }
}

#[test]
fn a_full_table_loses_flows_and_counts_them() {
    if need_root() {
        check_full_table(0);
    }
}

/// Runs all of these, for a guest.
pub(crate) fn check_all() {
    let checks = [
        check_connections,
        check_unproven,
        check_owned_only,
        check_halves,
        check_datagrams,
        check_passed,
        check_inheritance,
        check_via_stack,
        check_expiry,
        check_full_table,
        check_reports,
        check_losses,
    ];
    for check in checks {
        check(0);
    }
}

/// The name of a mistake, and what is to find it.
#[cfg(feature = "faults")]
type Mistake = (&'static str, fn(u64));

/// Mistakes of the programs, in the order of `enum fault` of `src/c/layout.h` from 1 on, and what is to find each.
#[cfg(feature = "faults")]
const FAULTS: [Mistake; 34] = [
    ("ingress-not-judged", check_connections),
    ("revoked-flow-passed", check_connections),
    ("generation-ignored", check_connections),
    ("incarnation-ignored", check_inheritance),
    ("proof-not-cleared", check_connections),
    ("via-stack-forgotten", check_via_stack),
    ("sender-not-checked", check_passed),
    ("unarmed-used", check_passed),
    ("fragment-begins", check_passed),
    ("answer-begins", check_connections),
    ("request-of-anyone", check_datagrams),
    ("range-end-open", check_datagrams),
    ("mtu-ignored", check_passed),
    ("last-hop-ignored", check_passed),
    ("error-of-anyone", check_datagrams),
    ("length-ignored", check_passed),
    ("time-ignored", check_expiry),
    ("state-ignored", check_passed),
    ("answer-judged", check_connections),
    ("closed-continues", check_connections),
    ("entry-twice", check_expiry),
    ("unproven-dropped", check_unproven),
    ("other-half", check_halves),
    ("address-echo-ignored", check_echo),
    ("class-echo-ignored", check_echo),
    ("port-echo-ignored", check_echo),
    ("shorter-prefix", check_outside),
    ("any-route", check_outside),
    ("source-route-ignored", check_outside),
    ("local-source-outside", check_outside),
    ("ttl-kept", check_outside),
    ("mapped-address", check_outside),
    ("loss-uncounted", check_losses),
    ("answer-reported-as-first", check_reports),
];

#[cfg(feature = "faults")]
#[test]
fn every_mistake_of_the_programs_is_found() {
    if !need_root() {
        return;
    }
    let mut numbers = 1..;
    for (name, check) in FAULTS {
        let fault = numbers.next().unwrap();
        let found = std::panic::catch_unwind(|| check(fault)).is_err();
        assert!(found, "{name} is not found");
    }
    println!("account: mistakes of the fast path: {} found", FAULTS.len());
}
