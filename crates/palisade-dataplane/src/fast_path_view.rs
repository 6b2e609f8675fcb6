//! What a fast path has, for people: addresses, flows, what it judges by, and whether the kernel has what it should.
//!
//! Promises: an answer is of one moment, and bounded: what is left out is counted.
//!
//! Never: changes anything.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use palisade_layout::CountAccount;
use palisade_model::{PortRange, Protocol, Str};
use palisade_tables::CounterValue;

use crate::error::DriverError;

/// Reads what a fast path has. The thread that owns the driver waits: some milliseconds, and up to some tens of them for a
/// check of full maps.
pub trait FastPathReader {
    /// The addresses of workloads that it knows, in order.
    fn endpoints(&self) -> Vec<FastPathEndpoint>;

    /// The interfaces by which networks of other hosts are reached, in the order of their names.
    fn uplinks(&self) -> Vec<FastPathUplink>;

    /// The flows that it knows, those first of which a packet was seen last.
    ///
    /// # Errors
    /// If the clock cannot be read.
    fn flows(&self, filter: &FastPathFlowFilter) -> Result<FastPathFlows, DriverError>;

    /// What it judges by.
    ///
    /// # Errors
    /// If counters cannot be read.
    fn policy(&self, query: &FastPathPolicyQuery) -> Result<FastPathPolicy, DriverError>;

    /// Compares what the kernel has with what it should have.
    ///
    /// # Errors
    /// If the kernel cannot be read.
    fn check(&self) -> Result<FastPathCheck, DriverError>;
}

/// An address of a workload, as a fast path knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FastPathEndpoint {
    /// The address.
    pub address: IpAddr,
    /// The interface of the workload.
    pub interface: Str,
    /// The number of its slot; 0 if there was no room.
    pub slot: u16,
    /// The identity of the address.
    pub identity: u32,
    /// The numbers of its policy sets, egress first; 0 passes everything.
    pub sets: [u32; 2],
    /// The largest IP packet that its interface takes, in bytes; `None` if it has no programs.
    pub mtu: Option<u32>,
    /// Why its packets go by the stack; `None`: what is proven is delivered.
    pub obstacle: Option<FastPathObstacle>,
}

/// An interface by which networks of other hosts are reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FastPathUplink {
    /// Its name.
    pub interface: Str,
    /// The largest IP packet that it takes, in bytes; `None` if it has no programs.
    pub mtu: Option<u32>,
    /// Why no flow begins by it; `None`: what is proven is delivered.
    pub obstacle: Option<FastPathObstacle>,
}

/// Why the packets of an interface go by the stack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FastPathObstacle {
    /// The maps have no room for its address.
    NoRoom,
    /// Its interface does not exist.
    NoInterface,
    /// Its interface cannot have programs.
    Refused(String),
    /// Its interface has no programs now.
    NotAttached,
    /// The maps have no room for all prefixes of the networks of other hosts.
    NoRoomForNetworks,
    /// The host judges packets at its own interfaces.
    HostPolicies,
    /// The host has IPsec policies.
    IpsecPolicies,
}

impl fmt::Display for FastPathObstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            FastPathObstacle::NoRoom => "the maps have no room for its address",
            FastPathObstacle::NoInterface => "its interface does not exist",
            FastPathObstacle::Refused(reason) => reason,
            FastPathObstacle::NotAttached => "its interface has no programs now",
            FastPathObstacle::NoRoomForNetworks => "the maps have no room for the networks",
            FastPathObstacle::HostPolicies => {
                "policy of a host endpoint judges packets of this host"
            }
            FastPathObstacle::IpsecPolicies => "this host has IPsec policies",
        })
    }
}

/// Which flows are asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FastPathFlowFilter {
    /// Only those with one of these addresses at an end; `None` for all.
    pub addresses: Option<BTreeSet<IpAddr>>,
    /// Only those of this protocol.
    pub protocol: Option<Protocol>,
    /// How many are listed at most.
    pub limit: usize,
}

