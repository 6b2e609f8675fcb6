//! The checker of every intermediate state: no packet gets a verdict that is neither the old nor the
//! new, judged end to end with both of its endpoints.
//!
//! Between two steps no packet is on its way (the executor waits); inside a step a packet may have
//! made any number of its lookups before the step and the rest after it. Steps between which nobody
//! waits are judged as one. The checker enumerates
//! points, addresses and headers exactly, by what the tables tell apart. It never asks why a verdict
//! changes: it is given both tables and the delta, and trusts none of them.

use crate::checker_atoms::{Header, headers};
use crate::checker_lookups::{Histories, History, Outcomes};
use crate::{Delta, Phase, Point, Tables, Verdict};
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::net::IpAddr;
use palisade_model::{Direction, Family, L4, Protocol};

/// What was judged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Checked {
    /// Pairs of an egress and an ingress history that differ from each other.
    pub pairs: usize,
    /// How many of them have both of their endpoints here.
    pub both_ends: usize,
    /// Kinds of packet judged in every intermediate state.
    pub packets: u64,
    /// Pairs beyond the bound, not judged.
    pub skipped: usize,
}

/// What is wrong with a delta.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Violation {
    /// The steps do not lead from the old tables to the new.
    WrongEnd,
    /// The phases are not in order, or a step that must have changes has none.
    Order(Vec<Phase>),
    /// After a step, something refers to what is not there.
    Dangling {
        /// The index of the step.
        step: usize,
        /// What refers to what.
        what: String,
    },
    /// A packet can get a verdict that is neither the old nor the new.
    Neither(Box<Wrong>),
    /// A step changes a verdict in a way that its phase promises not to.
    BrokenPromise(Box<Wrong>),
    /// Something that was allowed is denied now, and established flows are not judged again between
    /// tightening and loosening.
    NotRevoked(Box<Wrong>),
}

/// One packet that is judged wrongly.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wrong {
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
    /// What it got before the flush.
    pub old: Verdict,
    /// What it gets after the flush.
    pub new: Verdict,
    /// What it can get in between.
    pub between: Verdict,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Violation::WrongEnd => f.write_str("the steps do not end in the new tables"),
            Violation::Order(phases) => write!(f, "phases out of order: {phases:?}"),
            Violation::Dangling { step, what } => write!(f, "after step {step}: {what}"),
            Violation::Neither(wrong) => write!(f, "neither the old nor the new: {wrong:?}"),
            Violation::BrokenPromise(wrong) => write!(f, "not what the phase may do: {wrong:?}"),
            Violation::NotRevoked(wrong) => write!(f, "revoked but not judged again: {wrong:?}"),
        }
    }
}

impl core::error::Error for Violation {}

/// Judges every packet in every intermediate state of a flush. At most `bound` pairs of histories
/// are judged, spread evenly over all there are.
pub fn check(
    old: &Tables,
    delta: &Delta,
    new: &Tables,
    bound: usize,
) -> Result<Checked, Violation> {
    order(delta)?;
    check_between(old, delta, new, bound)
}

/// The same, whatever the order of the phases: what it finds is wrong for some packet, or leads
/// nowhere. Proves that an order which is not asked for is seen by what it does.
///
/// # Errors
/// The first violation found; never [`Violation::Order`].
pub fn check_between(
    old: &Tables,
    delta: &Delta,
    new: &Tables,
    bound: usize,
) -> Result<Checked, Violation> {
    states(old, delta)?;
    let delta = &joined(old, delta);
    let states = states(old, delta)?;
    let reached = states.last().unwrap_or(old);
    if reached != new {
        return Err(Violation::WrongEnd);
    }
    let phases: Vec<Phase> = delta.steps.iter().map(|step| step.phase).collect();
    let mut histories = Histories::new(&states);
    let pairs = pairs(&states, &mut histories);
    let mut checked = Checked {
        pairs: pairs.len(),
        both_ends: pairs
            .values()
            .filter(|(egress, ingress)| egress.is_some() && ingress.is_some())
            .count(),
        ..Checked::default()
    };
    let stride = pairs.len().div_ceil(bound.max(1)).max(1);
    for (at, ((egress, ingress), example)) in pairs.into_iter().enumerate() {
        if at % stride != 0 {
            checked.skipped += 1;
            continue;
        }
        let pair = Pair {
            phases: &phases,
            egress: histories.get(egress),
            ingress: histories.get(ingress),
            outcomes: histories.outcomes(),
            example: &example,
        };
        checked.packets += pair.judge()?;
    }
    Ok(checked)
}

