//! A router that advertises itself: one ICMPv6 router advertisement, from a real socket.
//!
//! The kernel fills in source and checksum; the receiver believes it if it takes advertisements at all.

use super::{Lab, LabError, NodeId};
use socket2::{Domain, Protocol, SockAddr, Socket, Type};
use std::io;
use std::net::{Ipv6Addr, SocketAddrV6};

/// The type of a router advertisement.
const ROUTER_ADVERTISEMENT: u8 = 134;
/// Hops that an advertisement must have left when it arrives.
const HOPS: u32 = 255;
/// All hosts of a link.
const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);

/// Has a node offer itself as a default router for `lifetime` seconds, to everybody behind one of its
/// interfaces.
///
/// # Errors
/// If the node cannot be entered, or it cannot send.
pub fn send_router_advertisement(
    lab: &Lab,
    node: NodeId,
    interface: &str,
    lifetime: u16,
) -> Result<(), LabError> {
    let send = || -> io::Result<()> {
        let index = nix::net::if_::if_nametoindex(interface)?;
        let socket = Socket::new(Domain::IPV6, Type::RAW, Some(Protocol::ICMPV6))?;
        socket.set_multicast_hops_v6(HOPS)?;
        socket.set_multicast_if_v6(index)?;
        let [high, low] = lifetime.to_be_bytes();
        // Type, code, checksum; hop limit, flags, lifetime; reachable and retransmission time.
        let message = [
            [ROUTER_ADVERTISEMENT, 0, 0, 0],
            [64, 0, high, low],
            [0; 4],
            [0; 4],
        ];
        let to = SockAddr::from(SocketAddrV6::new(ALL_NODES, 0, 0, index));
        socket.send_to(&message.concat(), &to).map(drop)
    };
    let sent = lab.run_in(node, send)?;
    sent.map_err(|source| LabError::Namespace {
        doing: "advertising a router from",
        namespace: lab.namespace_name(node).to_owned(),
        source,
    })
}
