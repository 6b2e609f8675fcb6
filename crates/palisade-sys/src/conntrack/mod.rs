//! The kernel's table of tracked flows.
//!
//! Promises: an update touches only the mark bits it names, of exactly the
//! entry it names; an entry that ended meanwhile is told apart from a failure.
//!
//! Never: makes an entry, or flushes the table.

mod codec;
mod fake;
mod kernel;

use std::fmt;
use std::net::IpAddr;

use thiserror::Error;

pub use fake::{ConntrackCall, FakeConntrack};
pub use kernel::{KernelConntrack, tracks_sctp};

use crate::netlink::WireError;
use crate::nfnetlink::NfRequestError;

/// What tells flows of one protocol apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum TupleProto {
    /// Source and destination port (TCP, UDP, SCTP, DCCP, UDP-Lite).
    Ports(u16, u16),
    /// Type, code and identifier (ICMP, ICMPv6).
    Icmp {
        /// Type.
        kind: u8,
        /// Code.
        code: u8,
        /// Identifier.
        id: u16,
    },
    /// Nothing but the addresses.
    None,
}

/// One direction of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConntrackTuple {
    /// Source address.
    pub source: IpAddr,
    /// Destination address.
    pub destination: IpAddr,
    /// IP protocol number.
    pub protocol: u8,
    /// What else tells it apart.
    pub proto: TupleProto,
}

impl fmt::Display for ConntrackTuple {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            source,
            destination,
            protocol,
            proto: key,
        } = self;
        write!(f, "protocol {protocol} ")?;
        match key {
            TupleProto::Ports(from, to) => {
                write!(f, "{source} port {from} to {destination} port {to}")
            }
            TupleProto::Icmp { kind, code, id } => {
                write!(f, "{source} to {destination} type {kind}/{code} id {id}")
            }
            TupleProto::None => write!(f, "{source} to {destination}"),
        }
    }
}

/// A tracked flow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConntrackEntry {
    /// As its first packet went.
    pub original: ConntrackTuple,
    /// As an answer goes; not the mirror of `original` where addresses are translated.
    pub reply: ConntrackTuple,
    /// Conntrack zone; 0 unless someone set one.
    pub zone: u16,
    /// Its mark.
    pub mark: u32,
    /// `IPS_…` bits.
    pub status: u32,
    /// The kernel's number for it, the same for its whole life.
    pub id: u32,
    /// Seconds until it ends without traffic; `None` for one being set up.
    pub timeout: Option<u32>,
}

impl ConntrackEntry {
    /// True once an answer was seen.
    #[must_use]
    pub fn has_reply(&self) -> bool {
        const IPS_SEEN_REPLY: u32 = 2;
        self.status & IPS_SEEN_REPLY != 0
    }
}

/// Which flows to list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConntrackFilter {
    /// Only those whose mark has `(value, mask)`: `mark & mask == value`.
    pub mark: Option<(u32, u32)>,
    /// Only those of this conntrack zone.
    pub zone: Option<u16>,
}

/// What went wrong with tracked flows.
#[derive(Debug, Error)]
pub enum ConntrackError {
    /// The kernel refused.
    #[error(transparent)]
    Kernel(#[from] NfRequestError),
    /// A message cannot be written.
    #[error("writing a conntrack message: {0}")]
    Wire(#[from] WireError),
}

/// Tracked flows of one namespace.
pub trait Conntrack {
    /// How many flows are tracked. Asking has the kernel load what tracks them.
    ///
    /// # Errors
    /// What the kernel answered.
    fn count(&mut self) -> Result<u32, ConntrackError>;

    /// All flows that pass the filter.
    ///
    /// # Errors
    /// What the kernel answered.
    fn entries(&mut self, filter: &ConntrackFilter) -> Result<Vec<ConntrackEntry>, ConntrackError>;

    /// Sets the bits of `mask` in the mark of `flow` to those of `value`; false if it has ended.
    ///
    /// # Errors
    /// What the kernel answered.
    fn set_mark(
        &mut self,
        flow: &ConntrackEntry,
        value: u32,
        mask: u32,
    ) -> Result<bool, ConntrackError>;

    /// Ends a flow; false if it had ended. A later flow of the same tuple is spared.
    ///
    /// # Errors
    /// What the kernel answered.
    fn delete(&mut self, flow: &ConntrackEntry) -> Result<bool, ConntrackError>;
}
