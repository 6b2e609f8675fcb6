//! Any bytes as a manifest, its objects unfolded.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| palisade_fuzzing::manifest_read(bytes));
