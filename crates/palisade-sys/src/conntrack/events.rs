//! Notifications of connections that begin and end.
//!
//! Promises: an event has both tuples, the mark at that moment, and what the kernel counted and timed; notifications
//! that the kernel could not deliver are told as [`ConntrackEvent::Overrun`]. Changes of state, of which a connection
//! has several, are not subscribed to: the kernel builds no message for them.
//!
//! Never: switches accounting or timestamps on, or changes an entry.

use std::time::Duration;

use super::{ConntrackError, ConntrackRecord, codec};
use crate::Errno;
use crate::netlink::{KernelError, NetlinkFamily, NetlinkSocket, OpenError};
use crate::netns::NetNs;
use crate::nfnetlink::{NFNL_SUBSYS_CTNETLINK, NfMessage, NfRequestError};

const IPCTNL_MSG_CT_NEW: u8 = 0;
const IPCTNL_MSG_CT_DELETE: u8 = 2;

const NFNLGRP_CONNTRACK_NEW: u32 = 1;
const NFNLGRP_CONNTRACK_DESTROY: u32 = 3;

/// Space for the notifications of some ten thousand connections.
const RECEIVE_BUFFER_BYTES: usize = 16 * 1024 * 1024;

/// A notification of connection tracking.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConntrackEvent {
    /// A connection whose first packet was accepted.
    Began(ConntrackRecord),
    /// A connection that is tracked no longer.
    Ended(ConntrackRecord),
    /// Notifications were lost because the reader was too slow.
    Overrun,
}

/// The notifications of one namespace.
#[derive(Debug)]
pub struct KernelConntrackEvents {
    socket: NetlinkSocket,
}

impl KernelConntrackEvents {
    /// Subscribes to connections of `netns` that begin and end from now on.
    ///
    /// # Errors
    /// If the namespace cannot be entered or the socket cannot be created.
    pub fn open(netns: &NetNs) -> Result<Self, OpenError> {
        let groups = [NFNLGRP_CONNTRACK_NEW, NFNLGRP_CONNTRACK_DESTROY];
        let socket = NetlinkSocket::open(netns, NetlinkFamily::Netfilter, &groups)?;
        socket.grow_receive_buffer(RECEIVE_BUFFER_BYTES);
        Ok(Self { socket })
    }

    /// The next notification; `None` if there was none within `timeout` (`None` waits without limit).
    ///
    /// # Errors
    /// If the socket fails.
    pub fn next_event(
        &mut self,
        timeout: Option<Duration>,
    ) -> Result<Option<ConntrackEvent>, ConntrackError> {
        loop {
            match self.socket.next_message(timeout) {
                Ok(Some(message)) => {
                    let [subsystem, kind] = message.kind.to_be_bytes();
                    if subsystem != NFNL_SUBSYS_CTNETLINK {
                        continue;
                    }
                    let record = NfMessage::read(message.kind, &message.payload)
                        .and_then(|object| codec::read_record(&object))
                        .map_err(|error| self.listen_error(error.into()))?;
                    match kind {
                        IPCTNL_MSG_CT_NEW => return Ok(Some(ConntrackEvent::Began(record))),
                        IPCTNL_MSG_CT_DELETE => return Ok(Some(ConntrackEvent::Ended(record))),
                        _ => {}
                    }
                }
                Ok(None) => return Ok(None),
                Err(error) if error.errno == Errno::ENOBUFS => {
                    return Ok(Some(ConntrackEvent::Overrun));
                }
                Err(error) => return Err(self.listen_error(error)),
            }
        }
    }

    fn listen_error(&self, error: KernelError) -> ConntrackError {
        ConntrackError::Kernel(NfRequestError {
            what: "listening for connections that begin and end".to_owned(),
            netns: self.socket.netns().to_owned(),
            error,
        })
    }
}
