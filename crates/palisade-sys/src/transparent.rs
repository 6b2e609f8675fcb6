//! Datagrams of a transparent proxy: received with where they were sent to, sent from any address.
//!
//! Promises: a received datagram has the destination and the mark that its packet had; a sent one has the source that
//! the caller names, also where another socket of the host has that address and port. Sources: ip(7), ipv6(7), socket(7).
//!
//! Never: listens where it sends from, so it takes no packet away from a server of the host; blocks.

use std::io::{self, IoSlice, IoSliceMut};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use nix::errno::Errno;
use nix::sys::socket::sockopt::RcvBufForce;
use nix::sys::socket::{
    AddressFamily, ControlMessage, ControlMessageOwned, MsgFlags, SockFlag, SockProtocol, SockType,
    SockaddrIn, SockaddrIn6, SockaddrStorage, bind, recvmsg, sendmsg, setsockopt, socket,
};

/// The bytes of a UDP header.
const HEADER: usize = 8;
/// The number of UDP in the header of IP.
const UDP: u8 = 17;
/// The address that the sender is bound to: no packet goes to it. Source: RFC 7600.
const UNUSED_V4: Ipv4Addr = Ipv4Addr::new(192, 0, 0, 8);
/// The same for IPv6. Source: RFC 6666.
const UNUSED_V6: Ipv6Addr = Ipv6Addr::new(0x100, 0, 0, 0, 0, 0, 0, 1);

/// A datagram, as its packet had it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceivedDatagram {
    /// The bytes of the buffer that it fills.
    pub length: usize,
    /// Who sent it.
    pub source: SocketAddr,
    /// Where it was sent to, after translation.
    pub destination: SocketAddr,
    /// The mark of its packet.
    pub mark: u32,
}

/// Has a socket receive packets to any address, with their destination and their mark.
///
/// # Errors
/// If the kernel is too old (before 5.19), or the process has no right to.
pub fn enable_redirected_datagrams(socket: &impl AsFd, is_ipv4: bool) -> io::Result<()> {
    let (level, transparent, destination) = if is_ipv4 {
        (libc::SOL_IP, libc::IP_TRANSPARENT, libc::IP_RECVORIGDSTADDR)
    } else {
        let options = (libc::IPV6_TRANSPARENT, libc::IPV6_RECVORIGDSTADDR);
        (libc::SOL_IPV6, options.0, options.1)
    };
    set_option(socket, level, transparent, 1)?;
    set_option(socket, level, destination, 1)?;
    set_option(socket, libc::SOL_SOCKET, libc::SO_RCVMARK, 1)
}

/// Gives a socket room for so many bytes that wait to be read, beyond what the host allows without a right.
///
/// # Errors
/// If the process has no right to (`CAP_NET_ADMIN`).
pub fn force_receive_buffer(socket: &impl AsFd, bytes: usize) -> io::Result<()> {
    Ok(setsockopt(&socket.as_fd(), RcvBufForce, &bytes)?)
}

/// Receives a datagram from a socket of [`enable_redirected_datagrams`].
///
/// # Errors
/// If there is none and the socket does not block, or the kernel does not say where it was sent to.
pub fn receive_datagram(socket: &impl AsFd, buffer: &mut [u8]) -> io::Result<ReceivedDatagram> {
    let mut slices = [IoSliceMut::new(buffer)];
    let mut control = nix::cmsg_space!(libc::sockaddr_in6, u32);
    let message = recvmsg::<SockaddrStorage>(
        socket.as_fd().as_raw_fd(),
        &mut slices,
        Some(&mut control),
        MsgFlags::empty(),
    )?;
    let source = message.address.as_ref().and_then(socket_address);
    let (mut destination, mut mark) = (None, None);
    for control in message.cmsgs()? {
        match control {
            ControlMessageOwned::Ipv4OrigDstAddr(address) => {
                destination = Some(SocketAddrV4::from(SockaddrIn::from(address)).into());
            }
            ControlMessageOwned::Ipv6OrigDstAddr(address) => {
                destination = Some(SocketAddrV6::from(SockaddrIn6::from(address)).into());
            }
            ControlMessageOwned::Unknown(unknown)
                if unknown.cmsg_header.cmsg_level == libc::SOL_SOCKET
                    && unknown.cmsg_header.cmsg_type == libc::SO_MARK =>
            {
                let bytes = unknown.data_bytes.get(..4).and_then(|b| b.try_into().ok());
                mark = bytes.map(u32::from_ne_bytes);
            }
            _ => {}
        }
    }
    let missing = |part| {
        let text = format!("a datagram without its {part}");
        io::Error::new(io::ErrorKind::InvalidData, text)
    };
    Ok(ReceivedDatagram {
        length: message.bytes,
        source: source.ok_or_else(|| missing("source"))?,
        destination: destination.ok_or_else(|| missing("destination"))?,
        mark: mark.ok_or_else(|| missing("mark"))?,
    })
}

