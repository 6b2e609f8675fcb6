//! The plain, slow meaning of policy, with a narrative of each step.
//!
//! [`PreparedState::judge`] walks the lowered policies of a [`palisade_model::State`] for one
//! [`Question`] and says what both ends decide, by which rule, and why every rule before it did not
//! match. [`PreparedState::verdict`] is the same walk without the narrative.
//!
//! It promises to be obviously right rather than fast: one short function for each sentence of the
//! semantics, and no cache of verdicts. It shares no code with the engine and the tables, which are
//! tested against it. It never judges what is not policy: replies, ICMP errors about an allowed
//! connection, and link traffic (ARP, neighbour discovery, MLD) pass without being asked about.

#![no_std]

extern crate alloc;

mod criteria;
mod prepared_state;
mod question;
mod resolved_end;
mod trace;
mod walk;

pub use prepared_state::{OrderedTier, PreparedState};
pub use question::{FlowEnd, HairpinAction, HostTrafficAction, OracleOptions, Question};
pub use trace::{
    Answer, DecisionReason, DirectionJudgement, FlowVerdict, HolderMismatch, HolderName,
    PeerFailure, PeerMiss, PolicyApplicability, PortFailure, RuleMiss, RuleOutcome, RuleOwner,
    TierOutcome, TraceStep, TrafficFailure, TrafficMiss,
};

use palisade_model::State;

/// What happens to one flow, and why. Asking much of one state is cheaper through [`PreparedState`].
pub fn judge(state: &State, question: &Question, options: &OracleOptions) -> Answer {
    PreparedState::new(state).judge(question, options)
}

/// What happens to one flow: whether egress at its source and ingress at its destination allow it.
pub fn verdict(state: &State, question: &Question, options: &OracleOptions) -> (bool, bool) {
    PreparedState::new(state).verdict(question, options)
}
