//! Label selectors: matchLabels and matchExpressions.

use crate::faults::DialectFault;
use crate::metadata;
use crate::names;
use crate::report::ObjectReport;
use palisade_manifest::{Field, quote};
use palisade_model::{LabelKey, Selector, Str, reserved};

/// The fields of a label selector.
pub(crate) const KNOWN: &[&str] = &["matchLabels", "matchExpressions"];
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
        parts.push(Selector::equals(key_of(name), value));
    }
    for expression in report.items(field, "matchExpressions") {
        let key_of = |key: &str| (key_of(key.into()), names::label_key_errors(key));
        let requirement = read_requirement(&expression, key_of, report);
        parts.extend(requirement.map(|(key, test)| test.to_selector(key)));
    }
    Selector::and(parts)
}

/// Matches pods and other attached workloads.
pub(crate) fn workload_selector() -> Selector {
    Selector::equals(LabelKey::reserved(reserved::KIND), reserved::KIND_WORKLOAD)
}

/// A test of the value of a label.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LabelTest {
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
    pub(crate) fn holds_if_absent(&self) -> bool {
        matches!(self, LabelTest::NotIn(_) | LabelTest::DoesNotExist)
    }

    /// Whether it holds for a label without a value.
    pub(crate) fn holds_if_empty(&self) -> bool {
        match self {
            LabelTest::In(values) => values.iter().any(|value| value.is_empty()),
            LabelTest::NotIn(values) => !values.iter().any(|value| value.is_empty()),
            LabelTest::Exists => true,
            LabelTest::DoesNotExist => false,
        }
    }

    /// The test of a label of the model.
    pub(crate) fn to_selector(&self, key: LabelKey) -> Selector {
        match self {
            LabelTest::In(values) => Selector::is_in(key, values.iter().cloned()),
            LabelTest::NotIn(values) => {
                let is_none = Selector::not_in(key.clone(), values.iter().cloned());
                if DialectFault::NotInAbsentFalse.is_injected() {
                    Selector::and([Selector::has(key), is_none])
                } else {
                    is_none
                }
            }
            LabelTest::Exists => Selector::has(key),
            LabelTest::DoesNotExist => Selector::negate(Selector::has(key)),
        }
    }
}

/// A label value; `null` is an empty one, as in the API server.
pub(crate) fn label_value(at: &Field<'_>, report: &mut ObjectReport) -> Option<Str> {
    let value = if at.node.is_null() {
        ""
    } else {
        report.ok(at.as_str())?
    };
    report.errors(at, names::label_value_errors(value));
    Some(value.into())
}

/// Reads an item of `matchExpressions`; `key_of` makes a key from its text, with the reasons why it is none.
pub(crate) fn read_requirement<K>(
    field: &Field<'_>,
    key_of: impl FnOnce(&str) -> (K, Vec<String>),
    report: &mut ObjectReport,
) -> Option<(K, LabelTest)> {
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
            let (key, errors) = key_of(text);
            report.errors(&at, errors);
            key
        }),
    };
    let listed = report.items(field, "values");
    let values = listed.iter().filter_map(|at| label_value(at, report));
    let values: Vec<Str> = values.collect();
    let Some(operator) = report.child(field, "operator") else {
        report.error(field, "`operator` is required, but missing");
        return None;
    };
    let text = report.ok(operator.as_str())?;
    let test = match text {
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
    Some((key?, test))
}
