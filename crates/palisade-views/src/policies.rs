//! `GET /v1/policies`: every policy that was read, with its status, its rules and their counters.

use super::CoreSnapshot;
use super::budget::{budget_excess_of, budget_excesses};
use super::policy_lookup::{PolicyLookupError, find_policy};
use super::policy_states::PolicyStates;
use palisade_api::{
    BudgetExcess, CountedAction, ObjectRef, PacketCount, PolicyDetail, PolicyList, PolicyModeName,
    PolicySummary, RuleCounterReport,
};
use palisade_dataplane::Counters;
use palisade_effective::{ObjectOrigin, PolicyAcceptance};
use palisade_model::{Direction, EndpointId, ObjectId, Policy};
use palisade_node::clock::rfc3339;
use palisade_tables::{Verdict, VerdictCause};
use std::collections::{BTreeMap, BTreeSet};

/// `GET /v1/policies`.
pub fn policy_list(core: &CoreSnapshot<'_>) -> PolicyList {
    let over = budget_excesses(core);
    let states = PolicyStates::of(core.source_report);
    let in_force = policies_by_object(core.policy.engine.ordered_policies());
    let summary = |parts: &Vec<Policy>| {
        let first = parts.first()?;
        Some(policy_summary(core, first, parts, (&states, &over)))
    };
    let summaries = in_force.iter().filter_map(summary);
    let others = states.not_enforced();
    let others = others.map(|policy| summary_of_nothing(policy, (&states, &over)));
    PolicyList {
        api_version: palisade_api::api_version(),
        policies: summaries.chain(others).collect(),
    }
}

/// The policies of each object, which can be several, in the order of the first of them.
fn policies_by_object(ordered: Vec<Policy>) -> Vec<Vec<Policy>> {
    let mut places: BTreeMap<ObjectId, usize> = BTreeMap::new();
    let mut objects: Vec<Vec<Policy>> = Vec::new();
    for policy in ordered {
        let place = *places
            .entry(policy.id.object.clone())
            .or_insert(objects.len());
        match objects.get_mut(place) {
            Some(parts) => parts.push(policy),
            None => objects.push(vec![policy]),
        }
    }
    objects
}

/// The policies in force of an object, and the first of them.
fn parts_of<'p>(in_force: &'p [Vec<Policy>], id: &ObjectId) -> Option<(&'p Policy, &'p [Policy])> {
    let mut objects = in_force.iter();
    objects.find_map(|parts| {
        let first = parts.first().filter(|first| first.id.object == *id)?;
        Some((first, &**parts))
    })
}

/// The policies in force of the object that the segments name, at least one.
///
/// # Errors
/// If they mean none or several, or nothing of the object is in force.
pub fn policies_named(
    core: &CoreSnapshot<'_>,
    segments: &[&str],
) -> Result<Vec<Policy>, PolicyLookupError> {
    let in_force = policies_by_object(core.policy.engine.ordered_policies());
    let states = PolicyStates::of(core.source_report);
    let ids = policy_ids(&in_force, &states);
    let id = find_policy(segments, &ids)?;
    let parts = parts_of(&in_force, id).map(|(_, parts)| parts.to_vec());
    parts.ok_or_else(|| PolicyLookupError::NotFound(format!("nothing of {id} is in force")))
}

/// The objects of all policies that were read, in order.
fn policy_ids(in_force: &[Vec<Policy>], states: &PolicyStates<'_>) -> Vec<ObjectId> {
    let first = in_force.iter().filter_map(|parts| parts.first());
    let mut ids: Vec<ObjectId> = first.map(|policy| policy.id.object.clone()).collect();
    ids.extend(states.not_enforced().map(|policy| (*policy.id).clone()));
    ids.sort();
    ids.dedup();
    ids
}

