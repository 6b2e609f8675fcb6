//! The actions of rules, in the words of each kind.

use super::variant::PolicyVariant;
use crate::faults::DialectFault;
use crate::report::ObjectReport;
use palisade_manifest::{Field, quote};
use palisade_model::Action;

/// Reads the action of a rule.
pub(super) fn read(
    rule: &Field<'_>,
    variant: PolicyVariant,
    report: &mut ObjectReport,
) -> Option<Action> {
    let Some(field) = report.child(rule, "action") else {
        report.error(rule, "`action` is required, but missing");
        return None;
    };
    let text = report.ok(field.as_str())?;
    let action = parse(text, variant);
    if action.is_none() {
        report.error(
            &field,
            format!("{} is not an action: use {}", quote(text), words(variant)),
        );
    }
    match action {
        Some(Action::Pass) if DialectFault::PassReadAsAllow.is_injected() => Some(Action::Allow),
        other => other,
    }
}

/// The action of a word.
pub(super) fn parse(word: &str, variant: PolicyVariant) -> Option<Action> {
    use PolicyVariant::{Admin, BaselineAdmin, Cluster};
    match (word, variant) {
        ("Accept", Cluster) => Some(Action::Allow),
        ("Allow", Admin | BaselineAdmin) => Some(Action::Allow),
        ("Deny", _) => Some(Action::Deny),
        ("Pass", Cluster | Admin) => Some(Action::Pass),
        _ => None,
    }
}

/// The word for an action that allows.
pub(super) fn allow_word(variant: PolicyVariant) -> &'static str {
    match variant {
        PolicyVariant::Cluster => "Accept",
        PolicyVariant::Admin | PolicyVariant::BaselineAdmin => "Allow",
    }
}

fn words(variant: PolicyVariant) -> &'static str {
    match variant {
        PolicyVariant::Cluster => "Accept, Deny or Pass",
        PolicyVariant::Admin => "Allow, Deny or Pass",
        PolicyVariant::BaselineAdmin => "Allow or Deny",
    }
}
