//! The kernel's connection tracking table.
//!
//! Promises: an update changes only the given mark bits of exactly the given entry; an entry that no longer
//! exists is reported separately from a failure; what is created replaces no entry that exists.
//!
//! Never: deletes an entry.

mod codec;
mod events;
mod kernel;

use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use thiserror::Error;

pub(crate) use codec::read_original_tuple;
pub use events::{ConntrackEvent, KernelConntrackEvents};
pub use kernel::{KernelConntrack, tracks_sctp};

use crate::netlink::{KernelError, WireError};
use crate::nfnetlink::NfRequestError;

/// Layer-4 part of a tuple.
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
    /// The protocol has only addresses.
    None,
}

/// One direction of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConntrackTuple {
    /// Source address.
    pub source: IpAddr,
    /// Destination address.
    pub destination: IpAddr,
    /// IP protocol number.
    pub protocol: u8,
    /// Layer-4 part.
    pub proto: TupleProto,
}

impl ConntrackTuple {
    /// The other direction, without translation. Of ICMP the same type: the kernel has its own for an answer.
    #[must_use]
    pub fn mirrored(&self) -> Self {
        let proto = match self.proto {
            TupleProto::Ports(source, destination) => TupleProto::Ports(destination, source),
            other => other,
        };
        Self {
            source: self.destination,
            destination: self.source,
            proto,
            ..*self
        }
    }
}

/// A connection that the kernel did not see begin, to be entered as an entry of zone 0 without translation. Of TCP, UDP
/// and protocols with ports.
///
/// The kernel has seen no window of a TCP connection that is entered: packets out of it are not invalid, in both
/// directions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewConnection {
    /// Tuple of the first packet's direction.
    pub original: ConntrackTuple,
    /// Connection mark.
    pub mark: u32,
    /// Seconds until it expires without traffic. With a packet the kernel's own time begins.
    pub timeout: u32,
    /// Whether the other side has answered: a TCP connection is established then, and otherwise its SYN was sent.
    pub is_answered: bool,
}

/// What became of connections that were to be entered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConnectionsCreated {
    /// Those that have an entry now.
    pub created: usize,
    /// Those that had one, which is as it was.
    pub existing: usize,
    /// Those that the kernel refused, as it does with a full table (`ENOMEM`).
    pub refused: usize,
    /// The first refusal.
    pub first_refusal: Option<KernelError>,
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

/// A conntrack entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConntrackEntry {
    /// Tuple of the first packet's direction.
    pub original: ConntrackTuple,
    /// Tuple of the reply direction; not the mirror of `original` if addresses are translated.
    pub reply: ConntrackTuple,
    /// Conntrack zone; 0 by default.
    pub zone: u16,
    /// Connection mark.
    pub mark: u32,
    /// `IPS_…` bits.
    pub status: u32,
    /// The kernel's id of the entry, constant for its lifetime.
    pub id: u32,
    /// Seconds until it expires without traffic; `None` for an unconfirmed entry.
    pub timeout: Option<u32>,
}

impl ConntrackEntry {
    /// Whether it is being removed: its end is told already, or will be.
    #[must_use]
    pub fn is_dying(&self) -> bool {
        /// `IPS_DYING`, in `linux/netfilter/nf_conntrack_common.h`.
        const IPS_DYING: u32 = 1 << 9;
        self.status & IPS_DYING != 0
    }
}

/// What one direction of a connection carried.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TrafficCount {
    /// Packets.
    pub packets: u64,
    /// Bytes, from the network header on.
    pub bytes: u64,
}

/// A connection at its begin or at its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConntrackRecord {
    /// The entry.
    pub entry: ConntrackEntry,
    /// What each direction carried, that of the first packet first. `None` where the kernel did not count when the
    /// connection began (`nf_conntrack_acct`).
    pub traffic: Option<[TrafficCount; 2]>,
    /// When it began, since the Unix epoch. `None` without `nf_conntrack_timestamp`.
    pub began: Option<Duration>,
    /// When it ended, since the Unix epoch; `None` if it has not, and without `nf_conntrack_timestamp`.
    pub ended: Option<Duration>,
}

/// Which entries to list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConntrackFilter {
    /// Only entries with `mark & mask == value`, given as `(value, mask)`.
    pub mark: Option<(u32, u32)>,
}

/// A request to the conntrack table failed.
#[derive(Debug, Error)]
pub enum ConntrackError {
    /// The kernel rejected the request.
    #[error(transparent)]
    Kernel(#[from] NfRequestError),
    /// A message cannot be encoded.
    #[error("writing a conntrack message: {0}")]
    Wire(#[from] WireError),
}

/// The conntrack table of one namespace.
pub trait Conntrack {
    /// Number of entries. The request makes the kernel load the conntrack module.
    ///
    /// # Errors
    /// The kernel's error.
    fn count(&mut self) -> Result<u32, ConntrackError>;

    /// All entries that match the filter.
    ///
    /// # Errors
    /// The kernel's error.
    fn entries(&mut self, filter: &ConntrackFilter) -> Result<Vec<ConntrackEntry>, ConntrackError>;

    /// Sets the bits of `mask` in the mark of `flow` to those of `value`; false if the entry no longer
    /// exists.
    ///
    /// # Errors
    /// The kernel's error.
    fn set_mark(
        &mut self,
        flow: &ConntrackEntry,
        value: u32,
        mask: u32,
    ) -> Result<bool, ConntrackError>;
}
