//! Host endpoints with an agent and real packets: to the host, from the host, and what it forwards.

use crate::agent;
use crate::agent::shop::address;
use crate::agent::site::{NODE, OTHER, Site, calico};
use palisade_testkit::lab::{LongFlow, ProbeFlow, TcpEcho, move_to_bridge};
use palisade_testkit::need_root;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

const API: usize = 1;
const DB: usize = 2;

fn host_endpoint(node: &str, interface: &str) -> String {
    let spec = format!("{{node: {node}, interfaceName: '{interface}'}}");
    calico("HostEndpoint", "uplink", &spec)
}

#[test]
fn an_interface_of_the_host_is_closed_but_for_failsafe_ports_and_what_policies_allow() {
    if !need_root() {
        return;
    }
    let site = Site::open("hosts");
    let (host, outside, other) = (site.host(), site.outside(), site.other);
    let agent = &site.shop.agent;
    assert!(site.tcp(outside, host, 8080) && site.tcp(host, outside, 8080));
    assert!(!site.has_host_chains());
    // Another node's endpoint is none of this host.
    agent.apply("host.yaml", &host_endpoint("n2", "out0"));
    assert!(site.tcp(outside, host, 8080) && !site.has_host_chains());

    agent.apply("host.yaml", &host_endpoint("n1", "out0"));
    assert!(site.has_host_chains());
    assert!(!site.tcp(outside, host, 8080) && !site.tcp(host, outside, 8080));
    assert!(!site.udp(outside, host, 8080) && !site.sctp(outside, host, 8080));
    assert!(!site.echo(outside, host) && !site.echo(host, outside));
    assert!(
        site.tcp(outside, host, 22) && site.tcp(outside, host, 6443),
        "failsafe"
    );
    assert!(
        site.udp(host, outside, 53) && site.tcp(host, outside, 6443),
        "failsafe"
    );
    assert!(
        !site.tcp(host, outside, 22),
        "SSH is failsafe to the host only"
    );
    // The agent explains what the packets found.
    for (port, verdict, decider) in [
        ("8080", "Deny", "NoProfileMatch"),
        ("22", "Allow", "Failsafe"),
    ] {
        let from = OTHER[0];
        let explained = agent.json(&["explain", "--from", from, "--to", "host:n1", "--port", port]);
        assert_eq!(explained["verdict"], verdict, "{explained:#}");
        let at = &explained["hosts"][0];
        assert_eq!(
            (&at["node"], &at["interface"]),
            (&"n1".into(), &"out0".into())
        );
        assert_eq!(at["decidedBy"]["type"], decider, "{explained:#}");
    }
    // The other interface has no endpoint, and what is forwarded is judged by no policy.
    assert!(site.tcp(other, host, 8080) && site.tcp(host, other, 8080));
    assert!(site.tcp(outside, other, 8080) && site.tcp(other, outside, 8080));
    assert!(site.tcp_to_pod(outside, API, 8080));
    assert!(site.passes(
        |at| ProbeFlow::tcp(site.shop.pods[API], at, 8080, outside),
        site.addresses(outside)
    ));

    let allow = "{selector: role == 'node', types: [Ingress, Egress], \
                 ingress: [{action: Allow, protocol: TCP, destination: {ports: [8080]}}, \
                           {action: Allow, protocol: ICMP}, {action: Allow, protocol: ICMPv6}], \
                 egress: [{action: Allow, protocol: UDP, destination: {ports: [9000]}}, \
                          {action: Allow, protocol: SCTP}]}";
    agent.apply("allow.yaml", &calico("GlobalNetworkPolicy", "node", allow));
    assert!(site.tcp(outside, host, 8080) && !site.tcp(outside, host, 8081));
    assert!(site.echo(outside, host) && !site.echo(host, outside));
    assert!(site.udp(host, outside, 9000) && !site.udp(host, outside, 9001));
    assert!(site.sctp(host, outside, 9000) && !site.sctp(outside, host, 9000));
    assert!(site.tcp(outside, host, 22), "failsafe");
    assert!(
        site.tcp(outside, other, 8081),
        "the policy does not apply on forward"
    );

    // Every interface that is no workload's.
    agent.apply("host.yaml", &host_endpoint("n1", "*"));
    assert!(site.tcp(other, host, 8080) && !site.tcp(other, host, 8081));
    assert!(!site.tcp(outside, host, 8081) && site.tcp_to_pod(outside, API, 8081));
    assert!(
        site.tcp(site.shop.pods[API], host, 8081),
        "a workload's interface is none of the host"
    );
    // A new agent finds what it wants.
    let before = agent::nft(&site.shop.lab, "list table inet palisade");
    let mut site = site;
    site.shop.agent.terminate();
    site.shop.agent.start(&site.shop.lab);
    assert_eq!(
        agent::nft(&site.shop.lab, "list table inet palisade"),
        before
    );
    let agent = &site.shop.agent;
    assert!(!site.tcp(outside, host, 8081) && site.tcp(outside, host, 8080));

    agent.delete("host.yaml");
    assert!(site.tcp(outside, host, 8081) && site.tcp(host, outside, 22));
    assert!(!site.has_host_chains());
}

