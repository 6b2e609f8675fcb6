//! Label selectors over labels with sources: a list of requirements that all have to hold.
//!
//! Never: decides which addresses a selector selects; `peer_kind` does.

use super::label_key::SourcedKey;
use crate::names;
use crate::report::ObjectReport;
use palisade_manifest::{Field, quote};
use palisade_model::{LabelKey, Selector, Str};

const KNOWN: &[&str] = &["matchLabels", "matchExpressions"];
const KNOWN_EXPRESSION: &[&str] = &["key", "operator", "values"];

/// A test of the value of a label.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum LabelTest {
    /// It is one of these.
    In(Vec<Str>),
    /// It is none of these, or there is none.
    NotIn(Vec<Str>),
    /// There is one.
    Exists,
    /// There is none.
    DoesNotExist,
}

impl LabelTest {
    /// Whether it holds where there is no such label.
    pub(super) fn holds_if_absent(&self) -> bool {
        matches!(self, LabelTest::NotIn(_) | LabelTest::DoesNotExist)
    }

    /// Whether it holds for a label without a value.
    pub(super) fn holds_if_empty(&self) -> bool {
        match self {
            LabelTest::In(values) => values.iter().any(|value| value.is_empty()),
            LabelTest::NotIn(values) => !values.iter().any(|value| value.is_empty()),
            LabelTest::Exists => true,
            LabelTest::DoesNotExist => false,
        }
    }

    /// The test of a label of the model.
    pub(super) fn to_selector(&self, key: LabelKey) -> Selector {
        match self {
            LabelTest::In(values) => Selector::is_in(key, values.iter().cloned()),
            LabelTest::NotIn(values) => Selector::not_in(key, values.iter().cloned()),
            LabelTest::Exists => Selector::has(key),
            LabelTest::DoesNotExist => Selector::negate(Selector::has(key)),
        }
    }
}

/// A requirement of a selector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LabelRequirement {
    /// The label.
    pub(super) key: SourcedKey,
    /// Its test.
    pub(super) test: LabelTest,
}

/// Reads a label selector. If errors were added to the report, the result must not be used.
pub(super) fn read(field: &Field<'_>, report: &mut ObjectReport) -> Vec<LabelRequirement> {
    let mut requirements = Vec::new();
    if !report.is_object(field) {
        return requirements;
    }
    report.check_fields(field, KNOWN, &[]);
    if let Some(map) = report.object(field, "matchLabels") {
        for (text, at) in map.entries().unwrap_or_default() {
            let key = SourcedKey::parse(text);
            report.key_errors(&map, text, key.errors());
            if let Some(value) = label_value(&at, report) {
                requirements.push(LabelRequirement {
                    key,
                    test: LabelTest::In(vec![value]),
                });
            }
        }
    }
    for expression in report.items(field, "matchExpressions") {
        requirements.extend(requirement(&expression, report));
    }
    requirements
}

/// A label value; `null` is an empty one, as in the API server.
fn label_value(at: &Field<'_>, report: &mut ObjectReport) -> Option<Str> {
    let value = match at.node.is_null() {
        true => "",
        false => report.ok(at.as_str())?,
    };
    report.errors(at, names::label_value_errors(value));
    Some(value.into())
}

fn requirement(field: &Field<'_>, report: &mut ObjectReport) -> Option<LabelRequirement> {
    if !report.is_object(field) {
        return None;
    }
    report.check_fields(field, KNOWN_EXPRESSION, &[]);
    let key = match report.child(field, "key") {
        None => {
            report.error(field, "`key` is required, but missing");
            None
        }
        Some(at) => report.ok(at.as_str()).map(|text| {
            let key = SourcedKey::parse(text);
            report.errors(&at, key.errors());
            key
        }),
    };
    let listed = report.items(field, "values");
    let values: Vec<Str> = listed
        .iter()
        .filter_map(|at| label_value(at, report))
        .collect();
    let Some(operator) = report.child(field, "operator") else {
        report.error(field, "`operator` is required, but missing");
        return None;
    };
    let text = report.ok(operator.as_str())?;
    let test = match text {
        "In" | "NotIn" if listed.is_empty() => {
            report.error(
                field,
                format!("`values` are required with operator {text}, but missing"),
            );
            return None;
        }
        "Exists" | "DoesNotExist" if !listed.is_empty() => {
            report.error(
                field,
                format!("`values` must not be given with operator {text}"),
            );
            return None;
        }
        "In" => LabelTest::In(values),
        "NotIn" => LabelTest::NotIn(values),
        "Exists" => LabelTest::Exists,
        "DoesNotExist" => LabelTest::DoesNotExist,
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
    Some(LabelRequirement { key: key?, test })
}
