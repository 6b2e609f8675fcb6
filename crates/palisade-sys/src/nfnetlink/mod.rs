//! nfnetlink: the transport of nf_tables, conntrack and nflog.
//!
//! Promises: a batch takes effect completely or not at all; an error names the message that the kernel
//! rejected, and why; a dump is of one state or is repeated; lost replies and lost notifications are
//! reported.
//!
//! Never: interprets messages, or retries a batch.

mod batch;
mod event;
mod kernel;
pub mod nf_tables;

use thiserror::Error;

pub use batch::{NfBatch, NfRequest};
pub use event::{KernelNfEvents, NfEvent, NfEvents};
pub use kernel::KernelNfnetlink;

use crate::Errno;
use crate::netlink::{KernelError, WireError};

/// Subsystem of conntrack.
pub const NFNL_SUBSYS_CTNETLINK: u8 = 1;
/// Subsystem of nflog.
pub const NFNL_SUBSYS_ULOG: u8 = 4;
/// Subsystem of nf_tables.
pub const NFNL_SUBSYS_NFTABLES: u8 = 10;

/// Multicast group of nf_tables changes.
pub const NFNLGRP_NFTABLES: u32 = 7;

/// `NLM_F_REPLACE`: replace the existing object.
pub const NLM_F_REPLACE: u16 = libc::NLM_F_REPLACE as u16;
/// `NLM_F_EXCL`: fail if the object exists.
pub const NLM_F_EXCL: u16 = libc::NLM_F_EXCL as u16;
/// `NLM_F_CREATE`: create the object.
pub const NLM_F_CREATE: u16 = libc::NLM_F_CREATE as u16;
/// `NLM_F_APPEND`: append to the list.
pub const NLM_F_APPEND: u16 = libc::NLM_F_APPEND as u16;

/// Bytes of `struct nfgenmsg`.
pub(crate) const NFGEN_LEN: usize = 4;

/// One object received from the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NfMessage {
    /// Message type within its subsystem.
    pub kind: u8,
    /// `NFPROTO_…`.
    pub family: u8,
    /// Low 16 bits of the generation in which it was read (nf_tables).
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

    /// Reader of its attributes.
    #[must_use]
    pub fn attrs(&self) -> crate::netlink::Attrs<'_> {
        crate::netlink::Attrs::new(&self.attributes)
    }
}

/// Why a batch had no effect, or no confirmed effect.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum BatchError {
    /// The kernel rejected one or more messages; nothing was applied.
    #[error(
        "message {} of {of} in network namespace {netns} was refused: {error}{}",
        index.map_or_else(|| "(all)".to_owned(), |index| index.to_string()),
        if *also == 0 { String::new() } else { format!(" (and {also} more)") }
    )]
    Refused {
        /// Position in the batch of the first rejected message; `None` if the batch as a whole was rejected.
        index: Option<usize>,
        /// Messages in the batch.
        of: usize,
        /// Number of further rejected messages.
        also: usize,
        /// The kernel's error for the first.
        error: KernelError,
        /// The namespace.
        netns: String,
    },
    /// The batch could not be sent to the kernel; nothing was applied.
    #[error("a batch of {bytes} bytes could not be sent in network namespace {netns}: {error}")]
    NotSent {
        /// Size in bytes.
        bytes: usize,
        /// The failure.
        error: KernelError,
        /// The namespace.
        netns: String,
    },
    /// The kernel's replies were lost: the batch was applied completely or not at all.
    #[error("the kernel's answer to a batch in network namespace {netns} was lost")]
    Unconfirmed {
        /// The namespace.
        netns: String,
    },
}

impl BatchError {
    /// The kernel's error number, if there is one.
    #[must_use]
    pub fn errno(&self) -> Option<Errno> {
        match self {
            Self::Refused { error, .. } | Self::NotSent { error, .. } => Some(error.errno),
            Self::Unconfirmed { .. } => None,
        }
    }
}

/// A request failed.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{what} in network namespace {netns}: {error}")]
pub struct NfRequestError {
    /// What was requested, for example "listing nf_tables chains".
    pub what: String,
    /// The namespace.
    pub netns: String,
    /// The kernel's error.
    pub error: KernelError,
}

/// One nfnetlink socket.
pub trait Nfnetlink {
    /// Applies a batch as one transaction and waits for the replies.
    ///
    /// # Errors
    /// [`BatchError`]; only after [`BatchError::Unconfirmed`] the batch may have been applied.
    fn commit(&mut self, batch: &NfBatch) -> Result<(), BatchError>;

    /// All objects that match a query.
    ///
    /// # Errors
    /// The kernel's error; `EINTR` if kernel state changed during every attempt.
    fn dump(&mut self, query: &NfRequest) -> Result<Vec<NfMessage>, NfRequestError>;

    /// The one object that a query identifies; `None` if it does not exist.
    ///
    /// # Errors
    /// The kernel's error, except `ENOENT`.
    fn get(&mut self, query: &NfRequest) -> Result<Option<NfMessage>, NfRequestError>;

    /// A single change outside a batch (conntrack, nflog).
    ///
    /// # Errors
    /// The kernel's error.
    fn change(&mut self, query: &NfRequest, flags: u16) -> Result<(), NfRequestError>;

    /// The current nf_tables generation; every commit by any program increments it.
    ///
    /// # Errors
    /// The kernel's error.
    fn generation(&mut self) -> Result<u32, NfRequestError>;

    /// The socket's port id, which notifications of its changes carry.
    fn portid(&self) -> u32;
}
