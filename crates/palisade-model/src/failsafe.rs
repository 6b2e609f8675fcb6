//! Failsafe ports: flows of a host that no policy can deny, so that nobody is locked out of it.
//!
//! It promises nothing about workloads: what a host forwards is never failsafe.

use crate::{Direction, Prefix, Protocol};
use alloc::vec::Vec;
use core::net::IpAddr;
use serde::{Deserialize, Serialize};

/// A port that stays open, from or to these networks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct FailsafePort {
    /// The protocol, one of [`Protocol::WITH_PORTS`].
    pub protocol: Protocol,
    /// The destination port of the flow.
    pub port: u16,
    /// The other end lies in it; `None` for any address of both families.
    pub net: Option<Prefix>,
}

/// The failsafe ports of a host. Source: Calico, "Failsafe rules".
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailsafePorts {
    /// Flows to this host.
    pub inbound: Vec<FailsafePort>,
    /// Flows from this host.
    pub outbound: Vec<FailsafePort>,
}

impl FailsafePorts {
    /// None.
    pub const NONE: FailsafePorts = FailsafePorts {
        inbound: Vec::new(),
        outbound: Vec::new(),
    };

    /// Those of one direction.
    pub fn of(&self, direction: Direction) -> &[FailsafePort] {
        match direction {
            Direction::Ingress => &self.inbound,
            Direction::Egress => &self.outbound,
        }
    }

    /// Whether a flow to or from this host is failsafe: its direction, the other end, its protocol and destination
    /// port.
    pub fn contains(
        &self,
        direction: Direction,
        peer: IpAddr,
        protocol: Protocol,
        destination_port: Option<u16>,
    ) -> bool {
        let mut ports = self.of(direction).iter();
        ports.any(|port| {
            port.protocol == protocol
                && destination_port == Some(port.port)
                && port.net.is_none_or(|net| net.contains(peer))
        })
    }
}

impl Default for FailsafePorts {
    /// Calico's defaults: SSH, DHCP, BGP, etcd, Typha, the Kubernetes API server; outbound DNS beside them.
    fn default() -> Self {
        let any = |protocol| {
            move |port| FailsafePort {
                protocol,
                port,
                net: None,
            }
        };
        let cluster = || [179, 2379, 2380, 5473, 6443, 6666, 6667].map(any(Protocol::TCP));
        let inbound = [any(Protocol::TCP)(22), any(Protocol::UDP)(68)];
        let outbound = [53, 67].map(any(Protocol::UDP));
        FailsafePorts {
            inbound: inbound.into_iter().chain(cluster()).collect(),
            outbound: outbound.into_iter().chain(cluster()).collect(),
        }
    }
}
