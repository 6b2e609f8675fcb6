//! Denials that answer (`--deny-action reject`): who is denied knows at once, in both directions and families, between
//! workloads, from outside, and from and to the host; what is allowed is as before.

use crate::agent::shop::{ADDRESSES, FROM_WEB_8080, Shop, address, policy};
use crate::agent::site::{Site, calico};
use crate::agent::{Agent, ip, nft, nft_in};
use palisade_testkit::lab::craft::{self, CraftedPacket};
use palisade_testkit::lab::{Lab, NodeId, connect, send_crafted_packets, udp_exchange};
use palisade_testkit::need_root;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

/// A drop is not noticed before this.
const LONG: Duration = Duration::from_millis(1500);
const AT_ONCE: Duration = Duration::from_millis(1000);

/// What a client is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Told {
    /// At once: reset, or administratively prohibited.
    Rejected,
    Nothing,
    Other(ErrorKind),
}

fn told(attempt: impl FnOnce() -> io::Result<()>) -> Told {
    let began = Instant::now();
    let Err(error) = attempt() else {
        return Told::Other(ErrorKind::AlreadyExists);
    };
    let is_prompt = began.elapsed() < AT_ONCE;
    match error.kind() {
        ErrorKind::ConnectionRefused
        | ErrorKind::HostUnreachable
        | ErrorKind::NetworkUnreachable
        | ErrorKind::PermissionDenied
            if is_prompt =>
        {
            Told::Rejected
        }
        ErrorKind::TimedOut | ErrorKind::WouldBlock => Told::Nothing,
        other => Told::Other(other),
    }
}

/// What clients of TCP and UDP are told, of both families; all must agree.
fn told_of(lab: &Lab, from: NodeId, to: [IpAddr; 2], port: u16) -> Told {
    lab.flush_conntrack().unwrap();
    let all = to.map(|address| {
        let at = SocketAddr::new(address, port);
        [
            told(|| connect(lab, from, at, LONG)),
            told(|| udp_exchange(lab, from, at, LONG)),
        ]
    });
    let first = all[0][0];
    assert!(
        all.as_flattened().iter().all(|other| *other == first),
        "{all:?}"
    );
    first
}

fn pod(index: usize) -> [IpAddr; 2] {
    ADDRESSES[index].map(address)
}

#[test]
fn denials_between_workloads_answer() {
    if !need_root() {
        return;
    }
    let mut agent = Agent::changeable();
    agent.set("PALISADE_DENY_ACTION", "reject");
    let mut shop = Shop::under(agent, "reject");
    let [web, api, _] = shop.pods;
    shop.agent
        .apply("ingress.yaml", &policy("db", "db", FROM_WEB_8080));
    let egress = "  policyTypes: [Egress]\n  egress:\n  - ports: [{port: 8080}]\n";
    shop.agent
        .apply("egress.yaml", &policy("api", "api", egress));
    // By ingress of the other end, by egress of the own, and from outside.
    assert_eq!(told_of(&shop.lab, web, pod(2), 9000), Told::Rejected);
    assert_eq!(told_of(&shop.lab, api, pod(0), 9000), Told::Rejected);
    assert_eq!(told_of(&shop.lab, api, pod(2), 8080), Told::Rejected);
    let outside = shop.lab.outside();
    assert_eq!(told_of(&shop.lab, outside, pod(2), 9000), Told::Rejected);
    // What is allowed arrives.
    assert!(shop.tcp(0, 2, 8080) && !shop.tcp(0, 2, 9000) && shop.tcp(2, 0, 9000));
    // Told by the monitor and by explain.
    let packet = shop.agent.wait_for_packet(|line| line["rejected"] == true);
    assert_eq!(packet["verdict"], "Denied");
    let answer = |shop: &Shop, port: &str| {
        let explain = ["explain", "--from", "shop/web", "--to", "shop/db", "--port"];
        shop.agent.json(&[&explain[..], &[port]].concat())
    };
    assert_eq!(answer(&shop, "9000")["rejectedWith"], "TcpReset");
    assert_eq!(answer(&shop, "9000/UDP")["rejectedWith"], "AdminProhibited");
    assert!(answer(&shop, "8080").get("rejectedWith").is_none());
    let table = nft(&shop.lab, "list table inet palisade");
    assert!(table.contains("reject with tcp reset"), "{table}");
    // The parameter changes with a restart, both ways, and nothing else does.
    shop.agent.terminate();
    shop.agent.set("PALISADE_DENY_ACTION", "drop");
    shop.agent.start(&shop.lab);
    shop.agent.wait("in force", |s| s["health"] == "Ready");
    assert_eq!(told_of(&shop.lab, web, pod(2), 9000), Told::Nothing);
    assert!(shop.tcp(0, 2, 8080));
    assert!(answer(&shop, "9000").get("rejectedWith").is_none());
    shop.agent.terminate();
    shop.agent.set("PALISADE_DENY_ACTION", "reject");
    shop.agent.start(&shop.lab);
    shop.agent.wait("in force", |s| s["health"] == "Ready");
    assert_eq!(told_of(&shop.lab, web, pod(2), 9000), Told::Rejected);
}

