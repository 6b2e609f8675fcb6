//! What policy takes of the kernel, and what would take too much, as the API words it.
//!
//! A single policy is refused by the source, before anything is compiled; a policy set that several
//! policies make too large together is closed by the engine. Both are told here.

use crate::core::Core;
use palisade_api::{Enforced, OverBudget, RuleCost};
use palisade_engine::Bound;
use palisade_model::{PolicyId, SourceLine};
use std::fmt::Display;

impl Core {
    /// Has the engine hold policy to the budget that is configured now.
    pub(crate) fn hold_budget(&mut self) {
        self.engine.set_budget(self.config.budget);
        self.apply(Vec::new());
    }

    /// Policies that are refused, then policy sets that are closed.
    pub(crate) fn over_budget(&self) -> Vec<OverBudget> {
        let kept = &self.report.kept;
        let refused = self.report.over_budget.iter().map(|over| {
            let kept = kept.iter().find(|kept| kept.object == over.object);
            let valid = kept.is_some_and(|kept| kept.since.is_some());
            let rules = over.rules.iter().map(|rule| RuleCost {
                policy: over.object.clone(),
                direction: rule.direction.to_string(),
                index: rule.index,
                line: rule.line.as_ref().map(ToString::to_string),
                elements: rule.elements,
            });
            OverBudget {
                policies: vec![over.object.clone()],
                direction: None,
                line: Some(format!("{}:{}", over.location.file, over.location.line)),
                enforced: if valid {
                    Enforced::LastValid
                } else {
                    Enforced::Isolating
                },
                elements: over.elements,
                budget: over.budget,
                parameter: parameter(over.bound).to_owned(),
                rules: rules.collect(),
            }
        });
        refused.chain(self.closed_sets()).collect()
    }

    /// Policy sets that deny everything, because their policies together would take too much.
    pub(crate) fn closed_sets(&self) -> impl Iterator<Item = OverBudget> {
        self.engine
            .over_budget()
            .into_iter()
            .map(|over| OverBudget {
                policies: over.policies.iter().map(ToString::to_string).collect(),
                direction: Some(over.direction.to_string()),
                line: None,
                enforced: Enforced::Closed,
                elements: over.elements,
                budget: over.budget,
                parameter: parameter(over.bound).to_owned(),
                rules: over
                    .rules
                    .into_iter()
                    .map(|rule| RuleCost {
                        policy: rule.policy.to_string(),
                        direction: rule.direction.to_string(),
                        index: rule.index,
                        line: rule.line.as_ref().map(SourceLine::to_string),
                        elements: rule.elements,
                    })
                    .collect(),
            })
    }

    /// What is over budget of one policy, if anything is.
    pub(crate) fn over_budget_of(
        &self,
        all: &[OverBudget],
        policy: &PolicyId,
    ) -> Option<OverBudget> {
        let name = policy.to_string();
        all.iter()
            .find(|over| over.policies.contains(&name))
            .cloned()
    }
}

/// The parameter of a budget.
fn parameter(bound: Bound) -> &'static str {
    match bound {
        Bound::Set => "policy-set-max-elements",
        Bound::Host => "host-max-elements",
    }
}

/// A closed policy set in a sentence.
pub(crate) fn reason(over: &OverBudget) -> String {
    let rules = over.rules.iter().map(|rule| {
        let line = rule.line.iter().map(|line| format!(" ({line})"));
        let line: String = line.collect();
        format!(
            "{} {}[{}]{line} {}",
            rule.policy, rule.direction, rule.index, rule.elements
        )
    });
    format!(
        "the policy set of {} denies everything ({}): it would take about {} kernel elements, and {} \
         allows {}; most by {}",
        listed(&over.policies),
        over.direction.as_deref().unwrap_or_default(),
        over.elements,
        over.parameter,
        over.budget,
        rules.collect::<Vec<_>>().join(", ")
    )
}

/// The first of many names.
fn listed(names: &[impl Display]) -> String {
    const TOLD: usize = 5;
    let told: Vec<String> = names.iter().take(TOLD).map(ToString::to_string).collect();
    match names.len().checked_sub(TOLD) {
        Some(more) if more > 0 => format!("{} and {more} more policies", told.join(", ")),
        _ => told.join(", "),
    }
}
