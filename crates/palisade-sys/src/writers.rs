//! Regular files opened for reading, with an answer to who else is writing them.
//!
//! Promises: opening never waits, not even where a pipe has taken the file's
//! place; what is not a regular file is refused; asking disturbs no writer and
//! sends no signal that anything reacts to. Never: changes a file.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Says by which signal a lease is called back. Source: Linux, uapi/asm-generic/fcntl.h.
const F_SETSIG: libc::c_int = 10;

/// Whether somebody has a file open for writing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriterPresence {
    /// Nobody.
    Absent,
    /// Somebody.
    Present,
    /// The kernel does not say: the file is someone else's, or its filesystem knows no leases.
    Unknown,
}

/// Opens a regular file for reading, without waiting.
///
/// # Errors
/// That of opening; [`io::ErrorKind::InvalidInput`] if it is not a regular file.
pub fn open_regular(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY)
        .open(path)?;
    if file.metadata()?.is_file() {
        Ok(file)
    } else {
        let reason = "it is not a regular file";
        Err(io::Error::new(io::ErrorKind::InvalidInput, reason))
    }
}

/// Whether somebody has this file, itself open for reading only, open for writing now.
#[must_use]
pub fn detect_writers(file: &File) -> WriterPresence {
    let fd = file.as_raw_fd();
    // A read lease is given only while nobody writes. Should a writer come in the moment it is held,
    // the kernel makes it wait until the lease is given back just below, and tells us by a signal:
    // this one, which processes ignore unless they ask for it, in the place of SIGIO, which kills.
    // SAFETY: takes a number, no pointer.
    if unsafe { libc::fcntl(fd, F_SETSIG, libc::SIGURG) } != 0 {
        return WriterPresence::Unknown;
    }
    // SAFETY: takes a number, no pointer.
    if unsafe { libc::fcntl(fd, libc::F_SETLEASE, libc::F_RDLCK) } == 0 {
        // Fails only if there is no lease, and then there is nothing to give back.
        // SAFETY: takes a number, no pointer.
        unsafe { libc::fcntl(fd, libc::F_SETLEASE, libc::F_UNLCK) };
        return WriterPresence::Absent;
    }
    match io::Error::last_os_error().raw_os_error() {
        Some(libc::EAGAIN) => WriterPresence::Present,
        _ => WriterPresence::Unknown,
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "tests write files as editors do")]
mod tests {
    use super::*;

    #[test]
    fn a_writer_is_seen_while_it_has_the_file_open() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        let writer = File::create(&path).unwrap();
        let file = open_regular(&path).unwrap();
        assert_eq!(detect_writers(&file), WriterPresence::Present);
        drop(writer);
        assert_eq!(detect_writers(&file), WriterPresence::Absent);
        let appending = OpenOptions::new().append(true).open(&path).unwrap();
        assert_eq!(detect_writers(&file), WriterPresence::Present);
        drop(appending);
        assert_eq!(detect_writers(&file), WriterPresence::Absent);
        let _reader = File::open(&path).unwrap();
        assert_eq!(detect_writers(&file), WriterPresence::Absent);
    }

    #[test]
    fn what_is_not_a_file_is_refused_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let pipe = dir.path().join("pipe");
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::from_bits_truncate(0o600)).unwrap();
        for path in [pipe.as_path(), Path::new("/dev/null"), dir.path()] {
            let error = open_regular(path).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{path:?}");
        }
    }
}
