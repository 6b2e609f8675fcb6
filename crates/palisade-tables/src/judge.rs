//! Evaluation of a packet: the reference that every dataplane must reproduce.

use crate::{
    Cell, ClassId, IdentityId, JudgementOptions, Point, PointInterface, PolicySetId, Program,
    Tables, Verdict,
};
use alloc::collections::BTreeMap;
use core::net::IpAddr;
use palisade_model::{
    Direction, FailsafePorts, Family, L4, PolicyStage, PreDnat, Prefix, Protocol, Str,
};

/// The loopback interface, by which packets of this host return to it.
pub const LOOPBACK: &str = palisade_model::Endpoint::LOOPBACK;

/// ICMP protocol, reply type and request type: the pairs that connection tracking supports.
pub const ICMP_REPLIES: [(u8, u8, u8); 6] = [
    (1, 0, 8),
    (1, 14, 13),
    (1, 16, 15),
    (1, 18, 17),
    (58, 129, 128),
    (58, 140, 139),
];

/// The first packet of a flow, as the host sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packet {
    /// The interface on which it arrived; `None` if this host's own stack emitted it.
    pub input_interface: Option<Str>,
    /// The interface by which it leaves; `None` if it is delivered to this host.
    pub output_interface: Option<Str>,
    /// Its source address.
    pub source: IpAddr,
    /// Its destination address, after destination NAT.
    pub destination: IpAddr,
    /// Its destination before destination NAT, where that is another one.
    pub pre_dnat: Option<PreDnat>,
    /// Its protocol.
    pub protocol: Protocol,
    /// Its ports, or ICMP type and code.
    pub l4: L4,
}

impl Packet {
    /// The packet as it is before destination NAT.
    #[must_use]
    pub fn before_dnat(&self) -> Packet {
        let Some(before) = self.pre_dnat else {
            return self.clone();
        };
        Packet {
            destination: before.destination,
            pre_dnat: None,
            l4: before.header(self.l4),
            ..self.clone()
        }
    }

    /// The stages at which this host judges it at the interface by which it arrives (ingress) or leaves (egress), in
    /// order.
    pub fn host_stages(&self, direction: Direction) -> impl Iterator<Item = PolicyStage> {
        let last = self.stage();
        let is_own_or_arrives = direction == Direction::Ingress || last == PolicyStage::Normal;
        let early = [PolicyStage::Untracked, PolicyStage::PreDnat].into_iter();
        early
            .filter(move |stage| is_own_or_arrives && stage.has_direction(direction))
            .chain([last])
    }

    /// The last stage at which this host judges it: whether it forwards it, or is one of its ends.
    #[must_use]
    pub fn stage(&self) -> PolicyStage {
        if self.input_interface.is_some() && self.output_interface.is_some() {
            PolicyStage::Forward
        } else {
            PolicyStage::Normal
        }
    }

    /// The packet that a reply answers: it has the ends swapped, and the type of its ICMP request.
    #[must_use]
    pub fn request(self) -> Packet {
        let l4 = match self.l4 {
            L4::Ports {
                source,
                destination,
            } => L4::Ports {
                source: destination,
                destination: source,
            },
            L4::Icmp { kind, code } => {
                let is_reply = |pair: &&(u8, u8, u8)| (pair.0, pair.1) == (self.protocol.0, kind);
                let pair = ICMP_REPLIES.iter().find(is_reply);
                let kind = pair.map_or(kind, |(.., request)| *request);
                L4::Icmp { kind, code }
            }
            L4::None => L4::None,
        };
        Packet {
            input_interface: self.output_interface,
            output_interface: self.input_interface,
            source: self.destination,
            destination: self.source,
            pre_dnat: None,
            protocol: self.protocol,
            l4,
        }
    }
}

/// The lookups that led to a verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Evaluation<'a> {
    /// The policy set of the point.
    pub set: PolicySetId,
    /// The identity of the other end.
    pub identity: IdentityId,
    /// The class of that identity in that set.
    pub class: ClassId,
    /// The cell of the class's program for the packet.
    pub cell: &'a Cell,
}

/// The result of judging one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DirectionVerdict<'a> {
    /// The interface is not managed, or there is none: allowed.
    Unmanaged,
    /// The interface is managed but has no point for this address: denied. On egress such a packet is
    /// spoofed.
    NoPoint,
    /// This host's own stack emitted the packet, and policy does not apply to its packets: allowed.
    HostOrigin,
    /// Source and destination are the same endpoint, and no policy applies to such packets: allowed.
    /// The host sees such a packet only where the endpoint connected to a Service and NAT
    /// selected the same endpoint as backend.
    Hairpin,
    /// To or from a failsafe port of this host: allowed.
    Failsafe,
    /// Evaluated by a policy set.
    Evaluated(Evaluation<'a>),
}