fn order(delta: &Delta) -> Result<(), Violation> {
    let phases: Vec<Phase> = delta.steps.iter().map(|step| step.phase).collect();
    let empty = |step: &crate::Step| step.changes.is_empty() != (step.phase == Phase::Revoke);
    if !phases.is_sorted() || delta.steps.iter().any(empty) {
        return Err(Violation::Order(phases));
    }
    Ok(())
}

/// The delta with every step that is not waited for made part of the next.
fn joined(old: &Tables, delta: &Delta) -> Delta {
    let mut now = old.clone();
    let mut steps: Vec<crate::Step> = Vec::new();
    let mut unwaited: Vec<crate::Change> = Vec::new();
    for (at, step) in delta.steps.iter().enumerate() {
        let waits = delta.waits_after(at, &now);
        step.changes.iter().for_each(|change| now.apply(change));
        unwaited.extend(step.changes.iter().cloned());
        if waits {
            steps.push(crate::Step {
                phase: step.phase,
                changes: core::mem::take(&mut unwaited),
            });
        }
    }
    Delta {
        revision: delta.revision,
        steps,
    }
}

/// The tables before the first step and after each.
fn states(old: &Tables, delta: &Delta) -> Result<Vec<Tables>, Violation> {
    let mut states = alloc::vec![old.clone()];
    let mut now = old.clone();
    for (step, made) in delta.steps.iter().enumerate() {
        for change in &made.changes {
            now.apply(change);
        }
        if let Some(what) = dangling(&now) {
            return Err(Violation::Dangling { step, what });
        }
        states.push(now.clone());
    }
    Ok(states)
}

/// Something that refers to what is not there.
fn dangling(tables: &Tables) -> Option<String> {
    for (point, set) in &tables.points {
        if !tables.sets.contains_key(set) {
            return Some(alloc::format!("{point:?} has {set}, which is not there"));
        }
    }
    let defaults = tables.sets.iter().map(|(set, of)| (set, &of.default));
    let entries = tables.classes.iter().map(|((set, _), class)| (set, class));
    for (set, class) in defaults.chain(entries) {
        if !tables.sets.contains_key(set) || !tables.programs.contains_key(class) {
            return Some(alloc::format!("{set} or {class} is not there"));
        }
    }
    for (class, program) in &tables.programs {
        let mut lost = None;
        program.for_each_cell(|cell| {
            let gone = cell.hits.iter().find(|hit| !tables.rules.contains_key(hit));
            lost = lost.or(gone.copied());
        });
        if let Some(rule) = lost {
            return Some(alloc::format!("{class} names {rule}, which is not there"));
        }
    }
    None
}

/// Where a direction is judged, and the other end.
type Place = Option<(Point, IpAddr)>;
type Example = (Place, Place);

/// The distinct pairs of histories that a packet can have, each with a packet that has it.
fn pairs(states: &[Tables], histories: &mut Histories) -> BTreeMap<(usize, usize), Example> {
    let mut pairs: BTreeMap<(usize, usize), Example> = BTreeMap::new();
    let always = histories.always();
    let points: BTreeSet<Point> = states
        .iter()
        .flat_map(|state| state.points.keys().cloned().chain(strangers(state)))
        .collect();
    let ends: Vec<&Point> = points
        .iter()
        .filter(|point| point.direction == Direction::Ingress)
        .collect();
    for point in &points {
        for peer in histories.addresses(Family::of(point.address)) {
            let history = histories.of(states, point, peer);
            let place = Some((point.clone(), peer));
            match point.direction {
                Direction::Egress => pairs.entry((history, always)).or_insert((place, None)),
                Direction::Ingress => pairs.entry((always, history)).or_insert((None, place)),
            };
        }
        if point.direction != Direction::Egress {
            continue;
        }
        for end in &ends {
            // What an endpoint sends to itself passes as long as it is there, whatever the step.
            let is_itself = end.interface == point.interface;
            if is_itself || Family::of(end.address) != Family::of(point.address) {
                continue;
            }
            let out = histories.of(states, point, end.address);
            let into = histories.of(states, end, point.address);
            pairs.entry((out, into)).or_insert_with(|| {
                (
                    Some((point.clone(), end.address)),
                    Some(((*end).clone(), point.address)),
                )
            });
        }
    }
    pairs.retain(|(egress, ingress), _| histories.moves(*egress) || histories.moves(*ingress));
    pairs
}

