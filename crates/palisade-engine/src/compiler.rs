//! Compiles what a policy set does with one identity to a program: a total function of the packet.
//!
//! [`compile`] evaluates the matching rules for every region of traffic that they distinguish.
//! Order, tiers, Pass, Log and defaults are resolved here. Peers are not known here: the rules that
//! an identity matches are determined before.

use crate::faults::EngineFault;
use crate::traffic::{
    PortEnd, TrafficRegion, all_ports, collect_protocols, merge_regions, traffic_region,
};
use alloc::collections::BTreeSet;
use alloc::sync::Arc;
use alloc::vec::Vec;
use palisade_model::{
    Action, Direction, DomainPattern, Encapsulation, PortRange, Protocol, RangeSet, Str,
    TrafficMatch,
};
use palisade_tables::{Cell, DnsRules, PortMap, Program, RuleId, SourcePortMap, Verdict};

/// One step of a rule sequence.
#[derive(Debug)]
pub(crate) struct SequenceStep<'a> {
    /// What counts the packets that it decides.
    pub(crate) id: RuleId,
    pub(crate) operation: StepOperation<'a>,
}

/// The operation of a step.
#[derive(Debug)]
pub(crate) enum StepOperation<'a> {
    /// A rule.
    Rule {
        action: Action,
        /// The index of the step where Pass continues.
        next: usize,
        /// The traffic terms of the rule.
        terms: Vec<&'a TrafficMatch>,
        /// The names of the queries that the rule decides, if it decides by name.
        dns_names: Option<&'a BTreeSet<DomainPattern>>,
    },
    /// Decides everything that reaches it.
    Fallback(Verdict),
}

/// The rules and fallbacks that apply to an identity, in order. What reaches the end is denied.
#[derive(Debug)]
pub(crate) struct RuleSequence<'a> {
    /// The direction of the rules.
    pub(crate) direction: Direction,
    pub(crate) steps: Vec<SequenceStep<'a>>,
}

/// Compiles a sequence. `resolve_port` resolves named ports at either end. `None` if the program
/// would test more than `max_source_ports` source ports.
///
/// The work is proportional to the ranges that rules name: each protocol is swept once over all
/// ports.
pub(crate) fn compile(
    sequence: &RuleSequence<'_>,
    resolve_port: impl Fn(PortEnd, &Str, Protocol) -> Option<u16>,
    max_source_ports: usize,
) -> Option<Program> {
    let steps = &sequence.steps;
    let mut protocols = Vec::new();
    for step in steps {
        if let StepOperation::Rule {
            terms, dns_names, ..
        } = &step.operation
        {
            if dns_names.is_some() {
                protocols.extend([Protocol::TCP, Protocol::UDP]);
            }
            for term in terms {
                collect_protocols(term, &mut protocols);
            }
        }
    }
    protocols.sort_unstable();
    protocols.dedup();
    let regions = |protocol| -> Vec<Vec<TrafficRegion>> {
        let step_regions = |step: &SequenceStep<'_>| match &step.operation {
            StepOperation::Rule {
                terms, dns_names, ..
            } => {
                let all = terms
                    .iter()
                    .filter_map(|term| traffic_region(term, protocol, &resolve_port));
                merge_regions(match dns_names {
                    Some(_) => all
                        .filter_map(|region| readable_queries(region, protocol))
                        .collect(),
                    None => all.collect(),
                })
            }
            StepOperation::Fallback(_) => Vec::new(),
        };
        steps.iter().map(step_regions).collect()
    };
    let mut remaining = max_source_ports;
    let rest = compile_protocol(sequence, &regions(None), &mut remaining)?;
    let mut listed = Vec::with_capacity(protocols.len());
    for protocol in protocols {
        let map = compile_protocol(sequence, &regions(Some(protocol)), &mut remaining)?;
        listed.push((protocol, map));
    }
    Some(Program::new(listed, rest.get(0).get(0).clone()))
}

/// The part of a region in which DNS queries can be read: that of TCP and UDP, without encapsulated packets.
fn readable_queries(region: TrafficRegion, protocol: Option<Protocol>) -> Option<TrafficRegion> {
    match protocol? {
        Protocol::TCP => Some(region),
        Protocol::UDP => {
            let ports = Encapsulation::ALL
                .into_iter()
                .flat_map(Encapsulation::ports);
            let encapsulations = ports.map(|port| PortRange::single(*port)).collect();
            Some(TrafficRegion {
                key: region.key.subtract(&encapsulations),
                ..region
            })
        }
        _ => None,
    }
}

/// Start or end of a region: the number, whether it is a start, the step, the region.
type RegionEdge = (u32, bool, usize, usize);

/// The regions that contain a number, by step; fallbacks are always included.
type ActiveRegions = BTreeSet<(usize, usize)>;

