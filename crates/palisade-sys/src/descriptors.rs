//! The limit on the file descriptors of this process.
//!
//! Never: counts the open ones.

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use std::io;

/// The number of descriptors that this process may have open now.
///
/// # Errors
/// If the kernel does not tell.
pub fn limit() -> io::Result<u64> {
    let (soft, _) = getrlimit(Resource::RLIMIT_NOFILE)?;
    Ok(soft)
}

/// Raises the limit to the highest one that needs no right; returns it.
///
/// # Errors
/// If the kernel refuses it.
pub fn raise_limit() -> io::Result<u64> {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    if soft < hard {
        setrlimit(Resource::RLIMIT_NOFILE, hard, hard)?;
    }
    Ok(hard)
}
