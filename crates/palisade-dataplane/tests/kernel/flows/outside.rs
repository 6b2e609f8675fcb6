//! Flows between a pod and another host by the fast path, with real packets: what it sends and receives there, what it
//! leaves to the stack, and what becomes of it when a host has what the fast path would pass by.

use std::net::{IpAddr, UdpSocket};
use std::time::Duration;

use palisade_dataplane::ebpf::FastPathConfig;
use palisade_dataplane::{Dataplane as _, FastPathObstacle, PolicyDriver as _};
use palisade_model::{Direction, PolicyStage, Prefix};
use palisade_tables::{Point, PointInterface, PolicySet, PolicySetId, Tables};
use palisade_testkit::CountedDriver;
use palisade_testkit::lab::OUTSIDE_INTERFACE;
use palisade_testkit::lab::craft::{fragments, udp};
use palisade_testkit::test_driver::{open_fast_path_with, open_nftables};

use super::fast::{ACK, CLOSED, SYN, SYN_ACK, config, counts, datagram, driver, segment};
use super::need_root;
use super::place::{A, Allowed, B, OUT, Place, tables, tag};

/// What A may send to another host, and what that may send to B.
const ALLOWED: [Allowed; 3] = [
    (A, OUT, 17, Some(53)),
    (A, OUT, 6, Some(80)),
    (OUT, B, 17, Some(54)),
];

#[test]
fn flows_to_and_from_other_hosts_take_the_fast_path_until_they_are_revoked() {
    if !need_root() {
        return;
    }
    let place = Place::quiet("outside");
    let mut driver = driver(&place);
    driver.resync(&tables(&CLOSED, &ALLOWED)).unwrap();
    assert_eq!(driver.conditions(), []);
    for family in [0, 1] {
        let before = counts(&driver).owned;
        let (out, back) = ([40_000, 53], [53, 40_000]);
        assert!(!place.arrives(OUT, A, datagram(OUT, A, family, back)));
        assert!(!place.arrives(A, OUT, datagram(A, OUT, family, [40_000, 54])));
        assert_eq!(counts(&driver).owned, before, "nothing of it is allowed");
        assert!(place.arrives(A, OUT, datagram(A, OUT, family, out)));
        assert!(
            place.arrives(OUT, A, datagram(OUT, A, family, back)),
            "answer"
        );
        let (out, back) = ([40_000, 80], [80, 40_000]);
        assert!(place.arrives(A, OUT, segment(A, OUT, family, out, SYN)));
        assert!(place.arrives(OUT, A, segment(OUT, A, family, back, SYN_ACK)));
        assert!(place.arrives(A, OUT, segment(A, OUT, family, out, ACK)));
        let (out, back) = ([40_000, 54], [54, 40_000]);
        assert!(place.arrives(OUT, B, datagram(OUT, B, family, out)));
        assert!(
            place.arrives(B, OUT, datagram(B, OUT, family, back)),
            "answer"
        );
        assert_eq!(counts(&driver).owned, before + 3);
    }
    for (allowed, arrives) in [(&ALLOWED[1..2], false), (&ALLOWED[..], true)] {
        driver.resync(&tables(&CLOSED, allowed)).unwrap();
        for family in [0, 1] {
            for (from, to, ports) in [
                (A, OUT, [40_000, 53]),
                (OUT, A, [53, 40_000]),
                (OUT, B, [40_000, 54]),
                (B, OUT, [54, 40_000]),
            ] {
                let packet = datagram(from, to, family, ports);
                assert_eq!(
                    place.arrives(from, to, packet),
                    arrives,
                    "{from} {to} {family}"
                );
            }
            assert!(place.arrives(A, OUT, segment(A, OUT, family, [40_000, 80], ACK)));
            assert!(place.arrives(OUT, A, segment(OUT, A, family, [80, 40_000], ACK)));
        }
    }
}

