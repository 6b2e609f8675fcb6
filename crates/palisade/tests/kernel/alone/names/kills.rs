//! Kills of the agent and of the DNS proxy while a thousand queries a second go on.

use super::super::asked;
use super::steady_queries::SteadyQueries;
use crate::agent::shop::{ADDRESSES, address};
use crate::names::{
    KINDS, LOAD_NETWORKS, NAMES, NamedShop, PORT, ProxyProcess, addresses_of, dnsmasq, load_name,
    route_outside, servers,
};
use hickory_proto::op::ResponseCode;
use palisade_testkit::lab::{Spray, SprayKind};
use palisade_testkit::need_root;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

/// An address of no name, and the pace of packets to it.
const DENIED: [&str; 2] = ["203.0.113.250", "2001:db8:51::1:fa"];
const PACE: Duration = Duration::from_millis(5);
/// Before a kill, and how long the killed one is away, as a service manager has it.
const PAUSE: Duration = Duration::from_millis(200);
/// How many queries a test sends at least, however fast the kills are over.
const LEAST_QUERIES: u64 = 501;

/// Packets from web to addresses that no name opens.
fn spray_denied(named: &NamedShop) -> [Spray; 2] {
    let lab = &named.shop.lab;
    [0, 1].map(|family| {
        let source = (named.shop.pods[0], address(ADDRESSES[0][family]));
        let to = SocketAddr::new(address(DENIED[family]), PORT);
        Spray::start(lab, source, (lab.outside(), to), SprayKind::Udp, PACE).unwrap()
    })
}

fn assert_none_arrived(sprays: [Spray; 2]) {
    for mut spray in sprays {
        spray.stop();
        let counts = spray.counts();
        assert!(counts.sent > 0 && counts.arrived == 0, "{counts:?}");
    }
}

/// A new name is answered and opens.
fn assert_learns(named: &NamedShop, number: u32, what: &str) {
    let (name, kind, wanted) = load_name(number);
    let server = servers()[usize::from(wanted.is_ipv6())];
    let answer = named.lookup(&name, server, kind);
    assert_eq!(
        answer,
        Some((ResponseCode::NoError, vec![wanted])),
        "{what} {number}"
    );
    assert!(named.connects(wanted), "{what} {number}: the first packet");
}

/// Names that everybody knows; the queries go on asking for them.
fn learn_all(named: &NamedShop) -> [IpAddr; 2] {
    for number in 0..NAMES {
        for family in [0, 1] {
            let name = format!("n{number}.example.com");
            let answer = named.lookup(&name, servers()[family], KINDS[family]);
            assert!(answer.is_some(), "{name}");
        }
    }
    addresses_of(0)
}

#[test]
fn no_query_is_lost_by_kills_of_the_agent() {
    if !need_root() {
        return;
    }
    let kills = u32::try_from(asked("LOAD_KILLS", 100).div_ceil(20)).unwrap();
    let mut named = NamedShop::open("names-kills", &dnsmasq());
    route_outside(&named.shop.lab, LOAD_NETWORKS);
    let known = learn_all(&named);
    let sprays = spray_denied(&named);
    let queries = SteadyQueries::start(&named.shop.lab, named.shop.pods[0]);
    let began = Instant::now();
    for kill in 0..kills {
        std::thread::sleep(PAUSE);
        named.shop.agent.kill();
        assert!(
            known.iter().all(|known| named.connects(*known)),
            "without the agent, kill {kill}"
        );
        named.shop.agent.start(&named.shop.lab);
        assert!(
            known.iter().all(|known| named.connects(*known)),
            "after kill {kill}"
        );
        named.wait_for_proxy();
        assert_learns(&named, kill, "after kill");
    }
    queries.wait_until_sent(LEAST_QUERIES);
    let account = queries.end();
    println!(
        "account: names: {kills} kills of the agent under 1,000 queries a second, in {} s: {account}",
        began.elapsed().as_secs()
    );
    assert_eq!((account.lost, account.wrong), (0, 0));
    assert_none_arrived(sprays);
}

#[test]
fn a_kill_of_the_proxy_costs_queries_and_opens_nothing() {
    if !need_root() {
        return;
    }
    let kills = u32::try_from(asked("LOAD_KILLS", 100).div_ceil(50)).unwrap();
    let mut named = NamedShop::open("names-proxy", &dnsmasq());
    route_outside(&named.shop.lab, LOAD_NETWORKS);
    let known = learn_all(&named);
    let sprays = spray_denied(&named);
    let queries = SteadyQueries::start(&named.shop.lab, named.shop.pods[0]);
    for kill in 0..kills {
        std::thread::sleep(PAUSE);
        // With SIGKILL.
        named.proxy = None;
        assert!(
            known.iter().all(|known| named.connects(*known)),
            "without the proxy, kill {kill}"
        );
        named.shop.agent.wait("the loss of the proxy", |status| {
            status["names"]["proxies"] == 0
        });
        let proxy = ProxyProcess::start(&named.shop.agent, &named.shop.lab);
        named.proxy = Some(proxy);
        named.wait_for_proxy();
        assert_learns(&named, kill, "after kill");
    }
    queries.wait_until_sent(LEAST_QUERIES);
    let account = queries.end();
    println!(
        "account: names: {kills} kills of the DNS proxy under 1,000 queries a second: {account}; {} lost by each",
        account.lost / u64::from(kills)
    );
    assert_eq!(account.wrong, 0);
    assert_none_arrived(sprays);
    // Afterwards nothing is lost.
    let queries = SteadyQueries::start(&named.shop.lab, named.shop.pods[0]);
    std::thread::sleep(PAUSE);
    let account = queries.end();
    assert_eq!((account.lost, account.wrong), (0, 0), "{account}");
}
