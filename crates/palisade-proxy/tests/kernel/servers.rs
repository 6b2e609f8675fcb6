//! Servers that are not workloads of this host: the host itself, and outside, where the host translates sources; and
//! what the host's own policies say about queries to them.

use crate::client::{ask, ask_over_tcp, connect, query};
use crate::enforced::{Enforced, egress, names, port_53};
use crate::need_root;
use crate::server::TestServer;
use crate::testbed::{ALLOWED, CLIENTS, Testbed, run_program, servers};
use hickory_proto::op::ResponseCode;
use palisade_generators::line;
use palisade_model::{Endpoint, Object, Policy, TrafficScope};
use palisade_testkit::lab::HOST_ADDRESSES;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// The host's own addresses, with a server.
const HOST: [&str; 2] = ["192.0.2.1", "2001:db8:ff::1"];
/// More addresses of the host.
const HOST_OTHERS: [&str; 2] = ["192.0.2.9", "2001:db8:ff::9"];
/// Addresses beyond the host's uplink, with a server.
const OUTSIDE: [&str; 2] = ["198.51.100.2", "2001:db8:51::2"];
/// More addresses there.
const OUTSIDE_OTHERS: [&str; 2] = ["198.51.100.3", "2001:db8:51::3"];

fn destinations(addresses: [&str; 2]) -> [SocketAddr; 2] {
    addresses.map(|address| SocketAddr::new(address.parse().unwrap(), 53))
}

fn host_server(testbed: &mut Testbed) -> TestServer {
    let host = testbed.lab.host();
    for address in HOST_OTHERS {
        let address = address.parse().unwrap();
        testbed.lab.add_address(host, address).unwrap();
    }
    TestServer::start(&testbed.lab, host, HOST, HOST_OTHERS)
}

fn outside_server(testbed: &Testbed) -> TestServer {
    let outside = testbed.lab.outside();
    TestServer::start(&testbed.lab, outside, OUTSIDE, OUTSIDE_OTHERS)
}

/// Has another program translate what workloads send to the outside, or leave it out of connection tracking.
fn run_nft(testbed: &Testbed, chains: &str) {
    let script = format!("table inet other {{ {chains}; }}\n");
    run_program(&testbed.lab, "nft", &["-f", "-"], &script);
}

fn masquerade(testbed: &Testbed, interface: &str) {
    let chain = format!(
        "chain post {{ type nat hook postrouting priority srcnat; oifname {interface} masquerade; }}"
    );
    run_nft(testbed, &chain);
}

/// The host's addresses towards others.
fn host() -> Vec<IpAddr> {
    let mut addresses = HOST_ADDRESSES;
    addresses.sort();
    addresses.into()
}

/// The host endpoint of every interface that is no workload's; it is closed.
fn closed_host() -> Object {
    let mut endpoint = Endpoint::host_interface(line::id("HostEndpoint", "host"));
    endpoint.interface = Some(Endpoint::ANY_INTERFACE.into());
    endpoint.labels.insert("role".into(), "host".into());
    Object::Endpoint(endpoint)
}

/// A policy for what the host forwards, which allows all, or all but DNS.
fn forwarded(allows_dns: bool) -> Policy {
    let mut deny = line::rule("deny");
    deny.traffic = port_53();
    let allow = line::rule("allow");
    let rules = if allows_dns {
        vec![allow]
    } else {
        vec![deny, allow]
    };
    let mut policy = line::policy("n/forwarded role=host", rules);
    policy.scope = TrafficScope::Forwarded;
    policy.egress = policy.ingress.take();
    policy
}

