//! A host with an agent, workloads and two networks beyond it, for what is judged at the host's own interfaces.

use super::Agent;
use super::shop::{ADDRESSES, Shop, address};
use palisade_testkit::lab::{NodeId, ProbeFlow};
use std::net::IpAddr;

/// The node of the agent.
pub(crate) const NODE: &str = "n1";

/// The second network beyond the host.
pub(crate) const OTHER: [&str; 2] = ["203.0.113.9", "2001:db8:9::9"];

/// A host with workloads, and two networks beyond it.
pub(crate) struct Site {
    pub(crate) shop: Shop,
    pub(crate) other: NodeId,
}

impl Site {
    /// One with an agent of the node.
    pub(crate) fn open(name: &str) -> Site {
        Site::with(name, &[])
    }

    /// The same with these arguments of the agent.
    pub(crate) fn with(name: &str, more: &[&str]) -> Site {
        let agent = Agent::changeable().with(&["--node-name", NODE]).with(more);
        let mut shop = Shop::under(agent, name);
        let addresses = OTHER.map(address).to_vec();
        let other = shop.lab.add_namespace("other", addresses).unwrap();
        shop.lab.attach(other, "eth1").unwrap();
        Site { shop, other }
    }

    pub(crate) fn host(&self) -> NodeId {
        self.shop.lab.host()
    }

    pub(crate) fn outside(&self) -> NodeId {
        self.shop.lab.outside()
    }

    /// The addresses of a node, of both families.
    pub(crate) fn addresses(&self, node: NodeId) -> [IpAddr; 2] {
        let of = |like: &str| {
            self.shop
                .lab
                .address_of_family(node, address(like))
                .unwrap()
        };
        [of("0.0.0.0"), of("::")]
    }

    /// Whether a flow arrives; both families must agree.
    pub(crate) fn passes(&self, flow: impl Fn(IpAddr) -> ProbeFlow, to: [IpAddr; 2]) -> bool {
        let flows = to.map(flow);
        let arrived = self.shop.arrives(&flows);
        assert_eq!(arrived[0], arrived[1], "families differ: {flows:?}");
        arrived[0]
    }

    pub(crate) fn tcp(&self, from: NodeId, to: NodeId, port: u16) -> bool {
        self.passes(|at| ProbeFlow::tcp(from, at, port, to), self.addresses(to))
    }

    pub(crate) fn udp(&self, from: NodeId, to: NodeId, port: u16) -> bool {
        self.passes(|at| ProbeFlow::udp(from, at, port, to), self.addresses(to))
    }

    pub(crate) fn sctp(&self, from: NodeId, to: NodeId, port: u16) -> bool {
        self.passes(|at| ProbeFlow::sctp(from, at, port, to), self.addresses(to))
    }

    pub(crate) fn echo(&self, from: NodeId, to: NodeId) -> bool {
        self.passes(|at| ProbeFlow::echo(from, at, to), self.addresses(to))
    }

    /// Whether TCP from a node arrives at a workload.
    pub(crate) fn tcp_to_pod(&self, from: NodeId, pod: usize, port: u16) -> bool {
        let to = ADDRESSES[pod].map(address);
        self.passes(|at| ProbeFlow::tcp(from, at, port, self.shop.pods[pod]), to)
    }

    /// Whether the kernel judges anything at interfaces of the host.
    pub(crate) fn has_host_chains(&self) -> bool {
        super::nft(&self.shop.lab, "list table inet palisade").contains("p_host_input")
    }
}

/// An object of Calico without a namespace, labelled as a node.
pub(crate) fn calico(kind: &str, name: &str, spec: &str) -> String {
    format!(
        "{{apiVersion: projectcalico.org/v3, kind: {kind}, metadata: {{name: {name}, labels: {{role: node}}}}, spec: {spec}}}\n"
    )
}