/// On each interface a point that is never written: what is spoofed, or comes too early.
fn strangers(tables: &Tables) -> impl Iterator<Item = Point> {
    let addresses = [
        IpAddr::V4(core::net::Ipv4Addr::new(192, 0, 2, 254)),
        IpAddr::V6(core::net::Ipv6Addr::new(
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

struct Pair<'a> {
    phases: &'a [Phase],
    egress: &'a History,
    ingress: &'a History,
    outcomes: &'a Outcomes,
    example: &'a Example,
}

impl Pair<'_> {
    /// Judges every kind of header; returns how many there are.
    fn judge(&self) -> Result<u64, Violation> {
        let programs = self.egress.outcomes().chain(self.ingress.outcomes());
        let programs: BTreeSet<usize> = programs.collect();
        let headers = headers(programs.iter().map(|at| self.outcomes.program(*at)));
        for header in &headers {
            self.judge_header(*header)?;
        }
        Ok(headers.len() as u64)
    }

    fn judge_header(&self, header: Header) -> Result<(), Violation> {
        let get = |outcome: usize| {
            let (protocol, l4) = header;
            self.outcomes.program(outcome).at(protocol, l4).verdict
        };
        let settled = |step: usize| {
            let egress = get(self.egress.settled[step]);
            (egress, get(self.ingress.settled[step]))
        };
        let both = |(egress, ingress): (Verdict, Verdict)| egress.min(ingress);
        let last = self.phases.len();
        let (old, new) = (both(settled(0)), both(settled(last)));
        for (step, phase) in self.phases.iter().enumerate() {
            let wrong = |between| self.wrong(step, header, old, new, between);
            let (was, is) = (settled(step), settled(step + 1));
            let holds = match phase {
                Phase::Tighten => is.0 <= was.0 && is.1 <= was.1,
                Phase::Loosen => is.0 >= was.0 && is.1 >= was.1,
                _ => is == was,
            };
            if !holds {
                return Err(Violation::BrokenPromise(wrong(both(is))));
            }
            for egress in &self.egress.during[step] {
                for ingress in &self.ingress.during[step] {
                    let between = get(*egress).min(get(*ingress));
                    if between != old && between != new {
                        return Err(Violation::Neither(wrong(between)));
                    }
                }
            }
        }
        if old > new && !self.revokes() {
            return Err(Violation::NotRevoked(self.wrong(0, header, old, new, new)));
        }
        Ok(())
    }

    /// Whether established flows are judged again once everything is as tight as it will be.
    fn revokes(&self) -> bool {
        let at = self.phases.iter().position(|p| *p == Phase::Revoke);
        at.is_some_and(|at| {
            !self.phases[at..].contains(&Phase::Tighten)
                && !self.phases[..at].contains(&Phase::Loosen)
        })
    }

    fn wrong(
        &self,
        step: usize,
        (protocol, l4): Header,
        old: Verdict,
        new: Verdict,
        between: Verdict,
    ) -> Box<Wrong> {
        Box::new(Wrong {
            step,
            phase: self.phases.get(step).copied().unwrap_or(Phase::Split),
            egress: self.example.0.clone(),
            ingress: self.example.1.clone(),
            protocol,
            l4,
            old,
            new,
            between,
        })
    }
}
