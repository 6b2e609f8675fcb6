//! nflog over nfnetlink.

use std::time::Duration;

use super::codec::{self, NFULNL_MSG_CONFIG, NFULNL_MSG_PACKET};
use super::{Nflog, NflogError, NflogEvent, NflogPacket};
use crate::Errno;
use crate::netlink::{KernelError, NetlinkFamily, NetlinkSocket};
use crate::netns::NetNs;
use crate::nfnetlink::{NFNL_SUBSYS_ULOG, NfMessage, NfRequest, NfRequestError};

/// Space for the first bytes of about ten thousand packets.
const RECEIVE_BUFFER_BYTES: usize = 8 * 1024 * 1024;

/// The packets logged to one group in one namespace.
#[derive(Debug)]
pub struct KernelNflog {
    socket: NetlinkSocket,
    group: u16,
    /// Expected sequence number of the next packet.
    next_seq: u32,
    /// A packet to return after the [`NflogEvent::Overrun`] that precedes it.
    pending_packet: Option<NflogPacket>,
    reports_connections: bool,
}

impl KernelNflog {
    /// Listens to `group` in `netns`, with the first `copy_range` bytes of each packet.
    ///
    /// # Errors
    /// [`NflogError::is_in_use`] if another socket listens; [`NflogError::is_unsupported`] if the kernel has
    /// no nflog.
    pub fn open(netns: &NetNs, group: u16, copy_range: u32) -> Result<Self, NflogError> {
        match Self::bind(netns, group, copy_range, true) {
            // A kernel without CONFIG_NETFILTER_NETLINK_GLUE_CT, or without nflog.
            Err(error) if error.is_unsupported() => Self::bind(netns, group, copy_range, false),
            other => other,
        }
    }

    fn bind(
        netns: &NetNs,
        group: u16,
        copy_range: u32,
        with_connections: bool,
    ) -> Result<Self, NflogError> {
        let mut socket = NetlinkSocket::open(netns, NetlinkFamily::Netfilter, &[])?;
        socket.grow_receive_buffer(RECEIVE_BUFFER_BYTES);
        let what = format!("listening to nflog group {group}");
        let family = libc::AF_UNSPEC as u8;
        let query = NfRequest::new(what, NFNL_SUBSYS_ULOG, NFULNL_MSG_CONFIG, family, |w| {
            codec::write_bind(w, copy_range, with_connections);
        })?
        .with_resource(group);
        // Packets logged before the acknowledgement is read have lower sequence numbers than the next one
        // received, so they are counted as lost.
        socket
            .change(query.message_type(), 0, |out| query.write(out))
            .map_err(|error| NfRequestError {
                what: query.description.clone(),
                netns: socket.netns().to_owned(),
                error,
            })?;
        Ok(Self {
            socket,
            group,
            next_seq: 0,
            pending_packet: None,
            reports_connections: with_connections,
        })
    }

    fn listen_error(&self, error: KernelError) -> NflogError {
        NflogError::Kernel(NfRequestError {
            what: format!("listening to nflog group {}", self.group),
            netns: self.socket.netns().to_owned(),
            error,
        })
    }

    /// Checks the sequence number: if packets are missing, their number is reported before the packet.
    fn check_sequence(&mut self, packet: NflogPacket, number: Option<u32>) -> NflogEvent {
        let Some(number) = number else {
            return NflogEvent::Packet(packet);
        };
        let missing = number.wrapping_sub(self.next_seq);
        self.next_seq = number.wrapping_add(1);
        if missing == 0 {
            return NflogEvent::Packet(packet);
        }
        self.pending_packet = Some(packet);
        NflogEvent::Overrun(missing)
    }
}

impl Nflog for KernelNflog {
    fn reports_connections(&self) -> bool {
        self.reports_connections
    }

    fn next_event(&mut self, timeout: Option<Duration>) -> Result<Option<NflogEvent>, NflogError> {
        if let Some(packet) = self.pending_packet.take() {
            return Ok(Some(NflogEvent::Packet(packet)));
        }
        let packets = u16::from(NFNL_SUBSYS_ULOG) << 8 | u16::from(NFULNL_MSG_PACKET);
        loop {
            match self.socket.next_message(timeout) {
                Ok(Some(message)) if message.kind == packets => {
                    let read = NfMessage::read(message.kind, &message.payload)
                        .and_then(|object| codec::read_packet(&object.attrs()));
                    let (packet, number) = read.map_err(|error| self.listen_error(error.into()))?;
                    return Ok(Some(self.check_sequence(packet, number)));
                }
                // The end of a multi-part message, and messages that are not packets.
                Ok(Some(_)) => {}
                Ok(None) => return Ok(None),
                // The next packet's sequence number gives the number lost.
                Err(error) if error.errno == Errno::ENOBUFS => {}
                Err(error) => return Err(self.listen_error(error)),
            }
        }
    }
}
