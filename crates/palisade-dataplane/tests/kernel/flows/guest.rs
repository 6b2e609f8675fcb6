//! The fast path on Debian's kernel, which has no tcx links, with real packets.

use palisade_bpf::FastPathSupport;
use palisade_dataplane::ebpf::ProgramAttachment;
use palisade_testkit::need_guest;

use super::fast::nothing_stays;
use super::fast_filters::deleted_filters_are_attached_again;
use super::need_root;

/// Runs tests one after the other by filters, which is what the guest's kernel can do best.
fn run(tests: &[fn(ProgramAttachment)]) {
    let support = FastPathSupport::probe();
    let attachment = ProgramAttachment::TcFilter;
    assert_eq!(support.attachment, Some(attachment), "{support:?}");
    for test in tests {
        test(attachment);
    }
}

#[test]
fn filters_are_repaired_and_go_with_the_fast_path() {
    if !need_root() || !need_guest("flows::guest::filters_are_repaired_and_go_with_the_fast_path") {
        return;
    }
    run(&[nothing_stays, deleted_filters_are_attached_again]);
}