#[test]
fn what_the_host_forwards_is_judged_by_policies_that_apply_on_forward() {
    if !need_root() {
        return;
    }
    let site = Site::open("hosts-forward");
    let (host, outside, other) = (site.host(), site.outside(), site.other);
    let agent = &site.shop.agent;
    agent.apply("host.yaml", &host_endpoint("n1", "out0"));
    // Both ends are constrained: the own end is that of whatever the packet is for.
    let deny = format!(
        "{{selector: role == 'node', applyOnForward: true, order: 10, types: [Ingress], ingress: [\
         {{action: Deny, source: {{nets: [{source}/32]}}, destination: {{selector: app == 'db'}}}}, \
         {{action: Deny, source: {{nets: ['{source6}/128']}}, destination: {{selector: app == 'db'}}}}, \
         {{action: Deny, protocol: TCP, destination: {{nets: [{other}/32], ports: [9090]}}}}, \
         {{action: Deny, protocol: TCP, destination: {{nets: ['{other6}/128'], ports: [9090]}}}}, \
         {{action: Allow}}]}}",
        source = site.addresses(outside)[0],
        source6 = site.addresses(outside)[1],
        other = OTHER[0],
        other6 = OTHER[1],
    );
    agent.apply(
        "deny.yaml",
        &calico("GlobalNetworkPolicy", "forward", &deny),
    );
    assert!(site.tcp_to_pod(outside, API, 8080) && !site.tcp_to_pod(outside, DB, 8080));
    assert!(
        site.tcp_to_pod(other, DB, 8080),
        "it does not arrive by the interface"
    );
    assert!(site.tcp(outside, other, 8080) && !site.tcp(outside, other, 9090));
    assert!(site.tcp(other, outside, 9090), "egress is not governed");
    assert!(
        site.tcp(outside, host, 9090),
        "to the host the rule that allows all decides"
    );

    // A flow that is open when its policy comes is cut.
    let open = |port| {
        let flow = ProbeFlow::udp(outside, address(OTHER[0]), port, other).with_source_port(4000);
        palisade_testkit::lab::probe(&site.shop.lab, &[flow]).unwrap()[0]
    };
    assert!(open(7000));
    let closed = "{selector: role == 'node', applyOnForward: true, order: 1, types: [Ingress], \
                  ingress: [{action: Deny, protocol: UDP}, {action: Pass}]}";
    agent.apply(
        "closed.yaml",
        &calico("GlobalNetworkPolicy", "closed", closed),
    );
    assert!(!open(7000));
    agent.delete("closed.yaml");
    assert!(open(7000));

    // An endpoint of an interface that is not there yet closes it from its first packet.
    agent.apply(
        "late.yaml",
        &host_endpoint("n1", "eth9")
            .replace("name: uplink", "name: late")
            .replace("role: node", "role: late"),
    );
    let mut site = site;
    let addresses = ["203.0.113.77", "2001:db8:9::77"].map(address).to_vec();
    let late = site.shop.lab.add_namespace("late", addresses).unwrap();
    site.shop.lab.attach(late, "eth9").unwrap();
    assert!(!site.tcp(late, host, 8080) && site.tcp(late, host, 22));
    assert!(
        site.tcp(late, other, 8080),
        "what is forwarded is not governed there"
    );
}

