//! Atomic file replacement: a reader sees the old content or the new content, also after a crash.
//!
//! Promises: after success the new content is on disk under its name; after failure or a crash the old one
//! is. Never: leaves its temporary file behind on failure, or follows a symlink at `path` (it replaces the
//! symlink).

use std::ffi::OsString;
use std::fs::{File, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use thiserror::Error;

/// A file could not be written.
#[derive(Debug, Error)]
#[error("{action} {}: {source}", path.display())]
pub struct WriteError {
    /// The action that failed, for example "renaming onto".
    pub action: &'static str,
    /// The file it was applied to.
    pub path: PathBuf,
    /// The failure.
    pub source: io::Error,
}

/// Replaces the content of `path`, readable by its owner and group (0640).
///
/// # Errors
/// The step that failed; the file is then unchanged.
pub fn write_atomically(path: &Path, bytes: &[u8]) -> Result<(), WriteError> {
    replace_file(path, bytes, FileMode::AtMost(0o640))
}

/// Replaces the content of `path`, readable by its owner alone (0600).
///
/// # Errors
/// The step that failed; the file is then unchanged.
pub fn write_privately(path: &Path, bytes: &[u8]) -> Result<(), WriteError> {
    replace_file(path, bytes, FileMode::AtMost(0o600))
}

/// The same for a program: everybody may read and run it (0755, whatever the process masks). Processes that run
/// the old one keep it.
///
/// # Errors
/// The step that failed; the file is then unchanged.
pub fn write_program_atomically(path: &Path, bytes: &[u8]) -> Result<(), WriteError> {
    replace_file(path, bytes, FileMode::Exactly(0o755))
}

/// The permissions of a new file.
#[derive(Clone, Copy)]
enum FileMode {
    /// These, less what the process masks.
    AtMost(u32),
    /// These, whatever the process masks.
    Exactly(u32),
}

fn replace_file(path: &Path, bytes: &[u8], mode: FileMode) -> Result<(), WriteError> {
    let directory = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let temporary = temporary_path(path);
    let written = write_synced(&temporary, bytes, mode).and_then(|()| {
        std::fs::rename(&temporary, path).map_err(write_error("renaming onto", path))
    });
    if written.is_err() {
        // The first failure is the one to report.
        let _ = std::fs::remove_file(&temporary);
    }
    written?;
    File::open(directory)
        .and_then(|directory| directory.sync_all())
        .map_err(write_error("syncing directory", directory))
}

fn write_error(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> WriteError {
    let path = path.to_owned();
    move |source| WriteError {
        action,
        path,
        source,
    }
}

/// Hidden, so that readers of the directory skip it. The name contains process and thread, so that two
/// writers never share a file.
fn temporary_path(path: &Path) -> PathBuf {
    let mut name = OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(format!(
        ".{}.{:?}.tmp",
        std::process::id(),
        std::thread::current().id()
    ));
    path.with_file_name(name)
}

fn write_synced(path: &Path, bytes: &[u8], mode: FileMode) -> Result<(), WriteError> {
    // Left over from a crashed process with the same pid.
    let _ = std::fs::remove_file(path);
    let (FileMode::AtMost(bits) | FileMode::Exactly(bits)) = mode;
    let mut file = File::options()
        .write(true)
        .create_new(true)
        .mode(bits)
        .open(path)
        .map_err(write_error("creating", path))?;
    file.write_all(bytes)
        .map_err(write_error("writing", path))?;
    if let FileMode::Exactly(bits) = mode {
        file.set_permissions(Permissions::from_mode(bits))
            .map_err(write_error("setting the mode of", path))?;
    }
    file.sync_all().map_err(write_error("syncing", path))
}

#[cfg(test)]
#[allow(
    clippy::disallowed_methods,
    reason = "tests use the standard library's calls"
)]
mod tests {
    use super::*;

    fn names(dir: &Path) -> Vec<String> {
        let mut names: Vec<_> = std::fs::read_dir(dir)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn content_is_replaced_and_nothing_left() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state.json");
        for content in [&b"one"[..], b"", b"three"] {
            write_atomically(&path, content).unwrap();
            assert_eq!(std::fs::read(&path).unwrap(), content);
            assert_eq!(names(dir.path()), ["state.json"]);
        }
    }

    #[test]
    fn failure_leaves_no_trace() {
        let dir = tempfile::tempdir().unwrap();
        let taken = dir.path().join("taken");
        std::fs::create_dir(&taken).unwrap();
        std::fs::write(taken.join("inside"), "x").unwrap();
        let error = write_atomically(&taken, b"x").unwrap_err();
        assert_eq!(error.action, "renaming onto");
        assert_eq!(names(dir.path()), ["taken"]);
        let missing = write_atomically(Path::new("/nonexistent/f"), b"x").unwrap_err();
        assert_eq!(missing.action, "creating");
    }
}
