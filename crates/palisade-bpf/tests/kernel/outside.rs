//! Flows between a workload and other hosts, by test runs: which are proven, by which interface they go, and what comes
//! back. Nothing is attached.

use std::net::{IpAddr, SocketAddr};
use std::process::Command;

use palisade_testkit::lab::craft;
use palisade_testkit::need_root;

use crate::denials::interfaces;
use crate::fast_path::Outcome::{Delivered, Dropped, Passes, Proven};
use crate::fast_path::{
    ACK, Outcome, SYN, SYN_ACK, World, add_interface, addresses, back, tcp, udp,
};

/// The identities of the network of other hosts, and of its upper half.
const NETWORK: u32 = 300;
const UPPER: u32 = 301;

/// Other hosts, of each family: one of the lower half of their network, one of the upper half, and one of no network.
const HOSTS: [[&str; 3]; 2] = [
    ["198.51.100.9", "198.51.100.200", "203.0.113.1"],
    ["2001:db8:51::9", "2001:db8:51::8000:9", "2001:db8:77::1"],
];

/// The routers between, of each family, on both interfaces to other hosts.
const ROUTERS: [[&str; 2]; 2] = [
    ["192.0.2.2", "192.0.3.2"],
    ["2001:db8:2::2", "2001:db8:3::2"],
];

/// A host with two workloads and two interfaces to other hosts, who are reached by the first.
struct Outside {
    world: World,
    uplinks: [u32; 2],
}

impl Outside {
    fn new(fault: u64) -> Self {
        let world = World::new(fault);
        let uplinks = ["up0", "up1"].map(|name| add_interface(&world.netns, name));
        let outside = Outside { world, uplinks };
        outside.ip(
            &["netns", "exec", outside.world.netns.name(), "sysctl", "-qw"],
            &[
                "net.ipv4.conf.all.forwarding=1",
                "net.ipv6.conf.all.forwarding=1",
            ],
        );
        for family in [0, 1] {
            let bits = ["24", "64"][family];
            for (name, router) in ["up0", "up1"].into_iter().zip(ROUTERS[family]) {
                let own = format!("{}1/{bits}", router.strip_suffix('2').unwrap());
                outside.route(&["address", "add", &own, "dev", name], family);
                let mac = ["lladdr", "02:00:00:00:00:77", "nud", "permanent"];
                outside.route(
                    &[&["neigh", "add", router, "dev", name], &mac[..]].concat(),
                    family,
                );
            }
            for network in [
                ["198.51.100.0/24", "203.0.113.0/24"],
                ["2001:db8:51::/64", "2001:db8:77::/64"],
            ][family]
            {
                outside.route(
                    &["route", "add", network, "via", ROUTERS[family][0]],
                    family,
                );
            }
            for pod in [0, 1] {
                let host = addresses(pod)[family].to_string();
                outside.route(
                    &["route", "add", &host, "dev", ["pod0", "pod1"][pod]],
                    family,
                );
            }
        }
        let rows = &outside.world.rows;
        for (at, uplink) in outside.uplinks.into_iter().enumerate() {
            rows.set_uplink(uplink, true);
            // The longer prefixes come first, so that the last one that is found is the shortest.
            let [upper, network] = [
                [("198.51.100.128", 121), ("198.51.100.0", 120)],
                [("2001:db8:51::8000:0", 97), ("2001:db8:51::", 64)],
            ][at];
            rows.set_prefix(upper.0.parse().unwrap(), upper.1, UPPER, 1 + at);
            rows.set_prefix(network.0.parse().unwrap(), network.1, NETWORK, 5 + at);
        }
        rows.set_complete(1);
        // Who may send anything may not send to the upper half, and the second workload takes what it takes of the first.
        rows.set_class(1, UPPER, 3);
        rows.set_class(2, NETWORK, 2);
        outside
    }

    fn route(&self, arguments: &[&str], family: usize) {
        let family = ["-4", "-6"][family];
        self.ip(&["-n", self.world.netns.name(), family], arguments);
    }

    fn ip(&self, arguments: &[&str], more: &[&str]) {
        let output = Command::new("ip").args(arguments).args(more).output();
        let output = output.unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?} {more:?}: {errors}");
    }

    /// What becomes of a packet from another host that arrives by an interface.
    fn receive(&self, uplink: usize, packet: &[u8]) -> Outcome {
        let index = self.uplinks[uplink];
        self.world.run_at("from_net", index, packet).0
    }
}

fn host(family: usize, at: usize) -> IpAddr {
    HOSTS[family][at].parse().unwrap()
}

