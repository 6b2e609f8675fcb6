//! What a packet gets: the meaning that every dataplane must reproduce.

use crate::{Cell, ClassId, IdentityId, Point, PolicySetId, Program, Tables, Verdict};
use core::net::IpAddr;
use palisade_model::{Direction, Family, L4, Prefix, Protocol, Str};

/// The interface by which this host's packets come back to it.
pub const LOOPBACK: &str = "lo";

/// The first packet of a flow, as it passes the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packet {
    /// The interface it arrived on; `None` if this host's own stack made it.
    pub input_interface: Option<Str>,
    /// The interface it leaves by; `None` if it is for this host.
    pub output_interface: Option<Str>,
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
pub struct Evaluation<'a> {
    /// The policy set of the point.
    pub set: PolicySetId,
    /// The identity of the other end.
    pub identity: IdentityId,
    /// The class they make.
    pub class: ClassId,
    /// What the program says.
    pub cell: &'a Cell,
}

/// How one direction ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DirectionVerdict<'a> {
    /// The interface is not ours, or there is none: nothing to say.
    Unmanaged,
    /// The interface is ours but has no point for this address: denied. A packet from there with
    /// another source address is spoofed.
    NoPoint,
    /// This host's own stack made the packet, and its packets are not judged: allowed.
    HostOrigin,
    /// Both ends are one endpoint, which cannot be cut off from itself: allowed. Such a packet passes a
    /// host only where a Service was translated to the endpoint that asked for it.
    Hairpin,
    /// Judged by a policy set.
    Evaluated(Evaluation<'a>),
}

impl DirectionVerdict<'_> {
    /// Whether this direction lets the packet pass.
    pub fn verdict(&self) -> Verdict {
        match self {
            DirectionVerdict::Unmanaged
            | DirectionVerdict::HostOrigin
            | DirectionVerdict::Hairpin => Verdict::Allow,
            DirectionVerdict::NoPoint => Verdict::Deny,
            DirectionVerdict::Evaluated(seen) => seen.cell.verdict,
        }
    }
}

/// What a judgement looks up.
pub(crate) trait TableLookup {
    /// Whether packets of this host's own stack are judged.
    fn judges_host_traffic(&self) -> bool;
    /// Whether an interface is ours.
    fn is_managed(&self, interface: &Str) -> bool;
    /// The entry of a prefix itself.
    fn prefix_identity(&self, prefix: &Prefix) -> Option<IdentityId>;
    /// The policy set of a point.
    fn point_set(&self, point: &Point) -> Option<PolicySetId>;
    /// The default class of a policy set.
    fn default_class(&self, set: PolicySetId) -> Option<ClassId>;
    /// The class of an identity in a policy set, where it has one of its own.
    fn class_entry(&self, set: PolicySetId, identity: IdentityId) -> Option<ClassId>;
    /// What a class stands for.
    fn program(&self, class: ClassId) -> Option<&Program>;
}

impl TableLookup for Tables {
    fn judges_host_traffic(&self) -> bool {
        self.judge_host_traffic
    }

    fn is_managed(&self, interface: &Str) -> bool {
        self.interfaces.contains(interface)
    }

    fn prefix_identity(&self, prefix: &Prefix) -> Option<IdentityId> {
        self.addresses.get(prefix).copied()
    }

    fn point_set(&self, point: &Point) -> Option<PolicySetId> {
        self.points.get(point).copied()
    }

    fn default_class(&self, set: PolicySetId) -> Option<ClassId> {
        Some(self.sets.get(&set)?.default)
    }

    fn class_entry(&self, set: PolicySetId, identity: IdentityId) -> Option<ClassId> {
        self.classes.get(&(set, identity)).copied()
    }

    fn program(&self, class: ClassId) -> Option<&Program> {
        Some(self.programs.get(&class)?)
    }
}