/// `GET /v1/policies/{kind}/{namespace}/{name}`, and the shorter forms: the policy that the segments name.
///
/// # Errors
/// If they mean none or several.
pub fn policy_detail(
    core: &CoreSnapshot<'_>,
    segments: &[&str],
    counters: &Counters,
) -> Result<PolicyDetail, PolicyLookupError> {
    let over = budget_excesses(core);
    let states = PolicyStates::of(core.source_report);
    let in_force = policies_by_object(core.policy.engine.ordered_policies());
    let ids = policy_ids(&in_force, &states);
    let id = find_policy(segments, &ids)?;
    let api_version = palisade_api::api_version();
    if let Some((first, parts)) = parts_of(&in_force, id) {
        let summary = policy_summary(core, first, parts, (&states, &over));
        let audited = summary.mode == PolicyModeName::Audit || summary.endpoints_in_audit > 0;
        let counted = parts.iter();
        return Ok(PolicyDetail {
            api_version,
            summary,
            selects: selected_endpoints(core, parts)
                .iter()
                .map(short_name)
                .collect(),
            rule_counters: counted
                .flat_map(|part| rule_counters(part, audited, counters))
                .collect(),
        });
    }
    let mut others = states.not_enforced();
    let policy = others.find(|policy| *policy.id == *id);
    let policy = policy.ok_or_else(|| PolicyLookupError::NotFound(format!("there is no {id}")))?;
    Ok(PolicyDetail {
        api_version,
        summary: summary_of_nothing(policy, (&states, &over)),
        selects: Vec::new(),
        rule_counters: Vec::new(),
    })
}

/// The endpoints of this host that any of these policies selects.
fn selected_endpoints(core: &CoreSnapshot<'_>, parts: &[Policy]) -> BTreeSet<EndpointId> {
    let parts = parts.iter();
    parts
        .flat_map(|part| core.policy.engine.selected_endpoints(&part.id))
        .cloned()
        .collect()
}