/// The sockets of a flow from a workload to another host.
fn flow(family: usize, pod: usize, at: usize, port: u16) -> [SocketAddr; 2] {
    [
        (addresses(pod)[family], 40_000).into(),
        (host(family, at), port).into(),
    ]
}

/// The hops that a frame has left.
fn hops(frame: &[u8], family: usize) -> u8 {
    frame[14 + [8, 7][family]]
}

/// The sum of the words of an IPv4 header, its checksum included: what changes a word changes the checksum against it.
fn header_sum(frame: &[u8]) -> u32 {
    let words = frame[14..34].chunks(2);
    let sum: u32 = words
        .map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])))
        .sum();
    (sum & 0xffff) + (sum >> 16)
}

pub(crate) fn check_outside(fault: u64) {
    for family in [0, 1] {
        check_sent(fault, family);
        check_received(fault, family);
        check_errors(fault, family);
    }
    check_mapped(fault);
}

/// What a workload sends to other hosts, and their answers.
fn check_sent(fault: u64, family: usize) {
    let outside = Outside::new(fault);
    let (world, rows) = (&outside.world, &outside.world.rows);
    let asked = flow(family, 0, 0, 53);
    assert_eq!(
        outside.receive(0, &udp(back(asked))),
        Passes,
        "nothing is open"
    );
    let (sent, frame) = world.run_at("from_pod", world.ifindexes[0], &udp(asked));
    assert_eq!(sent, Delivered);
    let before = [&[0; 14][..], &udp(asked)].concat();
    assert_eq!(
        hops(&frame, family),
        hops(&before, family) - 1,
        "it is forwarded"
    );
    assert!(family == 1 || header_sum(&frame) == header_sum(&before));
    assert_eq!(rows.packets(1), 1, "judged at its end here");
    assert_eq!(outside.receive(0, &udp(back(asked))), Delivered);
    assert_eq!(
        outside.receive(1, &udp(back(asked))),
        Delivered,
        "by any interface"
    );
    let denied = flow(family, 0, 1, 53);
    assert_eq!(
        world.from(0, &udp(denied)),
        Passes,
        "the longest prefix counts"
    );
    assert_eq!(
        world.from(0, &udp(flow(family, 0, 2, 53))),
        Passes,
        "of no network"
    );
    // By an interface without programs the stack sends it, and what is owned is not judged again.
    rows.set_uplink(outside.uplinks[0], false);
    assert_eq!(world.from(0, &udp(flow(family, 0, 0, 54))), Passes);
    assert_eq!(world.from(0, &udp(asked)), Proven);
    assert_eq!(
        outside.receive(0, &udp(back(asked))),
        Proven,
        "the stack has policies for it"
    );
    rows.set_uplink(outside.uplinks[0], true);
    let mut last_hop = udp(asked);
    last_hop[[8, 7][family]] = 1;
    assert_eq!(world.from(0, &last_hop), Proven);
    let [source, to] = asked;
    let large = craft::udp(source, to, 1, &[0; 1_480]);
    assert_eq!(world.from(0, &large), Proven, "larger than the route takes");
    outside.route(&["neigh", "del", ROUTERS[family][0], "dev", "up0"], family);
    assert_eq!(
        world.from(0, &udp(asked)),
        Proven,
        "the stack seeks the next hop"
    );
    // Revoked, and then without networks.
    rows.set_class(1, NETWORK, 3);
    rows.set_generation(2);
    assert_eq!(world.from(0, &udp(asked)), Dropped);
    assert_eq!(outside.receive(0, &udp(back(asked))), Dropped);
    let (pod, uplink) = (world.ifindexes[0], outside.uplinks[0]);
    let expected = [(pod, Some(uplink)), (uplink, Some(pod))];
    assert_eq!(interfaces(rows), expected);
    rows.set_complete(0);
    assert_eq!(world.from(0, &udp(asked)), Passes);
    assert_eq!(outside.receive(0, &udp(back(asked))), Passes);
    rows.set_complete(1);
    rows.set_second_half(2);
    assert_eq!(
        world.from(0, &udp(flow(family, 0, 0, 55))),
        Passes,
        "the other half has none"
    );
}

