//! What a packet gets: the meaning that every dataplane must reproduce.

use crate::{Cell, ClassId, IdentityId, Point, Program, SetId, Tables, Verdict};
use core::net::IpAddr;
use palisade_model::{Direction, Family, L4, Prefix, Protocol, Str};

/// The interface by which this host's packets come back to it.
pub const LOOPBACK: &str = "lo";

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
    /// Both ends are one endpoint, which cannot be cut off from itself: allowed. Such a packet passes a
    /// host only where a Service was translated to the endpoint that asked for it.
    Itself,
    /// Judged by a policy set.
    By(Seen<'a>),
}

impl Judged<'_> {
    /// Whether this direction lets the packet pass.
    pub fn verdict(&self) -> Verdict {
        match self {
            Judged::NotOurs | Judged::HostOrigin | Judged::Itself => Verdict::Allow,
            Judged::NoPoint => Verdict::Deny,
            Judged::By(seen) => seen.cell.verdict,
        }
    }
}

/// What a judgement looks up.
pub(crate) trait View {
    /// Whether packets of this host's own stack are judged.
    fn judges_host_traffic(&self) -> bool;
    /// Whether an interface is ours.
    fn is_ours(&self, interface: &Str) -> bool;
    /// The entry of a prefix itself.
    fn identity_of(&self, prefix: &Prefix) -> Option<IdentityId>;
    /// The policy set of a point.
    fn set_at(&self, point: &Point) -> Option<SetId>;
    /// The default class of a policy set.
    fn default_of(&self, set: SetId) -> Option<ClassId>;
    /// The class of an identity in a policy set, where it has one of its own.
    fn row(&self, set: SetId, identity: IdentityId) -> Option<ClassId>;
    /// What a class stands for.
    fn program(&self, class: ClassId) -> Option<&Program>;
}

impl View for Tables {
    fn judges_host_traffic(&self) -> bool {
        self.judge_host_traffic
    }

    fn is_ours(&self, interface: &Str) -> bool {
        self.interfaces.contains(interface)
    }

    fn identity_of(&self, prefix: &Prefix) -> Option<IdentityId> {
        self.addresses.get(prefix).copied()
    }

    fn set_at(&self, point: &Point) -> Option<SetId> {
        self.points.get(point).copied()
    }

    fn default_of(&self, set: SetId) -> Option<ClassId> {
        Some(self.sets.get(&set)?.default)
    }

    fn row(&self, set: SetId, identity: IdentityId) -> Option<ClassId> {
        self.classes.get(&(set, identity)).copied()
    }

    fn program(&self, class: ClassId) -> Option<&Program> {
        Some(self.programs.get(&class)?)
    }
}

/// The identity of the longest prefix that holds an address.
pub(crate) fn identity_in(view: &impl View, address: IpAddr) -> IdentityId {
    let mut length = Family::of(address).bits();
    loop {
        if let Some(identity) = view.identity_of(&Prefix::new(address, length)) {
            return identity;
        }
        match length.checked_sub(1) {
            Some(shorter) => length = shorter,
            None => return IdentityId::NOBODY,
        }
    }
}

/// Whether both ends of a packet are one endpoint: both addresses are its own, on one interface.
fn is_to_itself(view: &impl View, packet: &Packet) -> bool {
    let (Some(from), Some(to)) = (&packet.from, &packet.to) else {
        return false;
    };
    let is_own = |address| {
        let point = Point {
            interface: from.clone(),
            address,
            direction: Direction::Egress,
        };
        view.set_at(&point).is_some()
    };
    from == to && view.is_ours(from) && is_own(packet.source) && is_own(packet.destination)
}

/// How one direction judges a packet by what a view shows.
pub(crate) fn judge_in<'a>(
    view: &'a impl View,
    packet: &Packet,
    direction: Direction,
) -> Judged<'a> {
    let (interface, own, peer) = match direction {
        Direction::Egress => (&packet.from, packet.source, packet.destination),
        Direction::Ingress => (&packet.to, packet.destination, packet.source),
    };
    let Some(interface) = interface.as_ref().filter(|name| view.is_ours(name)) else {
        return Judged::NotOurs;
    };
    let from_host = direction == Direction::Ingress && packet.from.is_none();
    if from_host && !view.judges_host_traffic() {
        return Judged::HostOrigin;
    }
    if is_to_itself(view, packet) {
        return Judged::Itself;
    }
    let point = Point {
        interface: interface.clone(),
        address: own,
        direction,
    };
    let judged = view.set_at(&point).and_then(|set| {
        let default = view.default_of(set)?;
        let identity = identity_in(view, peer);
        let class = view.row(set, identity).unwrap_or(default);
        let cell = view.program(class)?.at(packet.protocol, packet.l4);
        Some(Seen {
            set,
            identity,
            class,
            cell,
        })
    });
    judged.map_or(Judged::NoPoint, Judged::By)
}

impl Tables {
    /// How one direction judges a packet.
    ///
    /// Entries that should be there but are not (a point's set, a class's program) deny.
    pub fn judge_direction(&self, packet: &Packet, direction: Direction) -> Judged<'_> {
        judge_in(self, packet, direction)
    }

    /// Whether an endpoint of this host has the address: there is a point for what it sends, on an
    /// interface that is ours.
    pub fn owns(&self, address: IpAddr) -> bool {
        self.points.keys().any(|point| {
            point.address == address
                && point.direction == Direction::Egress
                && self.interfaces.contains(&point.interface)
        })
    }

    /// Whether a packet came by another interface than the one its source address belongs to: by one
    /// of ours that has no point for it, or by another although an endpoint here has the address. What
    /// this host's own stack made is never spoofed, so neither is what comes by loopback.
    pub fn is_spoofed(&self, from: Option<&Str>, source: IpAddr) -> bool {
        let Some(from) = from.filter(|name| ***name != *LOOPBACK) else {
            return false;
        };
        if !self.interfaces.contains(from) {
            return self.owns(source);
        }
        let point = Point {
            interface: from.clone(),
            address: source,
            direction: Direction::Egress,
        };
        !self.points.contains_key(&point)
    }

    /// Whether both ends of a packet are one endpoint: then nothing judges it.
    pub fn is_to_itself(&self, packet: &Packet) -> bool {
        is_to_itself(self, packet)
    }

    /// Whether a packet passes: its source address must be where it came from, and both of its
    /// directions must let it.
    pub fn judge(&self, packet: &Packet) -> Verdict {
        match self.is_spoofed(packet.from.as_ref(), packet.source) {
            true => Verdict::Deny,
            false => self.judge_flow(packet),
        }
    }

    /// Whether both directions let a flow pass that begins with this packet, wherever that came from:
    /// what a reply gets, whose own source is what counts.
    pub fn judge_flow(&self, packet: &Packet) -> Verdict {
        let egress = self.judge_direction(packet, Direction::Egress).verdict();
        let ingress = self.judge_direction(packet, Direction::Ingress).verdict();
        egress.min(ingress)
    }
}
