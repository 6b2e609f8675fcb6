//! The checker of every intermediate state: no packet gets a verdict that is neither the old nor the
//! new, judged end to end, at the interface by which it arrives and at the one by which it leaves. Each is that of
//! a workload, one of the host's own, or none that is judged.
//!
//! Between two steps no packet is in flight (the executor waits for a grace period). During a step, each
//! lookup of a packet sees the state before or after any of the step's writes, in order: a step is one
//! write, or as many as it has entries ([`Atomicity`]). Steps without a grace period between them are
//! judged as one. Points, addresses and headers are enumerated exactly, by what the tables distinguish.
//! The checker never asks why a verdict changes: it is given both tables and the delta, and trusts none
//! of them.

use crate::checker_lookups::{HistoryInterner, OutcomeHistory, OutcomeInterner};
use crate::checker_samples::{TransportHeader, sample_headers};
use crate::checker_states::{IntermediateStates, merge_unwaited_steps};
use palisade_model::{Direction, Family, L4, PolicyStage, Prefix, Protocol};
use palisade_tables::{Atomicity, Delta, Phase, Point, PointInterface, Tables, Verdict};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;

/// What was checked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CheckSummary {
    /// Combinations of histories, at the first and at the last interface, that differ from each other.
    pub pairs: usize,
    /// How many of them are judged at both.
    pub both_ends: usize,
    /// Kinds of packet judged in every intermediate state.
    pub packets: u64,
    /// Pairs beyond the bound, not judged.
    pub skipped: usize,
}

/// A mistake in a delta.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Violation {
    /// The steps do not lead from the old tables to the new.
    WrongFinalTables,
    /// The phases are not in order, or a step that must have changes has none.
    PhaseOrder(Vec<Phase>),
    /// After a step, an entry refers to an entry that does not exist.
    DanglingReference {
        /// The index of the step.
        step: usize,
        /// The reference.
        reference: String,
    },
    /// A packet can get a verdict that is neither the old nor the new.
    MixedVerdict(Box<MisjudgedPacket>),
    /// A step changes a verdict in a way that its phase promises not to.
    PhaseViolation(Box<MisjudgedPacket>),
    /// A packet that was allowed is denied, and established flows are not judged again between
    /// tightening and loosening.
    MissingRevoke(Box<MisjudgedPacket>),
}

/// A packet that gets a wrong verdict.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MisjudgedPacket {
    /// The index of the step in which it happens.
    pub step: usize,
    /// The phase of that step.
    pub phase: Phase,
    /// Where it is judged as it arrives, if anywhere, and the address of the other end.
    pub input: Option<(Point, IpAddr)>,
    /// Where it is judged as it leaves, if anywhere, and the address of the other end.
    pub output: Option<(Point, IpAddr)>,
    /// The protocol.
    pub protocol: Protocol,
    /// The rest of the header.
    pub l4: L4,
    /// Its verdict before the delta.
    pub old: Verdict,
    /// Its verdict after the delta.
    pub new: Verdict,
    /// A verdict that it can get in between.
    pub interim: Verdict,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Violation::WrongFinalTables => f.write_str("the steps do not end in the new tables"),
            Violation::PhaseOrder(phases) => write!(f, "phases out of order: {phases:?}"),
            Violation::DanglingReference {
                step,
                reference: what,
            } => write!(f, "after step {step}: {what}"),
            Violation::MixedVerdict(wrong) => write!(f, "neither the old nor the new: {wrong:?}"),
            Violation::PhaseViolation(wrong) => write!(f, "not what the phase may do: {wrong:?}"),
            Violation::MissingRevoke(wrong) => write!(f, "revoked but not judged again: {wrong:?}"),
        }
    }
}

impl std::error::Error for Violation {}

/// Judges every packet in every intermediate state of a delta whose steps are each written at once. At
/// most `bound` pairs of histories are judged, spread evenly over all.
///
/// # Errors
/// The first violation found.
pub fn check(
    old: &Tables,
    delta: &Delta,
    new: &Tables,
    bound: usize,
) -> Result<CheckSummary, Violation> {
    check_phase_order(delta)?;
    check_any_order(old, delta, new, Atomicity::Step, bound)
}

