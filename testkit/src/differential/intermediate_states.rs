//! Every moment between two states, as a packet would see it.
//!
//! It is first asked whether a packet goes back to the endpoint that sent it, which is judged at points of its own. Then it looks up its interface, its
//! point, the peer's address, their class, the set's default and the program: at the interfaces of the host that it
//! crosses, and then for egress and for ingress. Each step of a delta is one transaction, and the executor waits
//! for a grace period after it, so a packet sees at most one step happen, between any two of its
//! lookups. Whatever it sees, what it gets must be what it gets before the flush or after it.

use super::{FLOWS, StageFailure, StageFilter, tables};
use palisade_model::{Direction, Flow, FlowOrigin, L4, PolicyStage, Prefix, Protocol, State, Str};
use palisade_oracle::PreparedState;
use palisade_tables::{
    ClassId, Delta, IdentityId, LOOPBACK, Packet, Phase, Point, PointInterface, PolicySet,
    PolicySetId, Tables, Verdict,
};
use std::net::IpAddr;

/// Lookups of one judgement; a packet may see a step before each of them.
const LOOKUPS: usize = 6;

/// The most judgements of one packet.
const JUDGEMENTS: usize = 7;

/// Follows packets through the steps from `old` to `new`.
pub(crate) fn check_intermediate_states(
    before: &State,
    after: &State,
    old: &Tables,
    delta: &Delta,
    new: &Tables,
    flows: &[Flow],
    sought: StageFilter,
) -> Result<(), StageFailure> {
    let (was, is) = (PreparedState::new(before), PreparedState::new(after));
    let mut packets: Vec<Packet> = Vec::new();
    for flow in flows.iter().take(FLOWS) {
        let back = Flow {
            source: flow.destination,
            destination: flow.source,
            origin: FlowOrigin::Network,
            ..*flow
        };
        for (state, flow) in [(&was, flow), (&is, flow), (&was, &back), (&is, &back)] {
            let packet = tables::packet(state, flow);
            // What is being attached or detached is closed by its interface, not by tables.
            let steady = |name: &Option<Str>| {
                let ours = |tables: &Tables| {
                    name.as_ref()
                        .is_some_and(|name| tables.interfaces.contains(name))
                };
                ours(old) == ours(new)
            };
            if steady(&packet.input_interface)
                && steady(&packet.output_interface)
                && !packets.contains(&packet)
            {
                packets.push(packet);
            }
        }
    }
    let ends: Vec<[Verdict; 2]> = packets
        .iter()
        // Whose a source address is, the steps do not say: the plan for the kernel orders that itself.
        .map(|packet| [old.judge_flow(packet), new.judge_flow(packet)])
        .collect();
    sought.filter(check_revocation(&was, &is, delta, &packets, &ends))?;
    let mut now = old.clone();
    for (number, step) in delta.steps.iter().enumerate() {
        let mut next = now.clone();
        for change in &step.changes {
            next.apply(change);
        }
        for (packet, ends) in packets.iter().zip(&ends) {
            let here = || format!("step {number} ({:?}) of {delta:?}: {packet:?}", step.phase);
            let promised =
                check_phase_promise(step.phase, now.judge_flow(packet), next.judge_flow(packet))
                    .map_err(|what| StageFailure::new("phase", format!("{what} in {}", here())));
            sought.filter(promised)?;
            if lookup_results(&now, packet) == lookup_results(&next, packet) {
                continue;
            }
            for cut in 0..=1 + JUDGEMENTS * LOOKUPS {
                let got = mixed_verdict(&now, &next, packet, cut);
                if !ends.contains(&got) {
                    let detail = format!(
                        "{got:?} after {cut} lookups, but {:?} before and {:?} after, at {}",
                        ends[0],
                        ends[1],
                        here()
                    );
                    sought.filter_failure(StageFailure::new("intermediate state", detail))?;
                }
            }
        }
        now = next;
    }
    sought.filter(check_phase_order(delta))
}

fn check_phase_order(delta: &Delta) -> Result<(), StageFailure> {
    let order = delta.steps.is_sorted_by_key(|step| step.phase);
    let empty = |phase, changes: usize| changes == 0 && phase != Phase::Revoke;
    if !order || delta.steps.iter().any(|s| empty(s.phase, s.changes.len())) {
        let phases: Vec<_> = delta.steps.iter().map(|s| s.phase).collect();
        return Err(StageFailure::new("order of phases", format!("{phases:?}")));
    }
    Ok(())
}

