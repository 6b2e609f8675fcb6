//! The status of each policy: what is in force of it, why, and what is held closed.
//!
//! Never: reads a problem's text; what it says is made from typed values of `palisade_source`.

use super::CoreSnapshot;
use super::budget::closed_set_reason;
use palisade_api::{
    BudgetExcess, BudgetFallback, ClosedCause, ClosedPartReport, PolicyFinding, PolicyState,
    PolicyStateCount, PolicyStatus,
};
use palisade_dialects::ClosedReason;
use palisade_effective::{
    Diagnostic, EffectiveReport, EnforcedVersion, ObjectOrigin, PolicyAcceptance, Severity,
};
use palisade_manifest::Problem;
use palisade_model::ObjectId;
use palisade_node::clock::rfc3339;
use palisade_text::printable;
use std::collections::BTreeMap;
use std::time::Duration;

/// The policies that are not enforced exactly as written, and the warnings about all.
pub(super) struct PolicyStates<'a> {
    deviating: BTreeMap<&'a ObjectId, &'a PolicyAcceptance>,
    warnings: BTreeMap<&'a str, Vec<&'a Diagnostic>>,
}

impl<'a> PolicyStates<'a> {
    /// Those of a report.
    pub(super) fn of(report: &'a EffectiveReport) -> Self {
        let mut warnings: BTreeMap<&str, Vec<&Diagnostic>> = BTreeMap::new();
        for diagnostic in &report.problems {
            if let (Severity::Warning, Some(object)) =
                (diagnostic.severity, diagnostic.problem.object.as_deref())
            {
                warnings.entry(object).or_default().push(diagnostic);
            }
        }
        PolicyStates {
            deviating: report
                .policies
                .iter()
                .map(|policy| (&*policy.id, policy))
                .collect(),
            warnings,
        }
    }

    /// The policies of which nothing is in force, by name.
    pub(super) fn not_enforced(&self) -> impl Iterator<Item = &'a PolicyAcceptance> {
        let all = self.deviating.values().copied();
        all.filter(|policy| policy.enforced == EnforcedVersion::Nothing)
    }

    /// The status of a policy. `over` are the excesses of the element budget.
    pub(super) fn status(&self, id: &ObjectId, over: &[BudgetExcess]) -> PolicyStatus {
        let acceptance = self.deviating.get(id).copied();
        let mut status = acceptance.map_or_else(PolicyStatus::default, status_of);
        let name = id.to_string();
        if matches!(
            status.state,
            PolicyState::Accepted | PolicyState::PartlyClosed
        ) {
            let is_closed = |over: &&BudgetExcess| over.enforced == BudgetFallback::Closed;
            let mut closed_sets = over.iter().filter(is_closed);
            if let Some(over) = closed_sets.find(|over| over.policies.contains(&name)) {
                status.state = PolicyState::OverBudget;
                status.errors.push(PolicyFinding {
                    field: String::new(),
                    reason: closed_set_reason(over),
                    at: over.line.clone().unwrap_or_default(),
                });
            }
        }
        let warnings = self.warnings.get(&*name).into_iter().flatten();
        status.warnings = warnings
            .map(|warning| finding(&warning.problem, None))
            .collect();
        status
    }
}

/// The number of policies in each state but `Accepted`. Those over budget together are counted by their sets.
pub(super) fn policy_state_counts(core: &CoreSnapshot<'_>) -> Vec<PolicyStateCount> {
    let mut counts: BTreeMap<PolicyState, usize> = BTreeMap::new();
    for policy in &core.source_report.policies {
        *counts.entry(state_of(policy)).or_default() += 1;
    }
    let counts = counts.into_iter();
    let counts = counts.filter(|(state, _)| *state != PolicyState::Accepted);
    counts
        .map(|(state, policies)| PolicyStateCount { state, policies })
        .collect()
}

fn state_of(policy: &PolicyAcceptance) -> PolicyState {
    match policy.enforced {
        EnforcedVersion::Nothing => PolicyState::NotEnforced,
        EnforcedVersion::Isolation => PolicyState::Isolating,
        EnforcedVersion::LastValid(_) => PolicyState::LastValid,
        EnforcedVersion::Present if policy.closed.is_some() => PolicyState::PartlyClosed,
        EnforcedVersion::Present => PolicyState::Accepted,
    }
}

fn status_of(policy: &PolicyAcceptance) -> PolicyStatus {
    let origin = policy.origin.as_ref();
    let errors = policy.errors.iter().map(|problem| finding(problem, origin));
    let closed = policy.closed.iter().flat_map(|closed| &closed.parts);
    PolicyStatus {
        state: state_of(policy),
        version_since: match policy.enforced {
            EnforcedVersion::LastValid(version) => {
                Some(rfc3339(Duration::from_secs(version.since)))
            }
            _ => None,
        },
        errors: errors.collect(),
        more_errors: policy.more_errors,
        closed: closed
            .map(|part| ClosedPartReport {
                cause: cause(part.reason),
                part: finding(&part.problem, origin),
            })
            .collect(),
        more_closed: policy.closed.as_ref().map_or(0, |closed| closed.more),
        warnings: Vec::new(),
    }
}

