//! The order in which a flow is judged at a pod: the tiers of all dialects in one line, then profiles.
//!
//! It promises, as all of the naive reading, to share nothing with the product. It never validates.

use super::calico::{self, NaiveOutcome, NaiveSide, NaiveStage};
use super::cilium::NaiveCiliumVerdict;
use super::policy_api::{self, NaiveTier};
use super::{NaiveFlow, at, cilium, is_staged_kubernetes, isolates, rule_allows, rules, text};
use crate::audit;
use serde_json::Value;
use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::net::IpAddr;

/// The order of the NetworkPolicies and of what Cilium allows, among Calico's policies of the default tier.
const KUBERNETES_ORDER: f64 = 1000.0;

/// A tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NaiveStep<'a> {
    /// Cluster-wide policies.
    Cluster(NaiveTier),
    /// NetworkPolicies, Cilium's policies, and Calico's that name no other tier.
    Default,
    /// A tier of Calico; by its object, if it has one, it may pass what none of its policies matches.
    Calico(&'a str, bool),
}

/// Where a tier stands: tiers with an order, then those without, then those without an object.
type NaivePlace<'a> = (u8, f64, &'a str);

/// The tiers that every cluster has.
const BUILT_IN: [&str; 3] = ["kube-admin", "default", "kube-baseline"];

/// All tiers, in their order.
fn steps(objects: &[Value]) -> Vec<NaiveStep<'_>> {
    let [admin, default, baseline] = BUILT_IN;
    let mut all: Vec<(NaivePlace<'_>, NaiveStep<'_>)> = vec![
        ((0, 1_000.0, admin), NaiveStep::Cluster(NaiveTier::Admin)),
        ((0, 1_000_000.0, default), NaiveStep::Default),
        (
            (0, 10_000_000.0, baseline),
            NaiveStep::Cluster(NaiveTier::Baseline),
        ),
    ];
    let known = |all: &[(NaivePlace<'_>, NaiveStep<'_>)], name: &str| {
        all.iter().any(|((_, _, other), _)| *other == name)
    };
    for tier in objects.iter().filter(|o| calico::is_calico(o, "Tier")) {
        let name = text(tier, "/metadata/name").unwrap_or_default();
        if known(&all, name) {
            continue;
        }
        let order = at(tier, "/spec/order").and_then(Value::as_f64);
        let passes = text(tier, "/spec/defaultAction") == Some("Pass");
        let place = (u8::from(order.is_none()), order.unwrap_or(0.0), name);
        all.push((place, NaiveStep::Calico(name, passes)));
    }
    for policy in objects {
        if let Some(name) = calico::tier_of(policy)
            && !known(&all, name)
        {
            all.push(((2, 0.0, name), NaiveStep::Calico(name, false)));
        }
    }
    all.sort_by(|(a, _), (b, _)| compare_places(a, b));
    all.into_iter().map(|(_, step)| step).collect()
}

fn compare_places(a: &NaivePlace<'_>, b: &NaivePlace<'_>) -> Ordering {
    let by_order = a.1.partial_cmp(&b.1).unwrap_or(Ordering::Equal);
    a.0.cmp(&b.0).then(by_order).then(a.2.cmp(b.2))
}

/// Whether a pod may send a flow, or have it. The objects that were asked are added to `used`.
pub(super) fn decide(
    objects: &[Value],
    pod: &Value,
    (egress, other): (bool, IpAddr),
    flow: &NaiveFlow,
    used: &mut BTreeSet<usize>,
) -> bool {
    for step in steps(objects) {
        let decided = match step {
            NaiveStep::Cluster(tier) => {
                policy_api::decision(objects, pod, tier, (egress, other), flow, used)
            }
            NaiveStep::Default => {
                let of_cilium = cilium::verdict(objects, pod, (egress, other), flow, used);
                let side = NaiveSide::of_workload(pod, egress);
                decide_default(objects, (side, Some(pod)), of_cilium, (other, flow), used)
            }
            NaiveStep::Calico(name, passes) => {
                let side = NaiveSide::of_workload(pod, egress);
                decide_calico(objects, (name, passes), (side, flow), used)
            }
        };
        if let Some(allowed) = decided {
            return allowed;
        }
    }
    let side = NaiveSide::of_workload(pod, egress);
    calico::profiles_allow(objects, (side, flow), used)
}

/// Whether a pod may send a flow to itself through a Service, or have it from itself: only cluster-wide policies say no.
pub(super) fn allows_hairpin(
    objects: &[Value],
    pod: &Value,
    (egress, other): (bool, IpAddr),
    flow: &NaiveFlow,
    used: &mut BTreeSet<usize>,
) -> bool {
    let tiers = [NaiveTier::Admin, NaiveTier::Baseline];
    let mut decisions = tiers
        .into_iter()
        .filter_map(|tier| policy_api::decision(objects, pod, tier, (egress, other), flow, used));
    decisions.next().unwrap_or(true)
}

