//! Reads what was written, with the dialects that read every other manifest, and compares it with the original.
//!
//! Promises: nothing is taken for equal that was not read.

use crate::canonical::CanonicalPolicies;
use crate::inexpressible::InexpressibleReason;
use palisade_dialects::lower_object;
use palisade_manifest::{Limits, extract_objects, parse};
use palisade_model::{Object, Policy};
use serde_json::Value;

/// The policies of the model that a written object is.
///
/// # Errors
/// What the dialects object to, as one sentence.
pub fn lower_written(object: &Value) -> Result<Vec<Policy>, String> {
    let limits = Limits::default();
    let text = object.to_string();
    let read = extract_objects(parse("converted", text.as_bytes(), &limits), &limits);
    if let Some(problem) = read.problems.first() {
        return Err(format!("it is no manifest: {problem:?}"));
    }
    let mut policies = Vec::new();
    for raw in &read.objects {
        let lowered = lower_object(raw);
        if let Some(problem) = lowered.errors.first() {
            return Err(problem.reason.clone());
        }
        if !lowered.closed.is_empty() || lowered.ignored.is_some() {
            return Err("a part of it is held closed".to_owned());
        }
        for object in lowered.objects {
            match object {
                Object::Policy(policy) => policies.push(policy),
                _ => return Err("it is more than a policy".to_owned()),
            }
        }
    }
    Ok(policies)
}

/// Compares what was written with the original, by canonical form. The error says what differs.
pub(crate) fn compare(original: &[&Policy], written: &[Policy]) -> Result<(), String> {
    if CanonicalPolicies::of(original.iter().copied()) == CanonicalPolicies::of(written) {
        Ok(())
    } else {
        Err("its form differs".to_owned())
    }
}

/// The policies of a manifest, as its author wrote them: what a state has of them may depend on other objects, as the
/// ports of Services do.
pub(crate) fn lower_source(manifest: &Value) -> Vec<Policy> {
    let limits = Limits::default();
    let text = manifest.to_string();
    let read = extract_objects(parse("input", text.as_bytes(), &limits), &limits);
    let objects = read
        .objects
        .iter()
        .flat_map(|raw| lower_object(raw).objects);
    let policies = objects.filter_map(|object| match object {
        Object::Policy(policy) => Some(policy),
        _ => None,
    });
    policies.collect()
}

/// Why a manifest cannot be converted, and the path of the part that is held closed.
pub(crate) fn find_fault(manifest: &Value) -> Option<(InexpressibleReason, Option<String>)> {
    let limits = Limits::default();
    let text = manifest.to_string();
    let read = extract_objects(parse("input", text.as_bytes(), &limits), &limits);
    let lowered: Vec<_> = read.objects.iter().map(lower_object).collect();
    if !read.problems.is_empty() || lowered.iter().any(|object| !object.errors.is_empty()) {
        return Some((InexpressibleReason::Invalid, None));
    }
    let closed = lowered.iter().find_map(|object| object.closed.first())?;
    let path = closed.problem.field.trim_start_matches("spec.");
    Some((InexpressibleReason::HeldClosed, Some(path.to_owned())))
}
