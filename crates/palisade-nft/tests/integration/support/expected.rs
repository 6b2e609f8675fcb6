//! The expected result for a packet of the random world, from the decision tables alone: whether it passes,
//! the mark of its connection afterwards, and the reports.

use super::answer;
use palisade_model::{Direction, L4, Protocol, Str};
use palisade_nft::{Config, ct_state, tcp_flag};
use palisade_tables::{DirectionVerdict, Packet, Point, ReportReason, Tables, Verdict};
use palisade_verification::HookPacket;

/// The first packet of a packet's flow.
fn first_packet(frame: &HookPacket) -> Packet {
    first_if(
        frame,
        frame.conntrack.reply && frame.conntrack.state == ct_state::ESTABLISHED,
    )
}

/// The first packet of the flow if this packet is a reply (`reply`) or not.
fn first_if(frame: &HookPacket, reply: bool) -> Packet {
    let mut packet = Packet {
        input_interface: frame.iif.clone(),
        output_interface: frame.oif.clone(),
        source: frame.source,
        destination: frame.destination,
        pre_dnat: None,
        protocol: frame.protocol,
        l4: frame.l4,
    };
    if reply {
        core::mem::swap(&mut packet.input_interface, &mut packet.output_interface);
        core::mem::swap(&mut packet.source, &mut packet.destination);
        match &mut packet.l4 {
            L4::Ports {
                source,
                destination,
            } => core::mem::swap(source, destination),
            L4::Icmp { kind, .. } => {
                let request = (0..=255).find(|r| answer(frame.protocol, *r) == Some(*kind));
                *kind = request.unwrap();
            }
            L4::None => {}
        }
    }
    packet
}

/// Whether a packet must pass, and the mark its connection must have afterwards.
pub(crate) fn expected(
    tables: &Tables,
    config: &Config,
    generation: u32,
    frame: &HookPacket,
) -> (bool, u32) {
    let mark = frame.conntrack.mark;
    let unchanged = |passes| (passes, mark);
    let ours = |name: &Option<Str>| name.as_ref().is_some_and(|n| tables.interfaces.contains(n));
    let unknown = |name: &Option<Str>| {
        !ours(name)
            && name
                .as_ref()
                .is_some_and(|n| n.starts_with(&*config.interface_prefix))
    };
    let elsewhere = !ours(&frame.iif);
    if unknown(&frame.iif) || elsewhere && tables.is_spoofed(frame.iif.as_ref(), frame.source) {
        return unchanged(false);
    }
    if let Some(iif) = frame.iif.as_ref().filter(|_| ours(&frame.iif)) {
        let point = Point::of_workload(iif.clone(), frame.source, Direction::Egress);
        if !tables.points.contains_key(&point) {
            return unchanged(false);
        }
    }
    let tracked = frame.conntrack.state & (ct_state::NEW | ct_state::ESTABLISHED) != 0;
    let live = mark & config.generation_mask() == config.mark(generation);
    let older = mark & config.midstream_bit() != 0;
    if tracked && live && !older {
        return unchanged(true);
    }
    let opens = frame.tcp_flags & (tcp_flag::SYN | tcp_flag::ACK) == tcp_flag::SYN;
    let older = older && frame.protocol == Protocol::TCP;
    if tracked && live && older && !opens {
        return unchanged(true);
    }
    let from_host = frame.iif.is_none();
    let icmp = frame.protocol.is_icmp();
    let invalid = frame.conntrack.state == ct_state::INVALID;
    let related = frame.conntrack.state == ct_state::RELATED;
    if icmp && related && live {
        return unchanged(true);
    }
    let answers = frame.conntrack.reply && frame.conntrack.state == ct_state::ESTABLISHED;
    if unknown(&frame.oif) {
        let from_host = from_host
            && !config.judgement.judge_host_traffic
            && (!answers || midway(config, frame) || older);
        if from_host && tracked {
            let mut new = (mark & !config.generation_mask()) | config.mark(generation);
            if midway(config, frame) {
                new |= config.midstream_bit();
            }
            let never = frame.protocol == Protocol::SCTP && !config.sctp_tracked;
            return (true, if never { mark } else { new });
        }
        return unchanged(from_host);
    }
    if !ours(&frame.iif) && !ours(&frame.oif) {
        return unchanged(true);
    }
    let marked = |passes| {
        let new = (mark & !config.generation_mask()) | config.mark(generation);
        let never = frame.protocol == Protocol::SCTP && !config.sctp_tracked;
        (
            passes,
            if passes && !never && frame.conntrack.state != ct_state::UNTRACKED {
                new
            } else {
                mark
            },
        )
    };
    if !config.judgement.judge_host_traffic {
        // The host's own errors and untracked packets, and errors about its own flows.
        if from_host && !tracked || (frame.oif.is_none() && related && frame.conntrack.reply) {
            return unchanged(true);
        }
    }
    if invalid && !icmp {
        return unchanged(false);
    }
    let judge = |packet: &Packet| tables.judge_flow(packet) == Verdict::Allow;
    let passes = judge(&first_packet(frame));
    // A mid-stream TCP flow passes if either direction is allowed.
    let either = || passes || judge_plainly(tables, &first_if(frame, !frame.conntrack.reply));
    if tracked && older {
        // The host's own packets are not judged, and so do not determine the direction.
        let judged = !from_host || config.judgement.judge_host_traffic;
        if opens && judged && !answers_host(config, frame) {
            let passes = !frame.conntrack.reply && judge(&first_if(frame, false));
            let (passes, mark) = marked(passes);
            return (passes, mark & !config.midstream_bit());
        }
        return marked(either());
    }
    if midway(config, frame) && !answers_host(config, frame) {
        let (passes, mark) = marked(either());
        return (passes, mark | config.midstream_bit());
    }
    if icmp && (related || invalid) {
        return unchanged(passes);
    }
    marked(passes)
}

