//! The decision tables against the nftables plan, in the model of the kernel.
//!
//! A [`ModelHost`] follows an engine delta by delta, as a real kernel would, and keeps the connection
//! marks of the flows that go through it: so established connections are judged again when they
//! must be, and only then.

use super::judgements::{host_allows_midstream, own_packet, reports, workloads_allow};
use super::{FLOWS, StageFailure, tables};
use palisade_generators::Dice;
use palisade_model::{DenyAction, Direction, Flow, L4, PolicyStage, Protocol};
use palisade_nft::{Config, Planner, Ruleset, adopt, ct_state, tcp_flag};
use palisade_oracle::{HostPath, PreparedState};
use palisade_tables::{Delta, DirectionVerdict, JudgementOptions, Packet, Tables, Verdict};
use palisade_verification::{
    ConntrackInfo, HookPacket, RulesetSimulator, SimulationOutcome, apply,
};
use std::collections::BTreeSet;

const STAGE: &str = "tables and nftables";

/// A host's nftables, in the model.
pub(crate) struct ModelHost {
    config: Config,
    planner: Planner,
    ruleset: Option<Ruleset>,
    /// The mark that each flow's connection has.
    marks: Vec<u32>,
    /// The interfaces of the host that each flow crossed when it was last sent.
    paths: Vec<HostPath>,
}

impl ModelHost {
    /// A host on which nothing is enforced yet.
    pub(crate) fn new(
        dice: &mut Dice,
        judgement: JudgementOptions,
    ) -> Result<ModelHost, StageFailure> {
        let config = Config {
            judgement,
            sctp_tracked: dice.chance(70),
            max_expanded_ports: *dice.pick(&[16, 1]),
            ..Config::default()
        };
        // Programs share what they have in common although they are small. No dice: cases that were
        // found once stay what they were.
        let share_from = match config.max_expanded_ports {
            1 => config.min_shared_elements,
            _ => 1,
        };
        // What denials do changes no verdict.
        let deny_action = match config.max_expanded_ports {
            1 => DenyAction::Reject,
            _ => DenyAction::Drop,
        };
        let config = Config {
            min_shared_elements: share_from,
            deny_action,
            ..config
        };
        let planner = Planner::new(config.clone(), 1);
        let skeleton = planner.rebuild(None);
        let mut host = ModelHost {
            config,
            planner,
            ruleset: None,
            marks: vec![0; FLOWS],
            paths: vec![HostPath::default(); FLOWS],
        };
        for step in skeleton.steps {
            host.write(&step.ops)?;
        }
        Ok(host)
    }

    fn write(&mut self, ops: &[palisade_nft::Op]) -> Result<(), StageFailure> {
        apply(&mut self.ruleset, &self.config.table, ops)
            .map_err(|error| StageFailure::new("nftables refuses", format!("{error:?}: {ops:?}")))
    }

    /// Takes in a delta that leads to `tables`, and sends a packet of every flow each way.
    pub(crate) fn apply_delta(
        &mut self,
        delta: &Delta,
        tables: &Tables,
        prepared: &PreparedState<'_>,
        flows: &[Flow],
    ) -> Result<(), StageFailure> {
        for step in self.planner.plan(delta).steps {
            self.write(&step.ops)?;
        }
        for (index, flow) in flows.iter().take(FLOWS).enumerate() {
            let packet = tables::packet(prepared, flow);
            let path = tables::host_path(prepared, &packet);
            if self.paths[index] != path {
                // A connection is judged at the interfaces that its first packets cross. One between the same
                // addresses that crosses others, since an address is no longer a workload's, is another connection.
                self.paths[index] = path;
                self.marks[index] = 0;
            }
            let ct = match self.marks[index] {
                0 => ConntrackInfo::NEW,
                mark => ConntrackInfo {
                    state: ct_state::ESTABLISHED,
                    reply: false,
                    mark,
                },
            };
            self.marks[index] = self.send_packet(tables, index, &packet, frame(&packet, ct))?;
            let ct = ConntrackInfo {
                state: ct_state::ESTABLISHED,
                reply: true,
                mark: self.marks[index],
            };
            if let Some(reply) = reply(&packet, ct) {
                self.marks[index] = self.send_packet(tables, index, &packet, reply)?;
            }
        }
        Ok(())
    }

