//! Reads any bytes as a manifest and unfolds its objects.
#![no_main]

use libfuzzer_sys::fuzz_target;
use palisade_manifest::{Limits, extract_objects, parse, to_json};

fuzz_target!(|bytes: &[u8]| {
    let limits = Limits {
        nodes: 100_000,
        alias_nodes: 10_000,
        ..Limits::default()
    };
    let parsed = parse("fuzz.yaml", bytes, &limits);
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
});
