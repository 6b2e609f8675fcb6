//! Any bytes as a manifest: read, unfolded, lowered.

use palisade_dialects::{isolate, lower_object, policy_kinds};
use palisade_manifest::{Limits, extract_objects, parse, to_json};
use palisade_model::{State, Update};

/// The name that an input has as a file.
const FILE: &str = "fuzz.yaml";

fn limits(nodes: usize) -> Limits {
    Limits {
        nodes,
        alias_nodes: nodes / 10,
        ..Limits::default()
    }
}

/// Reads any bytes as a manifest and unfolds its objects.
///
/// # Panics
/// If the parser failed within, or an object has no name.
pub fn manifest_read(bytes: &[u8]) {
    let limits = limits(100_000);
    let parsed = parse(FILE, bytes, &limits);
    for problem in &parsed.problems {
        assert!(!problem.to_string().contains("parser failed"), "{problem}");
    }
    for document in &parsed.documents {
        let _ = to_json(&document.root);
    }
    for object in extract_objects(parsed, &limits).objects {
        assert!(!object.name.is_empty());
        let _ = object.field().get("spec");
    }
}

/// Reads any bytes as a manifest and lowers its objects.
///
/// # Panics
/// If an object is refused and taken at once.
pub fn dialect_lower(bytes: &[u8]) {
    let limits = limits(100_000);
    let objects = extract_objects(parse(FILE, bytes, &limits), &limits).objects;
    let mut state = State::default();
    for object in &objects {
        let _ = isolate(object);
        let lowered = lower_object(object);
        assert!(
            lowered.errors.is_empty() || lowered.objects.is_empty(),
            "{} is half taken",
            lowered.id
        );
        for object in lowered.objects {
            state.apply(Update::Upsert(object));
        }
    }
}

/// Reads any bytes as a manifest and lowers each of its objects as an object of every policy kind.
///
/// # Panics
/// If an object is refused and taken at once, or neither; or is of another kind afterwards.
pub fn policy_lower(bytes: &[u8]) {
    let limits = limits(20_000);
    let mut objects = extract_objects(parse(FILE, bytes, &limits), &limits).objects;
    for object in &mut objects {
        for kind in policy_kinds() {
            object.api_version = format!("{}/{}", kind.group, kind.version);
            object.kind = kind.kind.to_owned();
            let lowered = lower_object(object);
            // A policy that has no effect, such as a staged one that proposes to delete another, is a warning.
            let has_no_effect = lowered.objects.is_empty() && !lowered.warnings.is_empty();
            assert!(
                has_no_effect || lowered.errors.is_empty() != lowered.objects.is_empty(),
                "{} is half taken",
                lowered.id
            );
            assert_eq!(lowered.id.kind.name(), kind.kind);
            assert!(lowered.ignored.is_none());
            for part in &lowered.closed {
                assert!(!part.problem.field.is_empty() && !part.problem.reason.is_empty());
            }
            let _ = isolate(object);
        }
    }
}
