//! Any text as a selector of Calico, by both readers.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| palisade_fuzzing::calico_selector(bytes));