/// As [`check`], for any order of phases and any unit of atomicity. Whatever it finds is wrong for some
/// packet, or dangling.
///
/// # Errors
/// The first violation found; never [`Violation::PhaseOrder`].
pub fn check_any_order(
    old: &Tables,
    delta: &Delta,
    new: &Tables,
    atomicity: Atomicity,
    bound: usize,
) -> Result<CheckSummary, Violation> {
    let dangling = |(step, reference)| Violation::DanglingReference { step, reference };
    IntermediateStates::new(old, delta, Atomicity::Step).map_err(dangling)?;
    let delta = &merge_unwaited_steps(old, delta);
    let states = IntermediateStates::new(old, delta, atomicity).map_err(dangling)?;
    if states.last() != new {
        return Err(Violation::WrongFinalTables);
    }
    let mut histories = HistoryInterner::new(&states);
    let pairs = history_pairs(&states.tables, &mut histories);
    let mut checked = CheckSummary {
        pairs: pairs.len(),
        both_ends: pairs
            .values()
            .filter(|(input, output)| input.is_some() && output.is_some())
            .count(),
        ..CheckSummary::default()
    };
    let stride = pairs.len().div_ceil(bound.max(1)).max(1);
    for (at, (judged, example)) in pairs.into_iter().enumerate() {
        if at % stride != 0 {
            checked.skipped += 1;
            continue;
        }
        let pair = HistoryPair {
            states: &states,
            input: judged.input.map(|history| histories.get(history)),
            output: judged.output.map(|history| histories.get(history)),
            outcomes: histories.outcomes(),
            example: &example,
        };
        checked.packets += pair.check()?;
    }
    Ok(checked)
}

fn check_phase_order(delta: &Delta) -> Result<(), Violation> {
    let phases: Vec<Phase> = delta.steps.iter().map(|step| step.phase).collect();
    let empty = |step: &palisade_tables::DeltaStep| {
        step.changes.is_empty() != (step.phase == Phase::Revoke)
    };
    if !phases.is_sorted() || delta.steps.iter().any(empty) {
        return Err(Violation::PhaseOrder(phases));
    }
    Ok(())
}

/// Where a direction is judged, and the other end.
type DirectionExample = Option<(Point, IpAddr)>;
type FlowExample = (DirectionExample, DirectionExample);

/// Whether a packet is judged at this point as it arrives: what a workload sends, and what comes to the host.
fn is_input(point: &Point) -> bool {
    if !point.is_host() {
        point.direction == Direction::Egress
    } else {
        point.direction == Direction::Ingress
    }
}

/// Whether a packet with this source and destination is judged at the point, and if so, the other end.
fn peer_at(point: &Point, source: IpAddr, destination: IpAddr) -> Option<IpAddr> {
    let (local, peer) = match point.direction {
        Direction::Egress => (source, destination),
        Direction::Ingress => (destination, source),
    };
    (point.local == Prefix::host(local)).then_some(peer)
}

/// The histories of every judgement of a packet, in order: of the early stages, and the last one, at the interface by
/// which it arrives and at the one by which it leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct PacketHistories {
    input: [usize; 3],
    output: [usize; 2],
}

impl PacketHistories {
    fn all(self) -> impl Iterator<Item = usize> {
        self.input.into_iter().chain(self.output)
    }
}

/// The histories at a point, after those of the early stages at its interface. `before`: the local end before
/// destination NAT, where that is another one.
fn early_histories<const STAGES: usize>(
    point: &Point,
    peer: IpAddr,
    before: Option<IpAddr>,
    early: [PolicyStage; STAGES],
    histories: &mut HistoryInterner<'_>,
) -> [usize; STAGES] {
    early.map(|stage| {
        let is_judged = point.is_host() && stage.has_direction(point.direction);
        // Nothing is early at the interface by which a forwarded packet leaves.
        let is_leaving =
            point.stage == PolicyStage::Forward && point.direction == Direction::Egress;
        if !is_judged || is_leaving {
            return histories.unjudged_history(true);
        }
        let point = Point {
            stage,
            local: before.map_or(point.local, Prefix::host),
            ..point.clone()
        };
        histories.history(&point, peer)
    })
}

