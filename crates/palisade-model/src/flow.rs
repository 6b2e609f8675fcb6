//! A flow: the first packet of a connection, after destination NAT.

use crate::Family;
use core::fmt;
use core::net::IpAddr;
use serde::{Deserialize, Serialize};

/// An IP protocol number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Protocol(pub u8);

impl Protocol {
    /// ICMP, for IPv4.
    pub const ICMP: Protocol = Protocol(1);
    /// TCP.
    pub const TCP: Protocol = Protocol(6);
    /// UDP.
    pub const UDP: Protocol = Protocol(17);
    /// ICMP for IPv6.
    pub const ICMPV6: Protocol = Protocol(58);
    /// SCTP.
    pub const SCTP: Protocol = Protocol(132);

    /// The protocols whose ports policy can test.
    pub const WITH_PORTS: [Protocol; 3] = [Protocol::TCP, Protocol::UDP, Protocol::SCTP];

    /// Whether policy can test ports of this protocol.
    pub fn has_ports(self) -> bool {
        Self::WITH_PORTS.contains(&self)
    }

    /// Whether this is ICMP of either family.
    pub fn is_icmp(self) -> bool {
        self == Protocol::ICMP || self == Protocol::ICMPV6
    }

    /// The protocol of this name (any case) or number.
    pub fn parse(text: &str) -> Option<Protocol> {
        const NAMES: [(&str, Protocol); 6] = [
            ("tcp", Protocol::TCP),
            ("udp", Protocol::UDP),
            ("sctp", Protocol::SCTP),
            ("icmp", Protocol::ICMP),
            ("icmpv6", Protocol::ICMPV6),
            ("udplite", Protocol(136)),
        ];
        NAMES
            .iter()
            .find(|(name, _)| text.eq_ignore_ascii_case(name))
            .map(|(_, protocol)| *protocol)
            .or_else(|| text.parse().ok().map(Protocol))
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Protocol::ICMP => f.write_str("ICMP"),
            Protocol::TCP => f.write_str("TCP"),
            Protocol::UDP => f.write_str("UDP"),
            Protocol::ICMPV6 => f.write_str("ICMPv6"),
            Protocol::SCTP => f.write_str("SCTP"),
            Protocol(number) => write!(f, "{number}"),
        }
    }
}

/// The part of the transport header that policy can test. It always matches the flow's protocol:
/// ports for TCP, UDP and SCTP, type and code for ICMP and ICMPv6, [`L4::None`] for the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum L4 {
    /// Source and destination port.
    Ports {
        /// The port of the sender of the first packet.
        source: u16,
        /// The port of the receiver.
        destination: u16,
    },
    /// ICMP or ICMPv6 type and code.
    Icmp {
        /// The message type.
        kind: u8,
        /// The message code.
        code: u8,
    },
    /// Nothing that policy can test.
    None,
}

/// Which network stack emitted the first packet.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub enum FlowOrigin {
    /// An endpoint or a remote host. Every forwarded packet has this origin.
    #[default]
    Network,
    /// The host's own network stack: a kubelet probe, for instance.
    HostStack,
}

/// Whether ingress policy applies to packets of the host's own stack to endpoints of that host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HostTrafficAction {
    /// They are allowed without policy, for kubelet probes.
    #[default]
    Allow,
    /// Policy applies as to any flow.
    Policy,
}

/// Which policies judge a flow whose source and destination are the same endpoint (hairpin): it connected to a Service,
/// and NAT selected the same endpoint as backend.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HairpinAction {
    /// Those whose kind does by its standard ([`crate::TrafficScope::has_hairpin`]), in both directions; what none of
    /// them decides is allowed. Sources: Kubernetes, "Network Policies": a Pod cannot block access to itself; Network
    /// Policy API, "API overview": a Pod that reaches itself through a Service is subject to ClusterNetworkPolicy.
    #[default]
    ByKind,
    /// None: it is allowed.
    Allow,
    /// All, as any flow. Also for callers that use one endpoint at both ends to represent two endpoints of the same
    /// class.
    Policy,
}

/// What happens to packets of DNS that rules with names judge, where nobody reads them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UnreadDnsAction {
    /// What is decided of queries for other names.
    #[default]
    Policy,
    /// They are allowed.
    Allow,
}

/// What happens to packets that policy denies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DenyAction {
    /// They are dropped.
    #[default]
    Drop,
    /// They are dropped and answered: TCP with a reset, everything else with ICMP "administratively prohibited".
    Reject,
}

/// The destination of a packet before destination NAT.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PreDnat {
    /// The address, of the same family.
    pub destination: IpAddr,
    /// The destination port, where the protocol has ports.
    pub port: u16,
}

impl PreDnat {
    /// A header as it is before destination NAT.
    pub fn header(&self, after: L4) -> L4 {
        match after {
            L4::Ports { source, .. } => L4::Ports {
                source,
                destination: self.port,
            },
            other => other,
        }
    }
}

/// One flow: the first packet of a connection, with the destination after destination NAT.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Flow {
    /// The sender's address, of the same family as the destination.
    pub source: IpAddr,
    /// The receiver's address.
    pub destination: IpAddr,
    /// The IP protocol.
    pub protocol: Protocol,
    /// Ports, or ICMP type and code.
    pub l4: L4,
    /// Which network stack emitted it.
    pub origin: FlowOrigin,
}

impl Flow {
    /// The flow's family.
    pub fn family(&self) -> Family {
        Family::of(self.destination)
    }
}

impl fmt::Display for Flow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.l4 {
            L4::Ports {
                source,
                destination,
            } => write!(
                f,
                "{} {} port {source} to {} port {destination}",
                self.protocol, self.source, self.destination
            ),
            L4::Icmp { kind, code } => write!(
                f,
                "{} type {kind} code {code} {} to {}",
                self.protocol, self.source, self.destination
            ),
            L4::None => write!(
                f,
                "protocol {} {} to {}",
                self.protocol, self.source, self.destination
            ),
        }
    }
}