/// The host's own packets to a workload, which policy judges here, and its own endpoint's policy: the postrouting hook,
/// where the kernel cannot answer, leads to copies that drop.
#[test]
fn denials_of_and_to_the_host_answer() {
    if !need_root() {
        return;
    }
    let more = ["--deny-action", "reject", "--host-to-endpoint", "policy"];
    let site = Site::with("reject-host", &more);
    let shop = &site.shop;
    let (host, outside) = (site.host(), site.outside());
    shop.agent
        .apply("ingress.yaml", &policy("db", "db", FROM_WEB_8080));
    assert_eq!(told_of(&shop.lab, host, pod(2), 9000), Told::Rejected);
    assert!(shop.tcp(0, 2, 8080));
    let endpoint = "{node: n1, interfaceName: '*'}";
    shop.agent
        .apply("host.yaml", &calico("HostEndpoint", "host", endpoint));
    let spec = "{selector: has(projectcalico.org/namespace) == false, order: 1, ingress: [{action: Deny, protocol: TCP, \
                destination: {ports: [9000]}}, {action: Deny, protocol: UDP, destination: {ports: [9000]}}, \
                {action: Allow}], egress: [{action: Deny, protocol: TCP, destination: {ports: [9001]}}, \
                {action: Deny, protocol: UDP, destination: {ports: [9001]}}, {action: Allow}]}";
    let spec = spec.replace("has(projectcalico.org/namespace) == false", "!has(app)");
    shop.agent
        .apply("policy.yaml", &calico("GlobalNetworkPolicy", "host", &spec));
    assert!(site.has_host_chains());
    let of_host = site.addresses(host);
    assert_eq!(told_of(&shop.lab, outside, of_host, 9000), Told::Rejected);
    let of_outside = site.addresses(outside);
    assert_eq!(told_of(&shop.lab, host, of_outside, 9001), Told::Rejected);
    assert!(site.tcp(outside, host, 8000) && site.tcp(host, outside, 8000));
    // To a Service, whose address is translated after the hook that could answer: dropped.
    let rules = "add table ip pal-nat\nadd chain ip pal-nat out { type nat hook output priority -100; }\n\
                 add rule ip pal-nat out ip daddr 10.96.7.7 dnat to 10.77.0.3\n";
    nft(&shop.lab, rules);
    let route = ["route", "add", "10.96.7.7/32", "dev", "lo"];
    ip(&shop.lab, host, &route);
    shop.lab.flush_conntrack().unwrap();
    let service = SocketAddr::new(address("10.96.7.7"), 9000);
    let dropped = told(|| connect(&shop.lab, host, service, LONG));
    assert_eq!(dropped, Told::Nothing);
    shop.agent
        .wait("still in sync", |s| s["revision"] == s["realised"]);
}

/// What counts the answers that reach a namespace: resets and "administratively prohibited".
const COUNTING: &str = "add table inet pal-count\n\
    add chain inet pal-count in { type filter hook input priority -400; }\n\
    add rule inet pal-count in tcp flags rst counter\n\
    add rule inet pal-count in icmp type destination-unreachable icmp code admin-prohibited counter\n\
    add rule inet pal-count in icmpv6 type destination-unreachable icmpv6 code admin-prohibited counter\n";

/// The answers that have reached a pod.
fn answers(lab: &Lab, node: NodeId) -> u64 {
    let table = nft_in(lab, node, "list table inet pal-count");
    let mut words = table.split_whitespace();
    let mut sum = 0;
    while words.any(|word| word == "packets") {
        sum += words.next().unwrap().parse::<u64>().unwrap();
    }
    sum
}

