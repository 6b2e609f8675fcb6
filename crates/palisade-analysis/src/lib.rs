//! Set algebra over policies: connections, diff, nearest miss, explain.
//!
//! [`connections`] says everything that a state allows, [`diff`] what a change opens and closes,
//! [`explain`] why one flow passes or not. Everything is exact and in a fixed order, and every
//! verdict comes from the oracle: this crate cuts the space of flows into pieces that no policy can
//! tell apart, asks once for each piece, and renders what it hears. [`grouped_connections`] and
//! [`grouped_diff`] say the same in few rows: their work follows what differs, not the pairs. It reads
//! no files and touches no kernel.

mod address_set;
mod connection_end;
mod connections;
mod diff;
mod end_classes;
mod equivalence;
pub mod explain;
mod ip_blocks;
mod label_value_index;
mod pair_evaluator;
mod pair_set;
mod reachability;
mod reachability_matrix;
mod rules;
mod traffic;
mod workload;

pub use address_set::AddressSet;
pub use connection_end::{ConnectionEnd, IpBlocks, WorkloadGroup};
pub use connections::{
    Connection, ConnectionFilter, ConnectionFilterError, connections, grouped_connections,
};
pub use diff::{ConnectionDiff, diff, grouped_diff};
pub use explain::{ExplainError, Explanation, FlowQuery, explain};
pub use ip_blocks::IpBlock;
pub use pair_set::{NumberRange, NumberRanges, PairSet};
pub use traffic::{ProtocolEntry, ProtocolName, TrafficSet};
pub use workload::WorkloadRef;

/// The version of the JSON shapes that this crate gives.
pub const API_VERSION: &str = "palisade.io/v1";
