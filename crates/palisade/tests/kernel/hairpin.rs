//! A pod that reaches itself through its own Service, translated and masqueraded as kube-proxy does: NetworkPolicy cannot
//! keep a pod from itself, ClusterNetworkPolicy can. Both families, TCP and UDP, over real sockets, in both modes of
//! `host-to-endpoint`.

use crate::agent::shop::{ADDRESSES, Shop, address, policy};
use crate::agent::{self, Agent};
use palisade_testkit::lab::{TcpEcho, UdpEcho, connect, udp_exchange};
use palisade_testkit::need_root;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
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

/// Whether a connection still has its words come back.
fn echoes(connection: &mut TcpStream) -> bool {
    let mut word = [0; 4];
    connection.write_all(b"ping").is_ok() && connection.read_exact(&mut word).is_ok()
}

/// A ClusterNetworkPolicy for the pods of one name, with the same rules in both directions.
fn cluster_policy(name: &str, tier: &str, pod: &str, action: &str, peer: &str) -> String {
    let rule = |key: &str| {
        format!(
            "  - {{action: {action}, {key}: [{{pods: {{podSelector: {{matchLabels: {{app: {peer}}}}}}}}}]}}\n"
        )
    };
    format!(
        "apiVersion: policy.networking.k8s.io/v1alpha2\nkind: ClusterNetworkPolicy\nmetadata: {{name: {name}}}\n\
         spec:\n  tier: {tier}\n  priority: 5\n  subject: {{pods: {{podSelector: {{matchLabels: {{app: {pod}}}}}}}}}\n  \
         ingress:\n{}  egress:\n{}",
        rule("from"),
        rule("to"),
    )
}

#[test]
fn each_kind_judges_it_as_its_standard_says() {
    if !need_root() {
        return;
    }
    let mut shop = Shop::under(Agent::new(), "hairpink");
    let _tcp = TcpEcho::start(&shop.lab, shop.pods[API], 8080).unwrap();
    let _udp = UdpEcho::start(&shop.lab, shop.pods[API], 8080).unwrap();
    let rules = shop.agent.policy().with_file_name("service.nft");
    std::fs::write(&rules, service_rules()).unwrap();
    agent::nft(&shop.lab, &format!("-f{}", rules.display()));
    let all = [[true; 2]; 2];
    let none = [[false; 2]; 2];
    let closed = policy("closed", "api", "  policyTypes: [Ingress, Egress]\n");
    let admin = |action, peer| cluster_policy("admin", "Admin", "api", action, peer);
    let baseline = |action| cluster_policy("baseline", "Baseline", "api", action, "api");
    for (name, policies, expected) in [
        ("nothing", vec![], all),
        ("NetworkPolicy", vec![closed.clone()], all),
        ("Deny in Admin", vec![admin("Deny", "api")], none),
        ("Deny in Baseline", vec![baseline("Deny")], none),
        ("Deny of another pod", vec![admin("Deny", "web")], all),
        (
            "Deny and NetworkPolicy",
            vec![admin("Deny", "api"), closed.clone()],
            none,
        ),
        (
            "Accept and NetworkPolicy",
            vec![admin("Accept", "api"), closed.clone()],
            all,
        ),
        (
            "Pass and NetworkPolicy",
            vec![admin("Pass", "api"), closed.clone()],
            all,
        ),
        (
            "NetworkPolicy, then Baseline",
            vec![closed.clone(), baseline("Deny")],
            none,
        ),
        (
            "Pass, then Baseline",
            vec![admin("Pass", "api"), baseline("Deny")],
            none,
        ),
        (
            "Accept before Baseline",
            vec![admin("Accept", "api"), baseline("Deny")],
            all,
        ),
        ("nothing again", vec![], all),
    ] {
        let manifest = if policies.is_empty() {
            "# no policy\n".to_owned()
        } else {
            policies.join("---\n")
        };
        shop.agent.apply("api.yaml", &manifest);
        assert_eq!(answered(&shop, API), expected, "{name}");
        for own in ADDRESSES[API] {
            let server = SocketAddr::new(address(own), 8080);
            let pod = shop.pods[API];
            let direct = connect(&shop.lab, pod, server, PATIENCE);
            assert!(direct.is_ok(), "{name}: the own address {own}");
        }
    }
    // An agent that starts over what is there writes nothing else.
    shop.agent.apply("api.yaml", &admin("Deny", "api"));
    shop.agent.kill();
    shop.agent.start(&shop.lab);
    assert_eq!(answered(&shop, API), none, "after a restart");
}

#[test]
fn a_policy_that_denies_it_cuts_an_open_connection() {
    if !need_root() {
        return;
    }
    let shop = Shop::under(Agent::new(), "hairpinc");
    let _tcp = TcpEcho::start(&shop.lab, shop.pods[API], 8080).unwrap();
    let rules = shop.agent.policy().with_file_name("service.nft");
    std::fs::write(&rules, service_rules()).unwrap();
    agent::nft(&shop.lab, &format!("-f{}", rules.display()));
    for service in SERVICE {
        shop.agent.apply("api.yaml", "# no policy\n");
        let server = SocketAddr::new(address(service), 80);
        let open = || TcpStream::connect_timeout(&server, PATIENCE);
        let mut connection = shop.lab.run_in(shop.pods[API], open).unwrap().unwrap();
        connection.set_read_timeout(Some(PATIENCE)).unwrap();
        assert!(echoes(&mut connection), "{service}: without policy");
        let deny = cluster_policy("admin", "Admin", "api", "Deny", "api");
        shop.agent.apply("api.yaml", &deny);
        assert!(!echoes(&mut connection), "{service}: denied");
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
