//! Executes transactions, reads the kernel back, repairs.
//!
//! [`Dataplane`] is what the agent asks of any dataplane; [`FakeDataplane`] is one in memory.

mod driver;
mod fake;

pub use driver::{Count, Counters, Dataplane, Error, Outcome, StepOutcome};
pub use fake::{Call, FakeDataplane};
