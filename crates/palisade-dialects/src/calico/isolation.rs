//! What a policy isolates while no version of it has ever been valid.
//!
//! The workloads of its selectors are isolated in its directions, at its place: by a policy without rules, as far as
//! each of its rules allows or logs; a rule that denies or passes, or whose action cannot be read, makes the
//! direction deny everything. A policy whose selectors or flags cannot be read isolates nothing: guessing would cut
//! off the whole cluster. Host endpoints are never isolated: that would lock out who could correct the policy.

use super::policy::{self, KNOWN, TierPlace, build_policy};
use super::policy_kind::CalicoPolicyKind;
use super::rule::{list_of, parse_action};
use crate::kind_reader::ManifestObject;
use crate::report::{ObjectReport, line_of};
use palisade_manifest::Field;
use palisade_model::{Action, Direction, DirectionRules, Order, Policy, tier_name};

/// The isolation policy.
pub(super) fn isolation_policy(
    object: &ManifestObject<'_>,
    variant: CalicoPolicyKind,
) -> Option<Policy> {
    let mut report = ObjectReport::new(String::new());
    let spec = object.root.get("spec").ok()??;
    spec.as_map().ok()?;
    let own = object.namespace();
    let namespace = variant.is_namespaced().then_some(&own);
    let known_fields = (KNOWN, variant.spec_fields());
    if object.may_misspell(&spec, known_fields, &["selector", "namespaceSelector"]) {
        return None;
    }
    let subject = policy::subject(&spec, namespace, &mut report)?;
    if subject.scope.is_early() {
        return None;
    }
    let tier_place = policy::place(&spec, &mut report).unwrap_or(TierPlace {
        tier: tier_name::DEFAULT.into(),
        order: Order::At(f64::MIN),
    });
    let mut types_report = ObjectReport::new(String::new());
    let written = policy::types(&spec, &mut types_report);
    // One that cannot be read may have rules; an empty one has none.
    let has_list = |direction| match spec.get(list_of(direction)) {
        Ok(None) => false,
        Ok(Some(list)) => list.items().map_or(true, |rules| !rules.is_empty()),
        Err(_) => true,
    };
    let is_unclear = !types_report.errors.is_empty()
        || object.may_misspell(&spec, known_fields, &["types", "ingress", "egress"]);
    let governed = if is_unclear {
        Direction::BOTH.to_vec()
    } else {
        policy::directions(&written, Direction::BOTH.map(has_list))
    };
    let line = Some(line_of(&object.root));
    let rules = Direction::BOTH.map(|direction| {
        governed.contains(&direction).then(|| {
            if only_allows(&spec, direction) {
                DirectionRules {
                    default_deny: true,
                    rules: Vec::new(),
                }
            } else {
                DirectionRules::deny_all(line.clone())
            }
        })
    });
    Some(build_policy(object, tier_place, subject.workloads, rules))
}

/// Whether every rule of a direction allows or logs, as far as can be read.
fn only_allows(spec: &Field<'_>, direction: Direction) -> bool {
    let list = match spec.get(list_of(direction)) {
        Ok(Some(list)) => list,
        Ok(None) => return true,
        Err(_) => return false,
    };
    let Ok(rules) = list.items() else {
        return false;
    };
    rules.iter().all(|rule| {
        let action = rule.get("action").ok().flatten();
        let word = action.as_ref().and_then(|field| field.node.as_str());
        matches!(
            word.and_then(parse_action),
            Some(Action::Allow | Action::Log)
        )
    })
}