#[test]
fn what_goes_by_the_stack_between_hosts_is_not_judged_there() {
    if !need_root() {
        return;
    }
    let place = Place::quiet("outproof");
    let mut driver = driver(&place);
    driver.resync(&tables(&CLOSED, &ALLOWED)).unwrap();
    for family in [0, 1] {
        assert!(place.arrives(A, OUT, datagram(A, OUT, family, [40_000, 53])));
        let pieces = |from: usize, to: usize, ports: [u16; 2]| {
            let (source, destination) = (
                Place::at(from, family, ports[0]),
                Place::at(to, family, ports[1]),
            );
            let data = [[7; 1_400].as_slice(), &tag()].concat();
            let [first, second] = fragments(&udp(source, destination, 9, &data), 800, 77);
            let arrived = place.arrive(vec![(from, to, second), (from, to, first)]);
            arrived.iter().any(|arrived| *arrived)
        };
        assert!(pieces(OUT, A, [53, 40_000]), "an answer, {family}");
        assert!(pieces(A, OUT, [40_000, 53]), "a question, {family}");
        assert!(!pieces(OUT, A, [53, 40_001]), "of no flow, {family}");
        // The last hop that the packet may take is this host.
        let mut last_hop = datagram(A, OUT, family, [40_000, 53]);
        last_hop[[8, 7][family]] = 1;
        assert!(!place.arrives(A, OUT, last_hop));
    }
}

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// What a Service with a backend on another host has before and after its first answer.
#[derive(Clone, Copy, Debug)]
enum Before {
    /// The fast path.
    Fast,
    /// nftables alone.
    NoFastPath,
    /// A host that judges packets at its own interface, so that no flow with other hosts takes the fast path.
    JudgedHost,
}

/// A Service whose backend is on another host: the stack translates the question, and the answer.
#[test]
fn answers_of_a_service_on_another_host_are_translated() {
    if !need_root() {
        return;
    }
    for before in [Before::Fast, Before::NoFastPath, Before::JudgedHost] {
        let place = Place::new("outservice");
        let services = ["198.18.0.1", "fd99::1"];
        let [v4, v6] = [0, 1].map(|family| Place::address(OUT, family));
        let script = format!(
            "add table inet nat {{ chain c {{ type nat hook prerouting priority -100; ip daddr {} udp dport 53 dnat ip to {v4}:5353; ip6 daddr {} udp dport 53 dnat ip6 to [{v6}]:5353; }}; }}",
            services[0], services[1]
        );
        place.nft(place.lab.host(), &script);
        let open = tables(&[], &[]);
        let mut fast = driver(&place);
        match before {
            Before::Fast => fast.resync(&open).map(drop).unwrap(),
            Before::NoFastPath => {
                let alone = open_nftables(config(), &place.netns()).unwrap();
                let mut alone: CountedDriver = alone.into();
                alone.resync(&open).unwrap();
            }
            Before::JudgedHost => {
                let open_class = open.sets.values().next().copied().unwrap();
                fast.resync(&judged_host(&open, open_class)).unwrap();
            }
        }
        let scenes = [0, 1].map(|family| {
            let service: IpAddr = services[family].parse().unwrap();
            let server = place.lab.run_in(place.nodes[OUT], || {
                UdpSocket::bind(Place::at(OUT, family, 5_353))
            });
            let server = server.unwrap().unwrap();
            server.set_read_timeout(Some(PATIENCE)).unwrap();
            let client = place.lab.run_in(place.nodes[A], || {
                let socket = UdpSocket::bind(Place::at(A, family, 0))?;
                socket.connect((service, 53))?;
                socket.set_read_timeout(Some(PATIENCE))?;
                std::io::Result::Ok(socket)
            });
            let client = client.unwrap().unwrap();
            client.send(b"question").unwrap();
            let (_, asker) = server.recv_from(&mut [0; 8]).unwrap();
            (client, server, asker)
        });
        // Flows that the stack has before other hosts take part are its flows.
        fast.resync(&open).unwrap();
        assert!(fast.is_fast());
        for (family, (client, server, asker)) in scenes.into_iter().enumerate() {
            let mut buffer = [0; 8];
            server.send_to(b"answer..", asker).unwrap();
            assert_eq!(
                client.recv(&mut buffer).ok(),
                Some(8),
                "{before:?}, {family}"
            );
            client.send(b"question").unwrap();
            assert!(server.recv_from(&mut buffer).is_ok());
            server.send_to(b"answer..", asker).unwrap();
            assert_eq!(
                client.recv(&mut buffer).ok(),
                Some(8),
                "{before:?}, {family}"
            );
        }
    }
}

/// These tables, on a host that judges what is forwarded at its interface to other hosts, by this set.
fn judged_host(tables: &Tables, judged: PolicySet) -> Tables {
    let mut host = tables.clone();
    let set = PolicySetId(999);
    host.sets.insert(set, judged);
    host.host_interfaces.insert(OUTSIDE_INTERFACE.into());
    for direction in Direction::BOTH {
        for local in [Prefix::ALL_V4, Prefix::ALL_V6] {
            let point = Point {
                interface: PointInterface::Host(OUTSIDE_INTERFACE.into()),
                stage: PolicyStage::Forward,
                direction,
                local,
            };
            host.points.insert(point, set);
        }
    }
    host
}

