//! Raw ICMP sockets, which the standard library does not offer.
//!
//! Promises: a socket belongs to the network namespace of the calling thread. Never: sends anything.

use std::io;
use std::os::fd::OwnedFd;

use nix::sys::socket::{AddressFamily, SockFlag, SockProtocol, SockType, socket};

/// The IP version of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IpVersion {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

/// A non-blocking raw ICMP or ICMPv6 socket. Received data starts with the IP header for IPv4 and with the
/// ICMPv6 header for IPv6; the kernel fills in checksums of ICMPv6, not of ICMP.
///
/// # Errors
/// `EPERM` without `CAP_NET_RAW`, `EAFNOSUPPORT` if the IP version is not available.
pub fn icmp_socket(version: IpVersion) -> io::Result<OwnedFd> {
    let (family, protocol) = match version {
        IpVersion::V4 => (AddressFamily::Inet, SockProtocol::Icmp),
        IpVersion::V6 => (AddressFamily::Inet6, SockProtocol::IcmpV6),
    };
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    Ok(socket(family, SockType::Raw, flags, protocol)?)
}
