//! The types of values that are more than a number, a text or a path. Parses nothing.

use palisade_model::{Family, Prefix};
use std::net::IpAddr;
use std::path::PathBuf;

/// Whether objects are read from a Kubernetes API server, and with which credentials.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KubernetesApi {
    /// They are not.
    Off,
    /// With the service account of the agent's pod.
    InCluster,
    /// With a kubeconfig file.
    Kubeconfig(PathBuf),
}

/// Where the addresses of workloads and pods come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AddressPools {
    /// From the networks of this host's Node object.
    Node,
    /// From these networks, in this order.
    Networks(Vec<Prefix>),
}

/// An endpoint of etcd.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EtcdEndpoint {
    /// Whether it has TLS; `None` if it is written without a scheme.
    pub(crate) has_tls: Option<bool>,
    /// `HOST:PORT`.
    pub(crate) authority: String,
}

impl EtcdEndpoint {
    /// Its URL; without a scheme it is `https` if `has_tls`, else `http`.
    pub(crate) fn url(&self, has_tls: bool) -> String {
        let scheme = if self.has_tls.unwrap_or(has_tls) {
            "https"
        } else {
            "http"
        };
        format!("{scheme}://{}", self.authority)
    }
}

/// Addresses of one family from first to last, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressRange {
    /// The first.
    pub first: IpAddr,
    /// The last; not before the first, and of the same family.
    pub last: IpAddr,
}

impl AddressRange {
    /// Whether the range contains this address.
    pub fn contains(self, address: IpAddr) -> bool {
        Family::of(self.first) == Family::of(address) && (self.first..=self.last).contains(&address)
    }

    /// Whether the range and the network overlap.
    pub fn overlaps(self, network: Prefix) -> bool {
        let bounds = AddressRange::from(network);
        Family::of(self.first) == network.family()
            && self.first <= bounds.last
            && bounds.first <= self.last
    }
}

impl From<Prefix> for AddressRange {
    fn from(network: Prefix) -> Self {
        AddressRange {
            first: network.address(),
            last: network.last(),
        }
    }
}

impl std::fmt::Display for AddressRange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}-{}", self.first, self.last)
    }
}

/// Whose answers give a name its addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DnsServers {
    /// Servers that a rule with DNS names selects, unless it selects every address.
    pub of_policy: bool,
    /// The DNS servers of a Kubernetes cluster.
    pub of_cluster: bool,
    /// The nameservers in this host's resolv.conf.
    pub of_node: bool,
    /// Servers in these networks.
    pub networks: Vec<Prefix>,
}

/// How a refused DNS query is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DnsRefusal {
    /// By REFUSED.
    Refused,
    /// By NXDOMAIN.
    NonexistentDomain,
}