/// What other hosts send to a workload, and its answers.
fn check_received(fault: u64, family: usize) {
    let outside = Outside::new(fault);
    let (world, rows) = (&outside.world, &outside.world.rows);
    let http = [
        (host(family, 0), 40_000).into(),
        (addresses(1)[family], 80).into(),
    ];
    assert_eq!(
        outside.receive(1, &tcp(http, SYN)),
        Passes,
        "answers go by the other interface"
    );
    assert_eq!(outside.receive(0, &tcp(http, ACK)), Passes);
    assert_eq!(outside.receive(0, &tcp(http, SYN)), Delivered);
    assert_eq!(rows.packets(2), 1, "judged at its end here");
    assert_eq!(world.from(1, &tcp(back(http), SYN_ACK)), Delivered);
    assert_eq!(outside.receive(0, &tcp(http, ACK)), Delivered);
    // The addresses of this host's workloads come from their interfaces alone.
    let local = [
        (addresses(0)[family], 40_000).into(),
        (addresses(1)[family], 80).into(),
    ];
    assert_eq!(outside.receive(0, &tcp(local, SYN)), Passes);
    let unknown = [(host(family, 2), 40_000).into(), http[1]];
    assert_eq!(outside.receive(0, &tcp(unknown, SYN)), Passes);
    assert_eq!(
        outside.receive(0, &tcp([http[0], (host(family, 1), 80).into()], SYN)),
        Passes
    );
    let [first, _] = craft::fragments(&udp([http[0], (addresses(1)[family], 1_500).into()]), 16, 7);
    assert_eq!(outside.receive(0, &first), Passes);
    rows.set_class(2, NETWORK, 3);
    rows.set_generation(2);
    assert_eq!(outside.receive(0, &tcp(http, ACK)), Dropped);
    assert_eq!(world.from(1, &tcp(back(http), ACK)), Dropped);
    // What the stack sends to other hosts is answered by it as well.
    rows.set_generation(3);
    let asked = flow(family, 1, 0, 1_500);
    let answer = back([(addresses(1)[family], 1_500).into(), asked[1]]);
    rows.set_class(2, NETWORK, 2);
    let uplink = outside.uplinks[0];
    assert_eq!(
        world.run_at("to_net", uplink, &udp(back(answer))).0,
        Proven,
        "the mark is as it was"
    );
    assert_eq!(outside.receive(0, &udp(answer)), Passes);
    let other = [SocketAddr::new(answer[0].ip(), 41_000), answer[1]];
    assert_eq!(outside.receive(0, &udp(other)), Delivered);
    // What the stack delivers to a workload, too.
    let third = [SocketAddr::new(answer[0].ip(), 42_000), answer[1]];
    world.run_at("to_pod", world.ifindexes[1], &udp(third));
    assert_eq!(world.from(1, &udp(back(third))), Passes);
}

/// ICMP errors about packets of owned flows.
fn check_errors(fault: u64, family: usize) {
    let outside = Outside::new(fault);
    let world = &outside.world;
    let owned = udp(flow(family, 0, 0, 53));
    let router: IpAddr = ROUTERS[family][0].parse().unwrap();
    let error = |from: IpAddr, to: usize, quoted: &[u8]| {
        craft::icmp(
            from,
            addresses(to)[family],
            ([3, 1][family], 1),
            [0; 4],
            quoted,
        )
    };
    assert_eq!(outside.receive(0, &error(router, 0, &owned)), Passes);
    assert_eq!(world.from(0, &owned), Delivered);
    assert_eq!(
        outside.receive(0, &error(router, 0, &owned)),
        Delivered,
        "of any router"
    );
    assert_eq!(
        outside.receive(0, &error(router, 1, &owned)),
        Passes,
        "to another one"
    );
    assert_eq!(
        outside.receive(0, &error(router, 0, &udp(flow(family, 0, 0, 54)))),
        Passes
    );
    // A workload tells another host of a packet that it was sent, and of no other.
    let received = udp([
        (host(family, 0), 40_000).into(),
        (addresses(1)[family], 1_500).into(),
    ]);
    let refuse = |pod: usize, quoted: &[u8]| {
        let (from, to) = (addresses(pod)[family], host(family, 0));
        world.from(
            pod,
            &craft::icmp(from, to, ([3, 1][family], 3), [0; 4], quoted),
        )
    };
    assert_eq!(refuse(1, &received), Passes);
    assert_eq!(outside.receive(0, &received), Delivered);
    assert_eq!(refuse(1, &received), Delivered);
    assert_eq!(refuse(0, &received), Passes);
}

/// Addresses of IPv4 in a packet of IPv6 are nobody's.
fn check_mapped(fault: u64) {
    let outside = Outside::new(fault);
    let mapped = |address: IpAddr| match address {
        IpAddr::V4(v4) => IpAddr::from(v4.to_ipv6_mapped()),
        IpAddr::V6(_) => address,
    };
    let [source, to] = [0, 1].map(|pod| mapped(addresses(pod)[0]));
    let packet = udp([(source, 40_000).into(), (to, 1_500).into()]);
    assert_eq!(outside.world.from(0, &packet), Passes);
}

#[test]
fn flows_to_and_from_other_hosts_are_delivered_where_policy_and_routes_prove_it() {
    if need_root() {
        check_outside(0);
    }
}