impl DirectionVerdict<'_> {
    /// The verdict of this direction.
    pub fn verdict(&self) -> Verdict {
        match self {
            DirectionVerdict::Unmanaged
            | DirectionVerdict::HostOrigin
            | DirectionVerdict::Hairpin
            | DirectionVerdict::Failsafe => Verdict::Allow,
            DirectionVerdict::NoPoint => Verdict::Deny,
            DirectionVerdict::Evaluated(seen) => seen.cell.verdict,
        }
    }
}

/// The lookups of an evaluation, in current or past tables.
pub(crate) trait TableLookup {
    /// Which traffic is judged that could be exempt.
    fn judgement(&self) -> &JudgementOptions;
    /// Whether an interface is managed.
    fn is_managed(&self, interface: &Str) -> bool;
    /// Whether an interface of this host has points of its own.
    fn has_host_points(&self, interface: &Str) -> bool;
    /// The identity of exactly this prefix.
    fn prefix_identity(&self, prefix: &Prefix) -> Option<IdentityId>;
    /// The policy set of a point.
    fn point_set(&self, point: &Point) -> Option<PolicySetId>;
    /// Whether there may be a point of this interface, stage and direction, whatever its local end.
    fn may_have_points(&self, example: &Point) -> bool;
    /// The default class of a policy set.
    fn default_class(&self, set: PolicySetId) -> Option<ClassId>;
    /// The class of an identity in a policy set, if it has an entry.
    fn class_entry(&self, set: PolicySetId, identity: IdentityId) -> Option<ClassId>;
    /// The program of a class.
    fn program(&self, class: ClassId) -> Option<&Program>;
}

impl TableLookup for Tables {
    fn judgement(&self) -> &JudgementOptions {
        &self.judgement
    }

    fn is_managed(&self, interface: &Str) -> bool {
        self.interfaces.contains(interface)
    }

    fn has_host_points(&self, interface: &Str) -> bool {
        self.host_interfaces.contains(interface)
    }

    fn prefix_identity(&self, prefix: &Prefix) -> Option<IdentityId> {
        self.addresses.get(prefix).copied()
    }

    fn point_set(&self, point: &Point) -> Option<PolicySetId> {
        self.points.get(point).copied()
    }

    fn may_have_points(&self, example: &Point) -> bool {
        has_points(&self.points, example)
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

/// Whether a map has a point of this interface, stage and direction.
pub(crate) fn has_points<V>(points: &BTreeMap<Point, V>, example: &Point) -> bool {
    let first = Point {
        local: Prefix::ALL_V4,
        ..example.clone()
    };
    let next = points.range(first..).next();
    next.is_some_and(|(point, _)| {
        (&point.interface, point.stage, point.direction)
            == (&example.interface, example.stage, example.direction)
    })
}

/// The identity of the longest prefix that contains an address.
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

/// Whether a packet is judged as hairpin traffic, since source and destination are the same endpoint: both addresses
/// have a point on the interface by which the packet arrives and leaves.
fn is_hairpin_packet(view: &impl TableLookup, packet: &Packet) -> bool {
    let (Some(input), Some(to)) = (&packet.input_interface, &packet.output_interface) else {
        return false;
    };
    let has_point = |address| {
        let point = Point::of_workload(input.clone(), address, Direction::Egress);
        view.point_set(&point).is_some()
    };
    !view.judgement().judge_hairpin
        && input == to
        && view.is_managed(input)
        && has_point(packet.source)
        && has_point(packet.destination)
}

/// How one direction judges a packet, given the lookups of `view`.
pub(crate) fn judge_packet<'a>(
    view: &'a impl TableLookup,
    packet: &Packet,
    direction: Direction,
) -> DirectionVerdict<'a> {
    let (interface, local, peer) = match direction {
        Direction::Egress => (&packet.input_interface, packet.source, packet.destination),
        Direction::Ingress => (&packet.output_interface, packet.destination, packet.source),
    };
    let Some(interface) = interface.as_ref().filter(|name| view.is_managed(name)) else {
        return DirectionVerdict::Unmanaged;
    };
    let from_host = direction == Direction::Ingress && packet.input_interface.is_none();
    if from_host && !view.judgement().judge_host_traffic {
        return DirectionVerdict::HostOrigin;
    }
    let set = if is_hairpin_packet(view, packet) {
        let point = Point::of_hairpin(interface.clone(), local, direction);
        let Some(set) = view.point_set(&point) else {
            return DirectionVerdict::Hairpin;
        };
        Some(set)
    } else {
        view.point_set(&Point::of_workload(interface.clone(), local, direction))
    };
    let judged = set.and_then(|set| evaluate_set(view, set, peer, packet));
    judged.map_or(DirectionVerdict::NoPoint, DirectionVerdict::Evaluated)
}