#[test]
fn failsafe_ports_are_configured_and_a_host_in_audit_is_open() {
    if !need_root() {
        return;
    }
    let outside = "198.51.100.0/24";
    let site = Site::with(
        "hosts-safe",
        &[
            "--failsafe-inbound-ports",
            &format!("udp:{outside}:7000,tcp:[2001:db8::/32]:7001"),
            "--failsafe-outbound-ports=none",
        ],
    );
    let (host, outside, other) = (site.host(), site.outside(), site.other);
    let agent = &site.shop.agent;
    agent.apply("host.yaml", &host_endpoint("n1", "*"));
    let [v4, v6] = site.addresses(host);
    let arrives = |flow| site.shop.arrives(&[flow])[0];
    assert!(arrives(ProbeFlow::udp(outside, v4, 7000, host)));
    assert!(!arrives(ProbeFlow::udp(other, v4, 7000, host)));
    assert!(!arrives(ProbeFlow::udp(outside, v6, 7000, host)));
    assert!(arrives(ProbeFlow::tcp(outside, v6, 7001, host)));
    assert!(!arrives(ProbeFlow::tcp(outside, v4, 7001, host)));
    assert!(!site.tcp(outside, host, 22) && !site.udp(host, outside, 53));

    let site = Site::with("hosts-audit", &["--host-policy-audit"]);
    let (host, outside) = (site.host(), site.outside());
    site.shop
        .agent
        .apply("host.yaml", &host_endpoint("n1", "*"));
    assert!(site.tcp(outside, host, 8080) && site.tcp(host, outside, 8080));
    assert!(site.has_host_chains());
    // What would be denied is counted and reported.
    let agent = &site.shop.agent;
    let reported = agent.audited_packets(4);
    for line in &reported {
        assert_eq!(line["endpoint"], "host:n1", "{line:#}");
        assert_eq!(line["interface"], "out0", "{line:#}");
        assert_eq!(line["audit"]["verdict"], "Denied", "{line:#}");
        assert_eq!(line["audit"]["reason"], "Profile", "{line:#}");
    }
    let directions = reported
        .iter()
        .map(|line| line["direction"].as_str().unwrap());
    assert_eq!(
        directions.collect::<std::collections::BTreeSet<_>>().len(),
        2
    );
    agent.wait("packets that would be denied", |status| {
        status["audit"]["wouldDeny"]["packets"].as_u64() >= Some(4)
    });
}

#[test]
fn a_host_endpoint_follows_the_interface_with_the_address_that_it_expects() {
    if !need_root() {
        return;
    }
    let site = Site::open("hosts-expected");
    let (host, outside, other) = (site.host(), site.outside(), site.other);
    let agent = &site.shop.agent;
    let expects = |addresses: &str| {
        calico(
            "HostEndpoint",
            "uplink",
            &format!("{{node: n1, expectedIPs: [{addresses}]}}"),
        )
    };
    // No interface has the address yet: nothing is enforced, and the status says so. One of loopback is none.
    let on_loopback = site.addresses(host)[0];
    let reasons = [
        (
            "192.0.2.77".to_owned(),
            "no interface of this host has 192.0.2.77".to_owned(),
        ),
        (
            on_loopback.to_string(),
            format!("{on_loopback} is an address of loopback, which is never judged"),
        ),
    ];
    for (address, reason) in reasons {
        agent.apply("host.yaml", &expects(&address));
        assert!(site.tcp(outside, host, 8080) && !site.has_host_chains());
        assert_eq!(agent.status()["hostEndpoints"][0]["reason"], reason);
        let text = String::from_utf8(agent.run(&["status"]).stdout).unwrap();
        let told = format!("HostEndpoint uplink: not enforced: {reason}");
        assert!(text.contains(&told), "{text}");
        assert!(agent.log().contains(&reason), "{}", agent.log());
    }
    agent.apply("host.yaml", &host_endpoint("n1", "late0"));
    let text = String::from_utf8(agent.run(&["status"]).stdout).unwrap();
    let told = "HostEndpoint uplink: interface late0: there is no such interface";
    assert!(text.contains(told), "{text}");
    // The address comes to an interface, which is closed then and no other; and goes again.
    for address in ["192.0.2.77/32", "2001:db8:77::1/128"] {
        let (bare, _) = address.split_once('/').unwrap();
        agent.apply("host.yaml", &expects(&format!("203.0.113.250, '{bare}'")));
        let change = |action: &str| {
            agent::ip(
                &site.shop.lab,
                host,
                &["address", action, address, "dev", "out0"],
            );
        };
        change("add");
        agent.wait("the interface with the address", |status| {
            status["hostEndpoints"][0]["interface"] == "out0"
        });
        assert!(!site.tcp(outside, host, 8080) && site.tcp(outside, host, 22));
        assert!(site.tcp(other, host, 8080));
        change("del");
        agent.wait("no interface with the address", |status| {
            status["hostEndpoints"][0]["interface"].is_null()
        });
        assert!(site.tcp(outside, host, 8080) && !site.has_host_chains());
    }
}

