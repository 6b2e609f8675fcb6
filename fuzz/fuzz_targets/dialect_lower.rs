//! Reads any bytes as a manifest and lowers its objects.
#![no_main]

use libfuzzer_sys::fuzz_target;
use palisade_dialects::{isolate, lower_object};
use palisade_manifest::{Limits, extract_objects, parse};
use palisade_model::{State, Update};

fuzz_target!(|bytes: &[u8]| {
    let limits = Limits {
        nodes: 100_000,
        alias_nodes: 10_000,
        ..Limits::default()
    };
    let objects = extract_objects(parse("fuzz.yaml", bytes, &limits), &limits).objects;
    let mut state = State::default();
    for object in &objects {
        let _ = isolate(object);
        let lowered = lower_object(object);
        assert!(
            lowered.errors.is_empty() || lowered.objects.is_empty(),
            "{} is half taken",
            lowered.id
        );
        lowered
            .objects
            .into_iter()
            .for_each(|object| state.apply(Update::Upsert(object)));
    }
});
