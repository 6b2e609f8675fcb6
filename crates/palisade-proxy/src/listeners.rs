//! The listening sockets: one for each family and protocol, on loopback.
//!
//! Promises: packets that the kernel redirects arrive, with their destination and mark; they can be handed to a
//! successor, so that no query is lost between the two.
//!
//! Never: takes a packet that was not redirected, other than from the host itself.

use crate::{Config, ProxyError};
use palisade_sys::descriptor_passing::{receive_descriptors, send_descriptors};
use palisade_sys::transparent::{enable_redirected_datagrams, force_receive_buffer};
use socket2::{Domain, Protocol, SockAddr, Socket, Type};
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, UdpSocket};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

/// The bytes of queries that may wait to be read.
const RECEIVE_BUFFER: usize = 4 * 1024 * 1024;
/// Connections that may wait to be accepted.
const BACKLOG: i32 = 1_024;

/// The listening sockets.
#[derive(Debug, Default)]
pub struct Listeners {
    /// For UDP.
    pub udp: Vec<UdpSocket>,
    /// For TCP.
    pub tcp: Vec<TcpListener>,
}

impl Listeners {
    /// The same sockets once more: [`crate::Proxy::start`] takes its own.
    ///
    /// # Errors
    /// If there are no descriptors left.
    pub fn try_clone(&self) -> io::Result<Listeners> {
        let udp = self.udp.iter().map(UdpSocket::try_clone);
        let tcp = self.tcp.iter().map(TcpListener::try_clone);
        Ok(Listeners {
            udp: udp.collect::<io::Result<_>>()?,
            tcp: tcp.collect::<io::Result<_>>()?,
        })
    }

    /// Sends these sockets to a successor, which serves beside this process until this one stops.
    ///
    /// # Errors
    /// If the other end is closed.
    pub fn send(&self, successor: &UnixStream) -> io::Result<()> {
        let udp = self.udp.iter().map(AsFd::as_fd);
        let tcp = self.tcp.iter().map(AsFd::as_fd);
        let descriptors: Vec<_> = udp.chain(tcp).collect();
        send_descriptors(successor, &descriptors)
    }

    /// Waits for the sockets of a predecessor.
    ///
    /// # Errors
    /// If the other end is closed, or sends something else than listening sockets.
    pub fn receive(predecessor: &UnixStream) -> io::Result<Listeners> {
        let mut listeners = Listeners::default();
        for descriptor in receive_descriptors(predecessor)? {
            let socket = Socket::from(descriptor);
            let is_internet = socket.local_addr()?.as_socket().is_some();
            match socket.r#type()? {
                Type::DGRAM if is_internet => listeners.udp.push(socket.into()),
                Type::STREAM if is_internet && socket.is_listener()? => {
                    listeners.tcp.push(socket.into());
                }
                _ => return Err(io::ErrorKind::InvalidData.into()),
            }
        }
        Ok(listeners)
    }
}

/// Makes the listening sockets in the network namespace of this thread. A host without IPv6 has those of IPv4 only.
///
/// # Errors
/// If one cannot be made: the port is taken, or a right is missing.
pub fn bind(config: &Config) -> Result<Listeners, ProxyError> {
    let mut listeners = Listeners::default();
    let addresses = [Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()];
    for address in addresses.map(|address| SocketAddr::new(address, config.port)) {
        let failure = |protocol| {
            move |source| ProxyError::Listen {
                protocol,
                address,
                source,
            }
        };
        match listen_for_datagrams(address) {
            Err(error) if address.is_ipv6() && is_without_ipv6(&error) => continue,
            socket => listeners.udp.push(socket.map_err(failure("UDP"))?),
        }
        let listener = listen_for_connections(address).map_err(failure("TCP"))?;
        listeners.tcp.push(listener);
    }
    Ok(listeners)
}

fn is_without_ipv6(error: &io::Error) -> bool {
    use palisade_sys::Errno;
    let codes = [Errno::EAFNOSUPPORT, Errno::EADDRNOTAVAIL].map(|errno| Some(errno as i32));
    codes.contains(&error.raw_os_error())
}

fn listen_for_datagrams(address: SocketAddr) -> io::Result<UdpSocket> {
    let socket = open_socket(address, Type::DGRAM, Protocol::UDP)?;
    force_receive_buffer(&socket, RECEIVE_BUFFER)?;
    enable_redirected_datagrams(&socket, address.is_ipv4())?;
    socket.bind(&SockAddr::from(address))?;
    Ok(socket.into())
}

fn listen_for_connections(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = open_socket(address, Type::STREAM, Protocol::TCP)?;
    socket.set_reuse_address(true)?;
    match address {
        SocketAddr::V4(_) => socket.set_ip_transparent_v4(true)?,
        SocketAddr::V6(_) => socket.set_ip_transparent_v6(true)?,
    }
    socket.bind(&SockAddr::from(address))?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

fn open_socket(address: SocketAddr, kind: Type, protocol: Protocol) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), kind, Some(protocol))?;
    socket.set_nonblocking(true)?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_successor_has_the_same_sockets() {
        let loopback = (Ipv4Addr::LOCALHOST, 0);
        let listeners = Listeners {
            udp: vec![UdpSocket::bind(loopback).unwrap()],
            tcp: vec![TcpListener::bind(loopback).unwrap()],
        };
        let (near, far) = UnixStream::pair().unwrap();
        listeners.send(&near).unwrap();
        let received = Listeners::receive(&far).unwrap();
        let addresses = |listeners: &Listeners| {
            let udp = listeners.udp[0].local_addr().unwrap();
            (udp, listeners.tcp[0].local_addr().unwrap())
        };
        assert_eq!(addresses(&received), addresses(&listeners));
        // What is no listening socket is refused.
        send_descriptors(&near, &[near.as_fd()]).unwrap();
        let error = Listeners::receive(&far).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    }
}