/// Flows of a fast path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FastPathFlows {
    /// All that live and that it delivers.
    pub owned: u64,
    /// All that live and that the stack delivers, and whose answers go by it.
    pub via_stack: u64,
    /// Live flows that had to make room since the table was made.
    pub evictions: u64,
    /// Those that were asked for.
    pub flows: Vec<FastPathFlow>,
    /// How many more were asked for than are listed.
    pub left_out: u64,
}

/// A flow of a fast path. Of ICMP, the port of the source is the identifier, and that of the destination the type of the
/// request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FastPathFlow {
    /// The protocol.
    pub protocol: Protocol,
    /// Address and port of who sent the first packet.
    pub source: (IpAddr, u16),
    /// Those of who was sent it.
    pub destination: (IpAddr, u16),
    /// Whether the stack delivers it.
    pub is_via_stack: bool,
    /// Whether a packet was seen that ends it.
    pub is_closing: bool,
    /// Whether the receiver has answered.
    pub is_answered: bool,
    /// Whether its next packet is judged again, since policy has revoked something.
    pub is_judged_again: bool,
    /// How long ago a packet of it was seen.
    pub age: Duration,
    /// How much longer it lives without a packet.
    pub remaining: Duration,
}

/// Which judgements are asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FastPathPolicyQuery {
    /// Only those with one of these addresses at an end; `None` for all.
    pub addresses: Option<BTreeSet<IpAddr>>,
    /// How many pairs of addresses are listed at most.
    pub limit: usize,
}

/// What a fast path judges by.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FastPathPolicy {
    /// Pairs of addresses of workloads at different interfaces.
    pub pairs: Vec<FastPathPair>,
    /// How many more pairs were asked for than are listed.
    pub left_out: usize,
    /// The counters that the pairs name.
    pub counters: BTreeMap<u32, FastPathCounter>,
}

/// What begins flows from an address of a workload to one of another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FastPathPair {
    /// The sender's address.
    pub from: IpAddr,
    /// The receiver's address.
    pub to: IpAddr,
    /// Where it is judged: at egress of the sender, and at ingress of the receiver.
    pub ends: [FastPathEnd; 2],
    /// What is delivered; all else passes to nftables.
    pub proven: Vec<FastPathProven>,
}

/// The numbers of what judges a flow at one of its ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FastPathEnd {
    /// Of the policy set; 0 if there is none.
    pub set: u32,
    /// Of the identity of the other end.
    pub identity: u32,
    /// Of the class; 0 passes everything.
    pub class: u32,
}

/// What is proven of a protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FastPathProven {
    /// The protocol.
    pub protocol: Protocol,
    /// The destination ports; of ICMP, type and code as `icmp_key`.
    pub ports: PortRange,
    /// The numbers of the counters, egress first; 0 counts what no rule decides.
    pub counters: [u32; 2],
}

/// A counter of a fast path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FastPathCounter {
    /// What it counts for.
    pub accounts: Vec<CountAccount>,
    /// What it has counted since it counts for these.
    pub count: CounterValue,
}

/// What the kernel has beside what it should have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FastPathCheck {
    /// Elements of maps that were compared.
    pub elements: usize,
    /// Interfaces whose programs were compared.
    pub interfaces: usize,
    /// Pins that were compared.
    pub pins: usize,
    /// What differs.
    pub differences: Vec<FastPathDifference>,
    /// How many more differences there are.
    pub left_out: usize,
}

/// Something in the kernel that is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FastPathDifference {
    /// What kind of thing.
    pub part: FastPathPart,
    /// Which one.
    pub object: String,
    /// The address of the workload that it is for, if it is for one.
    pub address: Option<IpAddr>,
    /// What should be there.
    pub expected: String,
    /// What is there.
    pub found: String,
}

/// The parts of a fast path in the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FastPathPart {
    /// An element of a map.
    Map,
    /// A program at an interface.
    Program,
    /// The pin that keeps a program attached.
    Link,
    /// The pin of a map.
    Pin,
}
