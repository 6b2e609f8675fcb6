//! Offline analysis of policies: allowed connections, diffs of two states, explanations of flows, findings.
//!
//! [`connections`] lists everything that a state allows, [`diff`] what a change opens and closes, [`explain`]
//! gives the reasons for the verdict of one flow, and [`lint`] finds what is surely not meant. Results are exact
//! and in a fixed order. Every verdict of the first three comes from the oracle: this crate partitions the space
//! of flows into parts that every policy treats alike, and asks the oracle once for each part. [`lint`] asks who
//! decides instead, walks the rules with sets, and is held against the oracle by a random test.
//! [`grouped_connections`] and [`grouped_diff`] give the same result in fewer rows; their cost depends on the
//! number of differences, not on the number of pairs. This crate never reads files or accesses the kernel.

mod connection_end;
mod connections;
mod controllers;
mod diff;
mod end_classes;
mod equivalence;
pub mod explain;
mod forwarded_connections;
mod host_connections;
mod host_evaluator;
mod host_rows;
mod host_states;
mod ip_blocks;
mod label_value_index;
mod lint;
mod lockout;
mod named_ends;
mod own_nodes;
mod pair_evaluator;
mod pair_set;
mod reachability;
mod reachability_matrix;
mod rules;
mod similar_names;
mod state_view;
mod traffic;
mod traffic_grid;
mod workload;

pub use connection_end::{ConnectionEnd, IpBlocks, NameAddresses};
pub use connections::{
    Connection, ConnectionFilter, ConnectionFilterError, connections, filtered_connections,
    grouped_connections,
};
pub use controllers::ControllerIndex;
pub use diff::{ConnectionDiff, diff, filtered_diff, grouped_diff};
pub use explain::{ExplainError, FlowEndError, decision_report, explain};
pub use forwarded_connections::{
    ForwardedConnection, ForwardedDiff, forwarded_connections, forwarded_diff,
};
pub use host_connections::{HostConnection, HostDiff, host_connections, host_diff};
pub use host_rows::HostRowDiff;
pub use ip_blocks::IpBlock;
pub use lint::{LintLimit, UnnamedPorts, lint};
pub use lockout::{AdminSession, HostAccessQuestions, lockouts};
pub use named_ends::free_addresses;
pub use pair_set::PairSet;
pub use state_view::StateView;
pub use traffic::TrafficSet;
