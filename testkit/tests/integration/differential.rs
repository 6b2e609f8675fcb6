//! A short differential on every `cargo test`; `make differential` is the long one.

use palisade_testkit::differential::{RunOptions, check_world, replay, run};
use std::path::Path;

#[test]
fn every_reading_agrees() {
    let options = RunOptions {
        cases: 400,
        seed: 400,
        only: None,
    };
    let report = run(&options, &mut |line| println!("{line}"));
    assert_eq!((report.passed, report.failed), (400, 0));
}

/// A profile went while an endpoint still named it, and what it had asked of the endpoint's own end
/// kept policy sets apart: a restart, which computes the tables anew, wrote and revoked.
#[test]
fn worlds_in_which_a_restart_wrote() {
    for (seed, world) in [(1_795_320_462, 95), (222, 4505), (3333, 3087), (3333, 4027)] {
        let outcome = check_world(seed, world);
        assert!(outcome.is_ok(), "case {world} of seed {seed}: {outcome:?}");
    }
}

/// Cases that failed once, each by what it is about.
#[test]
fn cases_that_failed_once_agree() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/integration/replays");
    let mut judged = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let case = entry.unwrap().path();
        let agreed = replay(&case).unwrap();
        assert!(agreed.is_ok(), "{}: {agreed:?}", case.display());
        judged += 1;
    }
    assert!(judged > 0);
}