fn socket_address(address: &SockaddrStorage) -> Option<SocketAddr> {
    let v4 = address.as_sockaddr_in().map(|v4| SocketAddrV4::from(*v4));
    let v6 = address.as_sockaddr_in6().map(|v6| SocketAddrV6::from(*v6));
    v4.map(SocketAddr::V4).or(v6.map(SocketAddr::V6))
}

/// Sends datagrams from any address and port.
///
/// It uses raw sockets: a socket that is bound to the address and port of a server would receive the packets to that
/// server, or could not be bound beside it.
#[derive(Debug)]
pub struct DatagramSender {
    v4: OwnedFd,
    /// `None` if the kernel has no IPv6.
    v6: Option<OwnedFd>,
}

impl DatagramSender {
    /// Opens the sockets in the network namespace of this thread; what they send has this mark.
    ///
    /// # Errors
    /// If the process has no right to (`CAP_NET_RAW`, `CAP_NET_ADMIN`).
    pub fn open(mark: u32) -> io::Result<Self> {
        let v4 = open_raw(AddressFamily::Inet)?;
        set_mark(&v4, mark)?;
        set_option(&v4, libc::SOL_IP, libc::IP_TRANSPARENT, 1)?;
        let address = SockaddrIn::from(SocketAddrV4::new(UNUSED_V4, 0));
        bind(v4.as_raw_fd(), &address)?;
        let v6 = match open_raw(AddressFamily::Inet6) {
            Err(error) if error.raw_os_error() == Some(libc::EAFNOSUPPORT) => None,
            v6 => Some(v6?),
        };
        if let Some(v6) = &v6 {
            set_mark(v6, mark)?;
            set_option(v6, libc::SOL_IPV6, libc::IPV6_TRANSPARENT, 1)?;
            let address = SockaddrIn6::from(SocketAddrV6::new(UNUSED_V6, 0, 0, 0));
            bind(v6.as_raw_fd(), &address)?;
        }
        Ok(DatagramSender { v4, v6 })
    }

    /// Sends one datagram.
    ///
    /// # Errors
    /// If both addresses are not of one family, the datagram is too long, there is no route, or the queue is full.
    pub fn send(&self, source: SocketAddr, to: SocketAddr, payload: &[u8]) -> io::Result<()> {
        let header = udp_header(source, to, payload)?;
        let slices = [IoSlice::new(&header), IoSlice::new(payload)];
        match (source, to, &self.v6) {
            (SocketAddr::V4(source), SocketAddr::V4(to), _) => {
                let information = libc::in_pktinfo {
                    ipi_ifindex: 0,
                    ipi_spec_dst: libc::in_addr {
                        s_addr: u32::from_ne_bytes(source.ip().octets()),
                    },
                    ipi_addr: libc::in_addr { s_addr: 0 },
                };
                let control = [ControlMessage::Ipv4PacketInfo(&information)];
                let to = SockaddrIn::from(SocketAddrV4::new(*to.ip(), 0));
                let fd = self.v4.as_raw_fd();
                sendmsg(fd, &slices, &control, MsgFlags::MSG_DONTWAIT, Some(&to))?;
            }
            (SocketAddr::V6(source), SocketAddr::V6(to), Some(v6)) => {
                let information = libc::in6_pktinfo {
                    ipi6_addr: libc::in6_addr {
                        s6_addr: source.ip().octets(),
                    },
                    ipi6_ifindex: 0,
                };
                let control = [ControlMessage::Ipv6PacketInfo(&information)];
                // A port other than 0 would be read as a protocol.
                let to = SockaddrIn6::from(SocketAddrV6::new(*to.ip(), 0, 0, to.scope_id()));
                let fd = v6.as_raw_fd();
                sendmsg(fd, &slices, &control, MsgFlags::MSG_DONTWAIT, Some(&to))?;
            }
            _ => return Err(Errno::EAFNOSUPPORT.into()),
        }
        Ok(())
    }
}

