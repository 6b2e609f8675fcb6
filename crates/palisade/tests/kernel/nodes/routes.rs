//! Routes between the pods of nodes on one network: kept in step with the Nodes, repaired, left to others.

use super::node;
use crate::agent::shop::{address, policy};
use crate::agent::{Agent, ip, nft};
use crate::plugin::{Container, Runtime};
use palisade_testkit::lab::{Lab, NodeId};
use palisade_testkit::{FakeApiServer, need_root};
use serde_json::{Value, json};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Timeout after which nothing arrives.
const PATIENCE: Duration = Duration::from_millis(700);
const PORT: u16 = 8080;
const NODES: &str = "/api/v1/nodes";

/// One node: a host with an agent and a runtime.
struct Host {
    lab: Lab,
    agent: Agent,
    runtime: Runtime,
}

/// Hosts n1, n2, … on one bridge; each has the addresses 10.66.0.N and fd66::N.
struct Cluster {
    hosts: Vec<Host>,
}

/// A pod: its host, its namespace, its addresses.
struct Pod {
    host: usize,
    node: NodeId,
    addresses: Vec<IpAddr>,
}

fn name(host: usize) -> String {
    format!("n{}", host + 1)
}

/// The networks of a host's pods.
fn networks(host: usize) -> [String; 2] {
    let number = host + 1;
    [
        format!("10.67.{number}.0/24"),
        format!("fd67:0:0:{number}::/64"),
    ]
}

/// The addresses of a host.
fn gateways(host: usize) -> [String; 2] {
    let number = host + 1;
    [format!("10.66.0.{number}"), format!("fd66::{number}")]
}

/// The Node of a host.
fn manifest(host: usize) -> String {
    let (networks, gateways) = (networks(host), gateways(host));
    let networks = networks.each_ref().map(String::as_str);
    node(
        &name(host),
        &networks,
        &gateways.each_ref().map(String::as_str),
    )
}

impl Cluster {
    fn open(test: &str, count: usize, args: &[&str]) -> Self {
        let mut labs: Vec<Lab> = (0..count)
            .map(|host| Lab::new(&format!("{test}{host}")).unwrap())
            .collect();
        let switch = labs[0].add_namespace("switch", Vec::new()).unwrap();
        ip(&labs[0], switch, &["link", "add", "br0", "type", "bridge"]);
        ip(&labs[0], switch, &["link", "set", "br0", "up"]);
        let there = labs[0].namespace_name(switch).to_owned();
        for (number, lab) in labs.iter().enumerate() {
            let port = format!("p{number}");
            let host = lab.host();
            ip(
                lab,
                host,
                &[
                    "link", "add", "up0", "type", "veth", "peer", "name", &port, "netns", &there,
                ],
            );
            for gateway in gateways(number) {
                let length = if gateway.contains(':') { "64" } else { "24" };
                let text = format!("{gateway}/{length}");
                ip(lab, host, &["address", "add", &text, "dev", "up0", "nodad"]);
            }
            ip(lab, host, &["link", "set", "up0", "up"]);
            ip(
                &labs[0],
                switch,
                &["link", "set", &port, "master", "br0", "up"],
            );
        }
        let hosts = labs.into_iter().enumerate().map(|(number, lab)| {
            let mut agent =
                Agent::new().with(&["--ipam-pool", "node", "--node-name", &name(number)]);
            agent.more(&["--masquerade", "outside"]);
            agent.more(args);
            let runtime = Runtime::new(&agent);
            Host {
                lab,
                agent,
                runtime,
            }
        });
        Cluster {
            hosts: hosts.collect(),
        }
    }

    /// Starts the agents, each with all Nodes in its directory.
    fn start(&mut self) {
        for host in 0..self.hosts.len() {
            self.write(&format!("{}.yaml", name(host)), &manifest(host));
        }
        for host in &mut self.hosts {
            host.agent.start(&host.lab);
        }
        for host in 0..self.hosts.len() {
            self.wait_routes(host, 2 * (self.hosts.len() - 1));
        }
        self.find_neighbours();
    }

    /// Connects the hosts once, so that no packet of a test waits for a neighbour to be found.
    fn find_neighbours(&self) {
        for host in &self.hosts {
            let addresses = (0..self.hosts.len()).flat_map(gateways);
            for gateway in addresses.map(|text| address(&text)) {
                let server = SocketAddr::new(gateway, PORT);
                let refused = || TcpStream::connect_timeout(&server, Duration::from_secs(10));
                let error = host
                    .lab
                    .run_in(host.lab.host(), refused)
                    .unwrap()
                    .unwrap_err();
                assert_eq!(
                    error.kind(),
                    std::io::ErrorKind::ConnectionRefused,
                    "{server}"
                );
            }
        }
    }

