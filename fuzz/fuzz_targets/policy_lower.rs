//! Reads any bytes as a manifest and lowers each of its objects as an object of every policy kind.
#![no_main]

use libfuzzer_sys::fuzz_target;
use palisade_dialects::{isolate, lower_object, policy_kinds};
use palisade_manifest::{Limits, extract_objects, parse};

fuzz_target!(|bytes: &[u8]| {
    let limits = Limits {
        nodes: 20_000,
        alias_nodes: 2_000,
        ..Limits::default()
    };
    let mut objects = extract_objects(parse("fuzz.yaml", bytes, &limits), &limits).objects;
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
});
