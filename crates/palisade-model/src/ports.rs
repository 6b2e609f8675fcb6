//! Ports: ranges, named ports, and the port tests of rules.

use crate::{NumberRange, Str};
use alloc::vec::Vec;
use core::fmt;
use serde::{Deserialize, Serialize};

/// An inclusive range of ports.
pub type PortRange = NumberRange<u16>;

impl PortRange {
    /// Every port.
    pub const ALL: PortRange = PortRange {
        first: 0,
        last: u16::MAX,
    };
}

/// A port, port range or named port in a rule.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum PortSpec {
    /// A range of port numbers.
    Range(PortRange),
    /// A named port, resolved at the endpoint at that end of the flow and for the flow's protocol. It
    /// does not match where that end is not an endpoint or has no such port.
    Named(Str),
}

/// What the names of ports that stand for those of a Service begin with. No port can have such a name.
const SERVICE_PREFIX: &str = "service:";

impl PortSpec {
    /// The named port that stands for the ports of a Service, until these are known: it is the port of no endpoint.
    pub fn of_service(namespace: &str, name: &str) -> Self {
        PortSpec::Named(alloc::format!("{SERVICE_PREFIX}{namespace}/{name}").into())
    }

    /// The Service, as `namespace/name`, for whose ports it stands.
    pub fn service(&self) -> Option<&str> {
        match self {
            PortSpec::Named(name) => name.strip_prefix(SERVICE_PREFIX),
            PortSpec::Range(_) => None,
        }
    }
}

impl fmt::Display for PortSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PortSpec::Range(range) => range.fmt(f),
            PortSpec::Named(name) => match self.service() {
                Some(service) => write!(f, "of Service {service}"),
                None => f.write_str(name),
            },
        }
    }
}

/// A test of the port at one end. The empty test ([`PortMatch::any`]) matches all traffic; any other
/// matches only protocols with ports (TCP, UDP, SCTP).
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PortMatch {
    /// The port is one of these; `None` matches every port, an empty list none.
    #[serde(rename = "is")]
    pub any_of: Option<Vec<PortSpec>>,
    /// The port is none of these. A name that does not resolve excludes nothing.
    pub not: Vec<PortSpec>,
}

impl PortMatch {
    /// Any port, and protocols without ports as well.
    pub fn any() -> Self {
        PortMatch::default()
    }

    /// Any of these ports.
    pub fn one_of(specs: impl IntoIterator<Item = PortSpec>) -> Self {
        PortMatch {
            any_of: Some(specs.into_iter().collect()),
            not: Vec::new(),
        }
    }

    /// Whether it matches all traffic.
    pub fn is_any(&self) -> bool {
        self.any_of.is_none() && self.not.is_empty()
    }
}