/// Established flows must be judged again if one of them is revoked, or may belong to another
/// endpoint now.
fn check_revocation(
    was: &PreparedState<'_>,
    is: &PreparedState<'_>,
    delta: &Delta,
    packets: &[Packet],
    ends: &[[Verdict; 2]],
) -> Result<(), StageFailure> {
    if delta.steps.iter().any(|step| step.phase == Phase::Revoke) {
        return Ok(());
    }
    let closed = ends
        .iter()
        .position(|ends| *ends == [Verdict::Allow, Verdict::Deny]);
    if let Some(index) = closed {
        let detail = format!("not revoked: {:?}", packets[index]);
        return Err(StageFailure::new("revocation", detail));
    }
    // Whoever held an address before, known or not, may have left live flows behind.
    let handed = is.claims().iter().find(|(address, holder)| {
        let before = was.address_holder(**address);
        let same = before
            .is_some_and(|before| before.id == holder.id && before.interface == holder.interface);
        let local = |holder: &palisade_model::Endpoint| holder.interface.is_some();
        !same && (local(holder) || before.is_some_and(local))
    });
    match handed {
        Some((address, _)) => Err(StageFailure::new(
            "revocation",
            format!("{address} changed hands without one"),
        )),
        None => Ok(()),
    }
}

/// What a phase says of itself, of one packet end to end.
fn check_phase_promise(phase: Phase, before: Verdict, after: Verdict) -> Result<(), String> {
    let holds = match phase {
        Phase::Split | Phase::Revoke | Phase::Merge | Phase::Delete => before == after,
        Phase::Tighten => after <= before,
        Phase::Loosen => after >= before,
        // Whether it is the old or the new one is asked of every packet.
        Phase::Shift => true,
    };
    if holds {
        Ok(())
    } else {
        Err(format!("{before:?} became {after:?}"))
    }
}

/// Everything a packet looks up: where it is the same in two tables, so is any mixture of them.
type LookupResults<'t> = Vec<(
    Option<PointInterface>,
    Option<PolicySetId>,
    IdentityId,
    Option<ClassId>,
    Option<PolicySet>,
    Option<&'t palisade_tables::Program>,
)>;

fn lookup_results<'t>(tables: &'t Tables, packet: &Packet) -> (bool, LookupResults<'t>) {
    let is_hairpin = tables.is_hairpin(packet);
    let sides = judged_sides(packet, is_hairpin)
        .into_iter()
        .map(|side| {
            let interface = side.point_interface(tables);
            let set = side.set(tables, interface.as_ref());
            let identity = tables.identity(side.peer);
            let class = set.and_then(|set| tables.classes.get(&(set, identity)).copied());
            let default = set.and_then(|set| tables.sets.get(&set).copied());
            let chosen = class.or(default.map(|set| set.default));
            let program = chosen.and_then(|class| tables.programs.get(&class));
            (
                interface,
                set,
                identity,
                class,
                default,
                program.map(|program| &**program),
            )
        })
        .collect();
    (is_hairpin, sides)
}

/// One judgement of a packet.
struct JudgedSide<'p> {
    interface: &'p Str,
    protocol: Protocol,
    l4: L4,
    /// Whether it is that of the host, at an interface of its own; else that of a workload.
    is_host: bool,
    stage: PolicyStage,
    direction: Direction,
    local: IpAddr,
    peer: IpAddr,
    from_host: bool,
    is_hairpin: bool,
}

