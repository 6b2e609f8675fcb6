//! How much memory this process holds: live heap by a counting allocator, peak resident by the kernel.
//!
//! The counting is part of every time measured here: one atomic addition for each allocation and one
//! for each release.

use cap::Cap;
use std::alloc::System;
use std::io;

#[global_allocator]
static ALLOCATOR: Cap<System> = Cap::new(System, usize::MAX);

/// Bytes asked for and not yet given back.
pub(crate) fn live() -> usize {
    ALLOCATOR.allocated()
}

/// The most this process ever had resident, in bytes.
pub(crate) fn peak_resident() -> io::Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    peak_of(&status).ok_or_else(|| io::Error::other("/proc/self/status has no VmHWM"))
}

/// What the text of a process's `status` says of the most it ever had resident, in bytes.
pub(crate) fn peak_of(status: &str) -> Option<u64> {
    let rest = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kibibytes: u64 = rest.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes * 1024)
}

/// Bytes as mebibytes.
#[allow(
    clippy::cast_precision_loss,
    reason = "a figure in mebibytes needs no more than a float's precision"
)]
pub(crate) fn mebibytes(bytes: u64) -> f64 {
    bytes as f64 / (1024.0 * 1024.0)
}
