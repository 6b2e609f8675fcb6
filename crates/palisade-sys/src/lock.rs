//! An advisory lock on a file that allows one instance of a program.
//!
//! Promises: the kernel releases the lock when its holder ends, however it ends. Never: deletes the file,
//! because two processes could then hold the lock.

use std::fs::{File, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::path::{Path, PathBuf};

use thiserror::Error;

/// The lock was not acquired.
#[derive(Debug, Error)]
pub enum LockError {
    /// Another process holds it.
    #[error("{} is locked by {holder}", path.display())]
    AlreadyLocked {
        /// The file.
        path: PathBuf,
        /// "process N", or "another process" if the file has no pid.
        holder: String,
    },
    /// The file cannot be used.
    #[error("locking {}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The failure.
        source: io::Error,
    },
}

/// A lock that is held until it is dropped.
#[derive(Debug)]
pub struct InstanceLock {
    file: File,
    path: PathBuf,
}

impl InstanceLock {
    /// Acquires the lock on `path` without waiting, and writes this process's pid into it.
    ///
    /// # Errors
    /// [`LockError::AlreadyLocked`] if another process holds it.
    pub fn acquire(path: &Path) -> Result<Self, LockError> {
        let mut lock = Self::acquire_without_pid(path)?;
        lock.write_pid()?;
        Ok(lock)
    }

    /// Writes this process's pid into the file.
    ///
    /// # Errors
    /// [`LockError::Io`].
    pub fn write_pid(&mut self) -> Result<(), LockError> {
        let file = &mut self.file;
        file.set_len(0)
            .and_then(|()| file.rewind())
            .and_then(|()| writeln!(file, "{}", std::process::id()))
            .map_err(|source| LockError::Io {
                path: self.path.clone(),
                source,
            })
    }

    /// Acquires the lock on `path` without waiting, and leaves the file's content unchanged.
    ///
    /// # Errors
    /// As [`InstanceLock::acquire`].
    pub fn acquire_without_pid(path: &Path) -> Result<Self, LockError> {
        Ok(Self {
            file: Self::open_locked(path)?,
            path: path.to_owned(),
        })
    }

    fn open_locked(path: &Path) -> Result<File, LockError> {
        let io = |source| LockError::Io {
            path: path.to_owned(),
            source,
        };
        let mut options = File::options();
        options.read(true).write(true).create(true).truncate(false);
        let mut file = crate::plain_file::open_with(&mut options, path).map_err(io)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut text = String::new();
                // Only for the message; the holder may not have written its pid yet.
                let _ = file.read_to_string(&mut text);
                let holder = match text.trim().parse::<u32>() {
                    Ok(pid) => format!("process {pid}"),
                    Err(_) => "another process".to_owned(),
                };
                return Err(LockError::AlreadyLocked {
                    path: path.to_owned(),
                    holder,
                });
            }
            Err(TryLockError::Error(source)) => return Err(io(source)),
        }
        Ok(file)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_at_a_time() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let first = InstanceLock::acquire(&path).unwrap();
        let error = InstanceLock::acquire(&path).unwrap_err().to_string();
        assert_eq!(
            error,
            format!(
                "{} is locked by process {}",
                path.display(),
                std::process::id()
            )
        );
        drop(first);
        InstanceLock::acquire(&path).unwrap();
        let written = std::fs::read_to_string(&path).unwrap();
        std::fs::rename(&path, dir.path().join("old")).unwrap();
        let old = dir.path().join("old");
        let quiet = InstanceLock::acquire_without_pid(&old).unwrap();
        assert!(InstanceLock::acquire(&old).is_err());
        assert_eq!(std::fs::read_to_string(&old).unwrap(), written);
        drop(quiet);
    }

    #[test]
    fn an_unusable_file_is_named() {
        let error = InstanceLock::acquire(Path::new("/nonexistent/lock")).unwrap_err();
        assert!(error.to_string().starts_with("locking /nonexistent/lock: "));
    }
}
