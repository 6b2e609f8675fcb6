//! Packets logged by the kernel's packet filter to one nflog group.
//!
//! Promises: a listener is the only one of its group in its namespace; packets lost because the socket's
//! buffer was full are counted; a packet that cannot be decoded is an error of that packet's attributes, not
//! of the stream.
//!
//! Never: parses a packet's headers, or changes its verdict.

mod codec;
mod kernel;

use std::time::Duration;

use thiserror::Error;

pub use kernel::KernelNflog;

use crate::Errno;
use crate::conntrack::ConntrackTuple;
use crate::netlink::{OpenError, WireError};
use crate::nfnetlink::NfRequestError;

/// One logged packet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NflogPacket {
    /// Log prefix of the rule.
    pub prefix: String,
    /// Netfilter hook (`NF_INET_*`).
    pub hook: u8,
    /// Index of the input interface.
    pub iif: Option<u32>,
    /// Index of the output interface.
    pub oif: Option<u32>,
    /// Receive time since 1970; kernels before 6.8 often omit it.
    pub time: Option<Duration>,
    /// Its connection, as its first packet came: before addresses were translated. `None` if it is not tracked, or
    /// the listener does not report connections.
    pub connection: Option<ConntrackTuple>,
    /// Its first bytes, from the network header on.
    pub head: Vec<u8>,
}

/// One event of a listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NflogEvent {
    /// A packet.
    Packet(NflogPacket),
    /// This many packets were lost because the reader was too slow.
    Overrun(u32),
}

/// An operation on a group failed.
#[derive(Debug, Error)]
pub enum NflogError {
    /// The socket could not be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The kernel rejected the request.
    #[error(transparent)]
    Kernel(#[from] NfRequestError),
    /// A message cannot be encoded.
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

    /// True if another socket listens to the group.
    #[must_use]
    pub fn is_in_use(&self) -> bool {
        // The kernel checks the owner first and returns EPERM for another socket's group.
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
    /// The next packet or the number of lost ones; `None` if there was none within `timeout` (`None` waits
    /// without limit).
    ///
    /// # Errors
    /// If the socket fails.
    fn next_event(&mut self, timeout: Option<Duration>) -> Result<Option<NflogEvent>, NflogError>;

    /// Whether packets come with their connection.
    fn reports_connections(&self) -> bool;
}
