//! Hands the listening sockets to the next process, so that an upgrade of the proxy loses no query.
//!
//! The successor connects to a socket with a known path, receives the listening sockets, and says when it serves; only
//! then the predecessor stops. Promises: at each moment a process serves the listening sockets. Never: hands them to
//! another user's process: the socket is its owner's alone.

use crate::private_socket::bind_private;
use crate::{HandoverError, Listeners};
use std::io::{self, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::Duration;

/// What the successor sends once it serves.
const SERVING: u8 = b'1';
/// How long either process waits for the other.
const PATIENCE: Duration = Duration::from_secs(5);

/// The socket at which a successor asks for the listening sockets.
#[derive(Debug)]
pub struct HandoverListener {
    listener: UnixListener,
}

/// The process that served until now, and waits until this one does.
#[derive(Debug)]
pub struct Predecessor(UnixStream);

impl HandoverListener {
    /// Makes the socket; one of a former process is replaced.
    ///
    /// # Errors
    /// If it cannot be made.
    pub fn bind(path: &Path) -> Result<Self, HandoverError> {
        let failure = |source| HandoverError::Bind {
            path: path.to_owned(),
            source,
        };
        let listener = bind_private(path).map_err(failure)?;
        Ok(HandoverListener { listener })
    }

    /// Waits for a successor, gives it the sockets, and returns once it serves them. One that does not get so far is
    /// forgotten, and the next is waited for.
    ///
    /// # Errors
    /// If no connection can be accepted.
    pub fn hand_over(&self, listeners: &Listeners) -> io::Result<()> {
        loop {
            let (successor, _) = self.listener.accept()?;
            match give(&successor, listeners) {
                Ok(()) => return Ok(()),
                Err(error) => {
                    tracing::warn!(%error, "a process asked for the listening sockets and does not serve them");
                }
            }
        }
    }
}

fn give(mut successor: &UnixStream, listeners: &Listeners) -> io::Result<()> {
    successor.set_read_timeout(Some(PATIENCE))?;
    successor.set_write_timeout(Some(PATIENCE))?;
    listeners.send(successor)?;
    let mut answer = [0];
    successor.read_exact(&mut answer)?;
    match answer {
        [SERVING] => Ok(()),
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}

/// Asks the process that serves now for its listening sockets; `None` if there is none.
///
/// # Errors
/// If there is one and it does not give them.
pub fn take_over(path: &Path) -> Result<Option<(Listeners, Predecessor)>, HandoverError> {
    let failure = |source| HandoverError::Receive {
        path: path.to_owned(),
        source,
    };
    let stream = match UnixStream::connect(path) {
        Ok(stream) => stream,
        Err(error) => {
            let is_absent = [io::ErrorKind::NotFound, io::ErrorKind::ConnectionRefused];
            return if is_absent.contains(&error.kind()) {
                Ok(None)
            } else {
                Err(failure(error))
            };
        }
    };
    stream.set_read_timeout(Some(PATIENCE)).map_err(failure)?;
    let listeners = Listeners::receive(&stream).map_err(failure)?;
    Ok(Some((listeners, Predecessor(stream))))
}

impl Predecessor {
    /// This process serves: the other may stop.
    pub fn release(mut self) {
        // It is gone if this fails.
        let _ = self.0.write_all(&[SERVING]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, TcpListener, UdpSocket};
    use std::os::unix::fs::PermissionsExt;

    fn listeners() -> Listeners {
        let loopback = (Ipv4Addr::LOCALHOST, 0);
        Listeners {
            udp: vec![UdpSocket::bind(loopback).unwrap()],
            tcp: vec![TcpListener::bind(loopback).unwrap()],
        }
    }

    #[test]
    fn a_successor_has_the_sockets_and_the_predecessor_waits_until_it_serves() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("handover.sock");
        assert!(take_over(&path).unwrap().is_none());
        let own = listeners();
        let handover = HandoverListener::bind(&path).unwrap();
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let address = own.udp[0].local_addr().unwrap();
        let thread = std::thread::spawn(move || handover.hand_over(&own));
        // The first goes away without serving.
        drop(take_over(&path).unwrap().unwrap());
        let (received, predecessor) = take_over(&path).unwrap().unwrap();
        assert_eq!(received.udp[0].local_addr().unwrap(), address);
        assert!(!thread.is_finished());
        predecessor.release();
        thread.join().unwrap().unwrap();
        assert!(
            take_over(&path).unwrap().is_none(),
            "nobody serves the socket"
        );
    }
}
