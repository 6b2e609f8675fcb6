//! What a cluster is told about its policies: those that are not accepted, and the conditions of all whose API
//! has conditions.
//!
//! It says what every agent finds alike: nothing of this node, whose state its `NodePolicyStatus` has. Policies
//! of folders have nobody to be told but the agent's own status.

use super::CoreSnapshot;
use super::node_status::bounded;
use palisade_effective::{EffectiveReport, Severity};
use palisade_kubernetes::{FeedbackKind, PolicyCondition, PolicyFindings, PolicyProblem};
use palisade_model::{ObjectId, Str};
use std::collections::{BTreeMap, BTreeSet};

/// The maximum number of problems that are told; the others wait until these are mended.
const MAX_LISTED: usize = 100;

/// What to write to the API server about its policies.
pub fn policy_findings(core: &CoreSnapshot<'_>) -> PolicyFindings {
    find(core.source_report, core.policy.engine.policy_objects())
}

/// The diagnostics of one object.
#[derive(Default)]
struct ObjectFindings {
    errors: Vec<String>,
    closed: Vec<String>,
    warnings: Vec<String>,
}

/// The findings of a report, with the objects of the policies in force and their resources at a server.
fn find(
    report: &EffectiveReport,
    in_force: impl IntoIterator<Item = (ObjectId, Option<Str>)>,
) -> PolicyFindings {
    if !report.sources.iter().all(|source| source.in_sync) {
        // What is in force from an earlier run may be refused now.
        return PolicyFindings::default();
    }
    // By resource, then name: objects of two resources may have one name.
    let mut by_object: BTreeMap<(&str, &str), ObjectFindings> = BTreeMap::new();
    for diagnostic in &report.problems {
        let problem = &diagnostic.problem;
        let Some(object) = problem.object.as_deref() else {
            continue;
        };
        // Of an object of a server the file is the resource; a file of a folder is no kind's.
        let resource = &*problem.location.file;
        if FeedbackKind::of(resource).is_none() {
            continue;
        }
        let reason = if problem.field.is_empty() {
            problem.reason.clone()
        } else {
            format!("{}: {}", problem.field, problem.reason)
        };
        let entry = by_object.entry((resource, object)).or_default();
        match diagnostic.severity {
            Severity::Error => entry.errors.push(reason),
            Severity::HeldClosed => entry.closed.push(reason),
            Severity::Warning => entry.warnings.push(reason),
        }
    }
    let problems = by_object.iter().filter_map(|((resource, object), entry)| {
        let (namespace, name) = split(object)?;
        Some(PolicyProblem {
            resource: (*resource).to_owned(),
            namespace: namespace.map(str::to_owned),
            name: name.to_owned(),
            message: bounded(entry.errors.first()?),
        })
    });
    let problems = problems.take(MAX_LISTED).collect();
    let in_force = in_force.into_iter().filter_map(|(object, resource)| {
        let resource = resource?;
        FeedbackKind::of(&resource)?;
        Some((resource.to_string(), object.to_string()))
    });
    let with_errors = by_object
        .iter()
        .filter(|(_, entry)| !entry.errors.is_empty());
    let refused =
        with_errors.map(|((resource, object), _)| ((*resource).to_owned(), (*object).to_owned()));
    let all: BTreeSet<(String, String)> = in_force.chain(refused).collect();
    let instead = enforced_instead(report);
    let conditions = all.iter().filter_map(|(resource, object)| {
        let (namespace, name) = split(object)?;
        FeedbackKind::of(resource)?.condition?;
        let none = ObjectFindings::default();
        let entry = by_object.get(&(&**resource, &**object)).unwrap_or(&none);
        let instead = instead.get(&**object).copied();
        let (is_accepted, reason, message) = judge(entry, instead);
        Some(PolicyCondition {
            resource: resource.clone(),
            namespace: namespace.map(str::to_owned),
            name: name.to_owned(),
            is_accepted,
            reason: reason.to_owned(),
            message: bounded(&message),
        })
    });
    PolicyFindings {
        problems,
        conditions: conditions.collect(),
    }
}