/// The identity of the longest prefix that holds an address.
pub(crate) fn lookup_identity(view: &impl TableLookup, address: IpAddr) -> IdentityId {
    let mut length = Family::of(address).bits();
    loop {
        if let Some(identity) = view.prefix_identity(&Prefix::new(address, length)) {
            return identity;
        }
        match length.checked_sub(1) {
            Some(shorter) => length = shorter,
            None => return IdentityId::UNKNOWN,
        }
    }
}

/// Whether both ends of a packet are one endpoint: both addresses are its own, on one interface.
fn is_hairpin_packet(view: &impl TableLookup, packet: &Packet) -> bool {
    let (Some(input), Some(to)) = (&packet.input_interface, &packet.output_interface) else {
        return false;
    };
    let has_point = |address| {
        let point = Point {
            interface: input.clone(),
            address,
            direction: Direction::Egress,
        };
        view.point_set(&point).is_some()
    };
    input == to
        && view.is_managed(input)
        && has_point(packet.source)
        && has_point(packet.destination)
}

/// How one direction judges a packet by what a view shows.
pub(crate) fn judge_packet<'a>(
    view: &'a impl TableLookup,
    packet: &Packet,
    direction: Direction,
) -> DirectionVerdict<'a> {
    let (interface, own, peer) = match direction {
        Direction::Egress => (&packet.input_interface, packet.source, packet.destination),
        Direction::Ingress => (&packet.output_interface, packet.destination, packet.source),
    };
    let Some(interface) = interface.as_ref().filter(|name| view.is_managed(name)) else {
        return DirectionVerdict::Unmanaged;
    };
    let from_host = direction == Direction::Ingress && packet.input_interface.is_none();
    if from_host && !view.judges_host_traffic() {
        return DirectionVerdict::HostOrigin;
    }
    if is_hairpin_packet(view, packet) {
        return DirectionVerdict::Hairpin;
    }
    let point = Point {
        interface: interface.clone(),
        address: own,
        direction,
    };
    let judged = view.point_set(&point).and_then(|set| {
        let default = view.default_class(set)?;
        let identity = lookup_identity(view, peer);
        let class = view.class_entry(set, identity).unwrap_or(default);
        let cell = view.program(class)?.cell(packet.protocol, packet.l4);
        Some(Evaluation {
            set,
            identity,
            class,
            cell,
        })
    });
    judged.map_or(DirectionVerdict::NoPoint, DirectionVerdict::Evaluated)
}

impl Tables {
    /// How one direction judges a packet.
    ///
    /// Entries that should be there but are not (a point's set, a class's program) deny.
    pub fn judge_direction(&self, packet: &Packet, direction: Direction) -> DirectionVerdict<'_> {
        judge_packet(self, packet, direction)
    }

    /// Whether an endpoint of this host has the address: there is a point for what it sends, on an
    /// interface that is ours.
    pub fn is_local_address(&self, address: IpAddr) -> bool {
        self.points.keys().any(|point| {
            point.address == address
                && point.direction == Direction::Egress
                && self.interfaces.contains(&point.interface)
        })
    }

    /// Whether a packet came by another interface than the one its source address belongs to: by one
    /// of ours that has no point for it, or by another although an endpoint here has the address. What
    /// this host's own stack made is never spoofed, so neither is what comes by loopback.
    pub fn is_spoofed(&self, input_interface: Option<&Str>, source: IpAddr) -> bool {
        let Some(from) = input_interface.filter(|name| ***name != *LOOPBACK) else {
            return false;
        };
        if !self.interfaces.contains(from) {
            return self.is_local_address(source);
        }
        let point = Point {
            interface: from.clone(),
            address: source,
            direction: Direction::Egress,
        };
        !self.points.contains_key(&point)
    }

    /// Whether both ends of a packet are one endpoint: then nothing judges it.
    pub fn is_hairpin(&self, packet: &Packet) -> bool {
        is_hairpin_packet(self, packet)
    }

    /// Whether a packet passes: its source address must be where it came from, and both of its
    /// directions must let it.
    pub fn judge(&self, packet: &Packet) -> Verdict {
        match self.is_spoofed(packet.input_interface.as_ref(), packet.source) {
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
