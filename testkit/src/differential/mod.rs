//! The differential: random worlds through every reading of policy there is, which must all agree.
//!
//! Kubernetes worlds go from written manifests through the dialect to the oracle, and are compared
//! with the naive reading of the same objects. Every world, those and the lowered ones, goes through
//! the engine in several orders, and its tables are compared with the oracle; some go through the
//! kernel with real packets. A case is one flow; a world has [`FLOWS`] of them, and what a case
//! tries is counted by what has a say in that flow.
//!
//! It promises that a run which did not try every feature, or whose flows all fall one way, fails;
//! and that a failing case is shrunk and left behind as files that reproduce it.

mod cluster;
#[cfg(test)]
mod executor_stops;
mod intermediate_states;
mod judgements;
mod kernel;
mod kernel_case;
mod lab_flows;
mod lowered;
mod nft;
mod outcome;
mod report;
mod run;
mod sets;
mod shrink;
mod tables;
mod tally;

pub use kernel::{FastPathPackets, KernelReport, run_kernel};
pub use outcome::{CaseOutcome, StageFailure, StageFilter};
use run::flows_of;
pub use run::{GeneratorKind, RunOptions, RunReport, check_world, first_failure, replay, run};
pub use tally::FeatureTally;

/// Flows judged in one world, before the next is made.
pub const FLOWS: usize = 4;

/// In how many of a hundred worlds the listings of the analysis are asked as well.
const LISTED: u32 = 20;

/// Flows judged in each world besides, which are not counted.
const EXTRA: usize = 24;