/// The YAML of docs/hosts.md, block by block, for the node of these tests.
fn documented_steps() -> Vec<String> {
    let text = include_str!("../../../../docs/hosts.md")
        .replace("node: node-1 ", &format!("node: {NODE} "));
    let blocks = text.split("```yaml\n").skip(1);
    blocks
        .map(|block| block.split("```").next().unwrap().to_owned())
        .collect()
}

#[test]
fn the_steps_of_the_document_lead_from_audit_to_enforced() {
    if !need_root() {
        return;
    }
    let steps = documented_steps();
    let [endpoint, node, forward, node_ports, of_nodes] = &steps[..] else {
        panic!("docs/hosts.md has five manifests: {steps:#?}");
    };
    // In audit nothing is denied, with the endpoint alone and with its policies.
    let site = Site::with("hosts-document", &["--host-policy-audit"]);
    let (host, outside) = (site.host(), site.outside());
    let agent = &site.shop.agent;
    let in_order = [
        ("1.yaml", endpoint),
        ("2.yaml", node),
        ("3.yaml", forward),
        ("4.yaml", node_ports),
    ];
    for (name, step) in in_order {
        agent.apply(name, step);
        assert!(
            site.tcp(outside, host, 8080) && site.tcp(host, outside, 8080),
            "{name}"
        );
        assert!(
            site.echo(outside, host) && site.tcp_to_pod(outside, DB, 8080),
            "{name}"
        );
    }
    let reported = agent.audited_packets(1);
    assert_eq!(
        reported[0]["endpoint"],
        format!("host:{NODE}"),
        "{:#}",
        reported[0]
    );
    // Enforced.
    let site = Site::open("hosts-enforced");
    let (host, outside) = (site.host(), site.outside());
    let agent = &site.shop.agent;
    agent.apply("1.yaml", endpoint);
    assert!(!site.tcp(host, outside, 8080) && !site.echo(outside, host));
    agent.apply("2.yaml", node);
    assert!(site.tcp(host, outside, 8080) && site.echo(outside, host));
    assert!(!site.tcp(outside, host, 10250), "not from 10.0.0.0/8");
    assert!(!site.tcp(outside, host, 8080) && site.tcp(outside, host, 22));
    assert!(site.tcp_to_pod(outside, DB, 8080) && site.tcp_to_pod(outside, API, 8080));
    agent.apply("3.yaml", forward);
    assert!(!site.tcp_to_pod(outside, DB, 8080) && site.tcp_to_pod(outside, API, 8080));
    assert!(
        !site.tcp(outside, host, 8080) && !site.tcp(outside, host, 10250),
        "the host itself is closed as before"
    );
    assert!(site.echo(outside, host) && site.tcp(host, outside, 8080));
    // A port that the host translates to a workload.
    let at = site.addresses(host)[0];
    let to = agent::shop::ADDRESSES[API][0];
    agent::nft(
        &site.shop.lab,
        &format!(
            "add table ip nodeport\n\
             add chain ip nodeport translate {{ type nat hook prerouting priority dstnat; }}\n\
             add rule ip nodeport translate ip daddr {at} tcp dport 30080 dnat to {to}:8080\n"
        ),
    );
    let flow = || ProbeFlow::tcp(outside, at, 30080, site.shop.pods[API]);
    assert!(site.shop.arrives(&[flow()])[0]);
    agent.apply("4.yaml", node_ports);
    assert!(!site.shop.arrives(&[flow()])[0] && site.tcp_to_pod(outside, API, 8080));
    // Without the endpoint the host is open, and its rules are gone.
    agent.delete("1.yaml");
    assert!(site.tcp(outside, host, 8080) && !site.has_host_chains());
    // A policy of nodes needs the Node only.
    let object =
        "{apiVersion: v1, kind: Node, metadata: {name: n1, labels: {role: control-plane}}}\n";
    agent.apply("node.yaml", object);
    agent.apply("5.yaml", of_nodes);
    assert!(!site.tcp(outside, host, 8080) && site.tcp(outside, host, 22));
    assert!(site.echo(outside, host) && site.tcp(host, outside, 8080));
    assert!(site.tcp_to_pod(outside, API, 8080));
}