/// Whether a packet passes because it arrives with the proof bit: a workload sent it from an address of its own, or it
/// came by an interface with programs from an address that is no workload's, and it is forwarded.
pub(crate) fn is_proven(tables: &Tables, config: &Config, frame: &HookPacket) -> bool {
    let source = frame.iif.clone().filter(|_| frame.oif.is_some());
    source.is_some_and(|iif| {
        let point = Point::of_workload(iif.clone(), frame.source, Direction::Egress);
        let is_workload = tables.interfaces.contains(&iif) && tables.points.contains_key(&point);
        let is_outside =
            config.packet_mark.uplinks.contains(&iif) && !tables.is_local_address(frame.source);
        is_workload || is_outside
    })
}

/// A packet with the proof bit as it is judged where the bit does not make it pass: not tracked, if it is of a workload, or
/// came by an interface with programs.
pub(crate) fn without_tracking(tables: &Tables, config: &Config, frame: &HookPacket) -> HookPacket {
    let mut frame = frame.clone();
    let iif = frame.iif.as_ref();
    if iif.is_some_and(|name| {
        tables.interfaces.contains(name) || config.packet_mark.uplinks.contains(name)
    }) {
        (frame.conntrack.state, frame.conntrack.reply) = (ct_state::UNTRACKED, false);
    }
    frame
}

/// The reports that a packet must cause, in order; and whether each is a reply.
pub(crate) fn reports(
    tables: &Tables,
    config: &Config,
    generation: u32,
    frame: &HookPacket,
) -> Vec<ReportReason> {
    let ours = |name: &Option<Str>| name.as_ref().is_some_and(|n| tables.interfaces.contains(n));
    let closed = |name: &Option<Str>| {
        let prefix = &*config.interface_prefix;
        !ours(name) && name.as_ref().is_some_and(|n| n.starts_with(prefix))
    };
    if closed(&frame.iif) {
        return vec![ReportReason::UnknownInterface];
    }
    if !ours(&frame.iif) && tables.is_spoofed(frame.iif.as_ref(), frame.source) {
        return vec![ReportReason::Spoofed];
    }
    if let Some(iif) = frame.iif.as_ref().filter(|_| ours(&frame.iif)) {
        let point = Point::of_workload(iif.clone(), frame.source, Direction::Egress);
        if !tables.points.contains_key(&point) {
            return vec![ReportReason::Spoofed];
        }
    }
    let ct = frame.conntrack;
    let tracked = ct.state & (ct_state::NEW | ct_state::ESTABLISHED) != 0;
    let live = ct.mark & config.generation_mask() == config.mark(generation);
    let older = frame.protocol == Protocol::TCP && tracked && ct.mark & config.midstream_bit() != 0;
    let opens = frame.tcp_flags & (tcp_flag::SYN | tcp_flag::ACK) == tcp_flag::SYN;
    let unknown_way = older && !opens || midway(config, frame);
    let is_marked = ct.mark & config.midstream_bit() != 0;
    let icmp = frame.protocol.is_icmp();
    let related = ct.state == ct_state::RELATED;
    let is_ours = [&frame.iif, &frame.oif].map(|name| ours(name) || closed(name));
    if is_ours == [false, false] || live && (tracked && !is_marked || icmp && related) {
        return Vec::new();
    }
    let answers = ct.reply && ct.state == ct_state::ESTABLISHED;
    if !config.judgement.judge_host_traffic {
        if unknown_way && (frame.iif.is_none() || frame.oif.is_none()) {
            return Vec::new();
        }
        let unjudged_out = frame.iif.is_none() && (!answers || older);
        let unjudged_in = frame.oif.is_none() && (answers || related && ct.reply);
        if unjudged_out || unjudged_in {
            return Vec::new();
        }
    }
    if ct.state == ct_state::INVALID && !icmp {
        return vec![ReportReason::Invalid];
    }
    let mut packet = first_packet(frame);
    if older && opens {
        if ct.reply {
            return vec![ReportReason::Invalid];
        }
        packet = first_if(frame, false);
    }
    let tried = || judge_plainly(tables, &first_if(frame, !ct.reply));
    let closed_end = closed(&frame.oif);
    if unknown_way && (older && live || !closed_end && tried()) {
        return Vec::new();
    }
    let mut out = Vec::new();
    for (direction, own) in [
        (Direction::Egress, &packet.input_interface),
        (Direction::Ingress, &packet.output_interface),
    ] {
        match tables.judge_direction(&packet, direction) {
            DirectionVerdict::Unmanaged if closed(own) => out.push(ReportReason::NoPoint),
            DirectionVerdict::Unmanaged
            | DirectionVerdict::HostOrigin
            | DirectionVerdict::Hairpin
            | DirectionVerdict::Failsafe => continue,
            DirectionVerdict::NoPoint => out.push(ReportReason::NoPoint),
            DirectionVerdict::Evaluated(seen) => match seen.cell.verdict {
                Verdict::Deny => out.push(ReportReason::Denied),
                Verdict::Allow | Verdict::Continue => {
                    let logged = seen.cell.log.map(ReportReason::Logged);
                    let audited = || seen.cell.audit_report().map(ReportReason::Audited);
                    out.extend(logged.or_else(audited));
                    continue;
                }
            },
        }
        break;
    }
    out
}

