//! A small shop with an agent: three workloads and the connections between them.

use super::Agent;
use palisade_testkit::lab::{Lab, NodeId, ProbeFlow, probe};
use std::net::IpAddr;

/// An agent with three workloads in namespace shop, each with an IPv4 and an IPv6 address.
pub(crate) struct Shop {
    pub(crate) agent: Agent,
    pub(crate) lab: Lab,
    pub(crate) pods: [NodeId; 3],
}

/// The workloads' names, and the value of their label `app`.
pub(crate) const NAMES: [&str; 3] = ["web", "api", "db"];
/// The workloads' addresses.
pub(crate) const ADDRESSES: [[&str; 2]; 3] = [
    ["10.77.0.1", "fd77::1"],
    ["10.77.0.2", "fd77::2"],
    ["10.77.0.3", "fd77::3"],
];

impl Shop {
    /// A lab with an agent and the three workloads attached.
    pub(crate) fn open(name: &str) -> Self {
        Shop::under(Agent::new(), name)
    }

    /// The same with nftables alone.
    pub(crate) fn with_nftables(name: &str) -> Self {
        Shop::under(Agent::with_nftables(), name)
    }

    /// The same with an agent that is not running yet.
    pub(crate) fn under(agent: Agent, name: &str) -> Self {
        Shop::inside(agent, Lab::new(name).unwrap())
    }

    /// The same in an existing lab.
    pub(crate) fn inside(mut agent: Agent, mut lab: Lab) -> Self {
        agent.start(&lab);
        let pods = [0, 1, 2].map(|i| {
            let addresses = ADDRESSES[i].iter().map(|a| a.parse().unwrap()).collect();
            let node = lab.add_namespace(NAMES[i], addresses).unwrap();
            let label = format!("app={}", NAMES[i]);
            agent.attach(
                &lab,
                node,
                &format!("shop/{}", NAMES[i]),
                &ADDRESSES[i],
                &[&label],
            );
            node
        });
        Shop { agent, lab, pods }
    }

    /// Which of these flows arrive; all of them are new.
    pub(crate) fn arrives(&self, flows: &[ProbeFlow]) -> Vec<bool> {
        self.lab.flush_conntrack().unwrap();
        probe(&self.lab, flows).unwrap()
    }

    /// Whether TCP to a port arrives; both families must agree.
    pub(crate) fn tcp(&self, from: usize, to: usize, port: u16) -> bool {
        let flow = |i: usize| {
            ProbeFlow::tcp(
                self.pods[from],
                address(ADDRESSES[to][i]),
                port,
                self.pods[to],
            )
        };
        let arrived = self.arrives(&[flow(0), flow(1)]);
        assert_eq!(
            arrived[0], arrived[1],
            "families differ: {from} to {to} port {port}"
        );
        arrived[0]
    }
}

/// Parses an address.
pub(crate) fn address(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// A policy for the pods with the label `app` in namespace shop.
pub(crate) fn policy(name: &str, app: &str, spec: &str) -> String {
    format!(
        "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {{name: {name}, namespace: shop}}\n\
         spec:\n  podSelector: {{matchLabels: {{app: {app}}}}}\n{spec}"
    )
}

/// Rules that allow web on port 8080.
pub(crate) const FROM_WEB_8080: &str =
    "  ingress:\n  - from: [{podSelector: {matchLabels: {app: web}}}]\n    ports: [{port: 8080}]\n";
