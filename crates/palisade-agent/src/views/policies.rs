//! `GET /v1/policies`: the policies in force, with their counters.

use super::CoreSnapshot;
use super::budget::{budget_excess_of, budget_excesses};
use crate::clock::rfc3339;
use palisade_api::{
    BudgetExcess, CountedAction, ObjectRef, PacketCount, PolicyDetail, PolicyList, PolicySummary,
    RuleCounterReport,
};
use palisade_dataplane::Counters;
use palisade_model::{Direction, EndpointId, Policy, PolicyMode, SourceLine};
use palisade_tables::{Credit, Verdict};
use std::collections::BTreeMap;

/// `GET /v1/policies`.
pub fn policy_list(core: &CoreSnapshot<'_>) -> PolicyList {
    let ordered = core.engine.ordered_policies().into_iter();
    let over = budget_excesses(core);
    let summary = |policy| policy_summary(core, &policy, &over);
    let policies = ordered.map(summary).collect();
    PolicyList {
        api_version: palisade_api::api_version(),
        policies,
    }
}

/// `GET /v1/policies/{namespace}/{name}`.
pub fn policy_detail(
    core: &CoreSnapshot<'_>,
    namespace: &str,
    name: &str,
    counters: &Counters,
) -> Option<PolicyDetail> {
    let named = |policy: &Policy| {
        let id = &policy.id.object;
        &*id.name == name && id.namespace.as_deref().unwrap_or("default") == namespace
    };
    let policy = core.engine.ordered_policies().into_iter().find(named)?;
    let selects = core.engine.selected_endpoints(&policy.id).into_iter();
    let summary = policy_summary(core, &policy, &budget_excesses(core));
    let audited = policy.mode == PolicyMode::Audit || summary.endpoints_in_audit > 0;
    Some(PolicyDetail {
        api_version: palisade_api::api_version(),
        summary,
        selects: selects.map(short_name).collect(),
        rule_counters: rule_counters(&policy, audited, counters),
    })
}

fn policy_summary(
    core: &CoreSnapshot<'_>,
    policy: &Policy,
    over: &[BudgetExcess],
) -> PolicySummary {
    let rules = |direction| policy.rules(direction).map_or(0, |rules| rules.rules.len());
    let realised = core.enforcer.realised_policies.get(&policy.id);
    let selected = core.engine.selected_endpoints(&policy.id);
    let endpoints = selected.iter().filter_map(|id| core.engine.endpoint(id));
    let in_audit = endpoints.filter(|endpoint| core.engine.is_in_audit(endpoint));
    PolicySummary {
        tier: policy.tier.to_string(),
        policy: ObjectRef::new(&policy.id.object, policy.line.as_ref()),
        subject: policy.subject.to_string(),
        mode: policy.mode.into(),
        endpoints: selected.len(),
        endpoints_in_audit: in_audit.count(),
        rules: rules(Direction::Ingress) + rules(Direction::Egress),
        revision: realised.map_or(0, |realised| realised.revision),
        since: realised.map(|realised| rfc3339(realised.since)),
        over_budget: budget_excess_of(over, &policy.id),
    }
}

fn short_name(id: &EndpointId) -> String {
    format!(
        "{}/{}",
        id.namespace.as_deref().unwrap_or_default(),
        id.name
    )
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

/// The place of a credit in a policy, if it is one of the policy's.
fn counter_place(policy: &Policy, credit: &Credit) -> Option<(Direction, CounterPlace)> {
    match credit {
        Credit::Rule {
            policy: of,
            direction,
            origin,
        } if *of == policy.id => {
            let rules = policy.rules(*direction).into_iter();
            let mut rules = rules.flat_map(|of| &of.rules);
            let place = rules.position(|rule| rule.origin.is_same_rule(origin));
            Some((
                *direction,
                place.map_or(CounterPlace::Retired, CounterPlace::Rule),
            ))
        }
        Credit::TierDefault {
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
    for (credit, count) in &counters.by_rule {
        let Some(place) = counter_place(policy, credit.unaudited()) else {
            continue;
        };
        let counts = places.entry(place).or_default();
        let to = match &**credit {
            Credit::Audit { verdict, .. } => match verdict {
                Verdict::Allow => &mut counts.would_allow,
                Verdict::Deny => &mut counts.would_deny,
            },
            _ => &mut counts.count,
        };
        to.packets += count.packets;
        to.bytes += count.bytes;
    }
    let audited = audited || places.values().any(PlaceCounts::has_audit);
    let report = |direction, index, action, line: Option<&SourceLine>, counts: PlaceCounts| {
        RuleCounterReport {
            direction,
            index,
            action,
            line: line.map(ToString::to_string),
            count: counts.count,
            would_allow: audited.then_some(counts.would_allow),
            would_deny: audited.then_some(counts.would_deny),
        }
    };
    let mut out = Vec::new();
    for direction in Direction::BOTH {
        let of = policy.rules(direction);
        for (at, rule) in of.into_iter().flat_map(|of| &of.rules).enumerate() {
            let counts = places.remove(&(direction, CounterPlace::Rule(at)));
            let (index, line) = (Some(rule.origin.index), rule.origin.line.as_ref());
            let counts = counts.unwrap_or_default();
            out.push(report(direction, index, rule.action.into(), line, counts));
        }
        let line = policy.line.as_ref();
        let denied = places.remove(&(direction, CounterPlace::DefaultDeny));
        if denied.is_some() || of.is_some_and(|of| of.default_deny) {
            let counts = denied.unwrap_or_default();
            let action = CountedAction::DefaultDeny;
            out.push(report(direction, None, action, line, counts));
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
    use crate::workload_store::pod_id;
    use palisade_model::{
        Action, DirectionRules, Order, Peer, PolicyId, PolicyMode, Precedence, Rule, RuleOrigin,
        Selector, TrafficMatch,
    };
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
            own: None,
            traffic: vec![TrafficMatch::any()],
        };
        Policy {
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
            let credit = Credit::Rule {
                policy: policy(&[]).id,
                direction: Direction::Ingress,
                origin: origin(index, fingerprint),
            };
            let count = palisade_dataplane::CounterValue { packets, bytes: 0 };
            (Arc::new(credit), count)
        };
        let denied = Credit::TierDefault {
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
