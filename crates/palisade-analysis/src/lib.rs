//! Set algebra over policies: connections, diff, nearest miss, explain.
//!
//! [`connections`] says everything that a state allows, [`diff`] what a change opens and closes,
//! [`explain`] why one flow passes or not. Everything is exact and in a fixed order, and every
//! verdict comes from the oracle: this crate cuts the space of flows into pieces that no policy can
//! tell apart, asks once for each piece, and renders what it hears. It reads no files and touches no
//! kernel.

mod connections;
mod diff;
pub mod explain;
mod networks;
mod plane;
mod region;
mod space;
mod summary;
mod traffic;
mod view;
mod workload;

pub use connections::{Connection, Party, connections};
pub use diff::{Diff, diff};
pub use explain::{ExplainError, Explanation, Query, explain};
pub use plane::{Plane, Span, Spans};
pub use region::Region;
pub use summary::{Row, summary};
pub use traffic::{ProtocolEntry, ProtocolName, TrafficSet};
pub use workload::Workload;

/// The version of the JSON shapes that this crate gives.
pub const API_VERSION: &str = "palisade.io/v1";
