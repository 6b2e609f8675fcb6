//! Label selectors: matchLabels and matchExpressions.

use crate::faults::DialectFault;
use crate::metadata;
use crate::names;
use crate::report::ObjectReport;
use palisade_manifest::{Field, quote};
use palisade_model::{LabelKey, Selector, Str, reserved};

const KNOWN: &[&str] = &["matchLabels", "matchExpressions"];
const KNOWN_EXPRESSION: &[&str] = &["key", "operator", "values"];

/// Makes a key from a label name, for the labels that a selector tests (of pods or of namespaces).
pub(crate) type LabelKeyFn = fn(Str) -> LabelKey;

/// Lowers a label selector: all requirements have to match; an empty selector matches everything. If errors
/// were added to the report, the returned selector must not be used.
pub(crate) fn read(field: &Field<'_>, key_of: LabelKeyFn, report: &mut ObjectReport) -> Selector {
    if !report.is_object(field) {
        return Selector::none();
    }
    report.check_fields(field, KNOWN, &[]);
    let mut parts = Vec::new();
    for (name, value) in metadata::labels(field, "matchLabels", report) {
        if parts.is_empty() || !DialectFault::OnlyFirstLabelRead.is_injected() {
            parts.push(Selector::equals(key_of(name), value));
        }
    }
    for expression in report.items(field, "matchExpressions") {
        let part = requirement(&expression, key_of, report);
        if !DialectFault::MatchExpressionsIgnored.is_injected() {
            parts.extend(part);
        }
    }
    Selector::and(parts)
}

/// Matches pods and other attached workloads.
pub(crate) fn workload_selector() -> Selector {
    Selector::equals(LabelKey::reserved(reserved::KIND), reserved::KIND_WORKLOAD)
}

fn requirement(
    field: &Field<'_>,
    key_of: LabelKeyFn,
    report: &mut ObjectReport,
) -> Option<Selector> {
    if !report.is_object(field) {
        return None;
    }
    report.check_fields(field, KNOWN_EXPRESSION, &[]);
    let key = match report.child(field, "key") {
        None => {
            report.error(field, "`key` is required, but missing");
            None
        }
        Some(at) => report.ok(at.as_str()).map(|key| {
            report.errors(&at, names::label_key_errors(key));
            key_of(key.into())
        }),
    };
    let mut values: Vec<Str> = Vec::new();
    let listed = report.items(field, "values");
    for at in &listed {
        let value = if at.node.is_null() {
            Some("")
        } else {
            report.ok(at.as_str())
        };
        if let Some(value) = value {
            report.errors(at, names::label_value_errors(value));
            values.push(value.into());
        }
    }
    let Some(operator) = report.child(field, "operator") else {
        report.error(field, "`operator` is required, but missing");
        return None;
    };
    let text = report.ok(operator.as_str())?;
    match text {
        "In" | "NotIn" if listed.is_empty() => {
            report.error(field, format!("`values` is required with operator {text}"));
            return None;
        }
        "Exists" | "DoesNotExist" if !listed.is_empty() => {
            report.error(
                field,
                format!("`values` must not be given with operator {text}"),
            );
            return None;
        }
        _ => {}
    }
    let test: fn(LabelKey, Vec<Str>) -> Selector = match text {
        "In" => Selector::is_in,
        "NotIn" => not_in,
        "Exists" => exists,
        "DoesNotExist" => |key, _| Selector::negate(Selector::has(key)),
        _ => {
            report.error(
                &operator,
                format!(
                    "{} is not a selector operator: use In, NotIn, Exists or DoesNotExist",
                    quote(text)
                ),
            );
            return None;
        }
    };
    Some(test(key?, values))
}

fn not_in(key: LabelKey, values: Vec<Str>) -> Selector {
    if DialectFault::NotInAbsentFalse.is_injected() {
        return Selector::and([Selector::has(key.clone()), Selector::not_in(key, values)]);
    }
    Selector::not_in(key, values)
}

fn exists(key: LabelKey, _: Vec<Str>) -> Selector {
    if DialectFault::ExistsAsAlways.is_injected() {
        return Selector::all();
    }
    Selector::has(key)
}
