//! Workloads and servers that mean harm: nothing is opened. What they cost others is in `alone::names::crowds`.

use super::fake_server::FakeDnsServer;
use super::{KINDS, NamedShop, PORT, addresses_of, dnsmasq, names_policy, route_outside, servers};
use crate::agent::Agent;
use crate::agent::shop::{ADDRESSES, Shop, address};
use hickory_proto::op::ResponseCode;
use hickory_proto::rr::RecordType;
use palisade_testkit::lab::TcpEcho;
use palisade_testkit::need_root;
use std::net::{IpAddr, Ipv4Addr};

/// The addresses of the server that answers what it wants, which policy trusts.
pub(crate) const FAKE: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::new(198, 51, 100, 3)),
    IpAddr::V6(std::net::Ipv6Addr::new(0x2001, 0xdb8, 0x51, 0, 0, 0, 0, 3)),
];
/// Where a name must not lead.
const INSIDE: [&[&str]; 2] = [
    &[
        "127.0.0.1",
        "0.0.0.0",
        "0.1.2.3",
        "169.254.169.254",
        "169.254.20.10",
        "224.0.0.1",
    ],
    &[
        "::1",
        "::",
        "fe80::1",
        "ff02::1",
        "::ffff:169.254.169.254",
        "::ffff:127.0.0.1",
    ],
];
/// The metadata service of clouds.
const METADATA: [&str; 2] = ["169.254.169.254", "fd00:ec2::254"];
/// Where it may.
const PUBLIC: [&str; 2] = ["203.0.113.240", "2001:db8:51::1:f0"];
/// How many addresses are in an answer of almost 64 KiB.
pub(crate) const GIANT: usize = 4_000;

/// What that server answers.
pub(crate) fn rule(name: &str, kind: RecordType) -> Option<Vec<IpAddr>> {
    let family = usize::from(kind == RecordType::AAAA);
    let (first, _) = name.split_once('.')?;
    if let Some(number) = first.strip_prefix("giant") {
        let number: u32 = number.parse().ok()?;
        let first = u32::from(Ipv4Addr::new(198, 18, 0, 0)) + number * GIANT as u32;
        let addresses = (0..GIANT as u32).map(|i| Ipv4Addr::from(first + i).into());
        return Some(addresses.collect());
    }
    if let Some(number) = first.strip_prefix('n') {
        return Some(vec![addresses_of(number.parse().ok()?)[family]]);
    }
    if first.starts_with("silent") {
        return None;
    }
    let texts = match first {
        "inside" => [
            INSIDE[family],
            &[ADDRESSES[1][family], METADATA[family], PUBLIC[family]],
        ]
        .concat(),
        _ => vec![],
    };
    Some(texts.into_iter().map(address).collect())
}

/// Workloads of these values of `app` may ask the servers of the outside, of which one means harm.
fn hostile_policy(apps: &str) -> String {
    names_policy(apps, "toCIDR: [198.51.100.0/24, '2001:db8:51::/112']")
}

/// A shop with that policy, and arguments of its agent.
pub(crate) fn hostile_shop(name: &str, apps: &str, arguments: &[&str]) -> NamedShop {
    let shop = Shop::under(Agent::new().with(arguments), name);
    let outside = shop.lab.outside();
    NamedShop::around(
        shop,
        &dnsmasq(),
        (outside, servers()),
        &hostile_policy(apps),
    )
}

#[test]
fn a_resolver_of_a_workload_teaches_nothing() {
    if !need_root() {
        return;
    }
    let mut named = hostile_shop("names-own", "web", &[]);
    let (lab, db) = (&named.shop.lab, named.shop.pods[2]);
    let own = ADDRESSES[2].map(address);
    let _resolver = FakeDnsServer::start(lab, db, own, rule);
    // It may be asked as any other workload, with rules that read no queries.
    let asks_db = "  - toEndpoints: [{matchLabels: {app: db}}]\n";
    named
        .shop
        .agent
        .apply("names.yaml", &(hostile_policy("web") + asks_db));
    let opens_nothing = |named: &NamedShop, number: usize| {
        for (family, kind) in KINDS.into_iter().enumerate() {
            let wanted = addresses_of(number + family)[family];
            let name = format!("n{}.example.com", number + family);
            let answer = named.lookup(&name, own[family], kind);
            assert_eq!(
                answer,
                Some((ResponseCode::NoError, vec![wanted])),
                "{name}"
            );
            assert!(named.held(&name).is_empty(), "{name}");
            assert!(named.is_denied(wanted), "{name}");
        }
    };
    opens_nothing(&named, 10);
    // With rules that read them, where the operator trusts no server by policy.
    named.restart_with(&["--dns-servers", "cluster,node"]);
    let policy = names_policy("web", "toEndpoints: [{matchLabels: {app: db}}]");
    named.shop.agent.apply("names.yaml", &policy);
    opens_nothing(&named, 20);
    let status = named.shop.agent.status();
    let foreign = status["names"]["untrustedServers"].to_string();
    assert!(foreign.contains(ADDRESSES[2][0]), "{status:#}");
    assert_eq!(status["names"]["addresses"], 0, "{status:#}");
}

#[test]
fn a_name_never_leads_inside() {
    if !need_root() {
        return;
    }
    let mut named = hostile_shop("names-inside", "web", &[]);
    let (lab, api) = (&named.shop.lab, named.shop.pods[1]);
    let _server = FakeDnsServer::start(lab, lab.outside(), FAKE, rule);
    let _echo = TcpEcho::start(lab, api, PORT).unwrap();
    route_outside(lab, ["169.254.169.254/32", "fd00:ec2::254/128"]);
    for (family, kind) in KINDS.into_iter().enumerate() {
        let answer = named.lookup("inside.example.com", FAKE[family], kind);
        // The client gets the answer as it is.
        let count = answer.map(|(_, addresses)| addresses.len());
        assert_eq!(count, Some(INSIDE[family].len() + 3));
        let public = address(PUBLIC[family]);
        assert!(named.connects(public), "{public}");
        for closed in [METADATA[family], ADDRESSES[1][family]].map(address) {
            assert!(named.is_denied(closed), "{closed}");
        }
    }
    let held = named.held("inside.example.com");
    for text in INSIDE.concat().into_iter().chain(METADATA) {
        assert!(!held.contains(&address(text)), "{text}: {held:?}");
    }
    // Networks that the operator adds.
    let networks = "0.0.0.0/8,127.0.0.0/8,169.254.0.0/16,::1/128,fe80::/10,203.0.113.0/24,2001:db8:51::1:0/112";
    named.restart_with(&["--dns-excluded-networks", networks]);
    for (family, kind) in KINDS.into_iter().enumerate() {
        let answer = named.lookup("n180.example.com", FAKE[family], kind);
        assert!(answer.is_some());
        assert!(named.held("n180.example.com").is_empty());
        assert!(named.is_denied(addresses_of(180)[family]));
    }
}
