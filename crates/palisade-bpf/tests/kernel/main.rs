//! The objects on the running kernel.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail by panicking")]

mod differential;
mod fast_path;
mod rows;

use palisade_bpf::{BpfObject, FastPathSupport};
use palisade_testkit::need_root;

#[test]
fn this_kernel_can_run_the_fast_path() {
    if !need_root() {
        return;
    }
    let support = FastPathSupport::probe();
    // Whether a BPF file system is mounted is the host's matter, not the kernel's.
    let missing = support.missing.iter();
    let missing: Vec<String> = missing
        .filter(|missing| missing.feature != "BpfFileSystem")
        .map(ToString::to_string)
        .collect();
    assert_eq!(missing, [""; 0]);
}

#[test]
fn an_object_has_the_maps_and_programs_of_its_source() {
    if !need_root() {
        return;
    }
    let loaded = BpfObject::PROBE.load().unwrap();
    let words = loaded.map("probe_words").unwrap().shape();
    assert_eq!((words.key_size, words.value_size), (4, 8));
    assert!(loaded.map("absent").is_none());
    let program = loaded.program("probe_features").unwrap();
    // Its first word is not as it expects: it does nothing.
    let run = program.test_run(&[0; 64], &[], 1).unwrap();
    assert_eq!(run.verdict.cast_signed(), -1);
    assert_eq!(run.packet, [0; 64]);
}
