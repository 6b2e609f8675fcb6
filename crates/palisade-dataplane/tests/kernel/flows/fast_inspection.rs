//! What the fast path says of itself with real packets: addresses, flows, what it judges by; and what others have changed
//! in the kernel.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::Duration;

use palisade_bpf::BpfObject;
use palisade_dataplane::ebpf::{self, EbpfDataplane};
use palisade_dataplane::{
    CountAccount, Dataplane as _, FastPathCheck, FastPathFlow, FastPathFlowFilter, FastPathFlows,
    FastPathObstacle, FastPathPart, FastPathPolicyQuery,
};
use palisade_model::Protocol;
use palisade_sys::bpf::{BpfLink, BpfMap, UpdateMode};
use palisade_testkit::lab::craft::{fragments, udp};

use super::fast::{ACK, CLOSED, SYN, datagram, driver, segment};
use super::need_root;
use super::place::{A, Allowed, B, INTERFACES, Place, tables, tag};

const ALLOWED: [Allowed; 2] = [(A, B, 17, Some(53)), (A, B, 6, Some(80))];

fn flows(driver: &EbpfDataplane, filter: &FastPathFlowFilter) -> FastPathFlows {
    driver.fast_path_reader().unwrap().flows(filter).unwrap()
}

fn all() -> FastPathFlowFilter {
    FastPathFlowFilter {
        limit: 100,
        ..FastPathFlowFilter::default()
    }
}

fn check(driver: &EbpfDataplane) -> FastPathCheck {
    driver.fast_path_reader().unwrap().check().unwrap()
}

/// What differs: the part, the object, and what was found.
fn differences(driver: &EbpfDataplane) -> Vec<(FastPathPart, String, String)> {
    let differences = check(driver).differences.into_iter();
    let differences = differences.map(|difference| {
        let object = difference.object.rsplit('/').next().unwrap().to_owned();
        (difference.part, object, difference.found)
    });
    differences.collect()
}

/// The folder of the pins of the only layout.
fn layout(place: &Place) -> PathBuf {
    let mut layouts = fs::read_dir(ebpf::pin_folder(&place.netns())).unwrap();
    layouts.next().unwrap().unwrap().path()
}

/// Another handle of a pinned map.
fn open_map(place: &Place, name: &str) -> BpfMap {
    let folder = match name {
        "config" | "flows" | "events" | "lost_events" => layout(place),
        _ => layout(place).join("set-1"),
    };
    let shape = BpfObject::FAST_PATH.map_shape(name).unwrap();
    BpfMap::open_pinned(&folder.join(name), shape).unwrap()
}

/// Changes a word of a map that is an array.
fn flip(place: &Place, name: &str, word: usize) {
    let view = open_map(place, name).view().unwrap();
    view.words()[word].fetch_xor(1, Ordering::AcqRel);
}

