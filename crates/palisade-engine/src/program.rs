//! Programs: what a policy set does with one identity, as one total function.
//!
//! [`compile`] walks the steps that concern the identity for every region that they tell apart. All
//! order, tiers, Pass, Log and defaults end here. It never asks who an identity is: that is settled
//! before, rule by rule.

use crate::faults::{Fault, on};
use crate::traffic::{End, Ranges, Region, all, contains, merged, protocols_of, region};
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use palisade_model::{Action, Direction, PortRange, Protocol, Str, Traffic};
use palisade_tables::{Cell, PortMap, Program, RuleId, Values, Verdict};

/// One step of a policy set.
#[derive(Debug)]
pub(crate) struct Step<'a> {
    /// What it is credited as.
    pub(crate) id: RuleId,
    pub(crate) does: Does<'a>,
}

/// What a step does.
#[derive(Debug)]
pub(crate) enum Does<'a> {
    /// A rule.
    Rule {
        action: Action,
        /// Where Pass goes on: the place of a step.
        next: usize,
        /// What it matches of traffic.
        terms: Vec<&'a Traffic>,
    },
    /// Whatever comes here is decided.
    Stop(Verdict),
}

/// What an identity meets in a policy set, in order; what falls off its end is denied.
#[derive(Debug)]
pub(crate) struct Sequence<'a> {
    /// The direction of its rules.
    pub(crate) direction: Direction,
    pub(crate) steps: Vec<Step<'a>>,
}

/// Compiles what an identity meets. `named` resolves named ports at either end. `None` where the
/// program would test more than `most` source ports.
///
/// The work follows the ranges that rules name: each protocol is swept once, from port to port.
pub(crate) fn compile(
    sequence: &Sequence<'_>,
    named: impl Fn(End, &Str, Protocol) -> Option<u16>,
    most: usize,
) -> Option<Program> {
    let steps = &sequence.steps;
    let mut protocols = Vec::new();
    for step in steps {
        if let Does::Rule { terms, .. } = &step.does {
            for term in terms {
                protocols_of(term, &mut protocols);
            }
        }
    }
    protocols.sort_unstable();
    protocols.dedup();
    let regions = |protocol| -> Vec<Vec<Region>> {
        let of = |step: &Step<'_>| match &step.does {
            Does::Rule { terms, .. } => merged(
                terms
                    .iter()
                    .filter_map(|term| region(term, protocol, &named))
                    .collect(),
            ),
            Does::Stop(_) => Vec::new(),
        };
        steps.iter().map(of).collect()
    };
    let mut room = most;
    let rest = map(sequence, &regions(None), &mut room)?;
    let mut listed = Vec::with_capacity(protocols.len());
    for protocol in protocols {
        let map = map(sequence, &regions(Some(protocol)), &mut room)?;
        listed.push((protocol, map));
    }
    Some(Program::new(listed, rest.at(0).at(0).clone()))
}

/// Where a region of a step begins or ends: the number, whether it begins, the step, the region.
type Edge = (u32, bool, usize, usize);

/// The regions that hold at a number, by step; the stops are always among them.
type Active = BTreeSet<(usize, usize)>;

/// The function of one protocol. `room` is how many source ports may still be tested.
fn map(
    sequence: &Sequence<'_>,
    regions: &[Vec<Region>],
    room: &mut usize,
) -> Option<PortMap<Values>> {
    let mut edges: Vec<Edge> = Vec::new();
    let mut active = Active::new();
    for (step, (of, does)) in regions.iter().zip(&sequence.steps).enumerate() {
        if matches!(does.does, Does::Stop(_)) {
            active.insert((step, 0));
        }
        for (number, region) in of.iter().enumerate() {
            for range in &region.key {
                edges.push((u32::from(range.first), true, step, number));
                edges.push((u32::from(range.last) + 1, false, step, number));
            }
        }
    }
    edges.sort_unstable();
    let mut edges = edges.into_iter().peekable();
    let mut segments: Vec<(u16, Values)> = Vec::new();
    let mut first = 0;
    while first <= u32::from(u16::MAX) {
        while let Some((_, begins, step, region)) = edges.next_if(|edge| edge.0 <= first) {
            match begins {
                true => active.insert((step, region)),
                false => active.remove(&(step, region)),
            };
        }
        let next = edges
            .peek()
            .map_or(u32::from(u16::MAX) + 1, |edge| edge.0)
            .min(u32::from(u16::MAX) + 1);
        let values = values(sequence, regions, &active, room)?;
        let end = u16::try_from(next - 1).unwrap_or(u16::MAX);
        match segments.last_mut() {
            Some((last, same)) if *same == values => *last = end,
            _ => segments.push((end, values)),
        }
        first = next;
    }
    PortMap::from_ends(segments)
}

/// The cells of one number, by source port.
fn values(
    sequence: &Sequence<'_>,
    regions: &[Vec<Region>],
    active: &Active,
    room: &mut usize,
) -> Option<Values> {
    let sources = || {
        active
            .iter()
            .filter_map(|at| Some(&source(regions, *at)?.source))
    };
    let whole = all();
    if sources().all(|ranges| *ranges == whole) {
        let cell = walk(sequence, regions, active, 0);
        return Some(PortMap::constant(cell));
    }
    let ends = ends(sources());
    *room = room.checked_sub(ends.len())?;
    let cells = ends
        .into_iter()
        .map(|source| (source, walk(sequence, regions, active, source)));
    PortMap::from_ends(cells)
}

/// The region of an entry of [`Active`]; none for a stop.
fn source(regions: &[Vec<Region>], (step, region): (usize, usize)) -> Option<&Region> {
    regions.get(step)?.get(region)
}

/// The last number of each run in which no range begins or ends; the last of all is 65535.
fn ends<'a>(ranges: impl Iterator<Item = &'a Ranges>) -> Vec<u16> {
    let mut ends = alloc::vec![u16::MAX];
    for PortRange { first, last } in ranges.flatten() {
        ends.extend(first.checked_sub(1));
        ends.push(*last);
    }
    ends.sort_unstable();
    ends.dedup();
    ends
}

/// The cell of one packet, whose number some regions hold.
fn walk(sequence: &Sequence<'_>, regions: &[Vec<Region>], active: &Active, port: u16) -> Cell {
    let mut hits = Vec::new();
    let mut log = None;
    let mut at = 0;
    let holds = |entry: &&(usize, usize)| {
        let region = source(regions, **entry);
        region.is_none_or(|region| contains(&region.source, port))
    };
    while let Some((step, _)) = active.range((at, 0)..).find(holds) {
        at = step + 1;
        let Some(Step { id, does }) = sequence.steps.get(*step) else {
            break;
        };
        hits.push(*id);
        let (action, next) = match does {
            Does::Stop(verdict) => {
                return Cell {
                    verdict: *verdict,
                    hits,
                    log,
                };
            }
            Does::Rule { action, next, .. } => (action, next),
        };
        let verdict = match action {
            Action::Allow => Verdict::Allow,
            Action::Deny => Verdict::Deny,
            Action::Log if on(Fault::LogDecides) => Verdict::Allow,
            Action::Log if on(Fault::LogNotReported) => continue,
            Action::Log => {
                log = Some(sequence.direction);
                continue;
            }
            Action::Pass if on(Fault::PassAsAllow) => Verdict::Allow,
            Action::Pass if on(Fault::PassAsDeny) => Verdict::Deny,
            Action::Pass => {
                at = *next;
                continue;
            }
        };
        return Cell { verdict, hits, log };
    }
    Cell {
        verdict: Verdict::Deny,
        hits,
        log,
    }
}