/// Client 0 may ask these servers for one name and client 2, which is not redirected, for all, over UDP and TCP.
fn assert_served(enforced: &Enforced, servers: impl IntoIterator<Item = SocketAddr>) {
    let (refused, success) = (ResponseCode::Refused, ResponseCode::NoError);
    for server in servers {
        for (client, other) in [(0, refused), (2, success)] {
            let what = format!("client {client}, {server}");
            let socket = enforced.testbed.open_udp(client, server);
            for (name, code) in [(ALLOWED, success), ("other.example", other)] {
                assert_eq!(enforced.code(&socket, name), Some(code), "{what}");
            }
            // More than a packet.
            let large = ask(&socket, 9, "large.wild.example").map(|answer| answer.code);
            assert_eq!(large, Some(other), "{what}");
            let mut stream = connect(&enforced.testbed, client, server);
            let queries = [(1, ALLOWED), (2, "other.example")];
            let mut answers = ask_over_tcp(&mut stream, &queries);
            answers.sort_by_key(|answer| answer.id);
            assert_eq!(
                [answers[0].code, answers[1].code],
                [success, other],
                "{what}"
            );
        }
    }
}

/// Nobody is answered by these servers.
fn assert_cut_off(enforced: &Enforced, servers: impl IntoIterator<Item = SocketAddr>) {
    for server in servers {
        for client in [0, 2] {
            let socket = enforced.testbed.open_udp(client, server);
            let short = Duration::from_millis(200);
            socket.set_read_timeout(Some(short)).unwrap();
            // Fails once the network has reported the denial.
            let _ = socket.send(&query(7, ALLOWED));
            assert_eq!(crate::client::receive(&socket), None, "{client} {server}");
        }
    }
}

fn sources(server: &TestServer) -> Vec<IpAddr> {
    let seen = server.take_seen().into_iter();
    let mut sources: Vec<IpAddr> = seen.map(|(client, ..)| client).collect();
    sources.sort();
    sources.dedup();
    sources
}

fn clients() -> Vec<IpAddr> {
    let addresses = [0, 2].map(|client| CLIENTS[client].map(|text| text.parse().unwrap()));
    let mut addresses = addresses.concat();
    addresses.sort();
    addresses
}

/// Client 0 may ask for one name, and nobody may open a connection to it.
fn one_name() -> Vec<Policy> {
    vec![
        egress(0, vec![names(&[ALLOWED])]),
        line::policy("n/closed client=0", vec![]),
    ]
}

#[test]
fn a_server_of_the_host_is_asked_as_by_the_client() {
    if !need_root() {
        return;
    }
    let mut enforced = Enforced::new("hostserver");
    let server = host_server(&mut enforced.testbed);
    enforced.enforce(&one_name());
    assert_served(&enforced, destinations(HOST));
    assert_eq!(sources(&server), clients());
    // What workloads send to the host is not judged at the host's interfaces, with the proxy or without.
    enforced.add(closed_host());
    enforced.enforce(&one_name());
    assert_served(&enforced, destinations(HOST));
    assert_eq!(sources(&server), clients());
    // A program may translate what the proxy sends on the way: then the server sees the host.
    masquerade(&enforced.testbed, "lo");
    assert_served(&enforced, destinations(HOST));
    let seen = sources(&server);
    assert!(
        seen.iter().any(|source| !clients().contains(source)),
        "{seen:?}"
    );
    let counts = enforced.testbed.counts();
    assert_eq!((counts.upstream.failed, counts.answers.unsent), (0, 0));
}

#[test]
fn a_server_of_the_host_may_be_left_out_of_connection_tracking() {
    if !need_root() {
        return;
    }
    let mut enforced = Enforced::new("notrack");
    let server = host_server(&mut enforced.testbed);
    // As node-local DNS does.
    let rules = HOST.map(|address| {
        let family = if address.contains(':') { "ip6" } else { "ip" };
        (
            format!("{family} daddr {address} meta l4proto {{ tcp, udp }} th dport 53 notrack; "),
            format!("{family} saddr {address} meta l4proto {{ tcp, udp }} th sport 53 notrack; "),
        )
    });
    let (to, from): (Vec<String>, Vec<String>) = rules.into_iter().unzip();
    let (to, from) = (to.concat(), from.concat());
    run_nft(
        &enforced.testbed,
        &format!(
            "chain pre {{ type filter hook prerouting priority raw; {to} }}; \
             chain out {{ type filter hook output priority raw; {to} {from} }}"
        ),
    );
    enforced.enforce(&one_name());
    assert_served(&enforced, destinations(HOST));
    assert_eq!(sources(&server), clients());
}