    /// Writes a manifest for every agent.
    fn write(&self, file: &str, text: &str) {
        for host in &self.hosts {
            host.agent.write(file, text);
        }
    }

    fn wait_routes(&self, host: usize, count: usize) -> Value {
        let agent = &self.hosts[host].agent;
        agent.wait("the routes are there", |status| {
            status["node"]["routes"]["installed"] == count
                && status["revision"] == status["realised"]
        })
    }

    /// Our routes of a host, sorted, in the words of `ip`.
    fn routes(&self, host: usize) -> Vec<String> {
        let lab = &self.hosts[host].lab;
        let mut found = Vec::new();
        for family in ["-4", "-6"] {
            let text = ip(lab, lab.host(), &[family, "route", "show", "proto", "112"]);
            found.extend(text.lines().map(|line| line.trim().to_owned()));
        }
        found.sort();
        found
    }

    /// What the routes of a host are to be, with routes to these hosts.
    fn expected(others: &[usize]) -> Vec<String> {
        let of = |host: &usize| {
            let (networks, gateways) = (networks(*host), gateways(*host));
            [
                format!("{} via {} dev up0 metric 4096", networks[0], gateways[0]),
                format!(
                    "{} via {} dev up0 metric 4096 pref medium",
                    networks[1], gateways[1]
                ),
            ]
        };
        let mut all: Vec<String> = others.iter().flat_map(of).collect();
        all.sort();
        all
    }

