//! Set algebra over policies: connections, diff, nearest miss, explain.
//!
//! [`connections`] says everything that a state allows, [`diff`] what a change opens and closes,
//! [`explain`] why one flow passes or not. Everything is exact and in a fixed order, and every
//! verdict comes from the oracle: this crate cuts the space of flows into pieces that no policy can
//! tell apart, asks once for each piece, and renders what it hears. [`grouped_connections`] and
//! [`grouped_diff`] say the same in few rows: their work follows what differs, not the pairs. It reads
//! no files and touches no kernel.

mod connections;
mod diff;
mod ends;
pub mod explain;
mod index;
mod judge;
mod kinds;
mod matrix;
mod networks;
mod party;
mod plane;
mod region;
mod rules;
mod traffic;
mod view;
mod workload;

pub use connections::{Connection, Scope, ScopeError, connections, grouped_connections};
pub use diff::{Diff, diff, grouped_diff};
pub use explain::{ExplainError, Explanation, Query, explain};
pub use networks::Network;
pub use party::{Group, Networks, Party};
pub use plane::{Plane, Span, Spans};
pub use region::Region;
pub use traffic::{ProtocolEntry, ProtocolName, TrafficSet};
pub use workload::Workload;

/// The version of the JSON shapes that this crate gives.
pub const API_VERSION: &str = "palisade.io/v1";
