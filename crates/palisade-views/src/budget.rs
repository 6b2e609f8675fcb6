//! The element budget: how much kernel memory policy uses, and what exceeds the limits, as the API reports
//! it.
//!
//! The source rejects a single policy that is too large before it is compiled. The engine closes a
//! policy set whose policies together are too large. Both are reported here.

use super::CoreSnapshot;
use palisade_api::{BudgetExcess, BudgetFallback, RuleCostReport};
use palisade_engine::ExceededLimit;
use palisade_manifest::Location;
use palisade_model::{PolicyId, SourceLine};
use std::fmt::Display;

/// Rejected policies, followed by closed policy sets.
pub(super) fn budget_excesses(core: &CoreSnapshot<'_>) -> Vec<BudgetExcess> {
    let retained = &core.source_report.retained;
    let refused = core.source_report.over_budget.iter().map(|over| {
        let retained = retained
            .iter()
            .find(|retained| retained.object == over.object);
        let has_last_valid = retained.is_some_and(|retained| retained.since.is_some());
        let rules = over.rules.iter().map(|rule| RuleCostReport {
            policy: over.object.clone(),
            direction: rule.direction,
            index: rule.index,
            line: rule.line.as_ref().map(ToString::to_string),
            elements: rule.elements,
        });
        BudgetExcess {
            policies: vec![over.object.clone()],
            direction: None,
            line: Some(line_of(&over.location)),
            enforced: if has_last_valid {
                BudgetFallback::LastValid
            } else {
                BudgetFallback::Isolating
            },
            elements: over.elements,
            budget: over.budget,
            parameter: budget_parameter(over.bound).to_owned(),
            rules: rules.collect(),
        }
    });
    refused.chain(closed_policy_sets(core)).collect()
}

fn line_of(location: &Location) -> String {
    SourceLine::new(&*location.file, location.line).to_string()
}

/// Policy sets that deny everything because their policies together exceed the budget.
pub(super) fn closed_policy_sets(core: &CoreSnapshot<'_>) -> impl Iterator<Item = BudgetExcess> {
    core.policy
        .engine
        .over_budget()
        .into_iter()
        .map(|over| BudgetExcess {
            policies: over.policies.iter().map(ToString::to_string).collect(),
            direction: Some(over.direction),
            line: None,
            enforced: BudgetFallback::Closed,
            elements: over.elements,
            budget: over.budget,
            parameter: budget_parameter(over.exceeded).to_owned(),
            rules: over
                .rules
                .into_iter()
                .map(|rule| RuleCostReport {
                    policy: rule.policy.to_string(),
                    direction: rule.direction,
                    index: rule.index,
                    line: rule.line.as_ref().map(SourceLine::to_string),
                    elements: rule.elements,
                })
                .collect(),
        })
}

/// The budget excess that affects one policy, if any.
pub(super) fn budget_excess_of(all: &[BudgetExcess], policy: &PolicyId) -> Option<BudgetExcess> {
    let name = policy.to_string();
    all.iter()
        .find(|over| over.policies.contains(&name))
        .cloned()
}

/// The parameter that configures a limit.
fn budget_parameter(bound: ExceededLimit) -> &'static str {
    match bound {
        ExceededLimit::Set => "policy-set-max-elements",
        ExceededLimit::Host => "host-max-elements",
    }
}

/// The reason why a policy set is closed, as a sentence.
pub(super) fn closed_set_reason(over: &BudgetExcess) -> String {
    let rules = over.rules.iter().map(|rule| {
        let line = rule.line.iter().map(|line| format!(" ({line})"));
        let line: String = line.collect();
        format!(
            "{} {}[{}]{line} {}",
            rule.policy, rule.direction, rule.index, rule.elements
        )
    });
    format!(
        "the policy set of {} denies everything ({}): it would need about {} kernel elements, but {} \
         allows {}; largest rules: {}",
        join_some(&over.policies),
        over.direction
            .map_or(String::new(), |direction| direction.to_string()),
        over.elements,
        over.parameter,
        over.budget,
        rules.collect::<Vec<_>>().join(", ")
    )
}

/// Joins the first names of a list and counts the others.
fn join_some(names: &[impl Display]) -> String {
    const MAX_NAMES: usize = 5;
    let shown: Vec<String> = names
        .iter()
        .take(MAX_NAMES)
        .map(ToString::to_string)
        .collect();
    match names.len().checked_sub(MAX_NAMES) {
        Some(more) if more > 0 => format!("{} and {more} more policies", shown.join(", ")),
        _ => shown.join(", "),
    }
}
