//! Traffic between a pod and its own node, in both directions, with replies: in both modes of
//! `host-to-endpoint`, both families, TCP, UDP and ICMP, over real sockets, so that a connection allowed in
//! one direction needs its replies and nothing else.

use crate::agent::Agent;
use crate::agent::shop::{ADDRESSES, Shop, address, policy};
use palisade_testkit::lab::{
    HOST_ADDRESSES, NodeId, ProbeFlow, TcpEcho, UdpEcho, connect, udp_exchange,
};
use palisade_testkit::need_root;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// Timeout after which there is no reply.
const PATIENCE: Duration = Duration::from_millis(700);
const PORT: u16 = 8080;

/// An agent in one of the modes, with servers on the pod `api` and on the node.
struct Scene {
    shop: Shop,
    _tcp: [TcpEcho; 2],
    _udp: [UdpEcho; 2],
}

impl Scene {
    fn open(mode: &str) -> Self {
        let agent = Agent::new().with(&["--host-to-endpoint", mode]);
        let shop = Shop::under(agent, &format!("node-{mode}"));
        let servers = [shop.pods[1], shop.lab.host()];
        let tcp = servers.map(|node| TcpEcho::start(&shop.lab, node, PORT).unwrap());
        let udp = servers.map(|node| UdpEcho::start(&shop.lab, node, PORT).unwrap());
        Scene {
            shop,
            _tcp: tcp,
            _udp: udp,
        }
    }

    fn api(&self) -> NodeId {
        self.shop.pods[1]
    }

    /// The replies received, by family: of a TCP connection, a UDP exchange, an echo request.
    fn talks(&self, from: NodeId, to: [IpAddr; 2], receiver: NodeId) -> [[bool; 3]; 2] {
        let lab = &self.shop.lab;
        lab.flush_conntrack().unwrap();
        to.map(|address| {
            let server = SocketAddr::new(address, PORT);
            let echo = ProbeFlow::echo(from, address, receiver);
            [
                connect(lab, from, server, PATIENCE).is_ok(),
                udp_exchange(lab, from, server, PATIENCE).is_ok(),
                self.shop.arrives(&[echo]) == [true],
            ]
        })
    }

    fn node_to_pod(&self) -> [[bool; 3]; 2] {
        let to = ADDRESSES[1].map(address);
        self.talks(self.shop.lab.host(), to, self.api())
    }

    fn pod_to_node(&self) -> [[bool; 3]; 2] {
        self.talks(self.api(), HOST_ADDRESSES, self.shop.lab.host())
    }
}

/// All of TCP, UDP and ICMP, in both families.
const ALL: [[bool; 3]; 2] = [[true; 3]; 2];
const NONE: [[bool; 3]; 2] = [[false; 3]; 2];

/// A policy that isolates `api` in both directions except for the rules.
fn isolated(rules: &str) -> String {
    policy(
        "api",
        "api",
        &format!("{rules}  policyTypes: [Ingress, Egress]\n"),
    )
}

/// A peer with the node's own two addresses.
fn node_peers() -> String {
    let [v4, v6] = HOST_ADDRESSES;
    format!("[{{ipBlock: {{cidr: {v4}/32}}}}, {{ipBlock: {{cidr: {v6}/128}}}}]")
}

/// All checks that hold in both modes, given whether the node may connect to an isolated pod.
fn node_and_pod(mode: &str, node_passes: bool) {
    let scene = Scene::open(mode);
    let agent = &scene.shop.agent;
    assert_eq!(scene.node_to_pod(), ALL, "{mode}: no policy");
    assert_eq!(scene.pod_to_node(), ALL, "{mode}: no policy");

    agent.apply("api.yaml", &isolated(""));
    let wanted = if node_passes { ALL } else { NONE };
    assert_eq!(scene.node_to_pod(), wanted, "{mode}: isolated");
    assert_eq!(scene.pod_to_node(), NONE, "{mode}: isolated");
    assert!(!scene.shop.tcp(0, 1, PORT), "{mode}: another pod");

    // Ingress only: the pod replies, though it may not open a connection.
    let ingress = format!("  ingress:\n  - from: {}\n", node_peers());
    agent.apply("api.yaml", &isolated(&ingress));
    assert_eq!(scene.node_to_pod(), ALL, "{mode}: ingress from the node");
    assert_eq!(scene.pod_to_node(), NONE, "{mode}: ingress from the node");

    // Egress only: the node replies, though by policy it may not open a connection.
    let egress = format!("  egress:\n  - to: {}\n", node_peers());
    agent.apply("api.yaml", &isolated(&egress));
    assert_eq!(scene.pod_to_node(), ALL, "{mode}: egress to the node");
    assert_eq!(scene.node_to_pod(), wanted, "{mode}: egress to the node");

    // By port and protocol.
    let tcp = format!(
        "  ingress:\n  - from: {0}\n    ports: [{{port: {PORT}}}]\n  egress:\n  - to: {0}\n    ports: [{{protocol: UDP, port: {PORT}}}]\n",
        node_peers()
    );
    agent.apply("api.yaml", &isolated(&tcp));
    let only_tcp = if node_passes {
        ALL
    } else {
        [[true, false, false]; 2]
    };
    assert_eq!(scene.node_to_pod(), only_tcp, "{mode}: TCP from the node");
    assert_eq!(
        scene.pod_to_node(),
        [[false, true, false]; 2],
        "{mode}: UDP to the node"
    );
}

#[test]
fn the_node_reaches_its_pods_and_pods_reach_it_as_policy_says() {
    if !need_root() {
        return;
    }
    node_and_pod("allow", true);
}

#[test]
fn the_node_is_judged_where_it_is_to_be() {
    if !need_root() {
        return;
    }
    node_and_pod("policy", false);
}