#[test]
fn a_change_that_cuts_a_session_of_the_host_is_told_in_the_log() {
    if !need_root() {
        return;
    }
    let site = Site::open("hosts-lockout");
    let (host, outside) = (site.host(), site.outside());
    let agent = &site.shop.agent;
    let lab = &site.shop.lab;
    let _servers = [(host, 22), (host, 2222), (outside, 16443)]
        .map(|(node, port)| TcpEcho::start(lab, node, port).unwrap());
    let open = |from, to: IpAddr, port| {
        let to = SocketAddr::new(to, port);
        LongFlow::start(lab, from, to, Duration::from_millis(20)).unwrap()
    };
    let [own, own6] = site.addresses(host);
    let far = site.addresses(outside)[0];
    let sessions = [
        open(outside, own, 2222),
        open(outside, own6, 2222),
        open(outside, own, 22),
        open(host, far, 16443),
    ];
    let warnings = || {
        let log = agent.log();
        let lines = log.lines().filter(|line| line.contains("cuts"));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    // What forwards and what is allowed is not told.
    let open_policy = "{selector: role == 'node', types: [Ingress, Egress], ingress: [{action: Allow}], egress: [{action: Allow}]}";
    agent.apply(
        "open.yaml",
        &calico("GlobalNetworkPolicy", "open", open_policy),
    );
    agent.apply("host.yaml", &host_endpoint("n1", "out0"));
    assert_eq!(warnings(), Vec::<String>::new());
    let closed = "{selector: role == 'node', types: [Ingress, Egress], ingress: [{action: Deny, protocol: TCP}], egress: [{action: Allow}]}";
    agent.apply(
        "open.yaml",
        &calico("GlobalNetworkPolicy", "closed", closed),
    );
    // A thread of its own reads the connections after the change.
    agent.wait("the first warning", |_| !warnings().is_empty());
    let told = warnings();
    assert_eq!(told.len(), 1, "{told:#?}");
    assert!(
        told[0].contains("cuts 2 TCP connections of this host"),
        "{told:#?}"
    );
    for part in [
        format!("to {own}:2222"),
        format!("to [{own6}]:2222"),
        "rule 0 of".to_owned(),
    ] {
        assert!(told[0].contains(&part), "{part}: {told:#?}");
    }
    assert!(
        !told[0].contains(&format!("{own}:22 ")),
        "failsafe: {told:#?}"
    );
    // Egress is closed as well, and with it a server that the host is connected to.
    let shut = "{selector: role == 'node', types: [Ingress, Egress], ingress: [{action: Deny, protocol: TCP}]}";
    agent.apply("open.yaml", &calico("GlobalNetworkPolicy", "closed", shut));
    agent.wait("the second warning", |_| warnings().len() > 1);
    let told = warnings();
    assert_eq!(told.len(), 2, "{told:#?}");
    assert!(
        told[1].contains(&format!("to {far}:16443 by out0")),
        "{told:#?}"
    );
    drop(sessions);
}

#[test]
fn a_renamed_interface_has_the_policy_of_its_new_name() {
    if !need_root() {
        return;
    }
    let site = Site::open("hosts-renamed");
    let (host, outside) = (site.host(), site.outside());
    let agent = &site.shop.agent;
    let rename = |from: &str, to: &str| {
        agent::ip(&site.shop.lab, host, &["link", "set", from, "name", to]);
    };
    let open = || site.tcp(outside, host, 8080);
    agent.apply("host.yaml", &host_endpoint("n1", "late0"));
    assert!(open());
    // Closed from its first packet, since the kernel looks names up: the agent has nothing to do.
    rename("out0", "late0");
    assert!(!open() && site.tcp(outside, host, 22));
    agent.wait("the interface", |status| {
        let reported = &status["hostEndpoints"][0];
        reported["interface"] == "late0" && reported["reason"].is_null()
    });
    rename("late0", "out0");
    assert!(open());
    agent.wait("the missing interface", |status| {
        status["hostEndpoints"][0]["reason"].is_string()
    });
    // Every interface is governed under any name.
    agent.apply("host.yaml", &host_endpoint("n1", "*"));
    assert!(!open());
    rename("out0", "late0");
    assert!(!open() && site.tcp(outside, host, 22));
}

#[test]
fn a_bridge_is_judged_as_a_whole_and_not_at_its_ports() {
    if !need_root() {
        return;
    }
    let site = Site::open("hosts-bridge");
    let (host, outside, other) = (site.host(), site.outside(), site.other);
    let agent = &site.shop.agent;
    move_to_bridge(&site.shop.lab, outside, "br0").unwrap();
    assert!(site.tcp(outside, host, 8080) && site.tcp(outside, other, 8080));
    let forward = "{selector: role == 'node', applyOnForward: true, order: 10, types: [Ingress], \
                   ingress: [{action: Deny, protocol: TCP, destination: {ports: [9090]}}, {action: Pass}]}";
    agent.apply(
        "forward.yaml",
        &calico("GlobalNetworkPolicy", "forward", forward),
    );
    agent.apply("host.yaml", &host_endpoint("n1", "out0"));
    assert!(
        site.tcp(outside, host, 8080) && site.tcp(outside, other, 9090),
        "the host uses the addresses of the bridge"
    );
    for interface in ["br0", "*"] {
        agent.apply("host.yaml", &host_endpoint("n1", interface));
        assert!(
            !site.tcp(outside, host, 8080) && !site.udp(host, outside, 8080),
            "{interface}"
        );
        assert!(site.tcp(outside, host, 22), "{interface}: failsafe");
        assert!(
            site.tcp(outside, other, 8080) && !site.tcp(outside, other, 9090),
            "{interface}: forwarded"
        );
    }
    agent.delete("host.yaml");
    assert!(site.tcp(outside, host, 8080) && site.tcp(outside, other, 9090));
}

#[test]
fn an_interface_that_goes_and_comes_again_is_closed_from_its_first_packet() {
    if !need_root() {
        return;
    }
    let mut site = Site::open("hosts-again");
    let host = site.host();
    site.shop
        .agent
        .apply("host.yaml", &host_endpoint("n1", "eth9"));
    for number in 0..3 {
        let addresses = [
            format!("203.0.113.{}", 80 + number),
            format!("2001:db8:9::{}", 80 + number),
        ];
        let addresses = addresses.iter().map(|text| address(text)).collect();
        let name = format!("late{number}");
        let late = site.shop.lab.add_namespace(&name, addresses).unwrap();
        site.shop.lab.attach(late, "eth9").unwrap();
        assert!(
            !site.tcp(late, host, 8080) && site.tcp(late, host, 22),
            "time {number}"
        );
        site.shop.agent.wait("the interface", |status| {
            status["hostEndpoints"][0]["reason"].is_null()
        });
        assert!(!site.tcp(late, host, 8080), "time {number}");
        agent::ip(&site.shop.lab, host, &["link", "del", "eth9"]);
        site.shop.agent.wait("the missing interface", |status| {
            status["hostEndpoints"][0]["reason"].is_string()
        });
    }
}
