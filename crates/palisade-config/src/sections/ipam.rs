//! The addresses that workloads and pods get.

use crate::section::section;
use crate::source::Contradictions;
use crate::value_parser::{pools, ranges};
use crate::values::{AddressPools, AddressRange};
use palisade_model::{Family, Prefix};

section! {
    /// The addresses that workloads and pods get.
    pub struct IpamConfig: "Addresses";

    /// The address pools of workloads and pods: networks of both families, used in this order; or node: the podCIDRs of
    /// this host's Node; or none. auto: node with a Kubernetes API server, else
    /// 10.245.0.0/24,fd50:616c:6973::/64.
    pools: AddressPools = "ipam-pool", pools(), "auto", "CIDR,…|auto|node|none", Restart;

    /// Addresses of the pools that are never allocated: networks, or ranges such as 10.245.0.10-10.245.0.19.
    reserved: Vec<AddressRange> = "ipam-reserved", ranges(), "", "CIDR|FROM-TO,…", Restart;
}

/// The pools of a host without an API server.
const LOCAL_POOLS: &str = "10.245.0.0/24,fd50:616c:6973::/64";

/// What `ipam-pool: auto` stands for, which depends on the parameter `kubernetes`.
pub(crate) fn automatic_pools(kubernetes: &str) -> &'static str {
    match kubernetes {
        "off" => LOCAL_POOLS,
        _ => "node",
    }
}

impl IpamConfig {
    /// The configured networks; none if they are those of the Node.
    pub fn networks(&self) -> &[Prefix] {
        match &self.pools {
            AddressPools::Node => &[],
            AddressPools::Networks(networks) => networks,
        }
    }

    /// Whether the pools are the networks of this host's Node object.
    pub fn has_node_pools(&self) -> bool {
        self.pools == AddressPools::Node
    }

    /// The first pool of IPv6.
    pub(crate) fn ipv6_pool(&self) -> Option<Prefix> {
        let mut networks = self.networks().iter().copied();
        networks.find(|network| network.family() == Family::V6)
    }

    /// Adds the reservations that are in no pool. Which networks a Node has is not known here.
    pub(crate) fn find_contradictions(&self, contradictions: &mut Contradictions<'_>) {
        let AddressPools::Networks(networks) = &self.pools else {
            return;
        };
        for range in &self.reserved {
            if !networks.iter().any(|network| range.overlaps(*network)) {
                let reason = format!("{range} is not in a pool, so the reservation has no effect");
                contradictions.add("ipam-reserved", "ipam-pool", reason);
            }
        }
    }
}
