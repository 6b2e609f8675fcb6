//! Every named fault changes what some golden input is lowered to, and no two of them the same way: so a stage that
//! compares what policies mean can detect each.
#![cfg(feature = "faults")]

#[path = "integration/common/mod.rs"]
#[allow(
    dead_code,
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::unwrap_used,
    reason = "of the integration tests, which use the rest of it, read files, and fail by panicking"
)]
mod common;

use palisade_dialects::faults::DialectFault;
use std::collections::BTreeMap;

/// Between them, every term of every dialect.
const INPUTS: [&str; 4] = [
    include_str!("golden/terms-kubernetes.yaml"),
    include_str!("golden/terms-policy-api.yaml"),
    include_str!("golden/terms-cilium.yaml"),
    include_str!("golden/terms-calico.yaml"),
];

fn lowered() -> String {
    let lowerings = INPUTS.map(|input| common::lowering("f", input));
    for lowering in &lowerings {
        assert!(lowering.errors.is_empty(), "{:?}", lowering.errors);
    }
    lowerings.map(|lowering| common::show(&lowering)).concat()
}

#[test]
fn each_fault_changes_the_lowering() {
    DialectFault::inject(None);
    let right = lowered();
    let mut seen = BTreeMap::new();
    for fault in DialectFault::ALL.iter().copied() {
        DialectFault::inject(Some(fault));
        let wrong = lowered();
        assert!(wrong != right, "{fault:?} changes nothing");
        let same = seen.insert(wrong, fault);
        assert_eq!(same, None, "{fault:?} is the same as another");
    }
    DialectFault::inject(None);
    assert!(lowered() == right, "a fault outlives its test");
}
