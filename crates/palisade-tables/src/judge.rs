//! What a packet gets: the meaning that every dataplane must reproduce.

use crate::{Cell, ClassId, IdentityId, Point, SetId, Tables, Verdict};
use core::net::IpAddr;
use palisade_model::{Direction, L4, Protocol, Str};

/// The first packet of a flow, as it passes the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packet {
    /// The interface it arrived on; `None` if this host's own stack made it.
    pub from: Option<Str>,
    /// The interface it leaves by; `None` if it is for this host.
    pub to: Option<Str>,
    /// Its source address.
    pub source: IpAddr,
    /// Its destination address, after translation.
    pub destination: IpAddr,
    /// Its protocol.
    pub protocol: Protocol,
    /// Its ports, or ICMP type and code.
    pub l4: L4,
}

/// How one direction was judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen<'a> {
    /// The policy set of the point.
    pub set: SetId,
    /// The identity of the other end.
    pub identity: IdentityId,
    /// The class they make.
    pub class: ClassId,
    /// What the program says.
    pub cell: &'a Cell,
}

/// How one direction ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Judged<'a> {
    /// The interface is not ours, or there is none: nothing to say.
    NotOurs,
    /// The interface is ours but has no point for this address: denied. A packet from there with
    /// another source address is spoofed.
    NoPoint,
    /// This host's own stack made the packet, and its packets are not judged: allowed.
    HostOrigin,
    /// Judged by a policy set.
    By(Seen<'a>),
}

impl Judged<'_> {
    /// Whether this direction lets the packet pass.
    pub fn verdict(&self) -> Verdict {
        match self {
            Judged::NotOurs | Judged::HostOrigin => Verdict::Allow,
            Judged::NoPoint => Verdict::Deny,
            Judged::By(seen) => seen.cell.verdict,
        }
    }
}

impl Tables {
    /// How one direction judges a packet.
    ///
    /// Entries that should be there but are not (a point's set, a class's program) deny.
    pub fn judge_direction(&self, packet: &Packet, direction: Direction) -> Judged<'_> {
        let (interface, own, peer) = match direction {
            Direction::Egress => (&packet.from, packet.source, packet.destination),
            Direction::Ingress => (&packet.to, packet.destination, packet.source),
        };
        let Some(interface) = interface
            .as_ref()
            .filter(|name| self.interfaces.contains(*name))
        else {
            return Judged::NotOurs;
        };
        let from_host = direction == Direction::Ingress && packet.from.is_none();
        if from_host && !self.judge_host_traffic {
            return Judged::HostOrigin;
        }
        let point = Point {
            interface: interface.clone(),
            address: own,
            direction,
        };
        let judged = self.points.get(&point).and_then(|set| {
            let identity = self.identity(peer);
            let class = self.class(*set, identity)?;
            let cell = self.programs.get(&class)?.at(packet.protocol, packet.l4);
            Some(Seen {
                set: *set,
                identity,
                class,
                cell,
            })
        });
        judged.map_or(Judged::NoPoint, Judged::By)
    }

    /// Whether a packet passes: both of its directions must let it.
    pub fn judge(&self, packet: &Packet) -> Verdict {
        let egress = self.judge_direction(packet, Direction::Egress).verdict();
        let ingress = self.judge_direction(packet, Direction::Ingress).verdict();
        egress.min(ingress)
    }
}