fn open_raw(family: AddressFamily) -> io::Result<OwnedFd> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    Ok(socket(family, SockType::Raw, flags, SockProtocol::Udp)?)
}

fn set_mark(socket: &impl AsFd, mark: u32) -> io::Result<()> {
    set_option(socket, libc::SOL_SOCKET, libc::SO_MARK, mark.cast_signed())
}

fn set_option(
    socket: &impl AsFd,
    level: libc::c_int,
    option: libc::c_int,
    value: libc::c_int,
) -> io::Result<()> {
    let length = libc::socklen_t::try_from(size_of_val(&value)).map_err(io::Error::other)?;
    // SAFETY: the pointer is valid for `length` bytes, and the kernel only reads them.
    let code = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            level,
            option,
            (&raw const value).cast(),
            length,
        )
    };
    Errno::result(code)?;
    Ok(())
}

/// The header of UDP with its checksum. Sources: RFC 768; RFC 8200, section 8.1.
fn udp_header(source: SocketAddr, to: SocketAddr, payload: &[u8]) -> io::Result<[u8; HEADER]> {
    let length = u16::try_from(HEADER + payload.len()).map_err(|_| Errno::EMSGSIZE)?;
    let mut header = [0; HEADER];
    header[0..2].copy_from_slice(&source.port().to_be_bytes());
    header[2..4].copy_from_slice(&to.port().to_be_bytes());
    header[4..6].copy_from_slice(&length.to_be_bytes());
    let mut sum = u64::from(UDP) + u64::from(length);
    for address in [source.ip(), to.ip()] {
        sum += match address {
            IpAddr::V4(v4) => sum_of_words(&v4.octets()),
            IpAddr::V6(v6) => sum_of_words(&v6.octets()),
        };
    }
    sum += sum_of_words(&header) + sum_of_words(payload);
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    // Zero stands for no checksum.
    let checksum = match !u16::try_from(sum).unwrap_or_default() {
        0 => 0xffff,
        checksum => checksum,
    };
    header[6..8].copy_from_slice(&checksum.to_be_bytes());
    Ok(header)
}

fn sum_of_words(bytes: &[u8]) -> u64 {
    let words = bytes.chunks(2).map(|word| {
        let low = word.get(1).copied().unwrap_or_default();
        u64::from(u16::from_be_bytes([word[0], low]))
    });
    words.sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_has_the_checksum_of_the_standard() {
        let address = |text: &str| text.parse::<SocketAddr>().unwrap();
        // By hand: 0xc000+0x0201+0xc000+0x0202+17+11+53+5353+11+0x6162+0x6300.
        let header = udp_header(address("192.0.2.1:53"), address("192.0.2.2:5353"), b"abc");
        let sum: u32 =
            0xc000 + 0x0201 + 0xc000 + 0x0202 + 17 + 11 + 53 + 5353 + 11 + 0x6162 + 0x6300;
        let checksum = !u16::try_from((sum & 0xffff) + (sum >> 16)).unwrap();
        let [high, low] = checksum.to_be_bytes();
        assert_eq!(header.unwrap(), [0, 53, 0x14, 0xe9, 0, 11, high, low]);
        let long = vec![0; 65_528];
        let error = udp_header(address("[::1]:1"), address("[::1]:2"), &long).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EMSGSIZE));
    }
}