#[test]
fn a_server_outside_is_asked_by_the_client_s_address_or_by_the_host_s() {
    if !need_root() {
        return;
    }
    let mut enforced = Enforced::new("outside");
    let server = outside_server(&enforced.testbed);
    enforced.enforce(&one_name());
    assert_served(&enforced, destinations(OUTSIDE));
    assert_eq!(sources(&server), clients());
    masquerade(&enforced.testbed, "out0");
    assert_served(&enforced, destinations(OUTSIDE));
    assert_eq!(sources(&server), host());
    let counts = enforced.testbed.counts();
    assert_eq!((counts.upstream.failed, counts.answers.unsent), (0, 0));
}

#[test]
fn policies_of_the_host_judge_queries_to_the_outside_as_forwarded() {
    if !need_root() {
        return;
    }
    for is_masqueraded in [false, true] {
        let mut enforced = Enforced::new("forwarded");
        let _server = outside_server(&enforced.testbed);
        if is_masqueraded {
            masquerade(&enforced.testbed, "out0");
        }
        enforced.add(closed_host());
        // Without a policy for it, what is forwarded passes.
        enforced.enforce(&one_name());
        assert_served(&enforced, destinations(OUTSIDE));
        let with = |policy| [one_name(), vec![policy]].concat();
        enforced.enforce(&with(forwarded(false)));
        assert_cut_off(&enforced, destinations(OUTSIDE));
        assert_served(&enforced, servers());
        enforced.enforce(&with(forwarded(true)));
        assert_served(&enforced, destinations(OUTSIDE));
        // What is forwarded is not judged before connection tracking where it leaves.
        let mut untracked = forwarded(false);
        untracked.scope = TrafficScope::Untracked;
        enforced.enforce(&with(untracked));
        assert_served(&enforced, destinations(OUTSIDE));
    }
}

#[test]
fn ports_that_the_client_uses_itself_are_no_obstacle() {
    if !need_root() {
        return;
    }
    let mut enforced = Enforced::with_config("ports", |config| {
        config.limits.upstream.idle = Duration::from_millis(50);
    });
    let _host = host_server(&mut enforced.testbed);
    let _outside = outside_server(&enforced.testbed);
    enforced.enforce(&one_name());
    // Client and proxy have the same two ports, so their connections have the same ends.
    let testbed = &enforced.testbed;
    for node in [testbed.lab.host(), testbed.clients[0]] {
        let key = "net/ipv4/ip_local_port_range";
        testbed.lab.set_sysctl(node, key, "40000 40001").unwrap();
    }
    // Without any NAT but our own.
    run_program(
        &testbed.lab,
        "nft",
        &["delete", "table", "inet", "services"],
        "",
    );
    let all = servers().into_iter();
    let all = all.chain(destinations(HOST)).chain(destinations(OUTSIDE));
    for server in all {
        let sockets = [0, 0].map(|client| testbed.open_udp(client, server));
        for socket in &sockets {
            assert_eq!(
                enforced.code(socket, ALLOWED),
                Some(ResponseCode::NoError),
                "{server}"
            );
        }
        testbed.wait_for("idle sockets are closed", |counts| {
            counts.upstream.open == 0
        });
    }
    for server in servers() {
        let mut streams = [0, 0].map(|client| connect(testbed, client, server));
        for stream in &mut streams {
            let answers = ask_over_tcp(stream, &[(1, ALLOWED)]);
            assert_eq!(answers[0].code, ResponseCode::NoError, "{server}");
        }
    }
    assert_eq!(testbed.counts().upstream.failed, 0);
}
