//! Credentials of the peer of a unix socket.
//!
//! Promises: the credentials are those that the kernel recorded when the connection was made. A later change
//! of the peer's groups, its exit, or the reuse of its pid has no effect. Never: returns a value that the
//! peer could have chosen.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use nix::sys::socket::getsockopt;
use nix::sys::socket::sockopt::PeerCredentials;

/// Credentials of the process that connected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SocketCredentials {
    /// Process id.
    pub pid: i32,
    /// Effective user id.
    pub uid: u32,
    /// Effective group id.
    pub gid: u32,
    /// Supplementary groups.
    pub groups: Vec<u32>,
}

/// Credentials of the peer of a connected unix stream socket.
///
/// # Errors
/// If the socket is not a connected unix socket.
pub fn peer_credentials(socket: &impl AsFd) -> io::Result<SocketCredentials> {
    let credentials = getsockopt(&socket.as_fd(), PeerCredentials)?;
    Ok(SocketCredentials {
        pid: credentials.pid(),
        uid: credentials.uid(),
        gid: credentials.gid(),
        groups: supplementary_groups(socket)?,
    })
}

/// The effective user id of this process.
pub fn effective_uid() -> u32 {
    nix::unistd::geteuid().as_raw()
}

/// The supplementary groups, from the socket and not from `/proc`, where the pid may already belong to
/// another process.
fn supplementary_groups(socket: &impl AsFd) -> io::Result<Vec<u32>> {
    // If the buffer is too small, the kernel returns the size that is needed.
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
