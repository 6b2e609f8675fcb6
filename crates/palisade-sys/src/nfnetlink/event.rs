//! Notifications of nfnetlink: the changed object and the socket that changed it.

use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use super::{NfMessage, NfRequestError};
use crate::Errno;
use crate::netlink::{KernelError, NetlinkFamily, NetlinkSocket, OpenError};
use crate::netns::NetNs;

/// Space for the notifications of a large transaction of another program.
const RECEIVE_BUFFER_BYTES: usize = 8 * 1024 * 1024;

/// One notification.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NfEvent {
    /// An object was created, changed or deleted.
    Changed {
        /// `NFNL_SUBSYS_…`.
        subsystem: u8,
        /// Port id of the socket through which it was changed.
        portid: u32,
        /// The object; its `kind` says what happened to it.
        object: NfMessage,
    },
    /// Notifications were lost because the reader was too slow.
    Overrun,
}

/// A stream of notifications.
pub trait NfEvents {
    /// The next one; `None` if there was none within `timeout` (`None` waits without limit).
    ///
    /// # Errors
    /// If the socket fails; lost notifications are not an error but [`NfEvent::Overrun`].
    fn next_event(&mut self, timeout: Option<Duration>) -> Result<Option<NfEvent>, NfRequestError>;
}

/// The kernel's notifications of one namespace; readable ([`AsFd`]) when one is pending.
#[derive(Debug)]
pub struct KernelNfEvents {
    socket: NetlinkSocket,
    own_portid: Option<u32>,
}

impl KernelNfEvents {
    /// Subscribes to the multicast `groups` in `netns`, without notifications of changes made through the
    /// socket with port id `own_port`.
    ///
    /// # Errors
    /// If the namespace cannot be entered or the socket cannot be created.
    pub fn open(netns: &NetNs, groups: &[u32], own_port: Option<u32>) -> Result<Self, OpenError> {
        let socket = NetlinkSocket::open(netns, NetlinkFamily::Netfilter, groups)?;
        socket.grow_receive_buffer(RECEIVE_BUFFER_BYTES);
        if let Some(port) = own_port {
            // Filtered in the kernel, so that a large own transaction cannot displace notifications of
            // others; messages queued before are filtered below.
            socket.ignore_port(port)?;
        }
        Ok(Self {
            socket,
            own_portid: own_port,
        })
    }

    fn listen_error(&self, error: KernelError) -> NfRequestError {
        NfRequestError {
            what: "listening for nfnetlink changes".to_owned(),
            netns: self.socket.netns().to_owned(),
            error,
        }
    }
}

impl AsFd for KernelNfEvents {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl NfEvents for KernelNfEvents {
    fn next_event(&mut self, timeout: Option<Duration>) -> Result<Option<NfEvent>, NfRequestError> {
        loop {
            match self.socket.next_message(timeout) {
                Ok(Some(message)) if self.own_portid == Some(message.portid) => {}
                Ok(Some(message)) => {
                    let [subsystem, _] = message.kind.to_be_bytes();
                    let object = NfMessage::read(message.kind, &message.payload)
                        .map_err(|error| self.listen_error(error.into()))?;
                    return Ok(Some(NfEvent::Changed {
                        subsystem,
                        portid: message.portid,
                        object,
                    }));
                }
                Ok(None) => return Ok(None),
                Err(error) if error.errno == Errno::ENOBUFS => return Ok(Some(NfEvent::Overrun)),
                Err(error) => return Err(self.listen_error(error)),
            }
        }
    }
}
