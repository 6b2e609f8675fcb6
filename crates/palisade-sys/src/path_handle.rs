//! Handles of files and directories (`O_PATH`), with their resolved paths.
//!
//! Promises: opening a handle reads nothing, never blocks, and has no effect on a device or a pipe; a later
//! read is of the opened file, even if its path leads elsewhere by then. Never: writes.

use crate::writers::open_regular;
use std::fs::{File, Metadata, OpenOptions, ReadDir};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// An `O_PATH` descriptor and its resolved path.
#[derive(Debug)]
pub struct PathHandle {
    handle: File,
    path: PathBuf,
    meta: Metadata,
}

impl PathHandle {
    /// Opens the file or directory at a path.
    ///
    /// # Errors
    /// The error of opening, or of reading the resolved path from `/proc`.
    pub fn open(path: &Path) -> io::Result<Self> {
        let handle = OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_PATH)
            .open(path)?;
        let meta = handle.metadata()?;
        let path = std::fs::read_link(proc_fd_path(&handle))?;
        Ok(PathHandle { handle, path, meta })
    }

    /// Resolved path, without symlinks.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Metadata at the time of opening.
    #[must_use]
    pub fn meta(&self) -> &Metadata {
        &self.meta
    }

    /// Opens the file for reading, without blocking.
    ///
    /// # Errors
    /// As [`open_regular`].
    pub fn read(&self) -> io::Result<File> {
        open_regular(&proc_fd_path(&self.handle))
    }

    /// Lists the directory.
    ///
    /// # Errors
    /// The error of listing it.
    pub fn entries(&self) -> io::Result<ReadDir> {
        std::fs::read_dir(proc_fd_path(&self.handle))
    }
}

/// A path under `/proc/self/fd` that always leads to the open file.
fn proc_fd_path(handle: &File) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", handle.as_raw_fd()))
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "tests write files as editors do")]
mod tests {
    use super::*;
    use std::io::Read;
    use std::os::unix::fs::symlink;

    #[test]
    fn what_was_opened_is_read_whatever_its_path_leads_to_by_then() {
        let dir = tempfile::tempdir().unwrap();
        let top = dir.path().canonicalize().unwrap();
        let at = |name: &str| top.join(name);
        std::fs::create_dir(at("v1")).unwrap();
        std::fs::write(at("v1/f"), "first").unwrap();
        symlink("v1", at("link")).unwrap();
        let (file, folder) = (at("link/f"), at("link"));
        let (file, folder) = (
            PathHandle::open(&file).unwrap(),
            PathHandle::open(&folder).unwrap(),
        );
        std::fs::rename(at("v1"), at("v0")).unwrap();
        std::fs::create_dir(at("v1")).unwrap();
        std::fs::write(at("v1/f"), "second").unwrap();
        assert_eq!(
            (file.path(), folder.path()),
            (&*at("v1/f"), &*at("v1")),
            "as it was"
        );
        let mut text = String::new();
        file.read().unwrap().read_to_string(&mut text).unwrap();
        assert_eq!(text, "first");
        assert_eq!(folder.entries().unwrap().count(), 1);
    }

    #[test]
    fn pipes_and_devices_are_held_and_not_read() {
        let dir = tempfile::tempdir().unwrap();
        let pipe = dir.path().join("pipe");
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::from_bits_truncate(0o600)).unwrap();
        for path in [pipe.as_path(), Path::new("/dev/null")] {
            let opened = PathHandle::open(path).unwrap();
            let error = opened.read().unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{path:?}");
        }
    }
}
