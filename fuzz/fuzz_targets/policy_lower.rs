//! Any bytes as a manifest, each object lowered as every kind of policy.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| palisade_fuzzing::policy_lower(bytes));
