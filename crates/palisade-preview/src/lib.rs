//! What recorded flows say about policy: [`preview`] judges them by present and changed policies, and
//! [`suggest`] writes policies that allow them.
//!
//! A [`Record`] is what nodes recorded. Its ends are names of workloads, addresses and domain names; the module `sites` finds the
//! pods and addresses that they stand for, and the reference semantics and the decision tables judge each flow between
//! them, once for ends that no policy can tell apart.
//!
//! Promises: every verdict is that of reference and tables, which have to agree; a flow that cannot be judged is listed
//! with the reason. Never: reads a file, accesses a kernel or a clock, or guesses what was not recorded.

mod changed_policies;
mod connection_use;
mod dialect_writers;
mod judge;
mod peer_signatures;
mod preview;
mod record;
mod record_reader;
mod sites;
mod suggested_policy;
mod suggestion;
mod tested_facts;
mod widening;
mod workload_labels;

pub use changed_policies::{ChangeError, ChangedState, apply_policies};
pub use connection_use::ConnectionUses;
pub use judge::{AgentActions, Disagreement};
pub use preview::preview;
pub use record::Record;
pub use suggestion::{SuggestionError, SuggestionScope, suggest};
