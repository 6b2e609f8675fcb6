//! Probes with real packets: one TCP connection, one datagram or one ping, answered or not.
//!
//! A denied packet is dropped silently, so a timeout counts as denied. Any other failure is reported as an
//! error and never counted as denied.

use palisade_sys::icmp::{IpVersion, icmp_socket};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket as StdUdpSocket};
use std::time::Duration;
use tokio::net::{TcpStream, UdpSocket};

/// Timeouts of the first and the second attempt.
const ATTEMPTS: [Duration; 2] = [Duration::from_millis(300), Duration::from_millis(700)];

/// Kind of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ProbeKind {
    /// A TCP connection with one byte in each direction.
    Tcp,
    /// A UDP datagram in each direction.
    Udp,
    /// An ICMP or ICMPv6 echo request and its reply.
    Ping,
}

/// One probe to run.
#[derive(Clone, Copy, Debug)]
pub(super) struct ProbeTarget {
    /// Destination address.
    pub(super) to: IpAddr,
    /// Kind.
    pub(super) kind: ProbeKind,
    /// Destination port, if the kind has ports.
    pub(super) port: u16,
}

/// Whether a reply arrived. `number` distinguishes concurrent pings of one network namespace.
pub(super) async fn is_answered(target: ProbeTarget, number: u16) -> io::Result<bool> {
    for limit in ATTEMPTS {
        match tokio::time::timeout(limit, attempt(target, number)).await {
            Ok(answered) => return answered.map(|()| true),
            Err(_) => continue,
        }
    }
    Ok(false)
}

async fn attempt(target: ProbeTarget, number: u16) -> io::Result<()> {
    let to = SocketAddr::new(target.to, target.port);
    match target.kind {
        ProbeKind::Tcp => {
            let stream = TcpStream::connect(to).await?;
            exchange(&stream).await
        }
        ProbeKind::Udp => {
            let socket = UdpSocket::bind(SocketAddr::new(any(target.to), 0)).await?;
            socket.connect(to).await?;
            socket.send(b"p").await?;
            socket.recv(&mut [0; 16]).await.map(drop)
        }
        ProbeKind::Ping => ping(target.to, number).await,
    }
}

fn any(like: IpAddr) -> IpAddr {
    match like {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    }
}

/// Sends one byte and waits for its echo.
pub(super) async fn exchange(stream: &TcpStream) -> io::Result<()> {
    loop {
        stream.writable().await?;
        match stream.try_write(b"p") {
            Ok(_) => break,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    loop {
        stream.readable().await?;
        match stream.try_read(&mut [0; 16]) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(_) => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
}

async fn ping(to: IpAddr, number: u16) -> io::Result<()> {
    let (version, request, reply) = match to {
        IpAddr::V4(_) => (IpVersion::V4, 8, 0),
        IpAddr::V6(_) => (IpVersion::V6, 128, 129),
    };
    let socket = UdpSocket::from_std(StdUdpSocket::from(icmp_socket(version)?))?;
    socket.connect(SocketAddr::new(to, 0)).await?;
    socket.send(&echo(request, number)).await?;
    let mut buffer = [0; 128];
    loop {
        let length = socket.recv(&mut buffer).await?;
        let packet = &buffer[..length];
        let message = match to {
            IpAddr::V4(_) => packet
                .first()
                .and_then(|first| packet.get(usize::from(first & 0x0f) * 4..)),
            IpAddr::V6(_) => Some(packet),
        };
        let ours = |m: &[u8]| m.len() >= 8 && m[0] == reply && m[4..6] == number.to_be_bytes();
        if message.is_some_and(ours) {
            return Ok(());
        }
    }
}

/// An ICMP echo message of this type; the identifier distinguishes it from those of other programs.
fn echo(kind: u8, identifier: u16) -> [u8; 16] {
    let mut message = [0; 16];
    message[0] = kind;
    message[4..6].copy_from_slice(&identifier.to_be_bytes());
    message[8..].copy_from_slice(b"palisade");
    // For ICMPv6 the kernel computes the checksum, since it covers addresses that are unknown here.
    let sum: u32 = message
        .chunks_exact(2)
        .map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])))
        .sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    let folded = (folded & 0xffff) + (folded >> 16);
    let checksum = !u16::try_from(folded).unwrap_or(u16::MAX);
    message[2..4].copy_from_slice(&checksum.to_be_bytes());
    message
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_echo_message_adds_up_to_all_ones() {
        let message = echo(8, 0xbeef);
        let sum: u32 = message
            .chunks_exact(2)
            .map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])))
            .sum();
        assert_eq!((sum & 0xffff) + (sum >> 16), 0xffff);
        assert_eq!((message[0], &message[4..6]), (8, &[0xbe, 0xef][..]));
    }
}