#[test]
fn addresses_and_flows_are_told_as_packets_make_them() {
    if !need_root() {
        return;
    }
    let place = Place::quiet("fastseen");
    let mut driver = driver(&place);
    assert!(driver.fast_path_reader().is_none(), "it has not started");
    driver.resync(&tables(&CLOSED, &ALLOWED)).unwrap();
    let endpoints = driver.fast_path_reader().unwrap().endpoints();
    let mut expected = Vec::new();
    for family in [0, 1] {
        for pod in [A, B] {
            expected.push((
                Place::address(pod, family),
                INTERFACES[pod],
                Some(1_500),
                None,
            ));
        }
    }
    let found: Vec<_> = endpoints
        .iter()
        .map(|end| (end.address, &*end.interface, end.mtu, end.obstacle.clone()))
        .collect();
    assert_eq!(found, expected);
    let numbers: BTreeSet<u16> = endpoints.iter().map(|end| end.slot).collect();
    assert!(numbers.len() == 4 && !numbers.contains(&0), "{numbers:?}");
    assert_eq!(flows(&driver, &all()), FastPathFlows::default());

    let [udp_ports, tcp_ports] = [[40_000, 53], [40_000, 80]];
    assert!(place.arrives(A, B, segment(A, B, 0, tcp_ports, SYN)));
    std::thread::sleep(Duration::from_millis(200));
    assert!(place.arrives(A, B, datagram(A, B, 1, udp_ports)));
    assert!(place.arrives(B, A, datagram(B, A, 1, [53, 40_000])));
    let seen = flows(&driver, &all());
    assert_eq!((seen.owned, seen.via_stack, seen.left_out), (2, 0, 0));
    let [asked, opened] = &seen.flows[..] else {
        panic!("{seen:?}");
    };
    let end = |pod, family, port| (Place::address(pod, family), port);
    assert_eq!(
        (asked.protocol, asked.source, asked.destination),
        (Protocol::UDP, end(A, 1, 40_000), end(B, 1, 53)),
        "the last seen comes first"
    );
    assert!(asked.is_answered && !asked.is_closing && !asked.is_via_stack);
    assert_eq!(
        (opened.protocol, opened.source, opened.destination),
        (Protocol::TCP, end(A, 0, 40_000), end(B, 0, 80))
    );
    assert!(!opened.is_answered && opened.age >= Duration::from_millis(130));
    assert!(opened.age < Duration::from_secs(10), "{opened:?}");
    let about_20s = Duration::from_secs(5)..Duration::from_secs(22);
    assert!(about_20s.contains(&opened.remaining), "{opened:?}");
    let about_180s = Duration::from_secs(170)..Duration::from_secs(182);
    assert!(about_180s.contains(&asked.remaining), "{asked:?}");

    let filtered = |filter: FastPathFlowFilter| {
        let seen = flows(&driver, &filter);
        let protocols = seen.flows.iter().map(|flow| flow.protocol.0);
        (protocols.collect::<Vec<u8>>(), seen.left_out)
    };
    assert_eq!(
        filtered(FastPathFlowFilter { limit: 1, ..all() }),
        (vec![17], 1)
    );
    let only = |pod, family| FastPathFlowFilter {
        addresses: Some(BTreeSet::from([Place::address(pod, family)])),
        ..all()
    };
    assert_eq!(filtered(only(B, 0)), (vec![6], 0));
    assert_eq!(filtered(only(super::place::OUT, 0)), (vec![], 0));
    let tcp = FastPathFlowFilter {
        protocol: Some(Protocol::TCP),
        ..all()
    };
    assert_eq!(filtered(tcp), (vec![6], 0));

    // What is revoked is judged again at its next packet.
    driver.resync(&tables(&CLOSED, &ALLOWED[..1])).unwrap();
    let seen = flows(&driver, &all()).flows;
    assert!(seen.iter().all(|flow| flow.is_judged_again), "{seen:?}");
    assert!(place.arrives(A, B, datagram(A, B, 1, udp_ports)));
    assert!(!place.arrives(A, B, segment(A, B, 0, tcp_ports, ACK)));
    let again = |flow: &FastPathFlow| (flow.protocol.0, flow.is_judged_again);
    let seen = flows(&driver, &all()).flows;
    let seen: Vec<_> = seen.iter().map(again).collect();
    assert_eq!(seen, [(17, false), (6, true)]);
}