    /// Sends more of every flow: first packets and replies of connections without a mark, what is
    /// invalid or related, what comes from interfaces and addresses that it must not.
    pub(crate) fn check_flow_variants(
        &self,
        tables: &Tables,
        prepared: &PreparedState<'_>,
        flows: &[Flow],
    ) -> Result<(), StageFailure> {
        for (index, flow) in flows.iter().enumerate() {
            let packet = tables::packet(prepared, flow);
            self.send_packet(tables, index, &packet, frame(&packet, ConntrackInfo::NEW))?;
            for edge in boundary_packets(tables, &packet) {
                self.send_packet(tables, index, &edge, frame(&edge, ConntrackInfo::NEW))?;
            }
            let answered = ConntrackInfo {
                state: ct_state::ESTABLISHED,
                reply: true,
                mark: 0,
            };
            if let Some(reply) = reply(&packet, answered) {
                self.send_packet(tables, index, &packet, reply)?;
            }
            if packet.protocol == Protocol::TCP {
                self.check_midstream(tables, index, &packet)?;
            }
            if packet.input_interface.is_none() {
                // Where only some of the host's packets are judged, translation makes no difference.
                let is_tracked = !matches!(
                    packet.l4,
                    L4::Icmp {
                        kind: 130..=143,
                        ..
                    }
                );
                // Before connection tracking it is at the interface that it had before translation.
                let is_tracked = is_tracked
                    && !tables
                        .points
                        .keys()
                        .any(|p| p.stage == PolicyStage::Untracked);
                if tables.judgement.judge_host_traffic && is_tracked {
                    let befores = [None, Some("eth0".into())];
                    let ours = tables.interfaces.first().cloned().map(Some);
                    for before in befores.into_iter().chain(ours) {
                        let frame = frame(&packet, ConntrackInfo::NEW);
                        self.send_packet_with(tables, index, &packet, frame, &|machine| {
                            machine.with_nat(before.clone())
                        })?;
                    }
                }
                continue;
            }
            let related = ConntrackInfo {
                state: ct_state::RELATED,
                ..ConntrackInfo::NEW
            };
            let error = icmp_error(&packet);
            self.send_packet(tables, index, &error, frame(&error, related))?;
            let ours = [&packet.input_interface, &packet.output_interface]
                .into_iter()
                .flatten()
                .any(|name| tables.interfaces.contains(name));
            // What is invalid is not translated.
            let as_it_is = Packet {
                pre_dnat: None,
                ..packet.clone()
            };
            let is_tracked = tables.judge_untracked(&as_it_is) == Verdict::Continue;
            if ours && is_tracked && !packet.protocol.is_icmp() {
                let invalid = ConntrackInfo {
                    state: ct_state::INVALID,
                    ..ConntrackInfo::NEW
                };
                self.check_dropped(index, frame(&packet, invalid))?;
            }
            let stranger = Packet {
                input_interface: Some("pal99".into()),
                ..packet.clone()
            };
            self.check_dropped(index, frame(&stranger, ConntrackInfo::NEW))?;
            let stranger = Packet {
                output_interface: Some("pal99".into()),
                ..packet.clone()
            };
            self.check_dropped(index, frame(&stranger, ConntrackInfo::NEW))?;
            let spoofed = Packet {
                input_interface: packet.output_interface.clone(),
                output_interface: packet.input_interface.clone(),
                pre_dnat: None,
                ..packet
            };
            self.send_packet(tables, index, &spoofed, frame(&spoofed, ConntrackInfo::NEW))?;
            if tables.is_spoofed(spoofed.input_interface.as_ref(), spoofed.source) {
                // Not even a connection that is allowed lends its mark to another's address.
                let live = ConntrackInfo {
                    state: ct_state::ESTABLISHED,
                    reply: false,
                    mark: self.config.mark(self.planner.generation()),
                };
                self.check_dropped(index, frame(&spoofed, live))?;
            }
        }
        Ok(())
    }

    /// Sends packets from the middle of a TCP flow that nothing has tracked before: they pass if the
    /// flow is allowed in one of the two directions. Then a SYN on that flow: in its own.
    fn check_midstream(
        &self,
        tables: &Tables,
        index: usize,
        packet: &Packet,
    ) -> Result<(), StageFailure> {
        let acknowledging = HookPacket {
            tcp_flags: tcp_flag::ACK,
            ..frame(packet, ConntrackInfo::NEW)
        };
        let Some(back) = reply(packet, ConntrackInfo::NEW).map(|frame| Packet {
            input_interface: frame.iif,
            output_interface: frame.oif,
            source: frame.source,
            destination: frame.destination,
            protocol: frame.protocol,
            l4: frame.l4,
            pre_dnat: None,
        }) else {
            return Ok(());
        };
        // Nobody asks who sends from an address that is not his.
        if tables.is_spoofed(packet.input_interface.as_ref(), packet.source) {
            return Ok(());
        }
        // What is not tracked has no flow.
        if tables.judge_untracked(packet) != Verdict::Continue {
            return Ok(());
        }
        let allowed = |packet: &Packet| workloads_allow(tables, packet);
        let is_answer = tables.judge_host_stage(&back, Direction::Egress, PolicyStage::Normal);
        let is_before_dnat =
            tables.judge_host_stage(packet, Direction::Ingress, PolicyStage::PreDnat);
        if is_answer == DirectionVerdict::Failsafe && is_before_dnat != DirectionVerdict::Unmanaged
        {
            // Not judged before DNAT, as an answer, which only its middle looks like.
            return Ok(());
        }
        let SimulationOutcome { accepted, mark, .. } =
            self.run_by(index, &acknowledging, &|m| m.with_pre_dnat(packet.pre_dnat))?;
        // Where a source port decides about the other direction, that direction does not count.
        let either = allowed(packet)
            || allowed(&back) && !tests_source_ports(tables, &back) && !tables.is_hairpin(&back);
        let either = either && host_allows_midstream(tables, packet, &back);
        if accepted != either {
            let detail = format!("either way {either}, nftables {accepted}: {acknowledging:?}");
            return Err(StageFailure::at_flow(STAGE, index, detail));
        }
        if accepted {
            let ct = ConntrackInfo {
                state: ct_state::ESTABLISHED,
                reply: false,
                mark,
            };
            self.send_packet(tables, index, packet, frame(packet, ct))?;
        }
        Ok(())
    }

