//! Tunnels created by a pod: dropped although policy allows them, and reported; left to policy if so
//! configured, each kind by its own parameter.

use crate::agent::ip;
use crate::agent::shop::{ADDRESSES, Shop, address, policy};
use palisade_testkit::lab::craft::{self, CraftedPacket};
use palisade_testkit::lab::{HOST_ADDRESSES, send_crafted_packets};
use palisade_testkit::need_root;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Timeout for counters and lines.
const PATIENCE: Duration = Duration::from_secs(20);

const WEB: usize = 0;
const API: usize = 1;

/// The environment variables that leave a kind to policy, and the packets of that kind: protocols, with a
/// destination port if the protocol has ports.
const KINDS: [(&str, &[(u8, u16)]); 4] = [
    ("vxlan", &[(17, 4789), (17, 8472)]),
    ("geneve", &[(17, 6081)]),
    ("ipip", &[(4, 0), (41, 0)]),
    ("gre", &[(47, 0)]),
];

/// Similar packets that are not tunnels.
const OTHERS: [(u8, u16); 5] = [(17, 4790), (17, 6082), (6, 4789), (6, 8472), (253, 0)];

/// Sixteen bytes that end no other packet.
fn tag() -> [u8; 16] {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    let mut tag = *b"encapsulation...";
    tag[12..].copy_from_slice(&NEXT.fetch_add(1, Ordering::Relaxed).to_be_bytes());
    tag
}

fn any(family: usize) -> IpAddr {
    address(["10.9.9.9", "fd09::9"][family])
}

/// A packet between two addresses, with an inner packet that claims another source.
fn tunnel(from: IpAddr, to: IpAddr, (protocol, port): (u8, u16), source_port: u16) -> Vec<u8> {
    let at = |address, port| SocketAddr::new(address, port);
    let within = |family| {
        let ends = (at(any(family), 1), at(address(ADDRESSES[API][family]), 2));
        craft::udp(ends.0, ends.1, 1, &tag())
    };
    let with = |header: &[u8], inner: Vec<u8>| [header, &inner].concat();
    // A VXLAN or Geneve header, and an Ethernet header, whose content does not matter here.
    let overlay = with(
        &[8, 0, 0, 0, 0, 0, 7, 0],
        [vec![0xff; 12], vec![8, 0], within(0)].concat(),
    );
    match protocol {
        17 => craft::udp(at(from, source_port), at(to, port), 1, &overlay),
        6 => craft::tcp(at(from, source_port), at(to, port), 2, (1, 0), &tag()),
        4 => craft::raw(from, to, 4, &within(0)),
        41 => craft::raw(from, to, 41, &within(1)),
        47 => craft::raw(from, to, 47, &with(&[0, 0, 8, 0], within(0))),
        other => craft::raw(from, to, other, &tag()),
    }
}

/// One packet of each of these kinds from web to api.
fn packets(shop: &Shop, family: usize, kinds: &[(u8, u16)]) -> Vec<CraftedPacket> {
    let ends = [WEB, API].map(|pod| address(ADDRESSES[pod][family]));
    let packet = |kind: &(u8, u16)| CraftedPacket {
        from: shop.pods[WEB],
        receiver: shop.pods[API],
        bytes: tunnel(ends[0], ends[1], *kind, 41_000),
    };
    kinds.iter().map(packet).collect()
}

/// Whether each of these arrives from web at api as a new flow.
fn arrive(shop: &Shop, family: usize, kinds: &[(u8, u16)]) -> Vec<bool> {
    shop.lab.flush_conntrack().unwrap();
    send_crafted_packets(&shop.lab, &packets(shop, family, kinds)).unwrap()
}

fn restart_with(shop: &mut Shop, allowed: &str) {
    shop.agent.terminate();
    shop.agent.set("PALISADE_ALLOW_ENCAPSULATION", allowed);
    let Shop { agent, lab, .. } = shop;
    agent.start(lab);
}

fn all() -> Vec<(u8, u16)> {
    KINDS
        .iter()
        .flat_map(|(_, kinds)| *kinds)
        .copied()
        .collect()
}

#[test]
fn packets_within_packets_are_dropped_unless_left_to_policy() {
    if !need_root() {
        return;
    }
    let mut shop = Shop::open("tunnels");
    for family in [0, 1] {
        assert_eq!(arrive(&shop, family, &all()), [false; 6], "family {family}");
        assert_eq!(arrive(&shop, family, &OTHERS), [true; 5], "family {family}");
    }
    // A rule that names them allows no more than one that does not.
    let named = "  policyTypes: [Egress]\n  egress:\n  - ports:\n    - {port: 4789, protocol: UDP}\n    - {port: 4788, endPort: 8473, protocol: UDP}\n";
    shop.agent.apply("web.yaml", &policy("web", "web", named));
    for family in [0, 1] {
        let asked = [
            (17, 4789),
            (17, 6081),
            (17, 8472),
            (17, 4788),
            (17, 8473),
            (4, 0),
        ];
        let arrived = arrive(&shop, family, &asked);
        assert_eq!(
            arrived,
            [false, false, false, true, true, false],
            "family {family}"
        );
    }
    shop.agent.delete("web.yaml");

    // Each parameter applies only to its own kind, and leaves it to policy.
    for (left, (allowed, kinds)) in KINDS.into_iter().enumerate() {
        restart_with(&mut shop, allowed);
        for family in [0, 1] {
            let wanted: Vec<bool> = KINDS
                .iter()
                .enumerate()
                .flat_map(|(at, (_, kinds))| kinds.iter().map(move |_| at == left))
                .collect();
            assert_eq!(
                arrive(&shop, family, &all()),
                wanted,
                "{allowed}, family {family}"
            );
        }
        let none = "  policyTypes: [Egress]\n";
        shop.agent.apply("web.yaml", &policy("web", "web", none));
        for family in [0, 1] {
            assert!(
                !arrive(&shop, family, kinds).contains(&true),
                "{allowed}, family {family}"
            );
        }
        shop.agent.delete("web.yaml");
        // Established flows then end with the next start.
        shop.lab.flush_conntrack().unwrap();
        let tunnels = [0, 1].map(|family| packets(&shop, family, kinds)).concat();
        assert!(
            !send_crafted_packets(&shop.lab, &tunnels)
                .unwrap()
                .contains(&false)
        );
        restart_with(&mut shop, "");
        assert!(
            !send_crafted_packets(&shop.lab, &tunnels)
                .unwrap()
                .contains(&true),
            "{allowed}"
        );
    }
}

