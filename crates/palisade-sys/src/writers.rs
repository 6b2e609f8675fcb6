//! Opens regular files for reading and detects whether another process has them open for writing.
//!
//! Promises: opening never blocks, not even if the path is now a pipe; a file that is not regular is
//! rejected; detection does not delay a writer noticeably and sends no signal that a process reacts to.
//! Never: changes a file.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Sets the signal for a lease break. Source: Linux, uapi/asm-generic/fcntl.h.
const F_SETSIG: libc::c_int = 10;

/// Whether a process has a file open for writing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriterPresence {
    /// No process.
    Absent,
    /// At least one process.
    Present,
    /// The kernel cannot say: the file has another owner, or its file system has no leases.
    Unknown,
}

/// Opens a regular file for reading, without blocking.
///
/// # Errors
/// The error of opening; [`io::ErrorKind::InvalidInput`] if the file is not regular.
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

/// Detects whether a process has this file open for writing. `file` must be open for reading only.
#[must_use]
pub fn detect_writers(file: &File) -> WriterPresence {
    let fd = file.as_raw_fd();
    // The kernel grants a read lease only if the file has no writer. A process that opens it for writing
    // while the lease is held waits until it is released below, and this process gets a signal: SIGURG, which
    // is ignored by default, instead of SIGIO, which terminates the process.
    // SAFETY: takes a number, no pointer.
    if unsafe { libc::fcntl(fd, F_SETSIG, libc::SIGURG) } != 0 {
        return WriterPresence::Unknown;
    }
    // SAFETY: takes a number, no pointer.
    if unsafe { libc::fcntl(fd, libc::F_SETLEASE, libc::F_RDLCK) } == 0 {
        // Fails only if there is no lease; then there is nothing to release.
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
