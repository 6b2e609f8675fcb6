//! The objects on the running kernel.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail by panicking")]
#![allow(
    clippy::disallowed_methods,
    reason = "tests run ip, and a flood lasts for a time"
)]

mod compare;
mod denials;
mod differential;
mod fast_path;
mod flood;
mod outside;
mod rows;

use palisade_bpf::{BpfObject, FastPathSupport, ProgramAttachment};
use palisade_testkit::{need_guest, need_root};

/// Major and minor number of the running kernel.
fn kernel_release() -> [u32; 2] {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = release.split(['.', '-']);
    let mut next = || numbers.next().unwrap().parse().unwrap();
    [next(), next()]
}

#[test]
fn what_is_missing_is_what_this_kernel_has_not() {
    if !need_root() {
        return;
    }
    let support = FastPathSupport::probe();
    // Whether a BPF file system is mounted, and programs are compiled, is the host's matter, not the kernel's.
    let missing = support.missing.iter();
    let missing: Vec<&str> = missing
        .map(|missing| missing.feature)
        .filter(|feature| !["BpfFileSystem", "Jit"].contains(feature))
        .collect();
    assert_eq!(missing, [""; 0], "{support:?}");
    let expected = if kernel_release() < [6, 6] {
        ProgramAttachment::TcFilter
    } else {
        ProgramAttachment::TcxLink
    };
    assert_eq!(support.attachment, Some(expected), "{support:?}");
}

#[test]
fn programs_are_accepted_and_do_the_same_on_debian_s_kernel() {
    if !need_root() || !need_guest("programs_are_accepted_and_do_the_same_on_debian_s_kernel") {
        return;
    }
    assert!(kernel_release() < [6, 6]);
    what_is_missing_is_what_this_kernel_has_not();
    an_object_has_the_maps_and_programs_of_its_source();
    fast_path::check_all();
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