    fn wait_exact(&self, host: usize, others: &[usize]) {
        let (began, expected) = (Instant::now(), Cluster::expected(others));
        while self.routes(host) != expected {
            let log = || self.hosts[host].agent.log();
            assert!(
                began.elapsed() < Duration::from_secs(10),
                "{:?}\n{}",
                self.routes(host),
                log()
            );
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Attaches a pod by CNI, and tells every agent of it.
    fn pod(&mut self, host: usize, pod: &str) -> Pod {
        let at = &mut self.hosts[host];
        let node = at.lab.add_namespace(pod, Vec::new()).unwrap();
        let manifest = |status: &str| {
            let place = name(host);
            format!(
                "apiVersion: v1\nkind: Pod\nmetadata: {{name: {pod}, namespace: shop, labels: {{app: {pod}}}}}\n\
                 spec: {{nodeName: {place}}}\n{status}"
            )
        };
        let file = format!("{pod}.yaml");
        at.agent.apply(&file, &manifest(""));
        let container = Container::of_pod(&at.lab, node, &format!("c-{pod}"), pod);
        let given = at.runtime.add(&container);
        let ips: Vec<String> = given.iter().map(|ip| format!("{{ip: \"{ip}\"}}")).collect();
        let status = format!("status: {{podIPs: [{}]}}\n", ips.join(", "));
        for other in &self.hosts {
            other.agent.apply(&file, &manifest(&status));
        }
        Pod {
            host,
            node,
            addresses: given.iter().map(|text| address(text)).collect(),
        }
    }

    /// The source addresses that a pod sees of a connection from another, by family; `None` if none arrives.
    fn seen(&self, from: &Pod, to: &Pod) -> [Option<IpAddr>; 2] {
        [0, 1].map(|family| {
            for host in &self.hosts {
                host.lab.flush_conntrack().unwrap();
            }
            let server = SocketAddr::new(to.addresses[family], PORT);
            let listen = || {
                let listener = TcpListener::bind(server).unwrap();
                listener.set_nonblocking(true).unwrap();
                listener
            };
            let listener = self.hosts[to.host].lab.run_in(to.node, listen).unwrap();
            let client = &self.hosts[from.host].lab;
            let connect = || TcpStream::connect_timeout(&server, PATIENCE);
            let connected = client.run_in(from.node, connect).unwrap();
            let accepted = listener.accept().ok().map(|(_, peer)| peer.ip());
            assert_eq!(
                connected.is_ok(),
                accepted.is_some(),
                "{connected:?} {accepted:?}"
            );
            accepted
        })
    }

    fn status(&self, host: usize) -> Value {
        self.hosts[host].agent.status()
    }

    fn ip(&self, host: usize, args: &[&str]) -> String {
        let lab = &self.hosts[host].lab;
        ip(lab, lab.host(), args)
    }
}

fn own(pod: &Pod) -> [Option<IpAddr>; 2] {
    [Some(pod.addresses[0]), Some(pod.addresses[1])]
}

#[test]
fn pods_of_several_nodes_reach_each_other_by_their_own_addresses() {
    if !need_root() {
        return;
    }
    let mut cluster = Cluster::open("nodes", 3, &[]);
    cluster.start();
    cluster.wait_exact(0, &[1, 2]);
    cluster.wait_exact(1, &[0, 2]);
    let (a, b, c) = (
        cluster.pod(0, "a"),
        cluster.pod(1, "b"),
        cluster.pod(2, "c"),
    );
    assert!(
        a.addresses[0].to_string().starts_with("10.67.1."),
        "{:?}",
        a.addresses
    );
    for (from, to) in [(&a, &b), (&b, &a), (&c, &b), (&c, &a)] {
        assert_eq!(cluster.seen(from, to), own(from), "not masqueraded");
    }
    let exempt = nft(&cluster.hosts[0].lab, "list table inet palisade_nat");
    assert!(
        exempt.contains("10.67.1.0-10.67.3.255"),
        "own and others' networks: {exempt}"
    );

    // A policy by labels of pods on other nodes.
    let from_a = "  ingress:\n  - from: [{podSelector: {matchLabels: {app: a}}}]\n    ports: [{port: 8080}]\n";
    for host in &cluster.hosts {
        host.agent
            .apply("policy.yaml", &policy("only-a", "b", from_a));
    }
    assert_eq!(cluster.seen(&a, &b), own(&a));
    assert_eq!(cluster.seen(&c, &b), [None, None]);
    assert_eq!(cluster.seen(&c, &a), own(&c));

    // A Node goes: its routes do, the others stay.
    for host in &cluster.hosts {
        std::fs::remove_file(host.agent.policy().join("n3.yaml")).unwrap();
    }
    cluster.wait_exact(0, &[1]);
    cluster.wait_exact(1, &[0]);
    let began = Instant::now();
    while nft(&cluster.hosts[0].lab, "list table inet palisade_nat").contains("10.67.3") {
        assert!(
            began.elapsed() < Duration::from_secs(10),
            "it is masqueraded again"
        );
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(cluster.seen(&a, &b), own(&a));
    cluster.write("n3.yaml", &manifest(2));
    cluster.wait_exact(0, &[1, 2]);
}

#[test]
fn routes_are_repaired_left_to_others_and_removed() {
    if !need_root() {
        return;
    }
    let mut cluster = Cluster::open("noder", 2, &[]);
    cluster.start();
    let (theirs, gateways) = (networks(1), gateways(1));

    // Another program removes ours.
    cluster.ip(0, &["route", "del", &theirs[0], "proto", "112"]);
    cluster.ip(0, &["-6", "route", "del", &theirs[1], "proto", "112"]);
    cluster.wait_exact(0, &[1]);
    let repaired = cluster.hosts[0]
        .agent
        .wait("the repair is reported", |status| {
            status["dataplane"]["repairs"]
                .to_string()
                .contains("the route 10.67.2.0/24")
        });
    assert!(
        repaired["dataplane"]["repairs"]
            .to_string()
            .contains("fd67:0:0:2::/64")
    );
    cluster.ip(0, &["link", "set", "up0", "down"]);
    cluster.ip(0, &["link", "set", "up0", "up"]);
    cluster.ip(
        0,
        &["address", "replace", "fd66::1/64", "dev", "up0", "nodad"],
    );
    cluster.wait_exact(0, &[1]);

    // A restart writes nothing.
    let namespace = cluster.hosts[0]
        .lab
        .namespace_name(cluster.hosts[0].lab.host())
        .to_owned();
    let mut monitor = Command::new("ip")
        .args(["-n", &namespace, "monitor", "route"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let host = &mut cluster.hosts[0];
    host.agent.kill();
    host.agent.start(&host.lab);
    cluster.wait_routes(0, 2);
    monitor.kill().unwrap();
    let events = monitor.wait_with_output().unwrap().stdout;
    let events = String::from_utf8(events).unwrap();
    // The kernel may still report the addresses of the link that was down.
    let mut of_agents = events.lines().filter(|line| line.contains("proto 112"));
    assert_eq!(of_agents.next(), None, "no route was written");

    // A route of another program has precedence, and ours is not kept beside it.
    cluster.ip(
        0,
        &[
            "route",
            "add",
            &theirs[0],
            "via",
            &gateways[0],
            "proto",
            "bird",
        ],
    );
    let status = cluster.wait_routes(0, 1);
    let problems = status["node"]["routes"]["problems"].to_string();
    assert!(
        problems.contains("10.67.2.0/24 is left to another program"),
        "{status:#}"
    );
    assert_eq!(status["health"], "Ready", "{status:#}");
    assert_eq!(cluster.routes(0), Cluster::expected(&[1])[1..]);
    let theirs_now = cluster.ip(0, &["route", "show", "proto", "bird"]);
    assert!(theirs_now.contains(&theirs[0]), "{theirs_now}");
    cluster.ip(0, &["route", "del", &theirs[0], "proto", "bird"]);
    cluster.wait_exact(0, &[1]);

    // Networks that overlap: the first stays, and a network of this host has no route.
    cluster.write(
        "n4.yaml",
        &node("n4", &["10.67.2.0/25", "10.67.1.128/25"], &["10.66.0.9"]),
    );
    let status = cluster.hosts[0]
        .agent
        .wait("the overlaps are reported", |status| {
            status["node"]["routes"]["problems"]
                .as_array()
                .is_some_and(|all| all.len() == 3)
        });
    let problems = status["node"]["routes"]["problems"].to_string();
    assert!(
        problems.contains("n2, n4, which overlap; those of n2 are used"),
        "{problems}"
    );
    assert!(
        problems.contains("10.67.1.128/25 of n4 overlaps a network of this host"),
        "{problems}"
    );
    assert_eq!(cluster.routes(0), Cluster::expected(&[1]));

    // A Node that is not on a link of this host.
    cluster.write("n4.yaml", &node("n4", &["10.67.4.0/24"], &["203.0.113.7"]));
    let status = cluster.hosts[0].agent.wait("it is reported", |status| {
        status["node"]["routes"]["problems"]
            .as_array()
            .is_some_and(|all| all.len() == 1)
    });
    let problems = status["node"]["routes"]["problems"].to_string();
    assert!(
        problems.contains("no IPv4 InternalIP of n4 is directly reachable"),
        "{problems}"
    );
    // It moves onto one.
    cluster.write("n4.yaml", &node("n4", &["10.67.4.0/24"], &["10.66.0.9"]));
    cluster.wait_routes(0, 3);

    // Cleanup removes them, and so does a start without routes.
    let host = &mut cluster.hosts[0];
    host.agent.terminate();
    let found = host.agent.beside(&host.lab, "cleanup", &["--yes"]);
    let said = String::from_utf8_lossy(&found.stdout).into_owned();
    assert!(
        said.contains("route 10.67.2.0/24 via 10.66.0.2 dev up0: removed"),
        "{said}"
    );
    assert_eq!(cluster.routes(0), [""; 0]);
    assert_eq!(cluster.routes(1).len(), 3);
    let host = &mut cluster.hosts[1];
    host.agent.kill();
    host.agent.more(&["--node-routes", "off"]);
    host.agent.start(&host.lab);
    cluster.wait_exact(1, &[]);
    assert_eq!(cluster.status(1)["node"]["routes"], Value::Null);
}

#[test]
fn routes_follow_the_nodes_of_an_api_server() {
    if !need_root() {
        return;
    }
    let mut cluster = Cluster::open("nodea", 2, &[]);
    let node = |host: usize| {
        let (networks, gateways) = (networks(host), gateways(host));
        let addresses = gateways.map(|text| json!({"type": "InternalIP", "address": text}));
        json!({
            "apiVersion": "v1", "kind": "Node", "metadata": {"name": name(host)},
            "spec": {"podCIDR": networks[0], "podCIDRs": networks},
            "status": {"addresses": addresses},
        })
    };
    let mut servers = Vec::new();
    for host in &mut cluster.hosts {
        let server = host
            .lab
            .run_in(host.lab.host(), || FakeApiServer::start().unwrap());
        let server = server.unwrap();
        let kubeconfig = host.agent.policy().with_file_name("kubeconfig");
        std::fs::write(&kubeconfig, server.kubeconfig()).unwrap();
        let kubeconfig = kubeconfig.display().to_string();
        host.agent.more(&["--kubernetes", &kubeconfig]);
        server.put(NODES, node(0));
        server.put(NODES, node(1));
        host.agent.start(&host.lab);
        servers.push(server);
    }
    cluster.wait_exact(0, &[1]);
    cluster.wait_exact(1, &[0]);
    servers[0].delete(NODES, "n2");
    cluster.wait_exact(0, &[]);
    servers[0].put(NODES, node(1));
    cluster.wait_exact(0, &[1]);
    // The server is gone: the routes stay, also over a restart.
    servers[0].set_down(true);
    let host = &mut cluster.hosts[0];
    host.agent.kill();
    host.agent.spawn(&host.lab);
    let began = Instant::now();
    while host.agent.log().matches("following the API server").count() < 2 {
        assert!(
            began.elapsed() < Duration::from_secs(10),
            "{}",
            host.agent.log()
        );
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(cluster.routes(0), Cluster::expected(&[1]));
}