/// Whether this is a TCP packet from the middle of a flow that was not judged before.
fn midway(config: &Config, frame: &HookPacket) -> bool {
    frame.protocol == Protocol::TCP
        && frame.conntrack.state & (ct_state::NEW | ct_state::ESTABLISHED) != 0
        && frame.conntrack.mark & config.ct_mark_mask == 0
        && frame.tcp_flags & tcp_flag::SYN == 0
}

/// Whether an end of a packet is at an interface that is removed while its address moves to another
/// endpoint: packets from there are spoofed from then on, so its points are deleted before it is open, and
/// until then it is denied.
pub(crate) fn changes_hands(old: &Tables, new: &Tables, frame: &HookPacket) -> bool {
    let ends = [(&frame.iif, frame.source), (&frame.oif, frame.destination)];
    ends.into_iter().any(|(interface, address)| {
        interface.as_ref().is_some_and(|name| {
            old.interfaces.contains(name)
                && !new.interfaces.contains(name)
                && new.is_local_address(address)
        })
    })
}

/// Whether a mid-stream flow was allowed in one direction and is now allowed in the other: in between, when
/// only what both tables allow passes, it may be denied.
pub(crate) fn changes_direction(
    config: &Config,
    old: &Tables,
    new: &Tables,
    frame: &HookPacket,
) -> bool {
    let older =
        frame.protocol == Protocol::TCP && frame.conntrack.mark & config.midstream_bit() != 0;
    if !older && !midway(config, frame) {
        return false;
    }
    let known = frame.conntrack.reply && frame.conntrack.state == ct_state::ESTABLISHED;
    let allows = |tables: &Tables, reply| {
        let packet = first_if(frame, reply);
        if reply == known {
            tables.judge(&packet) == Verdict::Allow
        } else {
            judge_plainly(tables, &packet)
        }
    };
    [false, true]
        .iter()
        .all(|reply| !(allows(old, *reply) && allows(new, *reply)))
}

/// Whether this is a reply to a flow of the host, which is not judged.
fn answers_host(config: &Config, frame: &HookPacket) -> bool {
    !config.judgement.judge_host_traffic
        && frame.oif.is_none()
        && frame.conntrack.reply
        && frame.conntrack.state == ct_state::ESTABLISHED
}

/// Whether a packet passes, if no source port is tested and it is no hairpin traffic.
fn judge_plainly(tables: &Tables, packet: &Packet) -> bool {
    let plain = |direction| match tables.judge_direction(packet, direction) {
        DirectionVerdict::Evaluated(seen) => {
            let L4::Ports { destination, .. } = packet.l4 else {
                return true;
            };
            let program = &tables.programs[&seen.class];
            let of = program.protocol(packet.protocol);
            of.is_none_or(|map| map.get(destination).as_constant().is_some())
        }
        _ => true,
    };
    let plain = plain(Direction::Egress) && plain(Direction::Ingress);
    plain && !tables.is_hairpin(packet) && tables.judge_flow(packet) == Verdict::Allow
}
