//! Programs: what a policy set does with one identity, as one total function.
//!
//! [`compile`] walks the steps that concern the identity for every region that they tell apart. All
//! order, tiers, Pass, Log and defaults end here. It never asks who an identity is: that is settled
//! before, rule by rule.

use crate::faults::{Fault, on};
use crate::traffic::{End, Ranges, Region, all, protocols_of, region};
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

/// Compiles what an identity meets. `named` resolves named ports at either end.
pub(crate) fn compile(
    sequence: &Sequence<'_>,
    named: impl Fn(End, &Str, Protocol) -> Option<u16>,
) -> Program {
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
            Does::Rule { terms, .. } => terms
                .iter()
                .filter_map(|term| region(term, protocol, &named))
                .collect(),
            Does::Stop(_) => Vec::new(),
        };
        steps.iter().map(of).collect()
    };
    let default = walk(sequence, &regions(None), 0, 0);
    let listed = protocols
        .into_iter()
        .map(|protocol| (protocol, map(sequence, &regions(Some(protocol)))));
    Program::new(listed, default)
}

/// The function of one protocol.
fn map(sequence: &Sequence<'_>, regions: &[Vec<Region>]) -> PortMap<Values> {
    let keys = ends(regions.iter().flatten().map(|r| &r.key));
    let whole = all();
    let by_source = regions.iter().flatten().any(|r| r.source != whole);
    let mut segments: Vec<(u16, Values)> = Vec::with_capacity(keys.len());
    for key in keys {
        let values = if by_source {
            let here = regions
                .iter()
                .flatten()
                .filter(|r| crate::traffic::contains(&r.key, key));
            let sources = ends(here.map(|r| &r.source));
            let cells = sources
                .into_iter()
                .map(|source| (source, walk(sequence, regions, key, source)));
            PortMap::from_ends(cells)
        } else {
            None
        };
        let values =
            values.unwrap_or_else(|| PortMap::constant(walk(sequence, regions, key, u16::MAX)));
        segments.push((key, values));
    }
    PortMap::from_ends(segments)
        .unwrap_or_else(|| PortMap::constant(PortMap::constant(walk(sequence, regions, 0, 0))))
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

/// The cell of one packet.
fn walk(sequence: &Sequence<'_>, regions: &[Vec<Region>], key: u16, source: u16) -> Cell {
    let mut hits = Vec::new();
    let mut log = None;
    let mut at = 0;
    while let Some(Step { id, does }) = sequence.steps.get(at) {
        at += 1;
        let (action, next) = match does {
            Does::Stop(verdict) => {
                hits.push(*id);
                return Cell {
                    verdict: *verdict,
                    hits,
                    log,
                };
            }
            Does::Rule { action, next, .. } => (action, next),
        };
        if !regions[at - 1].iter().any(|r| r.contains(key, source)) {
            continue;
        }
        hits.push(*id);
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
