//! `GET /v1/policies`: the policies in force, with their counters.

use super::CoreSnapshot;
use super::budget::{budget_excess_of, budget_excesses};
use crate::clock::rfc3339;
use palisade_api::{
    BudgetExcess, CountedAction, ObjectRef, PacketCount, PolicyDetail, PolicyList, PolicySummary,
    RuleCounterReport,
};
use palisade_dataplane::Counters;
use palisade_model::{Direction, EndpointId, Policy};
use palisade_tables::Credit;
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
    Some(PolicyDetail {
        api_version: palisade_api::api_version(),
        summary: policy_summary(core, &policy, &budget_excesses(core)),
        selects: selects.map(short_name).collect(),
        rule_counters: rule_counters(&policy, counters),
    })
}

fn policy_summary(
    core: &CoreSnapshot<'_>,
    policy: &Policy,
    over: &[BudgetExcess],
) -> PolicySummary {
    let rules = |direction| policy.rules(direction).map_or(0, |rules| rules.rules.len());
    let realised = core.enforcer.realised_policies.get(&policy.id);
    PolicySummary {
        tier: policy.tier.to_string(),
        policy: ObjectRef::new(&policy.id.object, policy.line.as_ref()),
        subject: policy.subject.to_string(),
        endpoints: core.engine.selected_endpoints(&policy.id).len(),
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

/// The counters of every rule of a policy, then the policy's share of default denials, then the
/// counters of deleted rules: a counter is never shown with a different rule.
fn rule_counters(policy: &Policy, counters: &Counters) -> Vec<RuleCounterReport> {
    let mut rules: BTreeMap<(Direction, usize), PacketCount> = BTreeMap::new();
    let mut denied: BTreeMap<Direction, PacketCount> = BTreeMap::new();
    let mut retired: BTreeMap<Direction, PacketCount> = BTreeMap::new();
    for (credit, count) in &counters.by_rule {
        let to = match &**credit {
            Credit::Rule {
                policy: of,
                direction,
                origin,
            } if *of == policy.id => {
                let mut current_rules = policy
                    .rules(*direction)
                    .into_iter()
                    .flat_map(|of| &of.rules);
                match current_rules.position(|rule| rule.origin.is_same_rule(origin)) {
                    Some(at) => rules.entry((*direction, at)).or_default(),
                    None => retired.entry(*direction).or_default(),
                }
            }
            Credit::TierDefault {
                direction,
                policies,
                ..
            } if policies.contains(&policy.id) => denied.entry(*direction).or_default(),
            _ => continue,
        };
        to.packets += count.packets;
        to.bytes += count.bytes;
    }
    let mut out = Vec::new();
    for direction in Direction::BOTH {
        let of = policy.rules(direction);
        for (at, rule) in of.into_iter().flat_map(|of| &of.rules).enumerate() {
            out.push(RuleCounterReport {
                direction,
                index: Some(rule.origin.index),
                action: rule.action.into(),
                line: rule.origin.line.as_ref().map(ToString::to_string),
                count: rules.remove(&(direction, at)).unwrap_or_default(),
            });
        }
        let mut other = |action, count| {
            out.push(RuleCounterReport {
                direction,
                index: None,
                action,
                line: policy.line.as_ref().map(ToString::to_string),
                count,
            });
        };
        let denied = denied.remove(&direction);
        if denied.is_some() || of.is_some_and(|of| of.default_deny) {
            other(CountedAction::DefaultDeny, denied.unwrap_or_default());
        }
        if let Some(count) = retired.remove(&direction) {
            other(CountedAction::Retired, count);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload_store::pod_id;
    use palisade_model::{
        Action, DirectionRules, Order, Peer, PolicyId, Precedence, Rule, RuleOrigin, Selector,
        TrafficMatch,
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
            let report = rule_counters(&policy(says), &counters);
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
