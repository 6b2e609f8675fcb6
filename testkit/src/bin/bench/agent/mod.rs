//! What the whole agent takes: the real program, on a real folder, in a namespace of its own.

mod adds;
mod edits;
mod manifests;
mod prober;
mod process;
mod size;

use crate::case::BenchCase;

pub(crate) use process::{folder, program};

/// Every case, in order.
pub(crate) fn cases() -> Vec<BenchCase> {
    vec![
        edits::case(false),
        edits::case(true),
        adds::case(),
        size::case(),
    ]
}
