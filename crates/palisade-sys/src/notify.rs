//! Service manager notifications: status lines to a datagram socket.
//!
//! Source: sd_notify(3). Promises: never blocks; without a manager, nothing is sent. Never: reads the
//! environment; the address is an argument.

use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

/// The notification socket of a service manager.
#[derive(Debug, Default)]
pub struct Notifier {
    socket: Option<(UnixDatagram, SocketAddr)>,
}

impl Notifier {
    /// Connects to the address in `NOTIFY_SOCKET`: a path, or an abstract name after `@`.
    ///
    /// # Errors
    /// If the address is neither.
    pub fn connect(address: &str) -> io::Result<Self> {
        let address = match address.as_bytes() {
            [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
            [b'/', ..] => SocketAddr::from_pathname(address)?,
            _ => return Err(io::ErrorKind::InvalidInput.into()),
        };
        let socket = UnixDatagram::unbound()?;
        socket.set_nonblocking(true)?;
        Ok(Notifier {
            socket: Some((socket, address)),
        })
    }

    /// Sends lines of `NAME=value`.
    ///
    /// # Errors
    /// If the manager's socket is closed or full.
    pub fn notify(&self, lines: &str) -> io::Result<()> {
        match &self.socket {
            Some((socket, address)) => socket.send_to_addr(lines.as_bytes(), address).map(drop),
            None => Ok(()),
        }
    }
}

/// `CLOCK_MONOTONIC` in microseconds, the unit of `MONOTONIC_USEC=`.
///
/// # Errors
/// If the clock cannot be read.
pub fn monotonic_micros() -> io::Result<u64> {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC)?;
    let micros = now.tv_sec() * 1_000_000 + now.tv_nsec() / 1_000;
    u64::try_from(micros).map_err(io::Error::other)
}

/// When `CLOCK_MONOTONIC` was 0, since the Unix epoch, as `CLOCK_REALTIME` is now.
///
/// # Errors
/// If a clock cannot be read.
pub fn monotonic_origin() -> io::Result<Duration> {
    let real = Duration::from(clock_gettime(ClockId::CLOCK_REALTIME)?);
    let monotonic = Duration::from(clock_gettime(ClockId::CLOCK_MONOTONIC)?);
    Ok(real.saturating_sub(monotonic))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manager_hears_it_by_path_and_by_name() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("notify");
        let name = format!("palisade-test-{}", std::process::id());
        let by_name = SocketAddr::from_abstract_name(&name).unwrap();
        for (listener, address) in [
            (
                UnixDatagram::bind(&path).unwrap(),
                path.display().to_string(),
            ),
            (
                UnixDatagram::bind_addr(&by_name).unwrap(),
                format!("@{name}"),
            ),
        ] {
            Notifier::connect(&address)
                .unwrap()
                .notify("READY=1\nSTATUS=x")
                .unwrap();
            let mut text = [0; 64];
            let length = listener.recv(&mut text).unwrap();
            assert_eq!(&text[..length], b"READY=1\nSTATUS=x");
        }
        assert!(Notifier::connect("somewhere").is_err());
        Notifier::default().notify("READY=1").unwrap();
        let before = monotonic_micros().unwrap();
        assert!(before > 0 && monotonic_micros().unwrap() >= before);
    }
}