/// What is in force of the objects whose present definition is not.
fn enforced_instead(report: &EffectiveReport) -> BTreeMap<&str, &str> {
    report
        .retained
        .iter()
        .map(|retained| {
            let instead = match retained.since {
                Some(_) => "the last valid version stays in force",
                None => "what it selects is isolated",
            };
            (&*retained.object, instead)
        })
        .collect()
}

/// The namespace and the name of an object, from its kind and name.
fn split(object: &str) -> Option<(Option<&str>, &str)> {
    let (_, name) = object.split_once(' ')?;
    Some(match name.split_once('/') {
        Some((namespace, name)) => (Some(namespace), name),
        None => (None, name),
    })
}

/// Whether an object is accepted, with the reason in a word and in a sentence. `instead` is what is in force if
/// the present definition is not.
fn judge(findings: &ObjectFindings, instead: Option<&str>) -> (bool, &'static str, String) {
    let is_refused = !findings.errors.is_empty() || instead.is_some();
    let remarks = || {
        let all: Vec<&str> = (findings.closed.iter().chain(&findings.warnings))
            .map(String::as_str)
            .collect();
        all.join("; ")
    };
    match (
        is_refused,
        findings.closed.is_empty(),
        findings.warnings.is_empty(),
    ) {
        (true, ..) => {
            let reasons = findings.errors.iter().map(String::as_str);
            let reasons: Vec<&str> = if findings.errors.is_empty() {
                vec!["its present definition is not valid"]
            } else {
                reasons.collect()
            };
            let instead = instead.unwrap_or("nothing of it is in force");
            let message = format!("{instead}: {}", reasons.join("; "));
            (false, "NotAccepted", message)
        }
        (false, false, _) => (true, "PartlyClosed", format!("held closed: {}", remarks())),
        (false, true, false) => (true, "AcceptedWithWarnings", remarks()),
        (false, true, true) => (true, "Accepted", "every field is understood".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use palisade_effective::{Diagnostic, RetainedObject, SourceState};
    use palisade_manifest::{Location, Problem};
    use palisade_model::ObjectKind;

    const ADMIN: &str = "adminnetworkpolicies.policy.networking.k8s.io";

    fn diagnostic(object: &str, place: &str, field: &str, severity: Severity) -> Diagnostic {
        let problem = Problem {
            location: Location {
                file: place.into(),
                line: 0,
                column: 1,
            },
            object: Some(object.to_owned()),
            field: field.to_owned(),
            reason: "wrong".to_owned(),
        };
        Diagnostic {
            problem,
            severity,
            omitted: 0,
        }
    }

    fn in_force(name: &str, resource: Option<&str>) -> (ObjectId, Option<Str>) {
        let id = ObjectId {
            namespace: None,
            name: name.into(),
            kind: ObjectKind::new("policy.networking.k8s.io", "AdminNetworkPolicy"),
        };
        (id, resource.map(Str::from))
    }

    fn row(condition: &PolicyCondition) -> (&str, bool, &str, &str) {
        let PolicyCondition {
            name,
            is_accepted,
            reason,
            message,
            ..
        } = condition;
        (name, *is_accepted, reason, message)
    }

    #[test]
    fn conditions_say_what_is_accepted_and_what_is_in_force_instead() {
        let retained = |object: &str, since| RetainedObject {
            object: object.to_owned(),
            since,
            hash: None,
        };
        let report = EffectiveReport {
            problems: vec![
                diagnostic("AdminNetworkPolicy b", ADMIN, "spec.x", Severity::Warning),
                diagnostic("AdminNetworkPolicy b2", ADMIN, "spec.x", Severity::Warning),
                diagnostic(
                    "AdminNetworkPolicy b2",
                    ADMIN,
                    "spec.y",
                    Severity::HeldClosed,
                ),
                diagnostic("AdminNetworkPolicy c", ADMIN, "spec.x", Severity::Error),
                diagnostic("AdminNetworkPolicy c", ADMIN, "spec.y", Severity::Error),
                diagnostic("AdminNetworkPolicy d", ADMIN, "", Severity::Error),
                diagnostic("AdminNetworkPolicy e", ADMIN, "", Severity::Error),
                diagnostic("AdminNetworkPolicy g", "a.yaml", "", Severity::Error),
            ],
            retained: vec![
                retained("AdminNetworkPolicy c", Some(7)),
                retained("AdminNetworkPolicy d", None),
                retained("AdminNetworkPolicy f", None),
            ],
            ..EffectiveReport::default()
        };
        let here = ["a", "b", "b2", "c", "d", "f"].map(|name| in_force(name, Some(ADMIN)));
        let folder = [in_force("h", None)];
        let found = find(&report, here.into_iter().chain(folder));
        let rows: Vec<_> = found.conditions.iter().map(row).collect();
        assert_eq!(
            rows,
            [
                ("a", true, "Accepted", "every field is understood"),
                ("b", true, "AcceptedWithWarnings", "spec.x: wrong"),
                (
                    "b2",
                    true,
                    "PartlyClosed",
                    "held closed: spec.y: wrong; spec.x: wrong"
                ),
                (
                    "c",
                    false,
                    "NotAccepted",
                    "the last valid version stays in force: spec.x: wrong; spec.y: wrong"
                ),
                (
                    "d",
                    false,
                    "NotAccepted",
                    "what it selects is isolated: wrong"
                ),
                (
                    "e",
                    false,
                    "NotAccepted",
                    "nothing of it is in force: wrong"
                ),
                (
                    "f",
                    false,
                    "NotAccepted",
                    "what it selects is isolated: its present definition is not valid"
                ),
            ]
        );
        let problems: Vec<&str> = found.problems.iter().map(|p| &*p.name).collect();
        assert_eq!(problems, ["c", "d", "e"]);
    }

    #[test]
    fn before_every_source_was_read_nothing_is_found() {
        let source = |in_sync| {
            let mut state = SourceState::new("kubernetes".into());
            state.in_sync = in_sync;
            state
        };
        let found = |in_sync| {
            let report = EffectiveReport {
                sources: vec![source(true), source(in_sync)],
                ..EffectiveReport::default()
            };
            find(&report, [in_force("a", Some(ADMIN))]).conditions.len()
        };
        assert_eq!((found(false), found(true)), (0, 1));
    }

    #[test]
    fn policies_of_calico_have_events_of_their_resource() {
        let crd = "networkpolicies.crd.projectcalico.org";
        let kubernetes = "networkpolicies.networking.k8s.io";
        let report = EffectiveReport {
            problems: vec![
                diagnostic("NetworkPolicy shop/a", crd, "spec.x", Severity::Error),
                diagnostic(
                    "NetworkPolicy shop/a",
                    kubernetes,
                    "spec.y",
                    Severity::Error,
                ),
                diagnostic(
                    "Tier a",
                    "tiers.crd.projectcalico.org",
                    "spec.x",
                    Severity::Error,
                ),
            ],
            ..EffectiveReport::default()
        };
        let found = find(&report, []);
        assert_eq!(found.conditions, []);
        let problems = found.problems.iter();
        let rows: Vec<_> = problems.map(|p| (&*p.resource, &*p.message)).collect();
        assert_eq!(
            rows,
            [(crd, "spec.x: wrong"), (kubernetes, "spec.y: wrong")]
        );
    }

    #[test]
    fn a_networkpolicy_has_events_and_no_condition() {
        let place = "networkpolicies.networking.k8s.io";
        let report = EffectiveReport {
            problems: vec![
                diagnostic("NetworkPolicy shop/a", place, "spec.x", Severity::Error),
                diagnostic("NetworkPolicy shop/b", place, "spec.x", Severity::Warning),
                diagnostic("NetworkPolicy shop/c", "a.yaml", "spec.x", Severity::Error),
            ],
            ..EffectiveReport::default()
        };
        let found = find(&report, []);
        assert_eq!(found.conditions, []);
        assert_eq!(
            found.problems,
            [PolicyProblem {
                resource: place.to_owned(),
                namespace: Some("shop".to_owned()),
                name: "a".to_owned(),
                message: "spec.x: wrong".to_owned(),
            }]
        );
    }
}
