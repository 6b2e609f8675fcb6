//! The TCP connections of this host, from the kernel's list of sockets.
//!
//! Promises: a connection is inbound if the host listens at its port; its interface is that by which packets to the
//! other end leave. Never: names a connection within the host.

use palisade_enforcer::cut_connections::{ConnectionsError, TcpConnection};
use palisade_sys::link::KernelLinks;
use procfs::net::{TcpNetEntry, TcpState, tcp, tcp6};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

/// The greatest number of other ends that the kernel is asked the route to.
const MAX_PEERS: usize = 4_096;

/// Reads the connections.
pub(crate) fn read(links: &mut KernelLinks) -> Result<Vec<TcpConnection>, ConnectionsError> {
    let mut sockets = tcp().map_err(ConnectionsError::Sockets)?;
    // A kernel without IPv6 has no such file.
    sockets.extend(tcp6().unwrap_or_default());
    let is_listening = |socket: &&TcpNetEntry| socket.state == TcpState::Listen;
    let listening = sockets.iter().filter(is_listening);
    let served: BTreeSet<u16> = listening
        .map(|socket| socket.local_address.port())
        .collect();
    let mut interfaces: BTreeMap<IpAddr, Option<String>> = BTreeMap::new();
    let mut connections = Vec::new();
    for socket in sockets {
        let local = canonical(socket.local_address);
        let remote = canonical(socket.remote_address);
        let is_within = remote.ip().is_loopback() || remote.ip() == local.ip();
        if socket.state != TcpState::Established || is_within {
            continue;
        }
        let interface = match interfaces.get(&remote.ip()) {
            Some(known) => known.clone(),
            None if interfaces.len() == MAX_PEERS => break,
            None => {
                let found = links.route_to(remote.ip())?.and_then(|route| route.link);
                interfaces.insert(remote.ip(), found.clone());
                found
            }
        };
        if let Some(interface) = interface {
            connections.push(TcpConnection {
                local,
                remote,
                is_inbound: served.contains(&local.port()),
                interface: interface.as_str().into(),
            });
        }
    }
    Ok(connections)
}

/// The address as its packets have it.
fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}