/// Why no flow begins by the only interface to other hosts.
fn uplink(driver: &CountedDriver) -> Option<FastPathObstacle> {
    let mut uplinks = driver.fast_path_reader().unwrap().uplinks();
    assert_eq!(uplinks.len(), 1);
    uplinks.remove(0).obstacle
}

/// A host that judges packets at its own interface has no fast path by it.
#[test]
fn where_the_host_judges_packets_the_stack_has_them() {
    if !need_root() {
        return;
    }
    let place = Place::quiet("outhost");
    let mut driver = driver(&place);
    let open = tables(&[], &[]);
    driver.resync(&open).unwrap();
    assert!(place.arrives(A, OUT, datagram(A, OUT, 0, [40_000, 53])));
    assert_eq!(counts(&driver).owned, 1);
    // Nothing may be forwarded by the interface to other hosts.
    let closed = tables(&CLOSED, &[]).sets.values().next().copied().unwrap();
    let host = judged_host(&open, closed);
    driver.resync(&host).unwrap();
    assert_eq!(uplink(&driver), Some(FastPathObstacle::HostPolicies));
    let conditions = driver.conditions();
    assert_eq!(conditions[0].reason, "HostPolicies", "{conditions:?}");
    for family in [0, 1] {
        assert!(!place.arrives(A, OUT, datagram(A, OUT, family, [40_001, 53])));
        assert!(!place.arrives(OUT, A, datagram(OUT, A, family, [40_002, 53])));
        assert!(place.arrives(A, B, datagram(A, B, family, [40_001, 53])));
    }
    assert!(!place.arrives(A, OUT, datagram(A, OUT, 0, [40_000, 53])));
    driver.resync(&open).unwrap();
    assert_eq!((uplink(&driver), driver.conditions()), (None, vec![]));
    let before = counts(&driver).owned;
    assert!(place.arrives(A, OUT, datagram(A, OUT, 0, [40_003, 53])));
    assert_eq!(counts(&driver).owned, before + 1);
}

/// Flows with other hosts are handed over as those of this host.
#[test]
fn flows_with_other_hosts_are_handed_over() {
    if !need_root() {
        return;
    }
    let place = Place::quiet("outover");
    let mut fast = driver(&place);
    fast.resync(&tables(&CLOSED, &ALLOWED)).unwrap();
    for family in [0, 1] {
        for (from, to, ports) in [(A, OUT, [40_000, 53]), (OUT, B, [40_000, 54])] {
            assert!(place.arrives(from, to, datagram(from, to, family, ports)));
        }
    }
    drop(fast);
    let mut second: CountedDriver = open_nftables(config(), &place.netns()).unwrap().into();
    second.resync(&tables(&CLOSED, &ALLOWED[..2])).unwrap();
    assert_eq!(second.take_hand_over().unwrap().created, 4);
    for family in [0, 1] {
        // Its answers are allowed by nothing but the flow.
        assert!(place.arrives(OUT, A, datagram(OUT, A, family, [53, 40_000])));
        assert!(
            !place.arrives(B, OUT, datagram(B, OUT, family, [54, 40_000])),
            "revoked"
        );
        assert!(
            !place.arrives(OUT, B, datagram(OUT, B, family, [40_000, 54])),
            "revoked"
        );
    }
}

/// An agent that is started with other networks or interfaces does not leave flows to a stack that does not know them.
#[test]
fn flows_of_networks_and_interfaces_that_are_not_named_any_more_are_handed_over() {
    if !need_root() {
        return;
    }
    let place = Place::quiet("outnames");
    let all = ["0.0.0.0/0", "::/0"];
    let local: [Allowed; 1] = [(A, B, 17, Some(53))];
    let allowed = [&ALLOWED[..], &local].concat();
    for (networks, uplinks, created) in [
        (&all[..], &["out0"][..], None),
        (&all, &["out0", "absent0"], None),
        (&all, &["absent0"], Some(6)),
        (&["203.0.113.0/24"], &["out0"], Some(6)),
        (&[], &[], Some(6)),
    ] {
        let open = |fast: FastPathConfig| -> CountedDriver {
            open_fast_path_with(config(), fast, &place.netns())
                .unwrap()
                .into()
        };
        let mut first = open(named(&all, &["out0"]));
        first.resync(&tables(&CLOSED, &allowed)).unwrap();
        let flows = [
            (A, OUT, [40_000, 53]),
            (OUT, B, [40_000, 54]),
            (A, B, [40_000, 53]),
        ];
        for family in [0, 1] {
            for (from, to, ports) in flows {
                assert!(place.arrives(from, to, datagram(from, to, family, ports)));
            }
        }
        assert_eq!(counts(&first).owned, 6);
        drop(first);
        let case = format!("{networks:?} by {uplinks:?}");
        let mut second = open(named(networks, uplinks));
        second.resync(&tables(&CLOSED, &allowed)).unwrap();
        let outcome = second.take_hand_over().map(|outcome| outcome.created);
        assert_eq!(outcome, created, "{case}");
        for family in [0, 1] {
            // Answers are allowed by nothing but their flows.
            for (to, from, [to_port, from_port]) in flows {
                let answer = datagram(from, to, family, [from_port, to_port]);
                assert!(place.arrives(from, to, answer), "{case}: {from} {to}");
            }
        }
        second.remove().unwrap();
        place.lab.flush_conntrack().unwrap();
    }
}

