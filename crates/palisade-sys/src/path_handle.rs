//! Files and folders that are open, and where they really are.
//!
//! Promises: opening one here reads nothing, waits for nothing and does nothing to a device or a
//! pipe; what is read of it afterwards is what was opened, whatever its path leads to by then.
//! Never: writes.

use crate::writers::open_regular;
use std::fs::{File, Metadata, OpenOptions, ReadDir};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Something of the file system, held.
#[derive(Debug)]
pub struct PathHandle {
    handle: File,
    path: PathBuf,
    meta: Metadata,
}

impl PathHandle {
    /// Holds what a path leads to.
    ///
    /// # Errors
    /// That of opening, or if `/proc` does not say where it is.
    pub fn open(path: &Path) -> io::Result<Self> {
        let handle = OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_PATH)
            .open(path)?;
        let meta = handle.metadata()?;
        let path = std::fs::read_link(proc_fd_path(&handle))?;
        Ok(PathHandle { handle, path, meta })
    }

    /// Where it is, with no link on the way.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What it is.
    #[must_use]
    pub fn meta(&self) -> &Metadata {
        &self.meta
    }

    /// Opens it for reading, without waiting.
    ///
    /// # Errors
    /// As [`open_regular`].
    pub fn read(&self) -> io::Result<File> {
        open_regular(&proc_fd_path(&self.handle))
    }

    /// What is in the folder that it is.
    ///
    /// # Errors
    /// That of listing it.
    pub fn entries(&self) -> io::Result<ReadDir> {
        std::fs::read_dir(proc_fd_path(&self.handle))
    }
}

/// A name of an open file that leads to nothing but it.
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
