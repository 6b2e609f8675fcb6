//! A packet as the hooks of netfilter see it, with what connection tracking knows of it.
//!
//! It decides nothing.

use palisade_model::{L4, Protocol, Str};
use palisade_nft::ct_state;
use std::net::IpAddr;

/// A packet as the netfilter hooks see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HookPacket {
    /// The input interface; `None` if this host's own stack sent it.
    pub iif: Option<Str>,
    /// The output interface; `None` if it is for this host.
    pub oif: Option<Str>,
    /// The source address in the packet.
    pub source: IpAddr,
    /// The destination address in the packet.
    pub destination: IpAddr,
    /// Its protocol.
    pub protocol: Protocol,
    /// The fields of its transport header.
    pub l4: L4,
    /// The TCP flags: see [`tcp_flag`](palisade_nft::tcp_flag).
    pub tcp_flags: u8,
    /// The result of connection tracking.
    pub conntrack: ConntrackInfo,
}

/// The result of connection tracking for a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConntrackInfo {
    /// One of the bits of [`ct_state`].
    pub state: u32,
    /// Whether it is in the reply direction of its connection.
    pub reply: bool,
    /// The connection's mark.
    pub mark: u32,
}

impl ConntrackInfo {
    /// The first packet of a flow.
    pub const NEW: ConntrackInfo = ConntrackInfo {
        state: ct_state::NEW,
        reply: false,
        mark: 0,
    };

    pub(crate) fn exists(self) -> bool {
        self.state & (ct_state::INVALID | ct_state::UNTRACKED) == 0
    }
}