/// Compiles the function of one protocol. `remaining` is the number of source ports that may still
/// be tested.
fn compile_protocol(
    sequence: &RuleSequence<'_>,
    regions: &[Vec<TrafficRegion>],
    remaining: &mut usize,
) -> Option<PortMap<SourcePortMap>> {
    let mut edges: Vec<RegionEdge> = Vec::new();
    let mut active = ActiveRegions::new();
    for (step, (step_regions, operation_step)) in regions.iter().zip(&sequence.steps).enumerate() {
        if matches!(operation_step.operation, StepOperation::Fallback(_)) {
            active.insert((step, 0));
        }
        for (number, region) in step_regions.iter().enumerate() {
            for range in region.key.ranges() {
                edges.push((u32::from(range.first), true, step, number));
                edges.push((u32::from(range.last) + 1, false, step, number));
            }
        }
    }
    edges.sort_unstable();
    let mut edges = edges.into_iter().peekable();
    let mut segments: Vec<(u16, SourcePortMap)> = Vec::new();
    let mut first = 0;
    while first <= u32::from(u16::MAX) {
        while let Some((_, begins, step, region)) = edges.next_if(|edge| edge.0 <= first) {
            if begins {
                active.insert((step, region))
            } else {
                active.remove(&(step, region))
            };
        }
        let next = edges
            .peek()
            .map_or(u32::from(u16::MAX) + 1, |edge| edge.0)
            .min(u32::from(u16::MAX) + 1);
        let values = compile_values(sequence, regions, &active, remaining)?;
        let end = u16::try_from(next - 1).unwrap_or(u16::MAX);
        segments.push((end, values));
        first = next;
    }
    PortMap::from_segments(segments)
}

/// The cells of one number, by source port.
fn compile_values(
    sequence: &RuleSequence<'_>,
    regions: &[Vec<TrafficRegion>],
    active: &ActiveRegions,
    remaining: &mut usize,
) -> Option<SourcePortMap> {
    let sources = || {
        active
            .iter()
            .filter_map(|at| Some(&region_at(regions, *at)?.source))
    };
    let whole = all_ports();
    if sources().all(|ranges| *ranges == whole) {
        let cell = evaluate(sequence, regions, active, 0);
        return Some(PortMap::constant(cell));
    }
    let ends = segment_ends(sources());
    *remaining = remaining.checked_sub(ends.len())?;
    let cells = ends
        .into_iter()
        .map(|source| (source, evaluate(sequence, regions, active, source)));
    PortMap::from_segments(cells)
}

/// The region of an entry of [`ActiveRegions`]; `None` for a fallback.
fn region_at(
    regions: &[Vec<TrafficRegion>],
    (step, region): (usize, usize),
) -> Option<&TrafficRegion> {
    regions.get(step)?.get(region)
}

/// The last number of each segment in which no range starts or ends; the last one is 65535.
fn segment_ends<'a>(ranges: impl Iterator<Item = &'a RangeSet<u16>>) -> Vec<u16> {
    let mut ends = alloc::vec![u16::MAX];
    for PortRange { first, last } in ranges.flat_map(RangeSet::ranges) {
        ends.extend(first.checked_sub(1));
        ends.push(*last);
    }
    ends.sort_unstable();
    ends.dedup();
    ends
}

/// The cell of one packet, given the regions that contain its number.
fn evaluate(
    sequence: &RuleSequence<'_>,
    regions: &[Vec<TrafficRegion>],
    active: &ActiveRegions,
    port: u16,
) -> Cell {
    let mut causes = Vec::new();
    let mut log = None;
    let mut names: Option<BTreeSet<DomainPattern>> = None;
    let mut at = 0;
    let holds = |entry: &&(usize, usize)| {
        let region = region_at(regions, **entry);
        region.is_none_or(|region| region.source.contains(port))
    };
    let mut decided = Verdict::Deny;
    while let Some((step, _)) = active.range((at, 0)..).find(holds) {
        at = step + 1;
        let Some(SequenceStep { id, operation }) = sequence.steps.get(*step) else {
            break;
        };
        causes.push(*id);
        let (action, next) = match operation {
            StepOperation::Fallback(verdict) => {
                decided = *verdict;
                break;
            }
            StepOperation::Rule {
                action: Action::Allow,
                dns_names: Some(patterns),
                ..
            } if !EngineFault::DnsRuleDecides.is_injected() => {
                names
                    .get_or_insert_default()
                    .extend(patterns.iter().cloned());
                continue;
            }
            StepOperation::Rule { action, next, .. } => (action, next),
        };
        decided = match action {
            Action::Allow => Verdict::Allow,
            Action::Deny => Verdict::Deny,
            Action::Log if EngineFault::LogDecides.is_injected() => Verdict::Allow,
            Action::Log if EngineFault::LogNotReported.is_injected() => continue,
            Action::Log => {
                log = Some(sequence.direction);
                continue;
            }
            Action::Pass if EngineFault::PassAsAllow.is_injected() => Verdict::Allow,
            Action::Pass if EngineFault::PassAsDeny.is_injected() => Verdict::Deny,
            Action::Pass => {
                at = *next;
                continue;
            }
        };
        break;
    }
    let redirect = names.map(|names| {
        Arc::new(DnsRules {
            names,
            default: decided,
        })
    });
    Cell {
        verdict: decided,
        causes,
        log,
        audit: None,
        redirect,
    }
}