    /// A new agent that finds this kernel and wants these tables has nothing to write.
    pub(crate) fn restart(&self, tables: &Tables) -> Result<(), StageFailure> {
        let (_, transaction) = adopt(&self.config, self.ruleset.as_ref(), tables, 7);
        let ops: Vec<_> = transaction
            .steps
            .iter()
            .flat_map(|step| &step.ops)
            .collect();
        if ops.is_empty() {
            return Ok(());
        }
        Err(StageFailure::new(
            "restart writes nothing",
            format!("{ops:?}"),
        ))
    }

    /// Sends a frame of a flow whose first packet is `first`; it passes if the tables allow that.
    /// Returns the connection's mark.
    fn send_packet(
        &self,
        tables: &Tables,
        index: usize,
        first: &Packet,
        frame: HookPacket,
    ) -> Result<u32, StageFailure> {
        self.send_packet_with(tables, index, first, frame, &|machine| machine)
    }

    /// The same through a machine that knows more of the packet.
    fn send_packet_with(
        &self,
        tables: &Tables,
        index: usize,
        first: &Packet,
        frame: HookPacket,
        told: &dyn for<'m> Fn(RulesetSimulator<'m>) -> RulesetSimulator<'m>,
    ) -> Result<u32, StageFailure> {
        let is_spoofed = tables.is_spoofed(frame.iif.as_ref(), frame.source);
        let itself = own_packet(first, &frame);
        let untracked = tables.judge_untracked(&itself);
        // What is not tracked is a packet by itself, whatever its connection.
        let (first, is_flow) = match untracked {
            Verdict::Allow => (&itself, false),
            Verdict::Deny | Verdict::Continue => (first, true),
        };
        let judged = match untracked {
            Verdict::Deny => Verdict::Deny,
            Verdict::Continue => tables.judge_tracked_flow(first),
            Verdict::Allow => tables.judge_flow(first),
        };
        let wanted = !is_spoofed && judged == Verdict::Allow;
        let outcome = self.run_by(index, &frame, &|machine| {
            told(machine).with_pre_dnat(first.pre_dnat)
        })?;
        let (accepted, mark) = (outcome.accepted, outcome.mark);
        let live = self.config.mark(self.planner.generation());
        if (frame.conntrack.mark & self.config.ct_mark_mask != live || !is_flow)
            && !is_spoofed
            && let Some(reports) = reports(tables, first, &itself)
        {
            let reply =
                is_flow && frame.conntrack.reply && frame.conntrack.state == ct_state::ESTABLISHED;
            let wanted: Vec<String> = reports
                .iter()
                .map(|(why, is_of_flow)| palisade_nft::log_prefix(*why, reply && *is_of_flow))
                .collect();
            // What is answered is denied.
            let found = outcome.log_prefixes.iter();
            let found = found.map(|prefix| prefix.replace("rejected", "denied"));
            if !found.eq(wanted.iter().cloned()) {
                let detail = format!(
                    "reported {:?}, not {wanted:?}: {frame:?}",
                    outcome.log_prefixes
                );
                return Err(StageFailure::at_flow(STAGE, index, detail));
            }
        }
        if accepted != wanted {
            let detail = format!(
                "tables {:?} and {:?}, host {:?} and {:?}, nftables {}: {frame:?}",
                tables.judge_direction(first, Direction::Egress),
                tables.judge_direction(first, Direction::Ingress),
                tables.judge_host(first, Direction::Ingress),
                tables.judge_host(first, Direction::Egress),
                if accepted { "accepts" } else { "drops" }
            );
            return Err(StageFailure::at_flow(STAGE, index, detail));
        }
        Ok(mark)
    }

    fn check_dropped(&self, index: usize, frame: HookPacket) -> Result<(), StageFailure> {
        if !self.run(index, &frame)?.accepted {
            Ok(())
        } else {
            Err(StageFailure::at_flow(
                STAGE,
                index,
                format!("passes: {frame:?}"),
            ))
        }
    }

    fn run(&self, index: usize, frame: &HookPacket) -> Result<SimulationOutcome, StageFailure> {
        self.run_by(index, frame, &|machine| machine)
    }

    fn run_by(
        &self,
        index: usize,
        frame: &HookPacket,
        told: &dyn for<'m> Fn(RulesetSimulator<'m>) -> RulesetSimulator<'m>,
    ) -> Result<SimulationOutcome, StageFailure> {
        let Some(ruleset) = &self.ruleset else {
            return Err(StageFailure::new(STAGE, "there is no table"));
        };
        match told(RulesetSimulator::new(ruleset)).run(frame) {
            Ok(outcome) => Ok(outcome),
            Err(stuck) => Err(StageFailure::at_flow(
                STAGE,
                index,
                format!("{stuck:?}: {frame:?}"),
            )),
        }
    }
}

