//! `palisade connections -o json` and `palisade diff -o json`.

use crate::{IpFamily, LockoutReport, ProtocolName, RecordSummary};
use palisade_model::{Direction, Endpoint, Owner, Str};
use serde::Serialize;
use std::fmt;
use std::net::IpAddr;
use std::rc::Rc;

/// Every allowed connection.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ConnectionList {
    /// [`crate::API_VERSION`].
    pub api_version: Str,
    /// The connections, by source, destination and family.
    pub connections: Vec<ConnectionReport>,
    /// Whether every workload is also reachable from its own node, whatever policies say; these connections are not
    /// listed. False where policy applies to them, as to those from any other node.
    pub open_to_own_node: bool,
    /// What hosts let in and out at their interfaces, by node, interface and direction.
    pub hosts: Vec<HostConnectionReport>,
    /// What hosts let pass of what they forward, where a policy judges it.
    pub forwarded: Vec<ForwardedConnectionReport>,
}

/// How often recorded flows used a connection.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RecordedUse {
    /// Flows that were allowed.
    pub allowed: u64,
    /// Packets that were denied.
    pub denied: u64,
    /// When the last of them was seen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last: Option<String>,
}

/// What an interface of a host lets in or out, without what the host forwards.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct HostConnectionReport {
    /// The node of the host.
    pub node: String,
    /// The interface; `*` for every one that no other host endpoint of the node governs.
    pub interface: String,
    /// Whether the host accepts it or may send it.
    pub direction: Direction,
    /// The address of the host, where it has several of one family.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<IpAddr>,
    /// The networks of the other end, some with exceptions.
    pub peers: Vec<String>,
    /// The allowed traffic.
    pub connections: TrafficReport,
    /// How often it was used, if a record was read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recorded: Option<RecordedUse>,
}

/// What an interface of a host lets pass of what the host forwards.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ForwardedConnectionReport {
    /// The node of the host.
    pub node: String,
    /// The interface; `*` for every one that no other host endpoint of the node governs.
    pub interface: String,
    /// Whether it arrives there or leaves there.
    pub direction: Direction,
    /// The networks of the source, some with exceptions.
    pub sources: Vec<String>,
    /// The networks of the destination, after destination NAT.
    pub destinations: Vec<String>,
    /// The allowed traffic.
    pub connections: TrafficReport,
}

/// The connections that a change allows or denies.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DiffReport {
    /// [`crate::API_VERSION`].
    pub api_version: Str,
    /// Connections that only the new manifests allow.
    pub opened: Vec<ConnectionReport>,
    /// Connections that only the old manifests allow.
    pub closed: Vec<ConnectionReport>,
    /// Workloads that only the new manifests have.
    pub appeared: Vec<WorkloadRef>,
    /// Workloads that only the old manifests have.
    pub vanished: Vec<WorkloadRef>,
    /// What only the new manifests allow at interfaces of hosts.
    pub hosts_opened: Vec<HostConnectionReport>,
    /// What only the old manifests allow there.
    pub hosts_closed: Vec<HostConnectionReport>,
    /// What only the new manifests allow of what hosts forward.
    pub forwarded_opened: Vec<ForwardedConnectionReport>,
    /// What only the old manifests allow of it.
    pub forwarded_closed: Vec<ForwardedConnectionReport>,
    /// Connections to work on hosts that the change would cut.
    pub lockouts: Vec<LockoutReport>,
    /// The record that says how often each was used, if one was read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub record: Option<RecordSummary>,
}

/// The traffic that one end may send to another.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ConnectionReport {
    /// The source, which opens the connection.
    pub src: ConnectionEndReport,
    /// The destination.
    pub dst: ConnectionEndReport,
    /// The IP version, where the traffic of the two differs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub family: Option<IpFamily>,
    /// The allowed traffic.
    pub connections: TrafficReport,
    /// How often it was used, if a record was read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recorded: Option<RecordedUse>,
}

/// One end of a connection.
#[derive(Clone, Debug, Serialize)]
#[serde(untagged, rename_all_fields = "camelCase")]
pub enum ConnectionEndReport {
    /// A workload.
    Workload(WorkloadRef),
    /// Several workloads.
    Group {
        /// Their description.
        group: String,
        /// Their number.
        count: usize,
        /// All of them, if they are requested.
        #[serde(skip_serializing_if = "Option::is_none")]
        members: Option<Rc<Vec<WorkloadRef>>>,
    },
    /// Addresses of a prefix that no workload holds.
    Outside {
        /// The prefix.
        cidr: String,
    },
    /// Addresses of several prefixes that no workload holds.
    Networks {
        /// The prefixes, some with exceptions.
        networks: Vec<String>,
    },
    /// The addresses of names, whether they are known or not.
    Names {
        /// The names and patterns.
        names: Vec<NameAddressesReport>,
    },
}

/// The addresses of a name in a report.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NameAddressesReport {
    /// The name, or a pattern as Cilium writes it.
    pub name: String,
    /// How many of its addresses are known.
    pub known: usize,
}

/// A workload in reports: a pod, or the owner of pods that policy treats alike.
///
/// Ordered by namespace, name, kind, address.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WorkloadRef {
    /// Its namespace, where it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<Str>,
    /// Its name.
    pub name: Str,
    /// Its kind.
    pub kind: Str,
    /// The address, where policy treats the addresses of a pod in one family differently.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<IpAddr>,
}

impl WorkloadRef {
    /// The workload of a single endpoint.
    pub fn from_endpoint(endpoint: &Endpoint) -> Self {
        WorkloadRef {
            namespace: endpoint.id.namespace.clone(),
            name: endpoint.id.name.clone(),
            kind: endpoint.id.kind.name().into(),
            address: None,
        }
    }

    /// The owner of endpoints of this namespace.
    pub fn from_owner(namespace: Option<Str>, owner: &Owner) -> Self {
        WorkloadRef {
            namespace,
            name: owner.name.clone(),
            kind: owner.kind.clone(),
            address: None,
        }
    }
}

impl fmt::Display for WorkloadRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(namespace) = &self.namespace {
            write!(f, "{namespace}/")?;
        }
        write!(f, "{} ({}", self.name, self.kind)?;
        match self.address {
            Some(address) => write!(f, " at {address})"),
            None => f.write_str(")"),
        }
    }
}

/// A set of traffic.
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
pub enum TrafficReport {
    /// All traffic.
    All(AllTraffic),
    /// The protocols, each with its traffic.
    Protocols(Vec<ProtocolTraffic>),
}

/// The value that stands for all traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum AllTraffic {
    /// Every protocol, port and message.
    All,
}

/// Ranges of numbers, each with its first and its last.
pub type NumberRangeList = Vec<[u16; 2]>;

/// The traffic of one protocol.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ProtocolTraffic {
    /// The protocol.
    pub protocol: ProtocolName,
    /// Destination ports; always present for TCP, UDP and SCTP.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ports: Option<NumberRangeList>,
    /// Source ports, if restricted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source_ports: Option<NumberRangeList>,
    /// ICMP types; always present for ICMP and ICMPv6.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub types: Option<NumberRangeList>,
    /// ICMP codes, if restricted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub codes: Option<NumberRangeList>,
}
