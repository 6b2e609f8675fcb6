//! The steps of attaching and detaching a workload, by name and in order.
//!
//! Each is announced before it is taken, so that tests can fail it, or die before it. Nothing here
//! does anything.

use std::fmt;

/// What is about to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Step {
    /// Addresses are claimed, in memory.
    Claim,
    /// It is written to disk that it is being attached.
    Remember,
    /// The pair of interfaces is made, the host's side down.
    Join,
    /// The inside gets addresses and routes.
    Furnish,
    /// Its endpoint goes through the engine, and what changes into the kernel.
    Judge,
    /// What it sends to the outside is translated, where that is asked for.
    Masquerade,
    /// The host's side comes up, with routes to it.
    Open,
    /// It is written to disk that it is attached.
    Settle,
    /// It is done, and whoever asked is told.
    Answer,
    /// Its interface is removed.
    Part,
    /// Its endpoint leaves the engine, and what that changes the kernel.
    Withdraw,
    /// It is written to disk that it is not there any more.
    Forget,
    /// Its addresses are free again, in memory.
    Release,
    /// It is gone, and whoever asked is told.
    Gone,
}

impl Step {
    /// Of attaching, in order.
    pub const ATTACHING: [Step; 9] = [
        Step::Claim,
        Step::Remember,
        Step::Join,
        Step::Furnish,
        Step::Judge,
        Step::Masquerade,
        Step::Open,
        Step::Settle,
        Step::Answer,
    ];
    /// Of detaching, in order.
    pub const DETACHING: [Step; 5] = [
        Step::Part,
        Step::Withdraw,
        Step::Forget,
        Step::Release,
        Step::Gone,
    ];
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Step::Claim => "claiming addresses",
            Step::Remember => "remembering it",
            Step::Join => "making its interfaces",
            Step::Furnish => "giving it addresses and routes",
            Step::Judge => "enforcing its policy",
            Step::Masquerade => "translating what it sends to the outside",
            Step::Open => "opening it",
            Step::Settle => "remembering that it is attached",
            Step::Answer => "answering",
            Step::Part => "removing its interface",
            Step::Withdraw => "taking back its policy",
            Step::Forget => "forgetting it",
            Step::Release => "freeing its addresses",
            Step::Gone => "answering that it is gone",
        })
    }
}

/// Hears of every step before it is taken; what it refuses is not done.
pub type StepHook = Box<dyn FnMut(Step) -> Result<(), String> + Send>;