#[test]
fn flows_of_the_stack_and_addresses_without_programs_are_told_apart() {
    if !need_root() {
        return;
    }
    let place = Place::quiet("faststack");
    let mut driver = driver(&place);
    driver.resync(&tables(&CLOSED, &ALLOWED)).unwrap();
    // The first packet in fragments: the stack delivers it.
    let (from, to) = (Place::at(A, 0, 40_009), Place::at(B, 0, 53));
    let data = [[7; 1_400].as_slice(), &tag()].concat();
    let [first, second] = fragments(&udp(from, to, 9, &data), 800, 77);
    let arrived = place.arrive(vec![(A, B, second), (A, B, first)]);
    assert!(arrived.contains(&true));
    let seen = flows(&driver, &all());
    assert_eq!((seen.owned, seen.via_stack), (0, 1));
    let [flow] = &seen.flows[..] else {
        panic!("{seen:?}");
    };
    assert!(flow.is_via_stack && !flow.is_judged_again);
    assert_eq!(
        (flow.source, flow.destination),
        ((from.ip(), from.port()), (to.ip(), to.port()))
    );
    // Its packets would be queued now.
    let host = place.lab.namespace_name(place.lab.host());
    let output = std::process::Command::new("ip")
        .args([
            "netns", "exec", host, "tc", "qdisc", "add", "dev", "pal-b", "root", "pfifo",
        ])
        .output()
        .unwrap();
    assert!(output.status.success());
    palisade_testkit::test_driver::list_interfaces(&mut driver, &place.netns()).unwrap();
    let endpoints = driver.fast_path_reader().unwrap().endpoints();
    for end in endpoints {
        let is_b = end.interface == INTERFACES[B];
        assert_eq!(end.obstacle.is_some(), is_b, "{end:?}");
        assert_eq!(end.mtu.is_none(), is_b, "{end:?}");
        assert!(!matches!(end.obstacle, Some(FastPathObstacle::NoRoom)));
    }
    assert_eq!(differences(&driver), []);
}

#[test]
fn what_it_judges_by_is_told_with_counters() {
    if !need_root() {
        return;
    }
    let place = Place::quiet("fastrules");
    let mut driver = driver(&place);
    driver.resync(&tables(&CLOSED, &ALLOWED)).unwrap();
    assert!(place.arrives(A, B, datagram(A, B, 0, [40_000, 53])));
    let query = FastPathPolicyQuery {
        addresses: Some(BTreeSet::from([Place::address(A, 0)])),
        limit: 10,
    };
    let reader = driver.fast_path_reader().unwrap();
    let policy = reader.policy(&query).unwrap();
    let pairs: Vec<_> = policy
        .pairs
        .iter()
        .map(|pair| (pair.from, pair.to))
        .collect();
    let [a, b] = [A, B].map(|pod| Place::address(pod, 0));
    assert_eq!((pairs, policy.left_out), (vec![(a, b), (b, a)], 0));
    let proven: Vec<_> = policy.pairs[0]
        .proven
        .iter()
        .map(|row| (row.protocol.0, row.ports.first, row.ports.last))
        .collect();
    assert_eq!(proven, [(6, 80, 80), (17, 53, 53)]);
    assert_eq!(policy.pairs[1].proven, []);
    for pair in &policy.pairs {
        assert!(pair.ends.iter().all(|end| end.set != 0 && end.class != 0));
    }
    // The rule that allows has counted the datagram at both ends.
    let counters: Vec<_> = policy.counters.values().collect();
    let [counter] = counters[..] else {
        panic!("{counters:?}");
    };
    assert!(matches!(counter.accounts[..], [CountAccount::Rule(_)]));
    assert_eq!(counter.count.packets, 2);
    let limited = FastPathPolicyQuery { limit: 1, ..query };
    let limited = reader.policy(&limited).unwrap();
    assert_eq!((limited.pairs.len(), limited.left_out), (1, 1));
    let whole = FastPathPolicyQuery {
        addresses: None,
        limit: 10,
    };
    assert_eq!(reader.policy(&whole).unwrap().pairs.len(), 4);
}

