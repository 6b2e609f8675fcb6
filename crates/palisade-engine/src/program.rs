//! Programs: a policy set's rules, seen by one identity, as one total function.
//!
//! A [`Sequence`] is what a policy set does, flat: rules, the place where Pass goes on, and the stops
//! that deny. [`compile`] walks it for every region that the rules tell apart. All order, tiers,
//! Pass, Log and defaults end here. It never asks who an identity is: that is told to it, rule by
//! rule.

use crate::faults::{Fault, on};
use crate::traffic::{End, Ranges, Region, all, protocols_of, region};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use palisade_model::{Action, Direction, PortRange, Protocol, Str, Traffic};
use palisade_tables::{Cell, PortMap, Program, RuleId, Values, Verdict};

/// One step of a policy set.
#[derive(Debug)]
pub(crate) enum Step<T> {
    /// A rule.
    Rule {
        /// What it is credited as.
        id: RuleId,
        /// What it does.
        action: Action,
        /// Where Pass goes on: a place in the sequence.
        next: usize,
        /// The rule itself.
        rule: T,
    },
    /// Whatever comes here is decided.
    Stop {
        /// What is credited.
        id: RuleId,
        /// What it gets.
        verdict: Verdict,
    },
}

/// What a policy set does, in order. Ends with a stop.
#[derive(Debug)]
pub(crate) struct Sequence<T> {
    /// The direction of its rules.
    pub(crate) direction: Direction,
    pub(crate) steps: Vec<Step<T>>,
}

/// Compiles a sequence for an identity. `terms` gives the traffic terms of the rule at a place that
/// the identity can match, none where its peers do not match; `named` resolves named ports at either
/// end.
pub(crate) fn compile<'a, T>(
    sequence: &'a Sequence<T>,
    terms: impl Fn(usize, &'a T) -> Vec<&'a Traffic>,
    named: impl Fn(End, &Str, Protocol) -> Option<u16>,
) -> Program {
    let matched: Vec<Vec<&Traffic>> = sequence
        .steps
        .iter()
        .enumerate()
        .map(|(at, step)| match step {
            Step::Rule { rule, .. } => terms(at, rule),
            Step::Stop { .. } => Vec::new(),
        })
        .collect();
    let mut protocols = BTreeSet::new();
    for term in matched.iter().flatten() {
        protocols_of(term, &mut protocols);
    }
    let regions = |protocol| -> Vec<Vec<Region>> {
        let of = |terms: &Vec<&Traffic>| {
            terms
                .iter()
                .filter_map(|term| region(term, protocol, &named))
                .collect()
        };
        matched.iter().map(of).collect()
    };
    let default = walk(sequence, &regions(None), 0, 0);
    let listed: BTreeMap<Protocol, PortMap<Values>> = protocols
        .into_iter()
        .map(|protocol| (protocol, map(sequence, &regions(Some(protocol)))))
        .collect();
    Program::new(listed, default)
}

/// The function of one protocol.
fn map<T>(sequence: &Sequence<T>, regions: &[Vec<Region>]) -> PortMap<Values> {
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
fn ends<'a>(ranges: impl Iterator<Item = &'a Ranges>) -> BTreeSet<u16> {
    let mut ends = BTreeSet::from([u16::MAX]);
    for PortRange { first, last } in ranges.flatten() {
        ends.extend(first.checked_sub(1));
        ends.insert(*last);
    }
    ends
}

/// The cell of one packet.
fn walk<T>(sequence: &Sequence<T>, regions: &[Vec<Region>], key: u16, source: u16) -> Cell {
    let mut hits = Vec::new();
    let mut log = None;
    let mut at = 0;
    while let Some(step) = sequence.steps.get(at) {
        at += 1;
        match step {
            Step::Stop { id, verdict } => {
                hits.push(*id);
                return Cell {
                    verdict: *verdict,
                    hits,
                    log,
                };
            }
            Step::Rule {
                id, action, next, ..
            } => {
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
        }
    }
    Cell {
        verdict: Verdict::Deny,
        hits,
        log,
    }
}
