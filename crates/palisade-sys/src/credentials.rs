//! Who is at the other end of a unix socket.
//!
//! Promises: the kernel's word as of when the connection was made, so a process
//! that has since changed its groups, ended, or given its number away changes
//! nothing. Never: a number the peer could have chosen.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use nix::sys::socket::getsockopt;
use nix::sys::socket::sockopt::PeerCredentials;

/// The process that connected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SocketCredentials {
    /// Its process number.
    pub pid: i32,
    /// Its user.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
    /// Its supplementary groups.
    pub groups: Vec<u32>,
}

/// The peer of a connected unix stream socket.
///
/// # Errors
/// If it is no connected unix socket.
pub fn peer_credentials(socket: &impl AsFd) -> io::Result<SocketCredentials> {
    let credentials = getsockopt(&socket.as_fd(), PeerCredentials)?;
    Ok(SocketCredentials {
        pid: credentials.pid(),
        uid: credentials.uid(),
        gid: credentials.gid(),
        groups: supplementary_groups(socket)?,
    })
}

/// The user this process acts as.
pub fn effective_uid() -> u32 {
    nix::unistd::geteuid().as_raw()
}

/// The supplementary groups, from the socket and not from `/proc`, where the process of that number
/// may be another one by now.
fn supplementary_groups(socket: &impl AsFd) -> io::Result<Vec<u32>> {
    // The kernel says how much room it needs where there is too little.
    let mut groups: Vec<libc::gid_t> = vec![0; 32];
    loop {
        let room = groups.len() * size_of::<libc::gid_t>();
        let mut length = libc::socklen_t::try_from(room).map_err(io::Error::other)?;
        // SAFETY: the pointer is valid for `length` bytes, and the kernel writes no more than that.
        let failed = unsafe {
            libc::getsockopt(
                socket.as_fd().as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_PEERGROUPS,
                groups.as_mut_ptr().cast(),
                &raw mut length,
            )
        } != 0;
        let needed = length as usize / size_of::<libc::gid_t>();
        if !failed {
            groups.truncate(needed);
            return Ok(groups);
        }
        let error = io::Error::last_os_error();
        if error.raw_os_error() != Some(libc::ERANGE) || needed <= groups.len() {
            return Err(error);
        }
        groups.resize(needed, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pair_is_this_process() {
        let (a, _b) = std::os::unix::net::UnixStream::pair().unwrap();
        let peer = peer_credentials(&a).unwrap();
        assert_eq!(peer.pid, i32::try_from(std::process::id()).unwrap());
        assert_eq!(peer.uid, nix::unistd::getuid().as_raw());
        let mine = nix::unistd::getgroups().unwrap();
        let mine: Vec<u32> = mine.into_iter().map(nix::unistd::Gid::as_raw).collect();
        assert_eq!(peer.groups, mine);
    }
}
