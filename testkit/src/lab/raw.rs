//! A sender of packets made by hand, as many as a test wants, without an account of what became of them.
//!
//! For floods: [`super::send_crafted_packets`] says what arrived, of few.

use super::probe::open_raw;
use super::{Lab, LabError, NodeId};
use socket2::Socket;
use std::io;
use std::net::SocketAddr;

const IPPROTO_RAW: i32 = 255;

/// Sends from one node, until dropped.
#[derive(Debug)]
pub struct RawSender {
    v4: Socket,
    v6: Socket,
}

impl RawSender {
    /// A sender in a node.
    ///
    /// # Errors
    /// If the namespace cannot be entered, or there are no raw sockets.
    pub fn open(lab: &Lab, node: NodeId) -> Result<Self, LabError> {
        let open = || -> io::Result<Self> {
            let (v4, v6) = (open_raw(true, IPPROTO_RAW)?, open_raw(false, IPPROTO_RAW)?);
            v4.set_nonblocking(false)?;
            v6.set_nonblocking(false)?;
            Ok(RawSender { v4, v6 })
        };
        lab.run_in(node, open)?
            .map_err(|source| LabError::Namespace {
                doing: "opening raw sockets in",
                namespace: lab.namespace_name(node).to_owned(),
                source,
            })
    }

    /// Sends a packet, from its IP header on.
    ///
    /// # Errors
    /// If the kernel does not take it.
    pub fn send(&self, packet: &[u8], to: SocketAddr) -> io::Result<()> {
        let socket = if to.is_ipv4() { &self.v4 } else { &self.v6 };
        // A raw socket of IPv6 takes no port.
        let to = SocketAddr::new(to.ip(), 0);
        socket.send_to(packet, &to.into()).map(drop)
    }
}
