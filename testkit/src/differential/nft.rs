//! The decision tables against the nftables plan, in the model of the kernel.
//!
//! A [`Host`] follows an engine delta by delta, as a real kernel would, and keeps the connection
//! marks of the flows that go through it: so established connections are judged again when they
//! must be, and only then.

use super::{FLOWS, Failure, tables};
use palisade_generators::Dice;
use palisade_model::{Direction, Flow, L4, Protocol};
use palisade_nft::{
    Config, Ct, Frame, Machine, Outcome, Planner, Report, Ruleset, adopt, apply, ct_state, tcp_flag,
};
use palisade_oracle::Prepared;
use palisade_tables::{Delta, Judged, Packet, Tables, Verdict};
use std::collections::BTreeSet;

const STAGE: &str = "tables and nftables";

/// A host's nftables, in the model.
pub(crate) struct Host {
    config: Config,
    planner: Planner,
    ruleset: Option<Ruleset>,
    /// The mark that each flow's connection has.
    marks: Vec<u32>,
}

impl Host {
    /// A host on which nothing is enforced yet.
    pub(crate) fn new(dice: &mut Dice, judge_host_traffic: bool) -> Result<Host, Failure> {
        let config = Config {
            judge_host_traffic,
            sctp_tracked: dice.chance(70),
            expand_ports: *dice.pick(&[16, 1]),
            ..Config::default()
        };
        // Programs share what they have in common although they are small. No dice: cases that were
        // found once stay what they were.
        let share_from = match config.expand_ports {
            1 => config.share_from,
            _ => 1,
        };
        let config = Config {
            share_from,
            ..config
        };
        let planner = Planner::new(config.clone(), 1);
        let skeleton = planner.rebuild(None);
        let mut host = Host {
            config,
            planner,
            ruleset: None,
            marks: vec![0; FLOWS],
        };
        for step in skeleton.steps {
            host.write(&step.ops)?;
        }
        Ok(host)
    }

    fn write(&mut self, ops: &[palisade_nft::Op]) -> Result<(), Failure> {
        apply(&mut self.ruleset, &self.config.table, ops)
            .map_err(|error| Failure::of("nftables refuses", format!("{error:?}: {ops:?}")))
    }

    /// Takes in a delta that leads to `tables`, and sends a packet of every flow each way.
    pub(crate) fn follow(
        &mut self,
        delta: &Delta,
        tables: &Tables,
        prepared: &Prepared<'_>,
        flows: &[Flow],
    ) -> Result<(), Failure> {
        for step in self.planner.plan(delta).steps {
            self.write(&step.ops)?;
        }
        for (index, flow) in flows.iter().take(FLOWS).enumerate() {
            let packet = tables::packet(prepared, flow);
            let ct = match self.marks[index] {
                0 => Ct::NEW,
                mark => Ct {
                    state: ct_state::ESTABLISHED,
                    reply: false,
                    mark,
                },
            };
            self.marks[index] = self.send(tables, index, &packet, frame(&packet, ct))?;
            let ct = Ct {
                state: ct_state::ESTABLISHED,
                reply: true,
                mark: self.marks[index],
            };
            if let Some(reply) = reply(&packet, ct) {
                self.marks[index] = self.send(tables, index, &packet, reply)?;
            }
        }
        Ok(())
    }