/// The summary of the policies of one object, of which `first` is the first.
fn policy_summary(
    core: &CoreSnapshot<'_>,
    first: &Policy,
    parts: &[Policy],
    (states, over): (&PolicyStates<'_>, &[BudgetExcess]),
) -> PolicySummary {
    let lists = parts.iter().flat_map(|part| [&part.ingress, &part.egress]);
    let rules = lists.flatten().map(|list| list.rules.len()).sum();
    // Its present version is in the kernel since the last of its policies is.
    let realised = parts.iter().map(|part| {
        core.enforcer
            .policy
            .progress
            .realised_policies
            .get(&part.id)
    });
    let realised: Option<Vec<_>> = realised.collect();
    let realised =
        realised.and_then(|all| all.into_iter().max_by_key(|realised| realised.revision));
    let selected = selected_endpoints(core, parts);
    let endpoints = selected
        .iter()
        .filter_map(|id| core.policy.engine.endpoint(id));
    let in_audit = endpoints.filter(|endpoint| core.policy.engine.is_in_audit(endpoint));
    let mut subjects: Vec<String> = parts.iter().map(|part| part.subject.to_string()).collect();
    subjects.dedup();
    let mut excesses = parts.iter().map(|part| budget_excess_of(over, &part.id));
    PolicySummary {
        tier: first.tier.to_string(),
        tier_order: core.tier_order(&first.tier),
        order: first.precedence.order.number(),
        policy: ObjectRef::new(&first.id.object, first.line.as_ref()),
        subject: subjects.join(" or "),
        status: states.status(&first.id.object, over),
        mode: first.mode.into(),
        endpoints: selected.len(),
        endpoints_in_audit: in_audit.count(),
        rules,
        revision: realised.map_or(0, |realised| realised.revision),
        since: realised.map(|realised| rfc3339(realised.since)),
        over_budget: excesses.find_map(|excess| excess),
    }
}

/// The summary of a policy of which nothing is in force.
fn summary_of_nothing(
    policy: &PolicyAcceptance,
    (states, over): (&PolicyStates<'_>, &[BudgetExcess]),
) -> PolicySummary {
    let line = policy.origin.as_ref().map(ObjectOrigin::line);
    PolicySummary {
        tier: String::new(),
        tier_order: None,
        order: None,
        policy: ObjectRef::new(&policy.id, line.as_ref()),
        subject: String::new(),
        status: states.status(&policy.id, over),
        mode: PolicyModeName::Enforce,
        endpoints: 0,
        endpoints_in_audit: 0,
        rules: 0,
        revision: 0,
        since: None,
        over_budget: None,
    }
}

fn short_name(id: &EndpointId) -> String {
    match &id.namespace {
        Some(namespace) => format!("{namespace}/{}", id.name),
        // A host endpoint.
        None => format!("{} {}", id.kind.name(), id.name),
    }
}

/// What a counter of a policy counts for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum CounterPlace {
    /// The rule at this place in the list of its direction.
    Rule(usize),
    /// The default denial of the policies of a tier.
    DefaultDeny,
    /// A rule that the policy no longer has.
    Retired,
}

/// The packets of one place.
#[derive(Clone, Copy, Default)]
struct PlaceCounts {
    count: PacketCount,
    would_allow: PacketCount,
    would_deny: PacketCount,
}

/// The place of a cause in a policy, if it is one of the policy's.
fn counter_place(policy: &Policy, cause: &VerdictCause) -> Option<(Direction, CounterPlace)> {
    match cause {
        VerdictCause::Rule {
            policy: of,
            direction,
            origin,
        } if *of == policy.id => {
            let rules = policy.rules(*direction).into_iter();
            let mut rules = rules.flat_map(|side| &side.rules);
            let place = rules.position(|rule| rule.origin.is_same_rule(origin));
            Some((
                *direction,
                place.map_or(CounterPlace::Retired, CounterPlace::Rule),
            ))
        }
        VerdictCause::TierDefault {
            direction,
            policies,
            ..
        } if policies.contains(&policy.id) => Some((*direction, CounterPlace::DefaultDeny)),
        _ => None,
    }
}

/// The counters of every rule of a policy, then the policy's share of default denials, then the
/// counters of deleted rules: a counter is never shown with a different rule. `audited`: also what would be
/// counted if nothing were in audit.
fn rule_counters(policy: &Policy, audited: bool, counters: &Counters) -> Vec<RuleCounterReport> {
    let mut places: BTreeMap<(Direction, CounterPlace), PlaceCounts> = BTreeMap::new();
    for (cause, count) in &counters.by_rule {
        let Some(place) = counter_place(policy, cause.unaudited()) else {
            continue;
        };
        let counts = places.entry(place).or_default();
        let to = match &**cause {
            VerdictCause::Audit { verdict, .. } => match verdict {
                Verdict::Allow | Verdict::Continue => &mut counts.would_allow,
                Verdict::Deny => &mut counts.would_deny,
            },
            _ => &mut counts.count,
        };
        to.packets += count.packets;
        to.bytes += count.bytes;
    }
    let audited = audited || places.values().any(PlaceCounts::has_audit);
    let report =
        |direction, index, action, line: Option<String>, counts: PlaceCounts| RuleCounterReport {
            direction,
            index,
            action,
            line,
            count: counts.count,
            would_allow: audited.then_some(counts.would_allow),
            would_deny: audited.then_some(counts.would_deny),
        };
    let mut out = Vec::new();
    for direction in Direction::BOTH {
        let side = policy.rules(direction);
        for (at, rule) in side.into_iter().flat_map(|side| &side.rules).enumerate() {
            let counts = places.remove(&(direction, CounterPlace::Rule(at)));
            let (index, line) = (Some(rule.origin.index), policy.rule_source(&rule.origin));
            let counts = counts.unwrap_or_default();
            out.push(report(direction, index, rule.action.into(), line, counts));
        }
        let line = policy.line.as_ref().map(ToString::to_string);
        let denied = places.remove(&(direction, CounterPlace::DefaultDeny));
        if denied.is_some() || side.is_some_and(|side| side.default_deny) {
            let counts = denied.unwrap_or_default();
            let action = CountedAction::DefaultDeny;
            out.push(report(direction, None, action, line.clone(), counts));
        }
        if let Some(counts) = places.remove(&(direction, CounterPlace::Retired)) {
            out.push(report(
                direction,
                None,
                CountedAction::Retired,
                line,
                counts,
            ));
        }
    }
    out
}

impl PlaceCounts {
    fn has_audit(&self) -> bool {
        self.would_allow.packets + self.would_deny.packets > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use palisade_model::{
        Action, DirectionRules, Order, Peer, PolicyId, PolicyMode, Precedence, Rule, RuleOrigin,
        Selector, TrafficMatch, TrafficScope,
    };
    use palisade_node::workload_store::pod_id;
    use std::sync::Arc;

    fn origin(index: u32, fingerprint: u64) -> RuleOrigin {
        RuleOrigin {
            index,
            name: None,
            fingerprint,
            line: None,
        }
    }

    /// A policy with one rule for each of these numbers.
    fn policy(says: &[u64]) -> Policy {
        let rule = |(index, fingerprint): (u32, &u64)| Rule {
            origin: origin(index, *fingerprint),
            action: Action::Allow,
            peers: vec![Peer::any()],
            local: None,
            traffic: vec![TrafficMatch::any()],
            dns_names: None,
        };
        Policy {
            scope: TrafficScope::Endpoints,
            observes_dns: false,
            id: PolicyId {
                object: pod_id("shop", "db"),
                part: 0,
            },
            tier: "default".into(),
            precedence: Precedence {
                order: Order::At(1.0),
                rank: 1,
            },
            mode: PolicyMode::Enforce,
            subject: Selector::all(),
            ingress: Some(DirectionRules {
                default_deny: true,
                rules: (0..).zip(says).map(rule).collect(),
            }),
            egress: None,
            line: None,
        }
    }

    #[test]
    fn counts_follow_what_a_rule_says_and_retire_with_it() {
        let counted = |index, fingerprint, packets| {
            let cause = VerdictCause::Rule {
                policy: policy(&[]).id,
                direction: Direction::Ingress,
                origin: origin(index, fingerprint),
            };
            let count = palisade_dataplane::CounterValue { packets, bytes: 0 };
            (Arc::new(cause), count)
        };
        let denied = VerdictCause::TierDefault {
            tier: "default".into(),
            direction: Direction::Ingress,
            policies: vec![policy(&[]).id],
        };
        // The rule 7 was first and is now second; the rule 8 was deleted.
        let counters = Counters {
            by_rule: [
                counted(0, 7, 10),
                counted(1, 7, 1),
                counted(1, 8, 5),
                counted(0, 9, 2),
                (
                    Arc::new(denied),
                    palisade_dataplane::CounterValue {
                        packets: 3,
                        bytes: 0,
                    },
                ),
            ]
            .into(),
            ..Counters::default()
        };
        let shown = |says: &[u64]| -> Vec<(Option<u32>, CountedAction, u64)> {
            let report = rule_counters(&policy(says), false, &counters);
            let row = |row: RuleCounterReport| (row.index, row.action, row.count.packets);
            report.into_iter().map(row).collect()
        };
        let row = |index, action, packets| (index, action, packets);
        assert_eq!(
            shown(&[9, 7]),
            [
                row(Some(0), CountedAction::Allow, 2),
                row(Some(1), CountedAction::Allow, 11),
                row(None, CountedAction::DefaultDeny, 3),
                row(None, CountedAction::Retired, 5),
            ]
        );
        assert_eq!(
            shown(&[]),
            [
                row(None, CountedAction::DefaultDeny, 3),
                row(None, CountedAction::Retired, 18)
            ]
        );
    }
}
