//! What the whole agent takes: the real program, on a real folder, in a namespace of its own.

mod adds;
mod bursts;
mod edits;
mod flows;
mod manifests;
mod prober;
mod process;
mod runtime;
mod size;

use crate::case::BenchCase;

pub(crate) use edits::wait;
pub(crate) use prober::{NEW, Prober};
pub(crate) use process::{AgentProcess, ProxyProcess, folder, processor_seconds, program};

/// Every case, in order.
pub(crate) fn cases() -> Vec<BenchCase> {
    vec![
        edits::case(false),
        edits::case(true),
        adds::case(),
        bursts::case(),
        size::case(),
        flows::case(),
    ]
}
