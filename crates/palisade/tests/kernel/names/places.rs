//! Servers in other places than the outside: a workload with policy of its own, behind a service, and this host.

use super::{NamedShop, by_address, dnsmasq, lookup, names_policy};
use crate::agent::shop::{ADDRESSES, Shop, address, policy};
use crate::agent::{Agent, nft};
use hickory_proto::op::ResponseCode;
use hickory_proto::rr::RecordType;
use palisade_testkit::lab::{HOST_ADDRESSES, NodeId};
use palisade_testkit::need_root;
use std::net::IpAddr;

/// Addresses of a service, which no interface has.
const SERVICE: [&str; 2] = ["10.96.0.10", "fd96::10"];
/// The usual address of node-local DNS, and one like it of the other family.
const NODE_LOCAL: [&str; 2] = ["169.254.20.10", "fd00:169:254:20::10"];

/// Who the server's ingress policy lets ask.
fn ingress_from(app: &str) -> String {
    let rules = format!(
        "  ingress:\n  - from: [{{podSelector: {{matchLabels: {{app: {app}}}}}}}]\n    ports: [{{port: 53, protocol: UDP}}, {{port: 53}}]\n"
    );
    policy("dns", "api", &rules)
}

#[test]
fn a_server_that_is_a_workload_judges_its_clients() {
    if !need_root() {
        return;
    }
    let shop = Shop::open("names-pod");
    let (api, [web, _, db]) = (shop.pods[1], shop.pods);
    let own: [IpAddr; 2] = ADDRESSES[1].map(address);
    let labels = "toEndpoints: [{matchLabels: {app: api}}]";
    let policy = names_policy("web, db", labels);
    let named = NamedShop::around(shop, &dnsmasq(), (api, own), &policy);
    let agent = &named.shop.agent;
    named.assert_served(web, &own, "without a policy of the server");
    named.assert_served(db, &own, "without a policy of the server");
    agent.apply("server.yaml", &ingress_from("web"));
    named.assert_served(web, &own, "allowed by the server");
    named.assert_cut_off(db, &own, "denied by the server");
    agent.apply("server.yaml", &ingress_from("db"));
    named.assert_served(db, &own, "allowed by the server");
    named.assert_cut_off(web, &own, "denied by the server");
    // Behind a service the policies are about the workload.
    let translate = |family: usize| {
        let (name, own) = (["ip", "ip6"][family], own[family]);
        let service = SERVICE[family];
        format!(
            "add rule inet services pre {name} daddr {service} meta l4proto {{ tcp, udp }} th dport 53 dnat {name} to {own}\n"
        )
    };
    let chain = "add table inet services\nadd chain inet services pre { type nat hook prerouting priority dstnat; }\n";
    nft(
        &named.shop.lab,
        &[chain, &translate(0), &translate(1)].concat(),
    );
    let service = SERVICE.map(address);
    named.assert_served(db, &service, "behind a service");
    named.assert_cut_off(web, &service, "denied behind a service");
}

/// A shop with a server of the host at these addresses, which a policy names.
fn host_shop(name: &str, agent: Agent, addresses: [IpAddr; 2]) -> NamedShop {
    let mut shop = Shop::under(agent, name);
    let host = shop.lab.host();
    for address in addresses {
        if !HOST_ADDRESSES.contains(&address) {
            shop.lab.add_address(host, address).unwrap();
        }
    }
    let policy = names_policy("web", &by_address(addresses));
    NamedShop::around(shop, &dnsmasq(), (host, addresses), &policy)
}

/// A workload that is restricted is served, and one without a policy.
fn assert_host_serves(named: &NamedShop, web: NodeId, what: &str) {
    named.assert_served(web, &named.servers, what);
    for server in named.servers {
        let (lab, other) = (&named.shop.lab, named.shop.pods[1]);
        let answer = lookup(lab, other, server, "other.test", RecordType::A);
        let code = answer.map(|(code, _)| code);
        assert_eq!(code, Some(ResponseCode::NoError), "{what}: without policy");
    }
}

#[test]
fn a_server_of_the_host_is_asked() {
    if !need_root() {
        return;
    }
    let named = host_shop("names-host", Agent::new(), HOST_ADDRESSES);
    assert_host_serves(&named, named.shop.pods[0], "a server of the host");
}

#[test]
fn node_local_dns_is_asked_without_connection_tracking() {
    if !need_root() {
        return;
    }
    let own = NODE_LOCAL.map(address);
    // The first by convention, the other because it is named.
    let agent = Agent::new().with(&["--dns-servers", &format!("cluster,{}", own[1])]);
    let named = host_shop("names-local", agent, own);
    let rule = |family: usize, chain: &str, side: &str, port: &str| {
        let (name, own) = (["ip", "ip6"][family], own[family]);
        format!(
            "add rule inet local {chain} {name} {side} {own} meta l4proto {{ tcp, udp }} th {port} 53 notrack\n"
        )
    };
    let mut script = "add table inet local\n\
        add chain inet local pre { type filter hook prerouting priority raw; }\n\
        add chain inet local out { type filter hook output priority raw; }\n"
        .to_owned();
    for family in [0, 1] {
        script += &rule(family, "pre", "daddr", "dport");
        script += &rule(family, "out", "saddr", "sport");
        script += &rule(family, "out", "daddr", "dport");
    }
    nft(&named.shop.lab, &script);
    assert_host_serves(&named, named.shop.pods[0], "node-local DNS");
}
