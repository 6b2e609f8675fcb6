//! Packets while rows of the hashes are deleted and added as fast as that goes, so that a program reads elements that have
//! another key by then: no value of another key is used.
//!
//! Each packet is judged, since none of them may begin a flow: the row that it finds denies, or is not there. The elements
//! that become free get rows that allow.

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use palisade_bpf::LoadedObject;
use palisade_sys::bpf::{BpfMap, UpdateMode};
use palisade_sys::netns::run_in;
use palisade_testkit::lab::{TestNetNs, craft};
use palisade_testkit::need_root;

use crate::fast_path::{add_interface, frame};
use crate::rows::{ALLOWED, DENIED, Row, Rows, Slot, State, address_row, class_row, port_row};

const UDP: u8 = 17;
/// The port of all packets.
const PORT: u16 = 1_500;
/// The counters of what allows wrongly, by the hash: of classes, of ports, of addresses.
const WRONG: [(&str, u32); 3] = [("classes", 2), ("ports", 3), ("addresses", 4)];
/// How often a packet is judged by a call.
const REPEAT: u32 = 256;
/// How long the flood is.
const TIME: Duration = Duration::from_secs(3);
/// The same with a mistake.
#[cfg(feature = "faults")]
const BRIEF: Duration = Duration::from_millis(700);

/// The sender, and who is judged by the row of a class, by the row of a port, and by that of its address.
const SENDER: u8 = 1;
const RECEIVERS: [u8; 3] = [2, 5, 3];

fn address(family: usize, host: u8, net: u8) -> IpAddr {
    match family {
        0 => [10, 0, net, host].into(),
        _ => [0xfd00, 0, 0, 0, 0, 0, net.into(), host.into()].into(),
    }
}

/// A sender that may send anything, and receivers that take nothing.
struct Flood {
    netns: TestNetNs,
    rows: Rows,
    interface: u32,
}

impl Flood {
    fn new(fault: u64) -> Self {
        let netns = TestNetNs::new("bpf-flood").unwrap();
        let interface = add_interface(&netns, "pod0");
        let rows = Rows::reset(fault);
        let slot = |number: u16, host: Option<u8>, ingress_set: u32| {
            let addresses = host.map(|host| [0, 1].map(|family| address(family, host, 0)));
            let slot = Slot {
                ifindex: interface + u32::from(number) - 1,
                identity: 100 * u32::from(number),
                egress_set: 1,
                ingress_set,
                incarnation: 1,
                is_armed: true,
            };
            rows.set_slot(
                number,
                addresses.as_ref().map_or(&[][..], |list| list),
                slot,
            );
        };
        slot(1, Some(SENDER), 3);
        slot(2, Some(RECEIVERS[0]), 2);
        slot(3, Some(RECEIVERS[2]), 3);
        slot(4, None, 5);
        slot(5, Some(RECEIVERS[1]), 6);
        let denied = [DENIED | 5; 4];
        let one_port = |word: u32| [(UDP, PORT, word)];
        rows.set_descriptor(1, [ALLOWED | 1; 4], &[], &[]);
        rows.set_descriptor(2, [ALLOWED | 2; 4], &[], &[]);
        rows.set_descriptor(3, denied, &[], &[]);
        rows.set_descriptor(4, denied, &one_port(DENIED | 5), &[]);
        rows.set_descriptor(8, [ALLOWED | 4; 4], &[], &[]);
        rows.set_default_class(1, 1);
        rows.set_default_class(3, 3);
        rows.set_default_class(5, 8);
        rows.set_default_class(6, 4);
        rows.set_class(2, 100, 3);
        Flood {
            netns,
            rows,
            interface,
        }
    }

