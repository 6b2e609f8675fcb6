//! What tests verify deltas and plans with: the canonical form of tables, the checker of a delta's intermediate
//! states, the linter of nftables plans, and a model of nf_tables that applies operations and evaluates packets.
//!
//! It shares no code with what it verifies but the types. Never: accesses a kernel, or ships.

mod apply;
mod canonical;
mod checker;
mod checker_lookups;
mod checker_samples;
mod checker_states;
mod hook_packet;
mod lint;
mod set_lookup;
mod simulator;

pub use apply::{ApplyError, apply};
pub use canonical::{CanonicalPolicySet, CanonicalTables, canonical};
pub use checker::{CheckSummary, MisjudgedPacket, Violation, check, check_any_order};
pub use hook_packet::{ConntrackInfo, HookPacket};
pub use lint::{LintFinding, LintProblem, lint, lint_transaction};
pub use simulator::{EvaluationCost, RulesetSimulator, SimulationError, SimulationOutcome};