#[test]
fn an_answer_to_a_tunnels_port_is_no_tunnel() {
    if !need_root() {
        return;
    }
    let shop = Shop::open("tunnelport");
    shop.lab.flush_conntrack().unwrap();
    for family in [0, 1] {
        let at = |pod: usize, port| SocketAddr::new(address(ADDRESSES[pod][family]), port);
        let packet = |from: usize, to: usize, ports: (u16, u16)| CraftedPacket {
            from: shop.pods[from],
            receiver: shop.pods[to],
            bytes: craft::udp(at(from, ports.0), at(to, ports.1), 1, &tag()),
        };
        let asked = packet(API, WEB, (4789, 5353));
        let answered = packet(WEB, API, (5353, 4789));
        assert_eq!(
            send_crafted_packets(&shop.lab, std::slice::from_ref(&answered)).unwrap(),
            [false]
        );
        let both = send_crafted_packets(&shop.lab, &[asked, answered]).unwrap();
        assert_eq!(both, [true, true], "family {family}");
    }
}

/// Number of packets that a VXLAN device of the host decapsulated.
fn taken_out(shop: &Shop) -> u64 {
    let text = ip(
        &shop.lab,
        shop.lab.host(),
        &["-s", "-j", "link", "show", "vx0"],
    );
    let links: serde_json::Value = serde_json::from_str(&text).unwrap();
    links[0]["stats64"]["rx"]["packets"].as_u64().unwrap()
}

#[test]
fn the_hosts_own_tunnel_takes_nothing_from_a_pod() {
    if !need_root() {
        return;
    }
    let mut shop = Shop::open("overlay");
    let host = shop.lab.host();
    for words in [
        "link add vx0 type vxlan id 7 dstport 4789 nolearning",
        "link set vx0 up",
    ] {
        ip(&shop.lab, host, &words.split(' ').collect::<Vec<_>>());
    }
    let send = |shop: &Shop| {
        shop.lab.flush_conntrack().unwrap();
        let from = address(ADDRESSES[WEB][0]);
        let packet = CraftedPacket {
            from: shop.pods[WEB],
            receiver: shop.pods[WEB],
            bytes: tunnel(from, HOST_ADDRESSES[0], (17, 4789), 41_000),
        };
        send_crafted_packets(&shop.lab, &[packet]).unwrap();
    };
    let before = taken_out(&shop);
    send(&shop);
    assert_eq!(taken_out(&shop), before, "dropped");
    restart_with(&mut shop, KINDS[0].0);
    send(&shop);
    assert_eq!(taken_out(&shop), before + 1, "the test sees what it must");
}

/// Waits until a text satisfies a condition.
fn wait(what: &str, text: impl Fn() -> String, is: impl Fn(&str) -> bool) -> String {
    let began = Instant::now();
    loop {
        let now = text();
        if is(&now) {
            return now;
        }
        assert!(began.elapsed() < PATIENCE, "not {what}: {now}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_dropped_tunnel_is_told_and_explained() {
    if !need_root() {
        return;
    }
    let shop = Shop::open("tunneltold");
    assert_eq!(arrive(&shop, 0, &all()), [false; 6]);
    let counted = "palisade_dropped_packets_total{reason=\"encapsulated\"} 6";
    // The kernel's counters are read at most once a second.
    wait(
        "counted",
        || shop.agent.metrics(),
        |text| text.contains(counted),
    );

    let remembered = || {
        let output = shop.agent.run(&["monitor", "--last", "100", "--no-follow"]);
        String::from_utf8(output.stdout).unwrap()
    };
    let told = |line: &&str| line.contains("tunnelled packet");
    let lines = wait("told", remembered, |text| {
        text.lines().filter(told).count() == 6
    });
    assert!(lines.contains("shop/web"), "{lines}");
    let asked = ["explain", "--from", "shop/web", "--to", "shop/api"];
    let told = |more: &[&str]| {
        let output = shop.agent.run(&[&asked[..], more].concat());
        String::from_utf8(output.stdout).unwrap()
    };
    for (more, parameter) in [
        (&["--port", "4789/UDP"][..], "allow-encapsulation has vxlan"),
        (&["--port", "6081/UDP"], "allow-encapsulation has geneve"),
        (&["--protocol", "4"], "allow-encapsulation has ipip"),
        (&["--protocol", "47"], "allow-encapsulation has gre"),
    ] {
        let text = told(more);
        assert!(text.starts_with("DENY"), "{text}");
        assert!(text.contains(parameter), "{text}");
    }
    let text = told(&["--port", "4790/UDP"]);
    assert!(!text.contains("allow-encapsulation"), "{text}");
}