#[test]
fn what_others_change_in_maps_is_found() {
    if !need_root() {
        return;
    }
    let place = Place::quiet("fasttamper");
    let mut driver = driver(&place);
    driver.resync(&tables(&CLOSED, &ALLOWED)).unwrap();
    let clean = check(&driver);
    assert_eq!(
        (clean.interfaces, clean.pins, &clean.differences[..]),
        (3, 13, &[][..])
    );
    assert!(clean.elements > 10, "{clean:?}");

    let endpoints = open_map(&place, "endpoints");
    let element = endpoints.elements().unwrap().swap_remove(0);
    let mut value = element.value.clone();
    value[0] ^= 1;
    endpoints
        .update(&element.key, &value, UpdateMode::Any)
        .unwrap();
    let changed = check(&driver).differences;
    let [difference] = &changed[..] else {
        panic!("{changed:?}");
    };
    assert_eq!(difference.part, FastPathPart::Map);
    let address = difference.address.unwrap();
    assert_eq!(difference.object, format!("endpoints: address {address}"));
    endpoints.delete(&element.key).unwrap();
    let removed = check(&driver).differences;
    assert_eq!((removed.len(), &*removed[0].found), (1, "nothing"));
    endpoints
        .update(&element.key, &element.value, UpdateMode::Any)
        .unwrap();
    assert_eq!(differences(&driver), []);

    // Of the first slot: its interface, and whether it is armed; of the configuration: whether flows may begin.
    for (name, word, object) in [
        ("slots", 5, "slots: slot 1, interface"),
        ("slots", 5 + 2, "slots: slot 1, identity"),
        ("slots", 5 + 4, "slots: slot 1, set of ingress"),
        ("config", 0, "config: state"),
        ("config", 1, "config: half in force"),
    ] {
        flip(&place, name, word);
        let found = differences(&driver);
        let objects: Vec<_> = found.iter().map(|(_, object, _)| object.as_str()).collect();
        assert_eq!(objects, [object]);
        flip(&place, name, word);
        assert_eq!(differences(&driver), []);
    }
    // What outlives agents is right again after a start.
    for word in 0..4 {
        flip(&place, "config", word);
    }
    assert_eq!(differences(&driver).len(), 4);
    drop(driver);
    let mut second = self::driver(&place);
    second.resync(&tables(&CLOSED, &ALLOWED)).unwrap();
    assert_eq!(differences(&second), []);
}

#[test]
fn what_others_detach_and_unpin_is_found() {
    if !need_root() {
        return;
    }
    let place = Place::quiet("fastunpin");
    let mut driver = driver(&place);
    let closed = tables(&CLOSED, &ALLOWED);
    driver.resync(&closed).unwrap();
    let links = layout(&place).join("links");
    let mut pins: Vec<PathBuf> = fs::read_dir(&links)
        .unwrap()
        .map(|pin| pin.unwrap().path())
        .filter(|path| path.to_string_lossy().ends_with("-ingress"))
        .collect();
    pins.sort();
    BpfLink::open_pinned(&pins[0]).unwrap().detach().unwrap();
    let found = differences(&driver);
    let parts: Vec<_> = found.iter().map(|(part, ..)| *part).collect();
    assert_eq!(
        parts,
        [FastPathPart::Program, FastPathPart::Link],
        "{found:?}"
    );
    assert!(found[0].1.ends_with(", ingress"), "{found:?}");
    assert_eq!(driver.verify(&closed).unwrap().writes, 1);
    assert_eq!(differences(&driver), []);

    // A link goes with its pin, a moment later.
    fs::remove_file(&pins[1]).unwrap();
    std::thread::sleep(Duration::from_millis(300));
    let found = differences(&driver);
    let parts: Vec<_> = found.iter().map(|(part, ..)| *part).collect();
    assert_eq!(
        parts,
        [FastPathPart::Program, FastPathPart::Link],
        "{found:?}"
    );
    driver.verify(&closed).unwrap();
    assert_eq!(differences(&driver), []);

    for pin in ["config", "set-1/endpoints", "set-1/counters"] {
        fs::remove_file(layout(&place).join(pin)).unwrap();
    }
    fs::create_dir(layout(&place).join("set-7")).unwrap();
    let found = differences(&driver);
    let objects: Vec<_> = found.iter().map(|(_, object, _)| object.as_str()).collect();
    assert_eq!(objects, ["config", "endpoints", "counters", "set-7"]);
    // A new start has all of them.
    flip(&place, "slots", 5);
    drop(driver);
    let mut second = self::driver(&place);
    second.resync(&closed).unwrap();
    assert_eq!(differences(&second), []);
}