/// What a policy set says of a packet with this other end; `None` where an entry is missing.
fn evaluate_set<'a>(
    view: &'a impl TableLookup,
    set: PolicySetId,
    peer: IpAddr,
    packet: &Packet,
) -> Option<Evaluation<'a>> {
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
}

/// The interface of this host by its name; `None` for loopback and for the interface of a workload.
fn host_interface(view: &impl TableLookup, interface: &Str) -> Option<PointInterface> {
    match interface {
        name if **name == *LOOPBACK || view.is_managed(name) => None,
        name if view.has_host_points(name) => Some(PointInterface::Host(name.clone())),
        _ => Some(PointInterface::AnyHost),
    }
}

/// The policy set of the longest prefix with a point that contains a local address.
fn host_point_set(
    view: &impl TableLookup,
    (interface, stage, direction): (PointInterface, PolicyStage, Direction),
    local: IpAddr,
) -> Option<PolicySetId> {
    let mut point = Point {
        interface,
        stage,
        direction,
        local: Prefix::host(local),
    };
    // Most interfaces have none, and of others every length of a prefix is tried.
    if !view.may_have_points(&point) {
        return None;
    }
    loop {
        if let Some(set) = view.point_set(&point) {
            return Some(set);
        }
        point.local = point.local.parent()?;
    }
}

/// Whether failsafe ports keep a stage of this host from judging a packet. Before connection tracking, replies of such
/// flows are as well.
fn is_failsafe(
    ports: &FailsafePorts,
    packet: &Packet,
    stage: PolicyStage,
    direction: Direction,
) -> bool {
    let (peer, opposite) = match direction {
        Direction::Ingress => (packet.source, Direction::Egress),
        Direction::Egress => (packet.destination, Direction::Ingress),
    };
    let (source, destination) = match packet.l4 {
        L4::Ports {
            source,
            destination,
        } => (Some(source), Some(destination)),
        L4::Icmp { .. } | L4::None => (None, None),
    };
    let contains = |direction, port| ports.contains(direction, peer, packet.protocol, port);
    match stage {
        PolicyStage::Forward => false,
        PolicyStage::Normal | PolicyStage::PreDnat => contains(direction, destination),
        PolicyStage::Untracked => contains(direction, destination) || contains(opposite, source),
    }
}

/// How this host judges a packet at one stage, at the interface by which it arrives (ingress) or leaves (egress).
pub(crate) fn judge_host_stage<'a>(
    view: &'a impl TableLookup,
    packet: &Packet,
    direction: Direction,
    stage: PolicyStage,
) -> DirectionVerdict<'a> {
    let before;
    let packet = if stage.is_early() {
        before = packet.before_dnat();
        &before
    } else {
        packet
    };
    let (interface, local, peer) = match direction {
        Direction::Ingress => (&packet.input_interface, packet.destination, packet.source),
        Direction::Egress => (&packet.output_interface, packet.source, packet.destination),
    };
    let interface = interface
        .as_ref()
        .and_then(|name| host_interface(view, name));
    let set =
        interface.and_then(|interface| host_point_set(view, (interface, stage, direction), local));
    let Some(set) = set else {
        return DirectionVerdict::Unmanaged;
    };
    if is_failsafe(&view.judgement().failsafe, packet, stage, direction) {
        return DirectionVerdict::Failsafe;
    }
    let judged = evaluate_set(view, set, peer, packet);
    judged.map_or(DirectionVerdict::NoPoint, DirectionVerdict::Evaluated)
}

/// How this host judges a packet from a stage on: the judgement that decides.
pub(crate) fn judge_host_packet<'a>(
    view: &'a impl TableLookup,
    packet: &Packet,
    direction: Direction,
    first: PolicyStage,
) -> DirectionVerdict<'a> {
    let stages = packet
        .host_stages(direction)
        .filter(|stage| *stage >= first);
    let mut judged = DirectionVerdict::Unmanaged;
    for stage in stages {
        judged = judge_host_stage(view, packet, direction, stage);
        let decides = match &judged {
            DirectionVerdict::Evaluated(seen) => seen.cell.verdict != Verdict::Continue,
            DirectionVerdict::NoPoint => true,
            _ => false,
        };
        if decides {
            break;
        }
    }
    judged
}

