//! Of the allowing rules that did not match, the one that came nearest.

use super::reasons::Told;
use palisade_model::Action;
use palisade_oracle::{
    PeerFailure, PeerMiss, PortFailure, RuleMiss, RuleOutcome, Step, TrafficFailure, TrafficMiss,
};

/// More than anything that a change of labels or ports could mend.
const HOPELESS: usize = 20;

/// The step of the nearest rule, and what kept it from matching: only its best peer and its best
/// traffic term. Of equally near rules the first.
pub(super) fn nearest<'s>(steps: &'s [Step], told: Told<'_>) -> Option<(&'s Step, Vec<String>)> {
    let missed = steps.iter().filter_map(|step| match step {
        Step::Rule {
            action: Action::Allow,
            outcome: RuleOutcome::Missed(miss),
            ..
        } => Some((step, miss)),
        _ => None,
    });
    let (step, miss) = missed.min_by_key(|(_, miss)| cost(miss))?;
    Some((step, told.rule_miss(&best(miss))))
}

/// The steps of the last tier or the profiles: what could still have allowed.
pub(super) fn last_stage(steps: &[Step]) -> &[Step] {
    let starts = |step: &Step| match step {
        Step::Tier { counts, .. } => *counts,
        _ => false,
    };
    let start = steps.iter().rposition(starts).unwrap_or(0);
    &steps[start..]
}

fn cost(miss: &RuleMiss) -> usize {
    let own = miss.own.iter().flatten().map(peer_cost).sum::<usize>();
    let cheapest = |costs: Vec<usize>| costs.into_iter().min().unwrap_or(HOPELESS);
    let peers = miss.peers.as_ref();
    let peers = peers.map_or(0, |all| cheapest(all.iter().map(peer_miss_cost).collect()));
    let traffic = miss.traffic.as_ref();
    let traffic = traffic.map_or(0, |all| cheapest(all.iter().map(term_cost).collect()));
    own + peers + traffic
}

/// The miss with only the peer and the traffic term that came nearest.
fn best(miss: &RuleMiss) -> RuleMiss {
    let peers = miss.peers.as_ref().map(|all| {
        let peer = all.iter().min_by_key(|peer| peer_miss_cost(peer));
        peer.into_iter().cloned().collect()
    });
    let traffic = miss.traffic.as_ref().map(|all| {
        let term = all.iter().min_by_key(|term| term_cost(term));
        term.into_iter().cloned().collect()
    });
    RuleMiss {
        own: miss.own.clone(),
        peers,
        traffic,
    }
}

fn peer_miss_cost(miss: &PeerMiss) -> usize {
    miss.failures.iter().map(peer_cost).sum()
}

/// How much would have to differ: each label counts one, an address more.
fn peer_cost(failure: &PeerFailure) -> usize {
    match failure {
        PeerFailure::Selector { holders, .. } => {
            let unmet = holders.iter().map(|gap| gap.unmet.len());
            unmet.min().unwrap_or(4)
        }
        PeerFailure::NotSelector { .. } | PeerFailure::NotNets { .. } => 2,
        PeerFailure::Nets { nets, .. } if nets.is_empty() => HOPELESS,
        PeerFailure::Nets { .. } => 3,
    }
}

fn term_cost(miss: &TrafficMiss) -> usize {
    let cost = |failure: &TrafficFailure| match failure {
        TrafficFailure::Destination(port) | TrafficFailure::Source(port) => match port {
            PortFailure::NotListed { wanted, .. } if wanted.is_empty() => HOPELESS,
            _ => 1,
        },
        TrafficFailure::Icmp(_) | TrafficFailure::NotIcmp(_) => 1,
        TrafficFailure::Protocol(_) | TrafficFailure::NotProtocol(_) => 2,
        TrafficFailure::Family(_) => 3,
    };
    miss.failures.iter().map(cost).sum()
}
