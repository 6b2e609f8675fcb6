//! The plain, slow meaning of policy, with a narrative of each step.
//!
//! [`Prepared::judge`] walks the lowered policies of a [`palisade_model::State`] for one
//! [`Question`] and says what both ends decide, by which rule, and why every rule before it did not
//! match. [`Prepared::verdict`] is the same walk without the narrative.
//!
//! It promises to be obviously right rather than fast: one short function for each sentence of the
//! semantics, and no cache of verdicts. It shares no code with the engine and the tables, which are
//! tested against it. It never judges what is not policy: replies, ICMP errors about an allowed
//! connection, and link traffic (ARP, neighbour discovery, MLD) pass without being asked about.

#![no_std]

extern crate alloc;

mod criteria;
mod narrate;
mod place;
mod prepared;
mod question;
mod walk;

pub use narrate::{
    Answer, DecidedBy, HolderGap, HolderName, Judgement, PeerFailure, PeerMiss, PolicyFit,
    PortFailure, RuleMiss, RuleOutcome, RuleSource, Step, TierEnd, TrafficFailure, TrafficMiss,
    Verdict,
};
pub use prepared::{OrderedTier, Prepared};
pub use question::{End, HostToEndpoint, Options, Question, ToItself};

use palisade_model::State;

/// What happens to one flow, and why. Asking much of one state is cheaper through [`Prepared`].
pub fn judge(state: &State, question: &Question, options: &Options) -> Answer {
    Prepared::new(state).judge(question, options)
}

/// What happens to one flow: whether egress at its source and ingress at its destination allow it.
pub fn verdict(state: &State, question: &Question, options: &Options) -> (bool, bool) {
    Prepared::new(state).verdict(question, options)
}