/// The early stages of what arrives, and of what leaves.
const EARLY_INPUT: [PolicyStage; 2] = [PolicyStage::Untracked, PolicyStage::PreDnat];
const EARLY_OUTPUT: [PolicyStage; 1] = [PolicyStage::Untracked];

/// The distinct combinations of histories that a packet can have, each with a packet that has it.
fn history_pairs(
    states: &[Tables],
    histories: &mut HistoryInterner<'_>,
) -> BTreeMap<PacketHistories, FlowExample> {
    let mut pairs: BTreeMap<PacketHistories, FlowExample> = BTreeMap::new();
    let always = histories.unjudged_history(false);
    let open = histories.unjudged_history(true);
    let has_pre_dnat = host_sides(states)
        .iter()
        .any(|side| side.1 == PolicyStage::PreDnat);
    let workloads = states.iter().flat_map(|state| {
        let written = state.points.keys().cloned();
        let written = written.filter(|point| !point.is_host());
        written.chain(unregistered_points(state))
    });
    let mut points: BTreeSet<Point> = workloads.collect();
    let last_sides: BTreeSet<HostSide> = host_sides(states)
        .into_iter()
        .flat_map(|(interface, stage, direction, family)| {
            // What no policy of an early stage decides is judged by a last one, or by none.
            let stages = if stage.is_early() {
                vec![PolicyStage::Forward, PolicyStage::Normal]
            } else {
                vec![stage]
            };
            let sides = stages.into_iter();
            sides.map(move |stage| (interface.clone(), stage, direction, family))
        })
        .collect();
    for (interface, stage, direction, family) in last_sides {
        points.extend(histories.addresses(family).into_iter().map(|local| Point {
            interface: interface.clone(),
            stage,
            direction,
            local: Prefix::host(local),
        }));
    }
    let mut early_of_any: BTreeMap<(Point, IpAddr), BTreeSet<[usize; 2]>> = BTreeMap::new();
    let outputs: Vec<&Point> = points.iter().filter(|point| !is_input(point)).collect();
    for point in &points {
        for peer in histories.addresses(point.local.family()) {
            let history = histories.history(point, peer);
            let example = Some((point.clone(), peer));
            if !is_input(point) {
                let [untracked] = early_histories(point, peer, None, EARLY_OUTPUT, histories);
                let judged = PacketHistories {
                    input: [open, open, always],
                    output: [untracked, history],
                };
                pairs.entry(judged).or_insert((None, example));
                continue;
            }
            let mut all_early =
                BTreeSet::from([early_histories(point, peer, None, EARLY_INPUT, histories)]);
            if has_pre_dnat && point.is_host() {
                // Where the packet was sent has nothing to do with where it arrives.
                let any = Point {
                    local: Prefix::all(point.local.family()),
                    ..point.clone()
                };
                let translated = early_of_any.entry((any, peer)).or_insert_with_key(|_| {
                    let before = histories.addresses(point.local.family()).into_iter();
                    before
                        .map(|sent_to| {
                            early_histories(point, peer, Some(sent_to), EARLY_INPUT, histories)
                        })
                        .collect()
                });
                all_early.extend(translated.iter().copied());
            }
            for early in all_early {
                let judged = PacketHistories {
                    input: [early[0], early[1], history],
                    output: [open, always],
                };
                pairs.entry(judged).or_insert((example.clone(), None));
            }
        }
        if !is_input(point) {
            continue;
        }
        for output in &outputs {
            // What an endpoint sends to itself is judged at points of its own, and only there.
            let is_itself = output.interface == point.interface && !point.is_host();
            let is_hairpin = [point, output]
                .into_iter()
                .any(|end| end.hairpin().is_some());
            let is_forwarded = [point, output]
                .into_iter()
                .all(|end| !end.is_host() || end.stage == PolicyStage::Forward);
            if is_itself != is_hairpin
                || !is_forwarded
                || output.local.family() != point.local.family()
            {
                continue;
            }
            for (source, destination) in flow_ends(point, output, histories) {
                let ends =
                    peer_at(point, source, destination).zip(peer_at(output, source, destination));
                let Some((first, last)) = ends else { continue };
                let arrives = histories.history(point, first);
                let leaves = histories.history(output, last);
                let early = early_histories(point, first, None, EARLY_INPUT, histories);
                let judged = PacketHistories {
                    input: [early[0], early[1], arrives],
                    output: [open, leaves],
                };
                pairs.entry(judged).or_insert_with(|| {
                    (
                        Some((point.clone(), first)),
                        Some(((*output).clone(), last)),
                    )
                });
            }
        }
    }
    pairs.retain(|judged, _| judged.all().any(|history| histories.has_changes(history)));
    pairs
}

