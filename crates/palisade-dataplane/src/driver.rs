//! What the agent asks of a dataplane.
//!
//! A [`Dataplane`] makes the kernel hold given tables, from any state it finds, in an order in which
//! no packet gets a verdict that is neither the old nor the new. It never decides what a packet gets.

use palisade_tables::{Credit, Delta, Phase, Tables};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Why the kernel could not be read or written.
pub type Error = Box<dyn std::error::Error + Send + Sync>;

/// One dataplane. Everything is synchronous; one thread owns it.
pub trait Dataplane: Send {
    /// Reads the kernel back, adopts what is ours by content, and writes the difference in safe
    /// order. Also the retry after any error.
    ///
    /// # Errors
    /// If the kernel cannot be read or refuses a step; nothing is half-done inside a step.
    fn start(&mut self, tables: &Tables) -> Result<Outcome, Error>;

    /// Executes one delta; `tables` is the state after it.
    ///
    /// # Errors
    /// If the kernel refuses a step; then the caller calls [`Dataplane::start`].
    fn apply(&mut self, delta: &Delta, tables: &Tables) -> Result<Outcome, Error>;

    /// Compares the kernel with what was last written, and repairs it. No writes if nothing is wrong.
    ///
    /// # Errors
    /// As [`Dataplane::start`].
    fn verify(&mut self, tables: &Tables) -> Result<Outcome, Error>;

    /// Packets and bytes per credit; they never go back.
    ///
    /// # Errors
    /// If the kernel cannot be read.
    fn counters(&mut self) -> Result<Counters, Error>;

    /// Removes everything of ours from the kernel.
    ///
    /// # Errors
    /// If the kernel refuses.
    fn remove(&mut self) -> Result<(), Error>;
}

/// What an execution did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Kernel objects and elements written.
    pub writes: usize,
    /// The steps, in order.
    pub steps: Vec<StepOutcome>,
    /// The generation of established flows that is live now.
    pub generation: u32,
}

/// What one step did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepOutcome {
    /// The phase it belongs to.
    pub phase: Phase,
    /// Kernel objects and elements written.
    pub writes: usize,
    /// From its first write to the end of its grace period.
    pub took: Duration,
}

/// Packets and bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Packets that were judged; those of established flows are not.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// What was counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// By what is credited.
    pub by_rule: BTreeMap<Arc<Credit>, Count>,
    /// Drops that no rule decided, by reason.
    pub reasons: BTreeMap<&'static str, Count>,
}
