//! The transport of nf_tables, conntrack and nflog: nfnetlink.
//!
//! Promises: a batch takes effect whole or not at all; a refusal says which of
//! its messages the kernel stopped at and why; a dump is of one state or is
//! repeated; lost answers and lost notifications are reported, never assumed
//! away.
//!
//! Never: knows what the messages mean, or retries a batch.

mod batch;
mod event;
mod fake;
mod kernel;
pub mod nf_tables;

use thiserror::Error;

pub use batch::{BatchMessage, NfBatch, NfRequest};
pub use event::{FakeNfEvents, KernelNfEvents, NfEvent, NfEvents};
pub use fake::FakeNfnetlink;
pub use kernel::KernelNfnetlink;

use crate::Errno;
use crate::netlink::{KernelError, WireError};

/// Subsystem of conntrack.
pub const NFNL_SUBSYS_CTNETLINK: u8 = 1;
/// Subsystem of nflog.
pub const NFNL_SUBSYS_ULOG: u8 = 4;
/// Subsystem of nf_tables.
pub const NFNL_SUBSYS_NFTABLES: u8 = 10;

/// Multicast group of new conntrack entries.
pub const NFNLGRP_CONNTRACK_NEW: u32 = 1;
/// Multicast group of changed conntrack entries.
pub const NFNLGRP_CONNTRACK_UPDATE: u32 = 2;
/// Multicast group of deleted conntrack entries.
pub const NFNLGRP_CONNTRACK_DESTROY: u32 = 3;
/// Multicast group of nf_tables changes.
pub const NFNLGRP_NFTABLES: u32 = 7;

/// `NLM_F_REPLACE`: change the object that is there.
pub const NLM_F_REPLACE: u16 = libc::NLM_F_REPLACE as u16;
/// `NLM_F_EXCL`: the object must not be there.
pub const NLM_F_EXCL: u16 = libc::NLM_F_EXCL as u16;
/// `NLM_F_CREATE`: make the object.
pub const NLM_F_CREATE: u16 = libc::NLM_F_CREATE as u16;
/// `NLM_F_APPEND`: at the end of the list.
pub const NLM_F_APPEND: u16 = libc::NLM_F_APPEND as u16;

/// Bytes of `struct nfgenmsg`.
pub(crate) const NFGEN_LEN: usize = 4;

/// One object the kernel sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NfMessage {
    /// Message type within its subsystem.
    pub kind: u8,
    /// `NFPROTO_…`.
    pub family: u8,
    /// Low bits of the generation it was read in (nf_tables).
    pub generation: u16,
    /// Its attributes.
    pub attributes: Vec<u8>,
}

impl NfMessage {
    pub(crate) fn read(kind: u16, payload: &[u8]) -> Result<Self, WireError> {
        let [family, _, g0, g1, attributes @ ..] = payload else {
            return Err(WireError::Truncated {
                what: "nfnetlink message",
                need: NFGEN_LEN,
                have: payload.len(),
            });
        };
        Ok(Self {
            kind: kind.to_le_bytes()[0],
            family: *family,
            generation: u16::from_be_bytes([*g0, *g1]),
            attributes: attributes.to_vec(),
        })
    }

    /// Its attributes, to be read.
    #[must_use]
    pub fn attrs(&self) -> crate::netlink::Attrs<'_> {
        crate::netlink::Attrs::new(&self.attributes)
    }
}

/// Why a batch had no effect, or none that is known.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum BatchError {
    /// The ruleset changed since the generation the batch was made for; nothing was applied.
    #[error("the ruleset of network namespace {netns} changed since generation {generation}")]
    Stale {
        /// The namespace.
        netns: String,
        /// The generation the batch named.
        generation: u32,
    },
    /// The kernel refused one or more messages; nothing was applied.
    #[error(
        "message {} of {of} in network namespace {netns} was refused: {error}{}",
        index.map_or_else(|| "(all)".to_owned(), |index| index.to_string()),
        if *also == 0 { String::new() } else { format!(" (and {also} more)") }
    )]
    Refused {
        /// Position in the batch of the first refused message; `None` if the batch as a whole was.
        index: Option<usize>,
        /// Messages in the batch.
        of: usize,
        /// Further messages refused.
        also: usize,
        /// The kernel's answer to the first.
        error: KernelError,
        /// The namespace.
        netns: String,
    },
    /// The batch could not be handed to the kernel; nothing was applied.
    #[error("a batch of {bytes} bytes could not be sent in network namespace {netns}: {error}")]
    NotSent {
        /// Its size.
        bytes: usize,
        /// The failure.
        error: KernelError,
        /// The namespace.
        netns: String,
    },
    /// The kernel's answers were lost: the batch was applied whole or not at all.
    #[error("the kernel's answer to a batch in network namespace {netns} was lost")]
    Unconfirmed {
        /// The namespace.
        netns: String,
    },
}

impl BatchError {
    /// The kernel's error number, if it gave one.
    #[must_use]
    pub fn errno(&self) -> Option<Errno> {
        match self {
            Self::Stale { .. } => Some(Errno::ERESTART),
            Self::Refused { error, .. } | Self::NotSent { error, .. } => Some(error.errno),
            Self::Unconfirmed { .. } => None,
        }
    }
}

/// A query failed.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{what} in network namespace {netns}: {error}")]
pub struct NfRequestError {
    /// What was asked, for example "listing nf_tables chains".
    pub what: String,
    /// The namespace.
    pub netns: String,
    /// The kernel's answer.
    pub error: KernelError,
}

/// One nfnetlink socket.
pub trait Nfnetlink {
    /// Applies a batch as one transaction and waits for the kernel's word.
    ///
    /// # Errors
    /// [`BatchError`]; only after [`BatchError::Unconfirmed`] can it have been applied.
    fn commit(&mut self, batch: &NfBatch) -> Result<(), BatchError>;

    /// All objects a query finds.
    ///
    /// # Errors
    /// What the kernel answered; `EINTR` if its state never stood still.
    fn dump(&mut self, query: &NfRequest) -> Result<Vec<NfMessage>, NfRequestError>;

    /// The one object a query names; `None` if it is not there.
    ///
    /// # Errors
    /// What the kernel answered, except `ENOENT`.
    fn get(&mut self, query: &NfRequest) -> Result<Option<NfMessage>, NfRequestError>;

    /// One change outside a batch (conntrack, nflog).
    ///
    /// # Errors
    /// What the kernel answered.
    fn change(&mut self, query: &NfRequest, flags: u16) -> Result<(), NfRequestError>;

    /// Number of the nf_tables generation in force; every commit by anyone raises it.
    ///
    /// # Errors
    /// What the kernel answered.
    fn generation(&mut self) -> Result<u32, NfRequestError>;

    /// The socket's port, which notifications of its changes carry.
    fn portid(&self) -> u32;
}
