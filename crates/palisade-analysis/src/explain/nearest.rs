//! Selects the nearest miss: of the allow rules that did not match, the one that came nearest.

use super::reasons::ReasonContext;
use palisade_model::Action;
use palisade_oracle::{
    PeerFailure, PeerMiss, PortFailure, RuleMiss, RuleOutcome, TraceStep, TrafficFailure,
    TrafficMiss,
};

/// The cost of a failure that no change of labels or ports can resolve; greater than any other cost.
const IMPOSSIBLE_COST: usize = 20;

/// The step of the nearest rule, and why it did not match: only for its nearest peer and its nearest
/// traffic term. Of equally near rules the first.
pub(super) fn find_nearest_rule<'s>(
    steps: &'s [TraceStep],
    context: ReasonContext<'_>,
) -> Option<(&'s TraceStep, Vec<String>)> {
    let missed = steps.iter().filter_map(|step| match step {
        TraceStep::Rule {
            action: Action::Allow,
            outcome: RuleOutcome::Missed(miss),
            ..
        } => Some((step, miss)),
        _ => None,
    });
    let (step, miss) = missed.min_by_key(|(_, miss)| cost(miss))?;
    Some((step, context.rule_miss(&nearest_parts(miss))))
}

/// The steps from the last tier that applies: its rules and those of the profiles could still have
/// allowed the flow.
pub(super) fn last_stage(steps: &[TraceStep]) -> &[TraceStep] {
    let starts = |step: &TraceStep| match step {
        TraceStep::Tier { counts, .. } => *counts,
        _ => false,
    };
    let start = steps.iter().rposition(starts).unwrap_or(0);
    &steps[start..]
}

fn cost(miss: &RuleMiss) -> usize {
    let local = miss.local.iter().flatten().map(peer_cost).sum::<usize>();
    let cheapest = |costs: Vec<usize>| costs.into_iter().min().unwrap_or(IMPOSSIBLE_COST);
    let peers = miss.peers.as_ref();
    let peers = peers.map_or(0, |all| cheapest(all.iter().map(peer_miss_cost).collect()));
    let traffic = miss.traffic.as_ref();
    let traffic = traffic.map_or(0, |all| cheapest(all.iter().map(term_cost).collect()));
    let queries = if miss.unreadable_queries { 2 } else { 0 };
    local + peers + traffic + queries
}

/// The miss with only the peer and the traffic term that came nearest.
fn nearest_parts(miss: &RuleMiss) -> RuleMiss {
    let peers = miss.peers.as_ref().map(|all| {
        let peer = all.iter().min_by_key(|peer| peer_miss_cost(peer));
        peer.into_iter().cloned().collect()
    });
    let traffic = miss.traffic.as_ref().map(|all| {
        let term = all.iter().min_by_key(|term| term_cost(term));
        term.into_iter().cloned().collect()
    });
    RuleMiss {
        local: miss.local.clone(),
        peers,
        traffic,
        unreadable_queries: miss.unreadable_queries,
    }
}

fn peer_miss_cost(miss: &PeerMiss) -> usize {
    miss.failures.iter().map(peer_cost).sum()
}

/// The cost of a failure: one for each label that does not match, more for an address.
fn peer_cost(failure: &PeerFailure) -> usize {
    match failure {
        PeerFailure::Selector { holders, .. } => {
            let unmet = holders.iter().map(|gap| gap.unmet_requirements.len());
            unmet.min().unwrap_or(4)
        }
        PeerFailure::NotSelector { .. } | PeerFailure::NotNets { .. } => 2,
        PeerFailure::Nets { nets, .. } if nets.is_empty() => IMPOSSIBLE_COST,
        PeerFailure::Nets { .. } => 3,
    }
}

fn term_cost(miss: &TrafficMiss) -> usize {
    let cost = |failure: &TrafficFailure| match failure {
        TrafficFailure::Destination(port) | TrafficFailure::Source(port) => match port {
            PortFailure::NotListed { specs: wanted, .. } if wanted.is_empty() => IMPOSSIBLE_COST,
            _ => 1,
        },
        TrafficFailure::Icmp(_) | TrafficFailure::NotIcmp(_) => 1,
        TrafficFailure::Protocol(_) | TrafficFailure::NotProtocol(_) => 2,
        TrafficFailure::Family(_) => 3,
    };
    miss.failures.iter().map(cost).sum()
}