/// Whether a host endpoint lets a flow through: by Calico's policies, and by Cilium's of its node where the flow is
/// the host's own. No other dialect knows it. Nothing where the next kind of traffic is asked about.
pub(super) fn decide_at_host(
    objects: &[Value],
    (side, flow): (NaiveSide<'_>, &NaiveFlow),
    used: &mut BTreeSet<usize>,
) -> Option<bool> {
    for step in steps(objects) {
        let decided = match step {
            NaiveStep::Cluster(_) => continue,
            NaiveStep::Default if side.stage == NaiveStage::Own => {
                let other = if side.egress {
                    flow.destination
                } else {
                    flow.source
                };
                let ends = (side.egress, other);
                let host = Some(side.endpoint);
                let of_cilium = cilium::host_verdict(objects, host, ends, flow, used);
                decide_default(objects, (side, None), of_cilium, (other, flow), used)
            }
            NaiveStep::Default => decide_calico(objects, ("default", false), (side, flow), used),
            NaiveStep::Calico(name, passes) => {
                decide_calico(objects, (name, passes), (side, flow), used)
            }
        };
        if let Some(allowed) = decided {
            return Some(allowed);
        }
    }
    match side.stage {
        NaiveStage::Untracked | NaiveStage::BeforeTranslation => None,
        NaiveStage::Forwarded => Some(true),
        NaiveStage::Own => Some(calico::profiles_allow(objects, (side, flow), used)),
    }
}

/// The object of a tier.
fn tier_object(objects: &[Value], name: &str) -> Option<usize> {
    let is_it = |object: &Value| {
        calico::is_calico(object, "Tier") && text(object, "/metadata/name") == Some(name)
    };
    objects.iter().position(is_it)
}

/// What a tier of Calico says; nothing where the next tier is asked.
fn decide_calico(
    objects: &[Value],
    (name, passes): (&str, bool),
    (side, flow): (NaiveSide<'_>, &NaiveFlow),
    used: &mut BTreeSet<usize>,
) -> Option<bool> {
    let policies = calico::policies(objects, name, side);
    if !policies.is_empty() {
        used.extend(tier_object(objects, name));
    }
    match calico::ask(objects, &policies, (side, flow), used) {
        NaiveOutcome::Decides(allowed) => Some(allowed),
        NaiveOutcome::Passes => None,
        NaiveOutcome::NoMatch if passes || !calico::is_any_enforced(&policies) => None,
        NaiveOutcome::NoMatch if !matches!(side.stage, NaiveStage::Own | NaiveStage::Forwarded) => {
            None
        }
        NaiveOutcome::NoMatch => Some(false),
    }
}

/// What the tier says in which the dialects meet; nothing where the next tier is asked. NetworkPolicies are asked for
/// pods only.
fn decide_default(
    objects: &[Value],
    (side, pod): (NaiveSide<'_>, Option<&Value>),
    of_cilium: NaiveCiliumVerdict,
    (other, flow): (IpAddr, &NaiveFlow),
    used: &mut BTreeSet<usize>,
) -> Option<bool> {
    if of_cilium.denied {
        return Some(false);
    }
    let policies = calico::policies(objects, "default", side);
    if !policies.is_empty() {
        used.extend(tier_object(objects, "default"));
    }
    let is_before = |(_, policy): &&(usize, &Value)| {
        let order = at(policy, "/spec/order").and_then(Value::as_f64);
        order.is_some_and(|order| order <= KUBERNETES_ORDER)
    };
    let (before, after) = policies.split_at(policies.iter().take_while(is_before).count());
    match calico::ask(objects, before, (side, flow), used) {
        NaiveOutcome::Decides(allowed) => return Some(allowed),
        NaiveOutcome::Passes => return None,
        NaiveOutcome::NoMatch => {}
    }
    let mut isolated = of_cilium.default_deny;
    let mut permitted = of_cilium.allowed;
    for (index, policy) in objects.iter().enumerate() {
        let egress = side.egress;
        if pod.is_some_and(|pod| isolates(policy, pod, egress)) {
            used.insert(index);
            if audit::is_in_audit(policy) || is_staged_kubernetes(policy) {
                continue;
            }
            isolated = true;
            permitted |= rules(policy, egress)
                .iter()
                .any(|rule| rule_allows(objects, policy, rule, egress, other, flow));
        }
    }
    // Where no policy isolates, what a rule of Cilium allows is decided all the same.
    if permitted {
        return Some(true);
    }
    match calico::ask(objects, after, (side, flow), used) {
        NaiveOutcome::Decides(allowed) => Some(allowed),
        NaiveOutcome::Passes => None,
        NaiveOutcome::NoMatch if isolated || calico::is_any_enforced(&policies) => Some(false),
        NaiveOutcome::NoMatch => None,
    }
}
