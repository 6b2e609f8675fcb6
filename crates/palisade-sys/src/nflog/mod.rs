//! Packets that the kernel's packet filter reports: one nflog group.
//!
//! Promises: a listener is the only one of its group in its namespace; what the kernel sent and this
//! socket had no room for is counted, never passed over; what cannot be read is an error of that one
//! packet's attributes, not of the stream.
//!
//! Never: looks into a packet's headers, or changes what becomes of it.

mod codec;
mod fake;
mod kernel;

use std::time::Duration;

use thiserror::Error;

pub use fake::FakeNflog;
pub use kernel::KernelNflog;

use crate::Errno;
use crate::netlink::{OpenError, WireError};
use crate::nfnetlink::NfRequestError;

/// One packet that was reported.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NflogPacket {
    /// What the rule that reported it says in front of it.
    pub prefix: String,
    /// The netfilter hook it was at (`NF_INET_*`).
    pub hook: u8,
    /// The index of the interface it came in by.
    pub iif: Option<u32>,
    /// The index of the interface it leaves by.
    pub oif: Option<u32>,
    /// When the kernel saw it, since 1970; kernels before 6.8 often do not say.
    pub time: Option<Duration>,
    /// Its first bytes, from the network header on.
    pub head: Vec<u8>,
}

/// What a listener hears.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NflogEvent {
    /// A packet.
    Packet(NflogPacket),
    /// So many packets came faster than they were read.
    Overrun(u32),
}

/// What went wrong with a group.
#[derive(Debug, Error)]
pub enum NflogError {
    /// No socket.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The kernel refused.
    #[error(transparent)]
    Kernel(#[from] NfRequestError),
    /// A message cannot be written.
    #[error("writing an nflog message: {0}")]
    Wire(#[from] WireError),
}

impl NflogError {
    fn errno(&self) -> Option<Errno> {
        match self {
            Self::Kernel(error) => Some(error.error.errno),
            _ => None,
        }
    }

    /// True if somebody else listens to the group.
    #[must_use]
    pub fn is_in_use(&self) -> bool {
        // The kernel checks the owner first, and says the group is not his.
        matches!(
            self.errno(),
            Some(Errno::EBUSY | Errno::EPERM | Errno::EEXIST)
        )
    }

    /// True if the kernel has no nflog.
    #[must_use]
    pub fn is_unsupported(&self) -> bool {
        matches!(
            self.errno(),
            Some(Errno::EINVAL | Errno::EOPNOTSUPP | Errno::EPROTONOSUPPORT)
        )
    }
}

/// A listener to one group.
pub trait Nflog {
    /// The next packet, or word of lost ones; `None` if none came within `timeout` (`None` waits for
    /// ever).
    ///
    /// # Errors
    /// If the socket fails.
    fn next_event(&mut self, timeout: Option<Duration>) -> Result<Option<NflogEvent>, NflogError>;
}