    /// Sends more of every flow: first packets and replies of connections without a mark, what is
    /// invalid or related, what comes from interfaces and addresses that it must not.
    pub(crate) fn scrutinise(
        &self,
        tables: &Tables,
        prepared: &Prepared<'_>,
        flows: &[Flow],
    ) -> Result<(), Failure> {
        for (index, flow) in flows.iter().enumerate() {
            let packet = tables::packet(prepared, flow);
            self.send(tables, index, &packet, frame(&packet, Ct::NEW))?;
            for edge in edges(tables, &packet) {
                self.send(tables, index, &edge, frame(&edge, Ct::NEW))?;
            }
            let answered = Ct {
                state: ct_state::ESTABLISHED,
                reply: true,
                mark: 0,
            };
            if let Some(reply) = reply(&packet, answered) {
                self.send(tables, index, &packet, reply)?;
            }
            if packet.protocol == Protocol::TCP {
                self.midway(tables, index, &packet)?;
            }
            if packet.from.is_none() {
                // Where only some of the host's packets are judged, translation makes no difference.
                let is_tracked = !matches!(
                    packet.l4,
                    L4::Icmp {
                        kind: 130..=143,
                        ..
                    }
                );
                if tables.judge_host_traffic && is_tracked {
                    let befores = [None, Some("eth0".into())];
                    let ours = tables.interfaces.first().cloned().map(Some);
                    for before in befores.into_iter().chain(ours) {
                        let frame = frame(&packet, Ct::NEW);
                        self.send_by(tables, index, &packet, frame, &|machine| {
                            machine.translated(before.clone())
                        })?;
                    }
                }
                continue;
            }
            let related = Ct {
                state: ct_state::RELATED,
                ..Ct::NEW
            };
            let error = error_about(&packet);
            self.send(tables, index, &error, frame(&error, related))?;
            let ours = [&packet.from, &packet.to]
                .into_iter()
                .flatten()
                .any(|name| tables.interfaces.contains(name));
            if ours && !packet.protocol.is_icmp() {
                let invalid = Ct {
                    state: ct_state::INVALID,
                    ..Ct::NEW
                };
                self.closed(index, frame(&packet, invalid))?;
            }
            let stranger = Packet {
                from: Some("pal99".into()),
                ..packet.clone()
            };
            self.closed(index, frame(&stranger, Ct::NEW))?;
            let stranger = Packet {
                to: Some("pal99".into()),
                ..packet.clone()
            };
            self.closed(index, frame(&stranger, Ct::NEW))?;
            let spoofed = Packet {
                from: packet.to.clone(),
                to: packet.from.clone(),
                ..packet
            };
            self.send(tables, index, &spoofed, frame(&spoofed, Ct::NEW))?;
            if tables.is_spoofed(spoofed.from.as_ref(), spoofed.source) {
                // Not even a connection that is allowed lends its mark to another's address.
                let live = Ct {
                    state: ct_state::ESTABLISHED,
                    reply: false,
                    mark: self.config.mark(self.planner.generation()),
                };
                self.closed(index, frame(&spoofed, live))?;
            }
        }
        Ok(())
    }

    /// Sends packets from the middle of a TCP flow that nothing has tracked before: they pass if the
    /// flow is allowed in one of the two directions. Then a SYN on that flow: in its own.
    fn midway(&self, tables: &Tables, index: usize, packet: &Packet) -> Result<(), Failure> {
        let acknowledging = Frame {
            tcp_flags: tcp_flag::ACK,
            ..frame(packet, Ct::NEW)
        };
        let Some(back) = reply(packet, Ct::NEW).map(|frame| Packet {
            from: frame.iif,
            to: frame.oif,
            source: frame.source,
            destination: frame.destination,
            protocol: frame.protocol,
            l4: frame.l4,
        }) else {
            return Ok(());
        };
        // Nobody asks who sends from an address that is not his.
        if tables.is_spoofed(packet.from.as_ref(), packet.source) {
            return Ok(());
        }
        let allowed = |packet: &Packet| tables.judge_flow(packet) == Verdict::Allow;
        let Outcome { accepted, mark, .. } = self.run(index, &acknowledging)?;
        // Where a source port decides about the other direction, that direction does not count.
        let either = allowed(packet) || allowed(&back) && !tests_source_ports(tables, &back);
        if accepted != either {
            let detail = format!("either way {either}, nftables {accepted}: {acknowledging:?}");
            return Err(Failure::at(STAGE, index, detail));
        }
        if accepted {
            let ct = Ct {
                state: ct_state::ESTABLISHED,
                reply: false,
                mark,
            };
            self.send(tables, index, packet, frame(packet, ct))?;
        }
        Ok(())
    }

    /// A new agent that finds this kernel and wants these tables has nothing to write.
    pub(crate) fn restart(&self, tables: &Tables) -> Result<(), Failure> {
        let (_, transaction) = adopt(&self.config, self.ruleset.as_ref(), tables, 7);
        let ops: Vec<_> = transaction
            .steps
            .iter()
            .flat_map(|step| &step.ops)
            .collect();
        if ops.is_empty() {
            return Ok(());
        }
        Err(Failure::of("restart writes nothing", format!("{ops:?}")))
    }

    /// Sends a frame of a flow whose first packet is `first`; it passes if the tables allow that.
    /// Returns the connection's mark.
    fn send(
        &self,
        tables: &Tables,
        index: usize,
        first: &Packet,
        frame: Frame,
    ) -> Result<u32, Failure> {
        self.send_by(tables, index, first, frame, &|machine| machine)
    }