/// Denials by the source port answer as others; resets, spoofed packets and ICMP errors are never answered.
#[test]
fn only_what_may_be_answered_is() {
    if !need_root() {
        return;
    }
    let mut agent = Agent::changeable();
    agent.set("PALISADE_DENY_ACTION", "reject");
    let shop = Shop::under(agent, "reject-which");
    let [web, api, db] = shop.pods;
    let lab = &shop.lab;
    for pod in [web, api] {
        nft_in(lab, pod, COUNTING);
    }
    // What db gets is judged by its source port alone; api is in isolation.
    let by_source = "{selector: app == 'db', ingress: [{action: Deny, protocol: TCP, source: {ports: [4000]}}, \
                     {action: Deny, protocol: UDP, source: {ports: ['4000:4001']}}, {action: Allow}]}";
    let policies = calico("GlobalNetworkPolicy", "by-source", by_source)
        + "---\n"
        + &policy("api", "api", "  policyTypes: [Ingress]\n");
    shop.agent.apply("policies.yaml", &policies);
    const SYN: u8 = 2;
    const RST: u8 = 4;
    const ACK: u8 = 16;
    let answers_to = |from: NodeId, receiver: NodeId, packet: &dyn Fn(usize) -> Vec<u8>| {
        let before: u64 = [web, api].map(|pod| answers(lab, pod)).iter().sum();
        let packets = [0, 1].map(|family| CraftedPacket {
            from,
            bytes: packet(family),
            receiver,
        });
        let arrived = send_crafted_packets(lab, &packets).unwrap();
        let after: u64 = [web, api].map(|pod| answers(lab, pod)).iter().sum();
        (arrived, after - before)
    };
    let tail = [7; 16];
    let at = |pod: usize, family: usize, port: u16| {
        SocketAddr::new(address(ADDRESSES[pod][family]), port)
    };
    let tcp = |from: usize, to: usize, source: u16, flags: u8| {
        move |family| {
            let ends = (at(from, family, source), at(to, family, 9000));
            // After what was sent before, with the SYN that began it.
            let sequence = if flags == SYN { 1 } else { 2 + 16 };
            craft::tcp(ends.0, ends.1, flags, (sequence, 0), &tail)
        }
    };
    let udp =
        |source: u16| move |family| craft::udp(at(0, family, source), at(2, family, 53), 1, &tail);
    let (denied, passed) = (vec![false; 2], vec![true; 2]);
    // By the source port: TCP and UDP are answered, another port arrives.
    assert_eq!(
        answers_to(web, db, &tcp(0, 2, 4000, SYN)),
        (denied.clone(), 2)
    );
    assert_eq!(answers_to(web, db, &udp(4001)), (denied.clone(), 2));
    assert_eq!(answers_to(web, db, &udp(4002)).0, passed);
    let explain = [
        "explain", "--from", "shop/web", "--to", "shop/db", "--port", "9000",
    ];
    let from_port = shop
        .agent
        .json(&[&explain[..], &["--source-port", "4000"]].concat());
    assert_eq!(from_port["rejectedWith"], "TcpReset", "{from_port:#}");
    // Isolation: a connection is answered; a reset, a spoofed packet and an ICMP error are not.
    assert_eq!(
        answers_to(web, api, &tcp(0, 1, 5000, SYN)),
        (denied.clone(), 2)
    );
    assert_eq!(
        answers_to(web, api, &tcp(0, 1, 5001, RST)),
        (denied.clone(), 0)
    );
    assert_eq!(
        answers_to(web, db, &tcp(1, 2, 4000, SYN)),
        (denied.clone(), 0)
    );
    let error = |family: usize| {
        let quoted = craft::udp(at(1, family, 53), at(0, family, 53), 1, &tail);
        let kind = [(3, 3), (1, 4)][family];
        craft::icmp(
            at(0, family, 0).ip(),
            at(1, family, 0).ip(),
            kind,
            [0; 4],
            &quoted,
        )
    };
    assert_eq!(answers_to(web, api, &error), (denied.clone(), 0));
    // A connection that ended while it was allowed (nothing listens), and is denied now, in either direction: what
    // still comes of it is answered, but for its reset.
    lab.set_sysctl(lab.host(), "net/netfilter/nf_conntrack_tcp_be_liberal", "1")
        .unwrap();
    assert_eq!(answers_to(web, db, &tcp(0, 2, 6000, SYN)), (passed, 2));
    shop.agent.apply(
        "db.yaml",
        &calico(
            "GlobalNetworkPolicy",
            "all",
            "{selector: app != 'api', order: 1, ingress: [{action: Deny}]}",
        ),
    );
    assert_eq!(
        answers_to(web, db, &tcp(0, 2, 6000, RST)),
        (denied.clone(), 0)
    );
    assert_eq!(answers_to(web, db, &tcp(0, 2, 6000, ACK)), (denied, 2));
}
