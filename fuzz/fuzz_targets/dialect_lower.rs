//! Reads any bytes as a manifest and lowers its objects.
#![no_main]

use libfuzzer_sys::fuzz_target;
use palisade_dialects::{EntryStatus, isolate, lower};
use palisade_manifest::{Limits, extract_objects, parse};

fuzz_target!(|bytes: &[u8]| {
    let limits = Limits {
        nodes: 100_000,
        alias_nodes: 10_000,
        ..Limits::default()
    };
    let objects = extract_objects(parse("fuzz.yaml", bytes, &limits), &limits).objects;
    for object in &objects {
        let _ = isolate(object);
    }
    let lowering = lower(&objects);
    for entry in &lowering.entries {
        if entry.status == EntryStatus::Rejected {
            assert!(entry.objects.is_empty(), "{} is half taken", entry.id);
            assert!(!lowering.errors.is_empty());
        }
    }
    let _ = lowering.state();
});
