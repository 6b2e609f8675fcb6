//! Pins in a BPF file system.

use std::ffi::CString;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use nix::sys::statfs::{BPF_FS_MAGIC, statfs};

use super::syscall::{BpfCommand as _, GetPinnedObject, PinObject, address, raw};
use super::{BpfError, refused};

fn path_text(path: &Path) -> Result<CString, BpfError> {
    let bytes = path.as_os_str().as_bytes();
    CString::new(bytes).map_err(|_| BpfError::Nul(path.display().to_string()))
}

/// Pins an object.
pub(super) fn pin(fd: &OwnedFd, path: &Path, operation: &'static str) -> Result<(), BpfError> {
    let text = path_text(path)?;
    let mut argument = PinObject {
        path: address(text.as_bytes_with_nul()),
        object: raw(fd),
        flags: 0,
    };
    let result = argument.call().map(drop);
    result.map_err(refused(operation, &path.display().to_string()))
}

/// Opens a pinned object.
pub(super) fn open(path: &Path, operation: &'static str) -> Result<OwnedFd, BpfError> {
    let text = path_text(path)?;
    let argument = GetPinnedObject {
        path: address(text.as_bytes_with_nul()),
        ..GetPinnedObject::default()
    };
    let opened = argument.call_for_descriptor();
    opened.map_err(refused(operation, &path.display().to_string()))
}

/// Whether a BPF file system is mounted at a path.
///
/// # Errors
/// If there is no such path.
pub fn is_bpf_file_system(path: &Path) -> Result<bool, BpfError> {
    let found = statfs(path).map(|found| found.filesystem_type() == BPF_FS_MAGIC);
    found.map_err(refused(
        "looking at the file system of",
        &path.display().to_string(),
    ))
}
