//! Words about several definitions of one object, and counts of ignored kinds.

use crate::quota::{OmittedCounts, OmittedProblems};
use palisade_manifest::{Location, Problem};
use palisade_model::ObjectId;
use std::collections::BTreeMap;
use std::fmt::Display;

/// The number of ignored kinds that are counted separately.
const MAX_IGNORED_KINDS: usize = 100;
/// The name under which further kinds are counted.
const OTHER_KINDS: &str = "other kinds";

/// The problem of a duplicate definition of an object.
#[must_use]
pub fn duplicate_definition(id: &ObjectId, here: &Location, first: &impl Display) -> Problem {
    Problem {
        location: here.clone(),
        object: Some(id.to_string()),
        field: String::new(),
        reason: format!("{id} is defined twice: here and at {first}"),
    }
}

/// Summarizes definitions of an object that are not listed; the first is at `first`.
#[must_use]
pub fn omitted_definitions(
    id: &ObjectId,
    first: &Location,
    omitted: OmittedCounts,
) -> Vec<OmittedProblems> {
    omitted.summaries(
        first,
        Some(&id.to_string()),
        "this object: duplicate definitions",
    )
}

/// Counts objects of an ignored kind. Kinds beyond a hundred are counted together.
pub fn count_ignored(ignored: &mut BTreeMap<String, usize>, kind: String, count: usize) {
    let is_full = ignored.len() >= MAX_IGNORED_KINDS && !ignored.contains_key(&kind);
    let kind = if is_full {
        OTHER_KINDS.to_owned()
    } else {
        kind
    };
    *ignored.entry(kind).or_default() += count;
}