/// The sources and destinations of packets that arrive at one point and leave at another.
fn flow_ends(
    input: &Point,
    output: &Point,
    histories: &HistoryInterner<'_>,
) -> Vec<(IpAddr, IpAddr)> {
    let (first, last) = (input.local.address(), output.local.address());
    let any = || histories.addresses(input.local.family()).into_iter();
    match (input.direction, output.direction) {
        (Direction::Egress, Direction::Ingress) => vec![(first, last)],
        (Direction::Ingress, Direction::Egress) => vec![(last, first)],
        (Direction::Egress, Direction::Egress) => {
            any().map(|destination| (first, destination)).collect()
        }
        (Direction::Ingress, Direction::Ingress) => any().map(|source| (source, first)).collect(),
    }
}

type HostSide = (PointInterface, PolicyStage, Direction, Family);

/// Where the tables judge at interfaces of the host.
fn host_sides(states: &[Tables]) -> BTreeSet<HostSide> {
    let names = states.iter().flat_map(|state| &state.host_interfaces);
    let named: BTreeSet<PointInterface> = names
        .map(|name| PointInterface::Host(name.clone()))
        .collect();
    let points = states.iter().flat_map(|state| state.points.keys());
    let mut sides = BTreeSet::new();
    for point in points.filter(|point| point.is_host()) {
        // A named interface may have the points of all at some time.
        for interface in named.iter().chain([&point.interface]) {
            let family = point.local.family();
            sides.insert((interface.clone(), point.stage, point.direction, family));
        }
    }
    sides
}

/// On each interface a point that is never written: what is spoofed, or comes too early.
fn unregistered_points(tables: &Tables) -> impl Iterator<Item = Point> {
    let addresses = [
        IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 254)),
        IpAddr::V6(std::net::Ipv6Addr::new(
            0x2001, 0xdb8, 0, 0, 0, 0, 0xfe, 0xfe,
        )),
    ];
    tables.interfaces.iter().flat_map(move |interface| {
        addresses.into_iter().flat_map(move |address| {
            Direction::BOTH
                .map(|direction| Point::of_workload(interface.clone(), address, direction))
        })
    })
}