pub(super) fn frame(packet: &Packet, ct: ConntrackInfo) -> HookPacket {
    HookPacket {
        iif: packet.input_interface.clone(),
        oif: packet.output_interface.clone(),
        source: packet.source,
        destination: packet.destination,
        protocol: packet.protocol,
        l4: packet.l4,
        tcp_flags: tcp_flag::SYN,
        conntrack: ct,
    }
}

/// The same packet to every port at which the programs that judge it begin or end a range.
fn boundary_packets(tables: &Tables, packet: &Packet) -> Vec<Packet> {
    let L4::Ports { source, .. } = packet.l4 else {
        return Vec::new();
    };
    let mut ports = BTreeSet::new();
    let judged = Direction::BOTH.map(|direction| {
        let stages = packet.host_stages(direction);
        let host = stages.map(move |stage| tables.judge_host_stage(packet, direction, stage));
        host.chain([tables.judge_direction(packet, direction)])
    });
    for judged in judged.into_iter().flatten() {
        let DirectionVerdict::Evaluated(seen) = judged else {
            continue;
        };
        let program = tables.programs.get(&seen.class);
        let map = program.and_then(|program| program.protocol(packet.protocol));
        for (range, _) in map.into_iter().flat_map(|map| map.entries()) {
            ports.extend([range.first, range.last]);
        }
    }
    let to = |destination| Packet {
        l4: L4::Ports {
            source,
            destination,
        },
        ..packet.clone()
    };
    ports.into_iter().map(to).collect()
}

/// Whether a source port has a say in what becomes of a packet.
fn tests_source_ports(tables: &Tables, packet: &Packet) -> bool {
    let L4::Ports { destination, .. } = packet.l4 else {
        return false;
    };
    Direction::BOTH.into_iter().any(|direction| {
        let DirectionVerdict::Evaluated(seen) = tables.judge_direction(packet, direction) else {
            return false;
        };
        let program = tables.programs.get(&seen.class);
        let map = program.and_then(|program| program.protocol(packet.protocol));
        map.is_some_and(|map| map.get(destination).as_constant().is_none())
    })
}

/// The answer to a packet, where its protocol has answers.
fn reply(packet: &Packet, ct: ConntrackInfo) -> Option<HookPacket> {
    let l4 = match packet.l4 {
        L4::Ports {
            source,
            destination,
        } => L4::Ports {
            source: destination,
            destination: source,
        },
        L4::Icmp { kind, code } => L4::Icmp {
            kind: match (packet.protocol, kind) {
                (Protocol::ICMP, 8) => 0,
                (Protocol::ICMP, 13) => 14,
                (Protocol::ICMPV6, 128) => 129,
                _ => return None,
            },
            code,
        },
        L4::None => L4::None,
    };
    Some(HookPacket {
        iif: packet.output_interface.clone(),
        oif: packet.input_interface.clone(),
        source: packet.destination,
        destination: packet.source,
        protocol: packet.protocol,
        l4,
        tcp_flags: tcp_flag::SYN | tcp_flag::ACK,
        conntrack: ct,
    })
}

/// An ICMP error on the same way, about a connection that has no mark.
fn icmp_error(packet: &Packet) -> Packet {
    let (protocol, kind) = if packet.source.is_ipv4() {
        (Protocol::ICMP, 3)
    } else {
        (Protocol::ICMPV6, 1)
    };
    Packet {
        protocol,
        l4: L4::Icmp { kind, code: 1 },
        // An error is judged by its own addresses.
        pre_dnat: None,
        ..packet.clone()
    }
}
