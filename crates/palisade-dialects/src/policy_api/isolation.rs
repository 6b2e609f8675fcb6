//! What a cluster-wide policy isolates while no version of it has ever been valid.
//!
//! A rule that allows is nothing as long as it cannot be read: traffic is decided by later policies, as if it were
//! not there. A rule that denies, or passes (which can keep traffic from a later Accept), fails closed. So a
//! direction with such a rule, or with one whose action cannot be read, denies everything, at the place of the
//! policy; a direction in which every rule allows is not affected. Without a subject that can be read there is
//! nothing to isolate: `subject` has no default, and guessing would cut off the whole cluster.

use super::action;
use super::cluster_policy::{KNOWN, build_policy, place, subject};
use super::rule::list_of;
use super::variant::{PolicyApiTier, PolicyPlace, PolicyVariant};
use crate::kind_reader::ManifestObject;
use crate::report::{ObjectReport, line_of};
use palisade_manifest::Field;
use palisade_model::{Action, Direction, DirectionRules, Policy};

/// The isolation policy; `None` if the subject cannot be read, and if no direction has to be closed.
pub(super) fn isolation_policy(
    object: &ManifestObject<'_>,
    variant: PolicyVariant,
) -> Option<Policy> {
    let mut report = ObjectReport::new(String::new());
    let spec = object.root.get("spec").ok()??;
    spec.as_map().ok()?;
    let selected = subject(&spec, variant, &mut report)?;
    if !report.errors.is_empty() {
        return None;
    }
    // Where it cannot be read: before every other policy.
    let policy_place = place(&spec, variant, &mut report).unwrap_or(PolicyPlace {
        tier: PolicyApiTier::Admin,
        priority: Some(0),
    });
    let line = Some(line_of(&object.root));
    let rules = |direction| {
        is_closed(object, &spec, direction, variant).then(|| DirectionRules::deny_all(line.clone()))
    };
    let (ingress, egress) = (rules(Direction::Ingress), rules(Direction::Egress));
    if ingress.is_none() && egress.is_none() {
        return None;
    }
    Some(build_policy(
        object,
        (variant, policy_place),
        selected,
        (ingress, egress),
    ))
}

/// Whether a direction has, or may have, a rule that does not allow.
fn is_closed(
    object: &ManifestObject<'_>,
    spec: &Field<'_>,
    direction: Direction,
    variant: PolicyVariant,
) -> bool {
    let list = match spec.get(list_of(direction)) {
        Ok(Some(list)) => list,
        Ok(None) => {
            let known_fields = (KNOWN, variant.spec_fields());
            return object.may_misspell(spec, known_fields, &[list_of(direction)]);
        }
        Err(_) => return true,
    };
    let Ok(rules) = list.items() else {
        return true;
    };
    rules.iter().any(|rule| {
        let action = rule.get("action").ok().flatten();
        let word = action.as_ref().and_then(|field| field.node.as_str());
        word.and_then(|word| action::parse(word, variant)) != Some(Action::Allow)
    })
}