impl JudgedSide<'_> {
    /// Where it is judged, if it is.
    fn point_interface(&self, tables: &Tables) -> Option<PointInterface> {
        let is_managed = tables.interfaces.contains(self.interface);
        let is_loopback = **self.interface == *LOOPBACK;
        if !self.is_host {
            let is_judged = is_managed && (!self.from_host || tables.judgement.judge_host_traffic);
            return is_judged.then(|| {
                if self.is_hairpin {
                    PointInterface::Hairpin(self.interface.clone())
                } else {
                    PointInterface::Workload(self.interface.clone())
                }
            });
        }
        let is_own = tables.host_interfaces.contains(self.interface);
        (!is_managed && !is_loopback).then(|| {
            if is_own {
                PointInterface::Host(self.interface.clone())
            } else {
                PointInterface::AnyHost
            }
        })
    }

    fn set(&self, tables: &Tables, interface: Option<&PointInterface>) -> Option<PolicySetId> {
        let prefixes =
            std::iter::successors(Some(Prefix::host(self.local)), |local| local.parent());
        let prefixes = prefixes.take(if self.is_host { usize::MAX } else { 1 });
        let mut points = prefixes.filter_map(|local| {
            tables.points.get(&Point {
                interface: interface?.clone(),
                stage: self.stage,
                direction: self.direction,
                local,
            })
        });
        points.next().copied()
    }

    /// The verdict with the tables that each lookup sees.
    fn verdict<'t>(&self, at: impl Fn(usize) -> &'t Tables) -> Verdict {
        let not_judged = if self.stage.is_early() {
            Verdict::Continue
        } else {
            Verdict::Allow
        };
        let Some(interface) = self.point_interface(at(0)) else {
            return not_judged;
        };
        let Some(set) = self.set(at(1), Some(&interface)) else {
            return if self.is_host || self.is_hairpin {
                not_judged
            } else {
                Verdict::Deny
            };
        };
        if self.is_host && self.is_failsafe(at(0)) {
            return not_judged;
        }
        let evaluate = || {
            let identity = at(2).identity(self.peer);
            let class = at(3).classes.get(&(set, identity)).copied();
            let class = match class {
                Some(class) => class,
                None => at(4).sets.get(&set)?.default,
            };
            let program = at(5).programs.get(&class)?;
            Some(program.cell(self.protocol, self.l4).verdict)
        };
        evaluate().unwrap_or(Verdict::Deny)
    }

    fn is_failsafe(&self, tables: &Tables) -> bool {
        let (from, to) = match self.l4 {
            L4::Ports {
                source,
                destination,
            } => (Some(source), Some(destination)),
            L4::Icmp { .. } | L4::None => (None, None),
        };
        let other = match self.direction {
            Direction::Ingress => Direction::Egress,
            Direction::Egress => Direction::Ingress,
        };
        let contains = |direction, port| {
            let failsafe = &tables.judgement.failsafe;
            failsafe.contains(direction, self.peer, self.protocol, port)
        };
        let is_answer = self.stage == PolicyStage::Untracked && contains(other, from);
        self.stage != PolicyStage::Forward && (contains(self.direction, to) || is_answer)
    }
}

/// The judgements of a packet, in order; those of the host at one interface follow each other.
fn judged_sides(packet: &Packet, is_hairpin: bool) -> Vec<JudgedSide<'_>> {
    let from_host = packet.input_interface.is_none();
    let (input, output) = (&packet.input_interface, &packet.output_interface);
    let host = [(input, Direction::Ingress), (output, Direction::Egress)];
    let host = host.into_iter().flat_map(|(interface, direction)| {
        let stages = packet.host_stages(direction);
        stages.map(move |stage| (interface, true, direction, stage))
    });
    let workloads = [
        (input, false, Direction::Egress, PolicyStage::Normal),
        (output, false, Direction::Ingress, PolicyStage::Normal),
    ];
    let sides = host.chain(workloads);
    let sides = sides.filter_map(|(interface, is_host, direction, stage)| {
        let packet = if stage.is_early() {
            packet.before_dnat()
        } else {
            packet.clone()
        };
        let (local, peer) = match direction {
            Direction::Egress => (packet.source, packet.destination),
            Direction::Ingress => (packet.destination, packet.source),
        };
        Some(JudgedSide {
            interface: interface.as_ref()?,
            protocol: packet.protocol,
            l4: packet.l4,
            is_host,
            stage,
            direction,
            local,
            peer,
            from_host: from_host && direction == Direction::Ingress,
            is_hairpin,
        })
    });
    sides.collect()
}

/// What a packet gets whose first `cut` lookups see `now`, and whose others see `next`.
fn mixed_verdict(now: &Tables, next: &Tables, packet: &Packet, cut: usize) -> Verdict {
    let first = if cut > 0 { now } else { next };
    // The source is looked up before anything else.
    let has_source = packet.input_interface.as_ref().is_none_or(|name| {
        let point = Point::of_workload(name.clone(), packet.source, Direction::Egress);
        !first.interfaces.contains(name) || first.points.contains_key(&point)
    });
    if !has_source {
        return Verdict::Deny;
    }
    let is_hairpin = first.is_hairpin(packet);
    let mut all = Verdict::Allow;
    // The direction in which an early stage has allowed it.
    let mut decided = None;
    for (number, side) in judged_sides(packet, is_hairpin).into_iter().enumerate() {
        if side.is_host && decided == Some(side.direction) {
            continue;
        }
        let at = |lookup: usize| {
            if 1 + number * LOOKUPS + lookup < cut {
                now
            } else {
                next
            }
        };
        match (side.verdict(at), side.stage.is_early()) {
            (Verdict::Continue, _) => {}
            (Verdict::Allow, true) => decided = Some(side.direction),
            (verdict, _) => all = all.min(verdict),
        }
    }
    all
}
