//! Notifications of connections that begin and end.
//!
//! Promises: an event has both tuples, the mark at that moment, and what the kernel counted and timed; notifications
//! that the kernel could not deliver are counted ([`KernelConntrackEvents::take_lost`]). Changes of state, of which a connection
//! has several, are not subscribed to: the kernel builds no message for them.
//!
//! Never: switches accounting or timestamps on, or changes an entry.

use std::time::Duration;

use super::{ConntrackError, ConntrackRecord, codec};
use crate::Errno;
use crate::fault;
use crate::netlink::{KernelError, NetlinkFamily, NetlinkSocket, OpenError};
use crate::netns::NetNs;
use crate::nfnetlink::{NFNL_SUBSYS_CTNETLINK, NfMessage, NfRequestError};

const IPCTNL_MSG_CT_NEW: u8 = 0;
const IPCTNL_MSG_CT_DELETE: u8 = 2;

const NFNLGRP_CONNTRACK_NEW: u32 = 1;
const NFNLGRP_CONNTRACK_DESTROY: u32 = 3;

/// Space for the notifications of some ten thousand connections.
const RECEIVE_BUFFER_BYTES: usize = 16 * 1024 * 1024;

/// Space for notifications; for about fifty in a test of what is lost.
fn receive_buffer_bytes() -> usize {
    if fault::is_injected("small-flow-queue") {
        32 * 1024
    } else {
        RECEIVE_BUFFER_BYTES
    }
}

/// A notification of connection tracking.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConntrackEvent {
    /// A connection whose first packet was accepted.
    Began(ConntrackRecord),
    /// A connection that is tracked no longer.
    Ended(ConntrackRecord),
}

/// The notifications of one namespace.
#[derive(Debug)]
pub struct KernelConntrackEvents {
    socket: NetlinkSocket,
    /// The number of lost notifications at the last call of [`KernelConntrackEvents::take_lost`], modulo 2^32.
    last_dropped: u32,
}

impl KernelConntrackEvents {
    /// Subscribes to connections of `netns` that begin and end from now on.
    ///
    /// # Errors
    /// If the namespace cannot be entered or the socket cannot be created.
    pub fn open(netns: &NetNs) -> Result<Self, OpenError> {
        let groups = [NFNLGRP_CONNTRACK_NEW, NFNLGRP_CONNTRACK_DESTROY];
        let socket = NetlinkSocket::open(netns, NetlinkFamily::Netfilter, &groups)?;
        socket.grow_receive_buffer(receive_buffer_bytes());
        Ok(Self {
            socket,
            last_dropped: 0,
        })
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
                // The count has them.
                Err(error) if error.errno == Errno::ENOBUFS => {}
                Err(error) => return Err(self.listen_error(error)),
            }
        }
    }

    /// How many notifications the kernel could not deliver since the last call: begins and ends, of every connection of
    /// the namespace.
    ///
    /// # Errors
    /// If the kernel does not tell.
    pub fn take_lost(&mut self) -> Result<u32, ConntrackError> {
        let dropped = (self.socket.dropped_messages())
            .map_err(|errno| self.listen_error(KernelError::from(errno)))?;
        let lost = dropped.wrapping_sub(self.last_dropped);
        self.last_dropped = dropped;
        Ok(lost)
    }

    fn listen_error(&self, error: KernelError) -> ConntrackError {
        ConntrackError::Kernel(NfRequestError {
            what: "listening for connections that begin and end".to_owned(),
            netns: self.socket.netns().to_owned(),
            error,
        })
    }
}
