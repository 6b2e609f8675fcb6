//! What a policy isolates while no version of it has ever been valid.
//!
//! Each spec by itself: the pods that it selects are isolated in the directions that it names, by a list of rules
//! of either action, by an empty one, or by a field that may be a misspelling of one. Where `enableDefaultDeny`
//! says that a direction is not denied by default, it is closed only if something was to be denied there. A spec
//! whose selector cannot be read isolates nothing: guessing would cut off the whole cluster. One that selects nodes
//! isolates nothing either: a node that is closed may be out of reach of what would correct the policy.

use super::rule_context::{RuleAction, list_of};
use super::spec::{self, KNOWN, KNOWN_SPEC, PolicyScope, SpecPart, SpecSubject, build_part};
use crate::kind_reader::ManifestObject;
use crate::report::{ObjectReport, line_of};
use palisade_manifest::Field;
use palisade_model::{Direction, DirectionRules, Policy};

/// The isolation policies of an object.
pub(super) fn isolation_policies(object: &ManifestObject<'_>, scope: PolicyScope) -> Vec<Policy> {
    let mut report = ObjectReport::new(String::new());
    let specs = spec::specs(&object.root, &mut report);
    let isolated = specs
        .iter()
        .flat_map(|spec| isolate_spec(object, spec, scope));
    isolated.collect()
}

fn isolate_spec(
    object: &ManifestObject<'_>,
    (number, spec): &(u32, Field<'_>),
    scope: PolicyScope,
) -> Vec<Policy> {
    let mut report = ObjectReport::new(String::new());
    if spec.as_map().is_err() {
        return Vec::new();
    }
    let namespace = object.namespace();
    let namespace = (scope == PolicyScope::Namespace).then_some(&namespace);
    let subject = spec::subject(spec, namespace, &mut report);
    let subject = subject.filter(|_| report.errors.is_empty());
    let Some(subject @ SpecSubject::Pods(_)) = subject else {
        return Vec::new();
    };
    let line = Some(line_of(spec));
    let mut denied = [None, None];
    let mut isolated = [None, None];
    for (place, direction) in Direction::BOTH.into_iter().enumerate() {
        let names = |action| names_list(object, spec, list_of(direction, action));
        let (denies, allows) = (names(RuleAction::Deny), names(RuleAction::Allow));
        match default_deny(spec, direction) {
            Some(false) if denies => denied[place] = Some(DirectionRules::deny_all(line.clone())),
            Some(false) => {}
            None if !denies && !allows => {}
            None | Some(true) => {
                isolated[place] = Some(DirectionRules {
                    default_deny: true,
                    rules: Vec::new(),
                });
            }
        }
    }
    [
        (SpecPart::Denials, denied),
        (SpecPart::Allowances, isolated),
    ]
    .into_iter()
    .filter_map(|(part, rules)| build_part(object, (*number, part), &subject, rules, line.clone()))
    .collect()
}

/// Whether a spec has this list, or may have it: an unknown field there or outside may be a misspelling of it.
fn names_list(object: &ManifestObject<'_>, spec: &Field<'_>, list: &str) -> bool {
    if !matches!(spec.get(list), Ok(None)) {
        return true;
    }
    object.may_misspell(spec, (KNOWN, KNOWN_SPEC), &[list])
}

/// What `enableDefaultDeny` says of a direction, if that can be read.
fn default_deny(spec: &Field<'_>, direction: Direction) -> Option<bool> {
    let field = spec.get("enableDefaultDeny").ok()??;
    let at = field.get(list_of(direction, RuleAction::Allow)).ok()??;
    at.node.as_bool()
}
