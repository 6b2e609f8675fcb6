//! The direction of traffic at an endpoint.

use core::fmt;
use serde::{Deserialize, Serialize};

/// A direction of traffic, seen from the endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Direction {
    /// Traffic to the endpoint.
    Ingress,
    /// Traffic from the endpoint.
    Egress,
}

impl Direction {
    /// Both, ingress first.
    pub const BOTH: [Direction; 2] = [Direction::Ingress, Direction::Egress];
}

impl fmt::Display for Direction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Direction::Ingress => "ingress",
            Direction::Egress => "egress",
        })
    }
}