impl Tables {
    /// How one direction judges a packet.
    ///
    /// Missing entries (a point's set, a class's program) deny.
    pub fn judge_direction(&self, packet: &Packet, direction: Direction) -> DirectionVerdict<'_> {
        judge_packet(self, packet, direction)
    }

    /// How this host judges a packet at the interface by which it arrives (ingress) or leaves (egress), where that
    /// is one of the host's own.
    ///
    /// It is the judgement of the stage that decides. Missing entries (a class's program) deny; without a point nothing
    /// is judged.
    pub fn judge_host(&self, packet: &Packet, direction: Direction) -> DirectionVerdict<'_> {
        judge_host_packet(self, packet, direction, PolicyStage::Untracked)
    }

    /// The same of one stage.
    pub fn judge_host_stage(
        &self,
        packet: &Packet,
        direction: Direction,
        stage: PolicyStage,
    ) -> DirectionVerdict<'_> {
        judge_host_stage(self, packet, direction, stage)
    }

    /// The verdict of this host for a packet before connection tracking: what it allows is not tracked.
    pub fn judge_untracked(&self, packet: &Packet) -> Verdict {
        let direction = match packet.input_interface {
            Some(_) => Direction::Ingress,
            None => Direction::Egress,
        };
        match self.judge_host_stage(packet, direction, PolicyStage::Untracked) {
            DirectionVerdict::Evaluated(seen) => seen.cell.verdict,
            DirectionVerdict::NoPoint => Verdict::Deny,
            _ => Verdict::Continue,
        }
    }

    /// Whether an endpoint of this host has the address: there is an egress point for it on a managed
    /// interface.
    pub fn is_local_address(&self, address: IpAddr) -> bool {
        self.points.keys().any(|point| {
            point.direction == Direction::Egress
                && point.workload().is_some_and(|(interface, local)| {
                    local == address && self.interfaces.contains(interface)
                })
        })
    }

    /// Whether a packet arrived on the wrong interface for its source address: on a managed interface
    /// without a point for it, or on an unmanaged interface although a local endpoint has the address.
    /// Packets of this host's own stack are never spoofed, and therefore packets from loopback are not.
    pub fn is_spoofed(&self, input_interface: Option<&Str>, source: IpAddr) -> bool {
        let Some(from) = input_interface.filter(|name| ***name != *LOOPBACK) else {
            return false;
        };
        if !self.interfaces.contains(from) {
            return self.is_local_address(source);
        }
        let point = Point::of_workload(from.clone(), source, Direction::Egress);
        !self.points.contains_key(&point)
    }

    /// Whether source and destination are the same endpoint, and such packets are not judged as any other.
    pub fn is_hairpin(&self, packet: &Packet) -> bool {
        is_hairpin_packet(self, packet)
    }

    /// The verdict of a packet: allowed if it is not spoofed, and its endpoints and this host allow it.
    pub fn judge(&self, packet: &Packet) -> Verdict {
        if self.is_spoofed(packet.input_interface.as_ref(), packet.source) {
            Verdict::Deny
        } else {
            self.judge_flow(packet)
        }
    }

    /// The verdict of every judgement for a flow that begins with this packet, without the spoofing check.
    /// Used for replies, where the source address of the reply itself is checked.
    pub fn judge_flow(&self, packet: &Packet) -> Verdict {
        self.judge_flow_from(packet, PolicyStage::Untracked)
    }

    /// The same for a flow that is tracked: connection tracking comes after [`PolicyStage::Untracked`], which judges
    /// each packet by itself ([`Tables::judge_untracked`]).
    pub fn judge_tracked_flow(&self, packet: &Packet) -> Verdict {
        self.judge_flow_from(packet, PolicyStage::PreDnat)
    }

    fn judge_flow_from(&self, packet: &Packet, first: PolicyStage) -> Verdict {
        let egress = self.judge_direction(packet, Direction::Egress).verdict();
        let ingress = self.judge_direction(packet, Direction::Ingress).verdict();
        let host = Direction::BOTH
            .map(|direction| judge_host_packet(self, packet, direction, first).verdict());
        host.into_iter().fold(egress.min(ingress), Verdict::min)
    }
}

impl Tables {
    /// The identity of an address: that of the longest matching prefix, else [`IdentityId::UNKNOWN`].
    pub fn identity(&self, address: IpAddr) -> IdentityId {
        lookup_identity(self, address)
    }
}
