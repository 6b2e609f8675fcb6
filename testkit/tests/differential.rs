//! A short differential on every `cargo test`; `make differential` is the long one.

use palisade_testkit::differential::{Options, run};

#[test]
fn every_reading_agrees() {
    let options = Options {
        cases: 400,
        seed: 400,
        only: None,
    };
    let report = run(&options, &mut |line| println!("{line}"));
    assert_eq!((report.passed, report.failed), (400, 0));
}
