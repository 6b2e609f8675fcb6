//! Questions about any two ends and any traffic.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| palisade_fuzzing::explain_query(bytes));
