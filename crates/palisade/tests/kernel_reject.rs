//! Denials that answer (`--deny-action reject`): who is denied knows at once, in both directions and families, between
//! workloads, from outside, and from and to the host; what is allowed is as before.

#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "a test: it runs other programs, measures real time, and fails by panicking"
)]

mod agent;

use agent::shop::{ADDRESSES, FROM_WEB_8080, Shop, address, policy};
use agent::site::{Site, calico};
use agent::{Agent, ip, nft};
use palisade_testkit::lab::{Lab, NodeId, connect, udp_exchange};
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
