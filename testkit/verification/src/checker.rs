//! The checker of every intermediate state: no packet gets a verdict that is neither the old nor the
//! new, judged end to end with both of its endpoints.
//!
//! Between two steps no packet is in flight (the executor waits for a grace period). During a step, each
//! lookup of a packet sees the state before or after any of the step's writes, in order: a step is one
//! write, or as many as it has entries ([`Atomicity`]). Steps without a grace period between them are
//! judged as one. Points, addresses and headers are enumerated exactly, by what the tables distinguish.
//! The checker never asks why a verdict changes: it is given both tables and the delta, and trusts none
//! of them.

use crate::checker_lookups::{HistoryInterner, OutcomeHistory, OutcomeInterner};
use crate::checker_samples::{TransportHeader, sample_headers};
use crate::checker_states::{Atomicity, IntermediateStates, merge_unwaited_steps};
use palisade_model::{Direction, Family, L4, Protocol};
use palisade_tables::{Delta, Phase, Point, Tables, Verdict};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;

/// What was checked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CheckSummary {
    /// Pairs of an egress and an ingress history that differ from each other.
    pub pairs: usize,
    /// How many of them have both of their endpoints here.
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
    /// Where egress is judged, if anywhere, and the address of the other end.
    pub egress: Option<(Point, IpAddr)>,
    /// Where ingress is judged, if anywhere, and the address of the other end.
    pub ingress: Option<(Point, IpAddr)>,
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
            .filter(|(egress, ingress)| egress.is_some() && ingress.is_some())
            .count(),
        ..CheckSummary::default()
    };
    let stride = pairs.len().div_ceil(bound.max(1)).max(1);
    for (at, ((egress, ingress), example)) in pairs.into_iter().enumerate() {
        if at % stride != 0 {
            checked.skipped += 1;
            continue;
        }
        let pair = HistoryPair {
            states: &states,
            egress: histories.get(egress),
            ingress: histories.get(ingress),
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

/// The distinct pairs of histories that a packet can have, each with a packet that has it.
fn history_pairs(
    states: &[Tables],
    histories: &mut HistoryInterner<'_>,
) -> BTreeMap<(usize, usize), FlowExample> {
    let mut pairs: BTreeMap<(usize, usize), FlowExample> = BTreeMap::new();
    let always = histories.unjudged_history();
    let points: BTreeSet<Point> = states
        .iter()
        .flat_map(|state| {
            state
                .points
                .keys()
                .cloned()
                .chain(unregistered_points(state))
        })
        .collect();
    let ingress_points: Vec<&Point> = points
        .iter()
        .filter(|point| point.direction == Direction::Ingress)
        .collect();
    for point in &points {
        for peer in histories.addresses(Family::of(point.address)) {
            let history = histories.history(point, peer);
            let example = Some((point.clone(), peer));
            match point.direction {
                Direction::Egress => pairs.entry((history, always)).or_insert((example, None)),
                Direction::Ingress => pairs.entry((always, history)).or_insert((None, example)),
            };
        }
        if point.direction != Direction::Egress {
            continue;
        }
        for end in &ingress_points {
            // What an endpoint sends to itself passes as long as it is there, whatever the step.
            let is_itself = end.interface == point.interface;
            if is_itself || Family::of(end.address) != Family::of(point.address) {
                continue;
            }
            let out = histories.history(point, end.address);
            let into = histories.history(end, point.address);
            pairs.entry((out, into)).or_insert_with(|| {
                (
                    Some((point.clone(), end.address)),
                    Some(((*end).clone(), point.address)),
                )
            });
        }
    }
    pairs.retain(|(egress, ingress), _| {
        histories.has_changes(*egress) || histories.has_changes(*ingress)
    });
    pairs
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
            Direction::BOTH.map(|direction| Point {
                interface: interface.clone(),
                address,
                direction,
            })
        })
    })
}

struct HistoryPair<'a> {
    states: &'a IntermediateStates,
    egress: &'a OutcomeHistory,
    ingress: &'a OutcomeHistory,
    outcomes: &'a OutcomeInterner,
    example: &'a FlowExample,
}

impl HistoryPair<'_> {
    /// Judges every kind of header; returns how many there are.
    fn check(&self) -> Result<u64, Violation> {
        let programs = self.egress.outcomes().chain(self.ingress.outcomes());
        let programs: BTreeSet<usize> = programs.collect();
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
            let egress = get(self.egress.in_states[state]);
            (egress, get(self.ingress.in_states[state]))
        };
        let both = |(egress, ingress): (Verdict, Verdict)| egress.min(ingress);
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
                    _ => is == was,
                };
                if !holds {
                    return Err(Violation::PhaseViolation(wrong(step, both(is))));
                }
            }
            write = *end;
            for egress in &self.egress.during_steps[step] {
                for ingress in &self.ingress.during_steps[step] {
                    let interim = get(*egress).min(get(*ingress));
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
            egress: self.example.0.clone(),
            ingress: self.example.1.clone(),
            protocol,
            l4,
            old,
            new,
            interim,
        })
    }
}