/// The finding of a problem. An object of a server has no line, but a version.
fn finding(problem: &Problem, origin: Option<&ObjectOrigin>) -> PolicyFinding {
    let at = match origin {
        Some(origin @ ObjectOrigin::Resource { .. }) => origin.to_string(),
        _ => problem.location.to_string(),
    };
    PolicyFinding {
        field: printable(&problem.field).into_owned(),
        reason: printable(&problem.reason).into_owned(),
        at: printable(&at).into_owned(),
    }
}

const fn cause(reason: ClosedReason) -> ClosedCause {
    match reason {
        ClosedReason::NamesNotServed => ClosedCause::NamesNotServed,
        ClosedReason::NotServed => ClosedCause::NotServed,
        ClosedReason::UnknownPeer => ClosedCause::UnknownPeer,
        ClosedReason::EmptyPeer => ClosedCause::EmptyPeer,
        ClosedReason::UnknownField => ClosedCause::UnknownField,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use palisade_dialects::ClosedPart;
    use palisade_effective::{ClosedParts, ValidVersion};
    use palisade_manifest::Location;
    use palisade_model::ObjectKind;
    use std::sync::Arc;

    fn id(name: &str) -> ObjectId {
        ObjectId {
            namespace: Some("shop".into()),
            name: name.into(),
            kind: ObjectKind::new("networking.k8s.io", "NetworkPolicy"),
        }
    }

    fn problem(field: &str) -> Problem {
        Problem {
            location: Location {
                file: "a.yaml".into(),
                line: 7,
                column: 3,
            },
            object: None,
            field: field.to_owned(),
            reason: "wrong".to_owned(),
        }
    }

    fn acceptance(name: &str, enforced: EnforcedVersion, closed: &[&str]) -> PolicyAcceptance {
        let part = |field: &&str| ClosedPart {
            problem: problem(field),
            reason: ClosedReason::NamesNotServed,
        };
        let parts: Vec<ClosedPart> = closed.iter().map(part).collect();
        PolicyAcceptance {
            id: Arc::new(id(name)),
            enforced,
            origin: None,
            errors: match enforced {
                EnforcedVersion::Present => Vec::new(),
                _ => vec![problem("spec.x")],
            },
            more_errors: 0,
            closed: (!parts.is_empty()).then(|| Arc::new(ClosedParts { parts, more: 2 })),
        }
    }

    #[test]
    fn each_state_with_its_reasons() {
        let version = ValidVersion {
            hash: palisade_dialects::ContentHash(1),
            since: 0,
        };
        let report = EffectiveReport {
            policies: vec![
                acceptance("closed", EnforcedVersion::Present, &["spec.y"]),
                acceptance("last", EnforcedVersion::LastValid(version), &["spec.z"]),
                acceptance("isolating", EnforcedVersion::Isolation, &[]),
                acceptance("nothing", EnforcedVersion::Nothing, &[]),
            ],
            ..EffectiveReport::default()
        };
        let states = PolicyStates::of(&report);
        let over = BudgetExcess {
            policies: vec![
                id("closed").to_string(),
                id("large").to_string(),
                id("last").to_string(),
            ],
            direction: None,
            line: None,
            enforced: BudgetFallback::Closed,
            elements: 9,
            budget: 8,
            parameter: "policy-set-max-elements".to_owned(),
            rules: Vec::new(),
        };
        let row = |name: &str, over: &[BudgetExcess]| {
            let status = states.status(&id(name), over);
            let errors = status.errors.iter().map(|error| error.field.clone());
            let closed = status.closed.iter().map(|closed| {
                let (cause, part) = (closed.cause, &closed.part);
                format!(
                    "{} {cause} {} and {} more",
                    part.field, part.at, status.more_closed
                )
            });
            let since = status.version_since.clone();
            (
                status.state,
                errors.collect::<Vec<_>>(),
                closed.collect::<Vec<_>>(),
                since,
            )
        };
        let closed = |field: &str| vec![format!("{field} names-not-served a.yaml:7:3 and 2 more")];
        let error = vec!["spec.x".to_owned()];
        assert_eq!(
            row("plain", &[]),
            (PolicyState::Accepted, vec![], vec![], None)
        );
        assert_eq!(
            row("closed", &[]),
            (PolicyState::PartlyClosed, vec![], closed("spec.y"), None)
        );
        assert_eq!(
            row("last", std::slice::from_ref(&over)),
            (
                PolicyState::LastValid,
                error.clone(),
                closed("spec.z"),
                Some("1970-01-01T00:00:00Z".to_owned())
            )
        );
        assert_eq!(
            row("isolating", &[]),
            (PolicyState::Isolating, error.clone(), vec![], None)
        );
        assert_eq!(
            row("nothing", &[]),
            (PolicyState::NotEnforced, error, vec![], None)
        );
        for name in ["closed", "large"] {
            let status = row(name, std::slice::from_ref(&over));
            assert_eq!(status.0, PolicyState::OverBudget, "{name}");
        }
        let named: Vec<&str> = states
            .not_enforced()
            .map(|policy| &*policy.id.name)
            .collect();
        assert_eq!(named, ["nothing"]);
    }
}