/// Packets to other hosts may have to be encrypted.
#[test]
fn with_ipsec_policies_the_stack_sends_what_leaves_the_host() {
    if !need_root() {
        return;
    }
    let place = Place::quiet("outipsec");
    let mut driver = driver(&place);
    let open = tables(&[], &[]);
    driver.resync(&open).unwrap();
    assert!(place.arrives(A, OUT, datagram(A, OUT, 0, [40_000, 53])));
    assert_eq!(counts(&driver).owned, 1);
    let (pod, other) = (Place::address(A, 0), Place::address(OUT, 0));
    let selector = format!("src {pod} dst {other} dir fwd");
    ip(&place, &format!("xfrm policy add {selector} action block"));
    ip(
        &place,
        &format!("xfrm policy add src {pod} dst {other} dir out action block"),
    );
    ip(
        &place,
        &format!("xfrm policy add src {other} dst {pod} dir fwd action block"),
    );
    driver.verify(&open).unwrap();
    let conditions = driver.conditions();
    assert_eq!(conditions[0].reason, "IpsecPolicies", "{conditions:?}");
    assert_eq!(uplink(&driver), Some(FastPathObstacle::IpsecPolicies));
    assert!(
        !place.arrives(A, OUT, datagram(A, OUT, 0, [40_000, 53])),
        "an owned flow"
    );
    let answer = datagram(OUT, A, 0, [53, 40_000]);
    assert!(!place.arrives(OUT, A, answer), "its answer");
    assert!(!place.arrives(A, OUT, datagram(A, OUT, 0, [40_001, 53])));
    assert!(place.arrives(A, B, datagram(A, B, 0, [40_001, 53])));
    ip(&place, "xfrm policy flush");
    driver.verify(&open).unwrap();
    assert_eq!(driver.conditions(), []);
    let before = counts(&driver).owned;
    assert!(place.arrives(A, OUT, datagram(A, OUT, 0, [40_002, 53])));
    assert_eq!(counts(&driver).owned, before + 1);
}

fn ip(place: &Place, line: &str) {
    let host = place.lab.namespace_name(place.lab.host());
    let output = std::process::Command::new("ip")
        .args(["-n", host])
        .args(line.split(' '))
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "ip {line}: {errors}");
}

/// These networks, by these interfaces.
fn named(networks: &[&str], uplinks: &[&str]) -> FastPathConfig {
    FastPathConfig {
        proof_bit: 0x2000,
        networks: networks
            .iter()
            .map(|network| network.parse().unwrap())
            .collect(),
        uplinks: uplinks.iter().map(|name| (*name).into()).collect(),
    }
}

/// Only networks that are named take part, by interfaces that are named.
#[test]
fn what_is_not_named_goes_by_the_stack() {
    if !need_root() {
        return;
    }
    let place = Place::quiet("outnamed");
    let mut port = 41_000;
    for (fast, owned) in [
        (
            named(
                &["198.51.100.0/24", "2001:db8:51::/64"],
                &["out0", "absent0"],
            ),
            2,
        ),
        (named(&["198.51.100.0/24"], &["out0"]), 1),
        (named(&["203.0.113.0/24"], &["out0"]), 0),
        (named(&["0.0.0.0/0", "::/0"], &["absent0"]), 0),
        (named(&[], &[]), 0),
    ] {
        let mut driver: CountedDriver = open_fast_path_with(config(), fast.clone(), &place.netns())
            .unwrap()
            .into();
        driver.resync(&tables(&[], &[])).unwrap();
        driver.forget_flows();
        port += 1;
        for family in [0, 1] {
            assert!(
                place.arrives(A, OUT, datagram(A, OUT, family, [port, 53])),
                "{fast:?}"
            );
            assert!(
                place.arrives(OUT, A, datagram(OUT, A, family, [53, port])),
                "{fast:?}"
            );
        }
        assert_eq!(counts(&driver).owned, owned, "{fast:?}");
        driver.remove().unwrap();
    }
}
