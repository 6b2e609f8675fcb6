//! The reference implementation of policy semantics, with a trace of each step.
//!
//! [`PreparedState::judge`] evaluates the lowered policies of a [`palisade_model::State`] for one
//! [`Question`]. Its [`Answer`] has the decision of both ends, the deciding rule, and why each earlier
//! rule did not match. [`PreparedState::verdict`] is the same evaluation without the trace.
//!
//! It is written to be obviously correct rather than fast: one short function for each sentence of the
//! semantics, and no cache of verdicts. It shares no code with the engine and the tables, which are
//! tested against it. It never judges traffic outside policy: replies, ICMP errors about an allowed
//! connection, and link traffic (ARP, neighbour discovery, MLD) always pass.

#![no_std]

extern crate alloc;

mod criteria;
mod prepared_state;
mod question;
mod resolved_end;
mod trace;
mod walk;

pub use prepared_state::{OrderedTier, PreparedState};
pub use question::{FlowEnd, HostPath, OracleOptions, Question};
pub use trace::{
    Answer, DecisionReason, DirectionJudgement, FlowVerdict, HolderMismatch, HolderName,
    HostJudgement, PeerFailure, PeerMiss, PolicyApplicability, PortFailure, RuleMiss, RuleOutcome,
    RuleOwner, TierOutcome, TraceStep, TrafficFailure, TrafficMiss,
};

use palisade_model::State;

/// The verdict of one flow, with its trace. For several questions about one state, use
/// [`PreparedState`]: it is cheaper.
pub fn judge(state: &State, question: &Question, options: &OracleOptions) -> Answer {
    PreparedState::new(state).judge(question, options)
}

/// Whether egress at the source and ingress at the destination allow a flow, in this order.
pub fn verdict(state: &State, question: &Question, options: &OracleOptions) -> (bool, bool) {
    PreparedState::new(state).verdict(question, options)
}