    /// How many packets were judged by a value of another key, by the hash.
    fn wrong(&self) -> [(&'static str, u64); 3] {
        WRONG.map(|(name, counter)| (name, self.rows.packets(counter)))
    }
}

/// The packet to one of the receivers.
fn packet(interface: u32, family: usize, receiver: u8, port: u16) -> (Vec<u8>, [u8; 192]) {
    let [source, to] = [SENDER, receiver].map(|host| address(family, host, 0));
    let packet = craft::udp((source, port).into(), (to, PORT).into(), 1, b"flood");
    frame(&packet, interface)
}

/// In a hash, the row that denies, and those that allow for other keys: they get its element.
struct Contest {
    map: &'static str,
    denying: Vec<Row>,
    others: Vec<Row>,
}

fn contests() -> [Contest; 3] {
    let numbers = || 0..8_u8;
    let families = [0, 1];
    let addresses =
        |make: &dyn Fn(usize) -> Vec<Row>| families.iter().flat_map(|at| make(*at)).collect();
    [
        Contest {
            map: "classes",
            denying: vec![class_row(2, 100, 3)],
            others: numbers().map(|at| class_row(9, at.into(), 2)).collect(),
        },
        Contest {
            map: "ports",
            denying: vec![port_row(4, UDP, PORT, DENIED | 5)],
            others: numbers()
                .map(|at| port_row(7, UDP, at.into(), ALLOWED | 3))
                .collect(),
        },
        Contest {
            map: "endpoints",
            denying: addresses(&|family| vec![address_row(address(family, RECEIVERS[2], 0), 3, 1)]),
            others: addresses(&|family| {
                let rows = numbers().map(|at| address_row(address(family, at, 1), 4, 1));
                rows.collect()
            }),
        },
    ]
}

/// Deletes and adds the rows until it is over; how many there were.
fn update(loaded: &LoadedObject, is_over: &AtomicBool) -> u64 {
    let contests = contests();
    let maps = contests
        .each_ref()
        .map(|contest| loaded.map(contest.map).unwrap());
    let put = |map: &BpfMap, (key, value): &Row| {
        map.update(key, &value.to_ne_bytes(), UpdateMode::Any)
            .unwrap();
    };
    let mut updates = 0;
    for round in 0.. {
        if is_over.load(Ordering::Acquire) {
            return updates;
        }
        for (contest, map) in contests.iter().zip(maps) {
            let denying = &contest.denying[round % contest.denying.len()];
            let other = &contest.others[round % contest.others.len()];
            map.delete(&denying.0).unwrap();
            put(map, other);
            map.delete(&other.0).unwrap();
            put(map, denying);
            updates += 4;
        }
    }
    updates
}

/// Packets and updates for some time; the packets and updates a second, and the packets judged wrongly.
fn flood(fault: u64, time: Duration) -> ([u64; 2], [(&'static str, u64); 3]) {
    let flood = Flood::new(fault);
    let loaded: &LoadedObject = &flood.rows.loaded;
    let program = loaded.program("from_pod").unwrap();
    let (is_over, judged) = (AtomicBool::new(false), AtomicU64::new(0));
    let processors = std::thread::available_parallelism().map_or(2, usize::from);
    let began = Instant::now();
    let updates = std::thread::scope(|scope| {
        let updating = scope.spawn(|| update(loaded, &is_over));
        for number in 0..processors.saturating_sub(1).max(1) {
            let (interface, netns) = (flood.interface, flood.netns.netns());
            let (is_over, judged) = (&is_over, &judged);
            scope.spawn(move || {
                run_in(netns, || {
                    // A port of its own for each call: what is delivered wrongly begins a flow, which is not judged.
                    let ports = (2_000..62_000_u16).cycle().skip(number * 20_000);
                    for port in ports {
                        if is_over.load(Ordering::Acquire) {
                            return;
                        }
                        let at = usize::from(port);
                        let (frame, context) =
                            packet(interface, at / 3 % 2, RECEIVERS[at % 3], port);
                        program.test_run(&frame, &context, REPEAT).unwrap();
                        judged.fetch_add(REPEAT.into(), Ordering::Relaxed);
                    }
                })
                .unwrap();
            });
        }
        std::thread::sleep(time);
        is_over.store(true, Ordering::Release);
        updating.join().unwrap()
    });
    let milliseconds = u64::try_from(began.elapsed().as_millis()).unwrap();
    let rate = |count: u64| count * 1_000 / milliseconds;
    let judged = judged.load(Ordering::Relaxed);
    ([rate(judged), rate(updates)], flood.wrong())
}

#[test]
fn no_value_of_another_key_is_used_while_elements_are_used_again() {
    if !need_root() {
        return;
    }
    let ([packets, updates], wrong) = flood(0, TIME);
    println!(
        "account: flood: {packets} packets a second judged while {updates} rows a second were deleted and added, wrong: {wrong:?}"
    );
    assert_eq!(wrong.map(|(_, count)| count), [0; 3], "{wrong:?}");
    assert!(packets > 20_000 && updates > 2_000, "{packets} {updates}");
    #[cfg(feature = "faults")]
    for (fault, name) in [(25, "class"), (26, "port"), (24, "address")] {
        // How often the race is lost depends on the machine: what must be found is found by `check_echo`.
        let ([packets, updates], wrong) = flood(fault, BRIEF);
        println!(
            "account: flood without the echo of the {name}: {packets} packets and {updates} rows a second, wrong: {wrong:?}"
        );
    }
}

/// A value that has the echo of another key, as a program may read it, is none.
pub(crate) fn check_echo(fault: u64) {
    for family in [0, 1] {
        for (at, contest) in contests().iter().enumerate() {
            let flood = Flood::new(fault);
            flood.rows.set_state(State::On);
            let (frame, context) = packet(flood.interface, family, RECEIVERS[at], 40_000);
            let program = flood.rows.loaded.program("from_pod").unwrap();
            let run = || {
                let run = run_in(flood.netns.netns(), || {
                    program.test_run(&frame, &context, 1)
                });
                run.unwrap().unwrap().verdict.cast_signed()
            };
            assert_eq!(run(), -1, "{}: denied", contest.map);
            for denying in &contest.denying {
                let row = (denying.0.clone(), contest.others[0].1);
                flood.rows.put(contest.map, &row);
            }
            assert_eq!(run(), -1, "{}: a value of another key", contest.map);
            let own = match at {
                0 => class_row(2, 100, 2),
                1 => port_row(4, UDP, PORT, ALLOWED | 3),
                _ => address_row(address(family, RECEIVERS[2], 0), 4, 1),
            };
            flood.rows.put(contest.map, &own);
            assert_eq!(run(), 7, "{}: its own value", contest.map);
        }
    }
}

#[test]
fn a_value_of_another_key_is_none() {
    if need_root() {
        check_echo(0);
    }
}
