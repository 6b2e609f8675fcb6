//! A party of the shop: its network namespace, its servers, and probes from it.
//!
//! A denied packet is dropped silently, so a timeout counts as denied. Any other failure is reported as an
//! error and never counted as denied.

use crate::error::DemoError;
use crate::shop::ShopParty;
use palisade_testkit::lab::{Lab, LongFlow, NodeId, TcpEcho, UdpEcho, connect, ping, udp_exchange};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// Timeouts of the first and the second attempt of a probe.
const ATTEMPTS: [Duration; 2] = [Duration::from_millis(300), Duration::from_millis(700)];
/// Interval between two messages on a long connection.
const PACE: Duration = Duration::from_millis(10);

/// Kind of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ProbeKind {
    /// A TCP connection with a few bytes in each direction.
    Tcp,
    /// A UDP datagram in each direction.
    Udp,
    /// An ICMP or ICMPv6 echo request and its reply.
    Ping,
}

/// One probe to run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProbeTarget {
    /// Destination address.
    pub(crate) to: IpAddr,
    /// Kind.
    pub(crate) kind: ProbeKind,
    /// Destination port, if the kind has ports.
    pub(crate) port: u16,
}

/// A party with its running servers.
pub(crate) struct PartyNode {
    /// The party.
    pub(crate) party: ShopParty,
    /// Its addresses.
    pub(crate) addresses: Vec<IpAddr>,
    node: NodeId,
    _servers: (TcpEcho, UdpEcho),
}

impl PartyNode {
    /// Starts the servers in a namespace that has the party's addresses.
    pub(crate) fn start(
        lab: &Lab,
        node: NodeId,
        party: ShopParty,
        addresses: Vec<IpAddr>,
    ) -> Result<Self, DemoError> {
        let failed = |error| DemoError::caused("opening ports", &error);
        let tcp = TcpEcho::start(lab, node, party.tcp).map_err(failed)?;
        let udp = UdpEcho::start(lab, node, party.udp).map_err(failed)?;
        Ok(PartyNode {
            party,
            addresses,
            node,
            _servers: (tcp, udp),
        })
    }

    /// Whether a probe is answered.
    pub(crate) fn is_answered(&self, lab: &Lab, target: ProbeTarget) -> Result<bool, DemoError> {
        let ProbeTarget { to, kind, port } = target;
        for timeout in ATTEMPTS {
            let outcome = match kind {
                ProbeKind::Tcp => connect(lab, self.node, (to, port).into(), timeout),
                ProbeKind::Udp => udp_exchange(lab, self.node, (to, port).into(), timeout),
                ProbeKind::Ping => ping(lab, self.node, to, timeout),
            };
            match outcome {
                Ok(()) => return Ok(true),
                Err(error) if error.kind() == io::ErrorKind::TimedOut => {}
                Err(error) => return Err(self.failure("sending packets", &error)),
            }
        }
        Ok(false)
    }

    /// Whether a connection to an address is answered.
    pub(crate) fn connects(&self, lab: &Lab, to: SocketAddr) -> Result<bool, DemoError> {
        let kind = ProbeKind::Tcp;
        let (to, port) = (to.ip(), to.port());
        self.is_answered(lab, ProbeTarget { to, kind, port })
    }

    /// Opens a connection and keeps it busy for the lifetime of the result.
    pub(crate) fn open_connection(&self, lab: &Lab, to: SocketAddr) -> Result<LongFlow, DemoError> {
        LongFlow::start(lab, self.node, to, PACE)
            .map_err(|error| self.failure(&format!("connecting to {to}"), &error))
    }

    /// The party's address of this IP version.
    pub(crate) fn address(&self, v4: bool) -> Option<IpAddr> {
        self.addresses
            .iter()
            .copied()
            .find(|address| address.is_ipv4() == v4)
    }

    fn failure(&self, doing: &str, error: &io::Error) -> DemoError {
        DemoError::problem(format!("{doing} in {}: {error}", self.party.name))
    }
}
