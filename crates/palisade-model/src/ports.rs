//! Ports: ranges, names, and the tests rules make of them.

use crate::Str;
use alloc::vec::Vec;
use core::fmt;
use serde::{Deserialize, Serialize};

/// An inclusive range of ports, never empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PortRange {
    /// The lowest port inside.
    pub first: u16,
    /// The highest port inside; at least `first`.
    pub last: u16,
}

impl PortRange {
    /// Every port.
    pub const ALL: PortRange = PortRange {
        first: 0,
        last: u16::MAX,
    };

    /// The range from `first` to `last`, or `None` where it would be empty.
    pub fn new(first: u16, last: u16) -> Option<Self> {
        (first <= last).then_some(PortRange { first, last })
    }

    /// One port.
    pub fn single(port: u16) -> Self {
        PortRange {
            first: port,
            last: port,
        }
    }

    /// Whether the port lies inside.
    pub fn contains(self, port: u16) -> bool {
        self.first <= port && port <= self.last
    }
}

impl fmt::Display for PortRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.first == self.last {
            write!(f, "{}", self.first)
        } else {
            write!(f, "{}-{}", self.first, self.last)
        }
    }
}

/// One port or range in a rule.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum PortSpec {
    /// Numbers.
    Range(PortRange),
    /// A name, resolved for each endpoint at that end of the flow and for the flow's protocol; an
    /// end that is no endpoint, or has no such port, does not match.
    Named(Str),
}

impl fmt::Display for PortSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PortSpec::Range(range) => range.fmt(f),
            PortSpec::Named(name) => f.write_str(name),
        }
    }
}

/// A test of one end's port. Holds only for protocols with ports (TCP, UDP, SCTP) unless it is
/// empty, and the empty test ([`PortMatch::any`]) holds for everything.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PortMatch {
    /// The port is one of these; `None` asks for nothing, an empty list matches nothing.
    pub is: Option<Vec<PortSpec>>,
    /// The port is none of these (where a name resolves to nothing it excludes nothing).
    pub not: Vec<PortSpec>,
}

impl PortMatch {
    /// Any port, and protocols without ports as well.
    pub fn any() -> Self {
        PortMatch::default()
    }

    /// One of these.
    pub fn one_of(specs: impl IntoIterator<Item = PortSpec>) -> Self {
        PortMatch {
            is: Some(specs.into_iter().collect()),
            not: Vec::new(),
        }
    }

    /// Whether it asks for nothing.
    pub fn is_any(&self) -> bool {
        self.is.is_none() && self.not.is_empty()
    }
}
