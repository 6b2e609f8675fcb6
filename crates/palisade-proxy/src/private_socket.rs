//! Sockets with a path that only their owner may use.
//!
//! Promises: a socket has its rights before it has its name; one that a former process left is replaced.
//!
//! Never: makes a directory.

use std::ffi::OsString;
use std::fs::Permissions;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

/// Makes the socket.
///
/// # Errors
/// If it cannot be made, restricted or named.
pub(crate) fn bind_private(path: &Path) -> io::Result<UnixListener> {
    let temporary = temporary_path(path);
    // Left over from a process with the same number.
    let _ = std::fs::remove_file(&temporary);
    let listener = UnixListener::bind(&temporary)?;
    std::fs::set_permissions(&temporary, Permissions::from_mode(0o600))?;
    std::fs::rename(&temporary, path)?;
    Ok(listener)
}

/// A name beside the socket's.
fn temporary_path(path: &Path) -> PathBuf {
    let mut name = OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(format!(".{}.tmp", std::process::id()));
    path.with_file_name(name)
}