    /// The same through a machine that knows more of the packet.
    fn send_by(
        &self,
        tables: &Tables,
        index: usize,
        first: &Packet,
        frame: Frame,
        told: &dyn for<'m> Fn(Machine<'m>) -> Machine<'m>,
    ) -> Result<u32, Failure> {
        let is_spoofed = tables.is_spoofed(frame.iif.as_ref(), frame.source);
        let wanted = !is_spoofed && tables.judge_flow(first) == Verdict::Allow;
        let outcome = self.run_by(index, &frame, told)?;
        let (accepted, mark) = (outcome.accepted, outcome.mark);
        let live = self.config.mark(self.planner.generation());
        if frame.ct.mark & self.config.ct_mark_mask != live
            && !is_spoofed
            && let Some(reports) = reports(tables, first)
        {
            let reply = frame.ct.reply && frame.ct.state == ct_state::ESTABLISHED;
            let wanted: Vec<String> = reports.iter().map(|why| why.prefix(reply)).collect();
            if !outcome.logged.iter().map(|p| &**p).eq(&wanted) {
                let detail = format!("reported {:?}, not {wanted:?}: {frame:?}", outcome.logged);
                return Err(Failure::at(STAGE, index, detail));
            }
        }
        if accepted != wanted {
            let detail = format!(
                "tables {:?} and {:?}, nftables {}: {frame:?}",
                tables.judge_direction(first, Direction::Egress),
                tables.judge_direction(first, Direction::Ingress),
                if accepted { "accepts" } else { "drops" }
            );
            return Err(Failure::at(STAGE, index, detail));
        }
        Ok(mark)
    }

    fn closed(&self, index: usize, frame: Frame) -> Result<(), Failure> {
        match self.run(index, &frame)?.accepted {
            false => Ok(()),
            true => Err(Failure::at(STAGE, index, format!("passes: {frame:?}"))),
        }
    }

    fn run(&self, index: usize, frame: &Frame) -> Result<Outcome, Failure> {
        self.run_by(index, frame, &|machine| machine)
    }

    fn run_by(
        &self,
        index: usize,
        frame: &Frame,
        told: &dyn for<'m> Fn(Machine<'m>) -> Machine<'m>,
    ) -> Result<Outcome, Failure> {
        let Some(ruleset) = &self.ruleset else {
            return Err(Failure::of(STAGE, "there is no table"));
        };
        match told(Machine::new(ruleset)).run(frame) {
            Ok(outcome) => Ok(outcome),
            Err(stuck) => Err(Failure::at(STAGE, index, format!("{stuck:?}: {frame:?}"))),
        }
    }
}

pub(super) fn frame(packet: &Packet, ct: Ct) -> Frame {
    Frame {
        iif: packet.from.clone(),
        oif: packet.to.clone(),
        source: packet.source,
        destination: packet.destination,
        protocol: packet.protocol,
        l4: packet.l4,
        tcp_flags: tcp_flag::SYN,
        ct,
    }
}

/// How the first packet of a flow must be reported; `None` where it is no judgement that decides.
fn reports(tables: &Tables, first: &Packet) -> Option<Vec<Report>> {
    let mut reports = Vec::new();
    for direction in [Direction::Egress, Direction::Ingress] {
        match tables.judge_direction(first, direction) {
            Judged::NoPoint => return None,
            Judged::NotOurs | Judged::HostOrigin | Judged::Itself => {}
            Judged::By(seen) if seen.cell.verdict == Verdict::Deny => {
                reports.push(Report::Denied);
                break;
            }
            Judged::By(seen) => reports.extend(seen.cell.log.map(Report::Logged)),
        }
    }
    Some(reports)
}

/// The same packet to every port at which the programs that judge it begin or end a range.
fn edges(tables: &Tables, packet: &Packet) -> Vec<Packet> {
    let L4::Ports { source, .. } = packet.l4 else {
        return Vec::new();
    };
    let mut ports = BTreeSet::new();
    for direction in Direction::BOTH {
        let Judged::By(seen) = tables.judge_direction(packet, direction) else {
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
        let Judged::By(seen) = tables.judge_direction(packet, direction) else {
            return false;
        };
        let program = tables.programs.get(&seen.class);
        let map = program.and_then(|program| program.protocol(packet.protocol));
        map.is_some_and(|map| map.at(destination).as_constant().is_none())
    })
}

/// The answer to a packet, where its protocol has answers.
fn reply(packet: &Packet, ct: Ct) -> Option<Frame> {
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
    Some(Frame {
        iif: packet.to.clone(),
        oif: packet.from.clone(),
        source: packet.destination,
        destination: packet.source,
        protocol: packet.protocol,
        l4,
        tcp_flags: tcp_flag::SYN | tcp_flag::ACK,
        ct,
    })
}

/// An ICMP error on the same way, about a connection that has no mark.
fn error_about(packet: &Packet) -> Packet {
    let (protocol, kind) = match packet.source.is_ipv4() {
        true => (Protocol::ICMP, 3),
        false => (Protocol::ICMPV6, 1),
    };
    Packet {
        protocol,
        l4: L4::Icmp { kind, code: 1 },
        ..packet.clone()
    }
}
