//! What the published schemas ask of the form of a value: exactly one of several fields, lists with a least and
//! a greatest length, lists without repetition, numbers within bounds.

use crate::report::ObjectReport;
use palisade_manifest::{Field, quote};
use std::collections::BTreeSet;

/// The only field of an object that must have exactly one of `known`; anything else is an error.
pub(super) fn only_field<'a>(
    parent: &Field<'a>,
    known: &[&'static str],
    misplaced: &[(&str, &str)],
    report: &mut ObjectReport,
) -> Option<(&'static str, Field<'a>)> {
    if !report.is_object(parent) {
        return None;
    }
    report.check_fields(parent, known, misplaced);
    let mut present = Vec::new();
    for key in known {
        present.extend(report.child(parent, key).map(|field| (*key, field)));
    }
    match <[_; 1]>::try_from(present) {
        Ok([only]) => Some(only),
        // The unknown field was reported.
        Err(none) if none.is_empty() && has_other_fields(parent, known) => None,
        Err(other) => {
            report.error(
                parent,
                exactly_one(known, other.iter().map(|(key, _)| *key)),
            );
            None
        }
    }
}

fn has_other_fields(parent: &Field<'_>, known: &[&str]) -> bool {
    let entries = parent.entries().unwrap_or_default();
    entries.iter().any(|(key, _)| !known.contains(key))
}

/// The error of an object that must have exactly one of these fields.
pub(super) fn exactly_one<'k>(known: &[&str], names: impl Iterator<Item = &'k str>) -> String {
    let names: Vec<&str> = names.collect();
    let present = match names.as_slice() {
        [] => "none is there".to_owned(),
        all => format!("found {}", all.join(" and ")),
    };
    format!("exactly one of {} is required; {present}", known.join(", "))
}

/// The items of a list that is optional but not empty, and has at most `most` of them.
pub(super) fn optional_items<'a>(
    parent: &Field<'a>,
    key: &str,
    (what, most): (&str, usize),
    report: &mut ObjectReport,
) -> Vec<Field<'a>> {
    match report.child(parent, key) {
        Some(list) => items(&list, (what, 1, most), report),
        None => Vec::new(),
    }
}

/// The items of a list that must be there, is not empty, and has at most `most` of them.
pub(super) fn required_items<'a>(
    parent: &Field<'a>,
    key: &str,
    (what, most): (&str, usize),
    report: &mut ObjectReport,
) -> Vec<Field<'a>> {
    if report.child(parent, key).is_none() {
        report.error(parent, format!("`{key}` is required, but missing"));
    }
    optional_items(parent, key, (what, most), report)
}

/// The items of a list of at least `least` and at most `most` of what is named in the plural.
pub(super) fn items<'a>(
    list: &Field<'a>,
    (what, least, most): (&str, usize, usize),
    report: &mut ObjectReport,
) -> Vec<Field<'a>> {
    let items = report.ok(list.items()).unwrap_or_default();
    if items.len() > most {
        let count = items.len();
        report.error(list, format!("{count} {what} are too many: at most {most}"));
    }
    if items.len() < least && list.node.as_list().is_some() {
        report.error(
            list,
            format!("an empty list of {what}: at least {least} is required"),
        );
    }
    items
}

/// The texts of a list without repetition.
pub(super) fn distinct_texts<'a>(
    items: &[Field<'a>],
    report: &mut ObjectReport,
) -> Vec<(&'a str, Field<'a>)> {
    let mut seen = BTreeSet::new();
    let mut texts = Vec::new();
    for field in items {
        let Some(text) = report.ok(field.as_str()) else {
            continue;
        };
        if seen.insert(text) {
            texts.push((text, field.clone()));
        } else {
            report.error(field, format!("{} is in the list twice", quote(text)));
        }
    }
    texts
}

/// A required whole number.
pub(super) fn required_number<'a>(
    parent: &Field<'a>,
    key: &str,
    report: &mut ObjectReport,
) -> Option<(i64, Field<'a>)> {
    let Some(field) = report.child(parent, key) else {
        report.error(parent, format!("`{key}` is required, but missing"));
        return None;
    };
    let number = report.ok(field.as_i64())?;
    Some((number, field))
}