struct HistoryPair<'a> {
    states: &'a IntermediateStates,
    input: [&'a OutcomeHistory; 3],
    output: [&'a OutcomeHistory; 2],
    outcomes: &'a OutcomeInterner,
    example: &'a FlowExample,
}

/// The verdict of an interface, given those of its stages: the first that decides.
fn side(stages: &[&OutcomeHistory], verdict: &dyn Fn(&OutcomeHistory) -> Verdict) -> Verdict {
    let mut verdicts = stages.iter().map(|history| verdict(history));
    let decided = verdicts.find(|verdict| *verdict != Verdict::Continue);
    decided.unwrap_or(Verdict::Allow)
}

/// The verdicts of an interface that a packet may get during a step.
fn sides_during(
    stages: &[&OutcomeHistory],
    step: usize,
    get: &impl Fn(usize) -> Verdict,
) -> BTreeSet<Verdict> {
    let Some((first, rest)) = stages.split_first() else {
        return BTreeSet::from([Verdict::Allow]);
    };
    let mut all = BTreeSet::new();
    for outcome in &first.during_steps[step] {
        match get(*outcome) {
            Verdict::Continue => all.extend(sides_during(rest, step, get)),
            decided => drop(all.insert(decided)),
        }
    }
    all
}

impl HistoryPair<'_> {
    /// Judges every kind of header; returns how many there are.
    fn check(&self) -> Result<u64, Violation> {
        let all = self.input.iter().chain(&self.output);
        let programs: BTreeSet<usize> = all.flat_map(|history| history.outcomes()).collect();
        let headers = sample_headers(programs.iter().map(|at| self.outcomes.program(*at)));
        for header in &headers {
            self.check_header(*header)?;
        }
        Ok(headers.len() as u64)
    }

    fn check_header(&self, header: TransportHeader) -> Result<(), Violation> {
        let get = |outcome: usize| {
            let (protocol, l4) = header;
            self.outcomes.program(outcome).cell(protocol, l4).verdict
        };
        let verdicts_in = |state: usize| {
            let input = side(&self.input, &|history| get(history.in_states[state]));
            (
                input,
                side(&self.output, &|history| get(history.in_states[state])),
            )
        };
        let both = |(input, output): (Verdict, Verdict)| input.min(output);
        let last = self.states.tables.len() - 1;
        let (old, new) = (both(verdicts_in(0)), both(verdicts_in(last)));
        let wrong = |step, interim| self.misjudged_packet(step, header, old, new, interim);
        let mut write = 0;
        for (step, end) in self.states.step_ends.iter().enumerate() {
            for state in write..*end {
                let (was, is) = (verdicts_in(state), verdicts_in(state + 1));
                let holds = match self.states.phases[state] {
                    Phase::Tighten => is.0 <= was.0 && is.1 <= was.1,
                    Phase::Loosen => is.0 >= was.0 && is.1 >= was.1,
                    // Whether it is the old or the new verdict is asked below.
                    Phase::Shift => true,
                    _ => is == was,
                };
                if !holds {
                    return Err(Violation::PhaseViolation(wrong(step, both(is))));
                }
            }
            write = *end;
            for input in sides_during(&self.input, step, &get) {
                for output in sides_during(&self.output, step, &get) {
                    let interim = input.min(output);
                    if interim != old && interim != new {
                        return Err(Violation::MixedVerdict(wrong(step, interim)));
                    }
                }
            }
        }
        if old > new && !self.has_valid_revoke() {
            return Err(Violation::MissingRevoke(
                self.misjudged_packet(0, header, old, new, new),
            ));
        }
        Ok(())
    }

    /// Whether established flows are judged again after all tightening and before any loosening.
    fn has_valid_revoke(&self) -> bool {
        let phases = &self.states.phases;
        let at = phases.iter().position(|p| *p == Phase::Revoke);
        at.is_some_and(|at| {
            !phases[at..].contains(&Phase::Tighten) && !phases[..at].contains(&Phase::Loosen)
        })
    }

    fn phase_of(&self, step: usize) -> Phase {
        let write = self.states.step_ends.get(step).map(|state| state - 1);
        let phase = write.and_then(|write| self.states.phases.get(write));
        phase.copied().unwrap_or(Phase::Split)
    }

    fn misjudged_packet(
        &self,
        step: usize,
        (protocol, l4): TransportHeader,
        old: Verdict,
        new: Verdict,
        interim: Verdict,
    ) -> Box<MisjudgedPacket> {
        Box::new(MisjudgedPacket {
            step,
            phase: self.phase_of(step),
            input: self.example.0.clone(),
            output: self.example.1.clone(),
            protocol,
            l4,
            old,
            new,
            interim,
        })
    }
}
