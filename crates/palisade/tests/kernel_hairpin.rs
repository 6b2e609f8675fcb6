//! A pod that reaches itself through its own Service, translated and masqueraded as kube-proxy does: policy cannot
//! keep a pod from itself. Both families, TCP and UDP, over real sockets, in both modes of `host-to-endpoint`.

#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "a test: it runs other programs, measures real time, and fails by panicking"
)]

mod agent;

use agent::Agent;
use agent::shop::{ADDRESSES, Shop, address, policy};
use palisade_testkit::lab::{TcpEcho, UdpEcho, connect, udp_exchange};
use palisade_testkit::need_root;
use std::net::SocketAddr;
use std::time::Duration;

/// Timeout after which there is no reply.
const PATIENCE: Duration = Duration::from_millis(900);
const WEB: usize = 0;
const API: usize = 1;
/// The Service's addresses; its port is 80, and that of its only endpoint, api, is 8080.
const SERVICE: [&str; 2] = ["10.96.0.10", "fd96::10"];

/// The rules of kube-proxy for the Service: what its endpoint sends to it is masqueraded.
fn service_rules() -> String {
    let mut rules = String::from("add table inet proxy\n");
    rules += "add chain inet proxy services { type nat hook prerouting priority -100; }\n";
    rules += "add chain inet proxy masquerading { type nat hook postrouting priority 100; }\n";
    for (family, service, pod) in [
        ("ip", SERVICE[0], ADDRESSES[API][0].to_owned()),
        ("ip6", SERVICE[1], format!("[{}]", ADDRESSES[API][1])),
    ] {
        let source = ADDRESSES[API][usize::from(family == "ip6")];
        rules += &format!(
            "add rule inet proxy services {family} daddr {service} {family} saddr {source} meta mark set meta mark or 0x4000\n"
        );
        for protocol in ["tcp", "udp"] {
            rules += &format!(
                "add rule inet proxy services {family} daddr {service} {protocol} dport 80 dnat {family} to {pod}:8080\n"
            );
        }
    }
    rules
        + "add rule inet proxy masquerading meta mark and 0x4000 == 0x4000 meta mark set meta mark xor 0x4000 masquerade fully-random\n"
}

/// What of TCP and UDP of a pod to the Service is answered, by family.
fn answered(shop: &Shop, from: usize) -> [[bool; 2]; 2] {
    shop.lab.flush_conntrack().unwrap();
    SERVICE.map(|service| {
        let server = SocketAddr::new(address(service), 80);
        let pod = shop.pods[from];
        [
            connect(&shop.lab, pod, server, PATIENCE).is_ok(),
            udp_exchange(&shop.lab, pod, server, PATIENCE).is_ok(),
        ]
    })
}

#[test]
fn a_pod_reaches_itself_through_its_service() {
    if !need_root() {
        return;
    }
    for mode in ["allow", "policy"] {
        let agent = Agent::new().with(&["--host-to-endpoint", mode]);
        let shop = Shop::under(agent, &format!("hairpin{mode}"));
        let _tcp = TcpEcho::start(&shop.lab, shop.pods[API], 8080).unwrap();
        let _udp = UdpEcho::start(&shop.lab, shop.pods[API], 8080).unwrap();
        let rules = shop.agent.policy().with_file_name("service.nft");
        std::fs::write(&rules, service_rules()).unwrap();
        agent::nft(&shop.lab, &format!("-f{}", rules.display()));
        let before = [answered(&shop, API), answered(&shop, WEB)];
        assert_eq!(before, [[[true; 2]; 2]; 2], "{mode}, without policy");
        // Nothing may enter or leave api.
        let all = "  policyTypes: [Ingress, Egress]\n";
        shop.agent.apply("api.yaml", &policy("closed", "api", all));
        assert_eq!(answered(&shop, WEB), [[false; 2]; 2], "{mode}, another pod");
        assert_eq!(answered(&shop, API), [[true; 2]; 2], "{mode}, itself");
    }
}

#[test]
fn policy_judges_it_if_so_configured() {
    if !need_root() {
        return;
    }
    let mut agent = Agent::new();
    agent.set("PALISADE_HAIRPIN", "judge");
    let mut shop = Shop::under(agent, "hairpinj");
    let _tcp = TcpEcho::start(&shop.lab, shop.pods[API], 8080).unwrap();
    let _udp = UdpEcho::start(&shop.lab, shop.pods[API], 8080).unwrap();
    let rules = shop.agent.policy().with_file_name("service.nft");
    std::fs::write(&rules, service_rules()).unwrap();
    agent::nft(&shop.lab, &format!("-f{}", rules.display()));
    assert_eq!(answered(&shop, API), [[true; 2]; 2], "without policy");
    // Each direction denies; TCP alone is allowed in both.
    let itself = "{podSelector: {matchLabels: {app: api}}}";
    for (types, expected) in [
        ("  policyTypes: [Ingress]\n".to_owned(), [[false; 2]; 2]),
        ("  policyTypes: [Egress]\n".to_owned(), [[false; 2]; 2]),
        (
            format!(
                "  policyTypes: [Ingress, Egress]\n  ingress: [{{from: [{itself}], ports: [{{port: 8080}}]}}]\n  \
                 egress: [{{to: [{itself}]}}]\n"
            ),
            [[true, false]; 2],
        ),
    ] {
        shop.agent
            .apply("api.yaml", &policy("itself", "api", &types));
        assert_eq!(answered(&shop, API), expected, "{types}");
    }
    // A changed parameter is followed by the next agent.
    shop.agent.kill();
    shop.agent.more(&["--hairpin", "allow"]);
    shop.agent.start(&shop.lab);
    assert_eq!(answered(&shop, API), [[true; 2]; 2], "allowed again");
}
