//! Sockets towards servers, which have the client's own address.
//!
//! Promises: a server sees who asked; packets have the mark by which the kernel knows them again. The port is one that
//! the kernel chooses: with the client's own, a packet from the server to the client could be taken for one to the
//! proxy.
//!
//! Never: blocks.

use palisade_dns::Exchange;
use palisade_sys::transparent::force_receive_buffer;
use socket2::{Domain, Protocol, SockAddr, Socket, Type};
use std::io;
use std::net::SocketAddr;
use tokio::net::{TcpSocket, UdpSocket};

/// The bytes of answers that may wait to be read: those of a thousand queries sent at once.
const RECEIVE_BUFFER: usize = 1024 * 1024;

/// A socket for the queries of a client to a server over UDP.
pub(crate) fn open_datagram_socket(exchange: Exchange, mark: u32) -> io::Result<UdpSocket> {
    let socket = open_client_socket(exchange, Type::DGRAM, Protocol::UDP, mark)?;
    force_receive_buffer(&socket, RECEIVE_BUFFER)?;
    socket.connect(&SockAddr::from(exchange.server))?;
    UdpSocket::from_std(socket.into())
}

/// The same for TCP, not connected yet.
pub(crate) fn open_stream_socket(exchange: Exchange, mark: u32) -> io::Result<TcpSocket> {
    let socket = open_client_socket(exchange, Type::STREAM, Protocol::TCP, mark)?;
    socket.set_tcp_nodelay(true)?;
    Ok(TcpSocket::from_std_stream(socket.into()))
}

fn open_client_socket(
    exchange: Exchange,
    kind: Type,
    protocol: Protocol,
    mark: u32,
) -> io::Result<Socket> {
    let mut client = exchange.client;
    client.set_port(0);
    let socket = Socket::new(Domain::for_address(client), kind, Some(protocol))?;
    socket.set_nonblocking(true)?;
    match client {
        SocketAddr::V4(_) => socket.set_ip_transparent_v4(true)?,
        SocketAddr::V6(_) => {
            socket.set_only_v6(true)?;
            socket.set_ip_transparent_v6(true)?;
        }
    }
    socket.set_mark(mark)?;
    socket.bind(&SockAddr::from(client))?;
    Ok(socket)
}
