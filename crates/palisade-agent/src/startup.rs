//! The files created by a start, and their removal if the start fails.
//!
//! A failed start leaves the state directory, the socket's directory and the lock file as it found
//! them; a running agent is reported with its process id. Never: removes a directory that is not empty,
//! or a file that another program created.

use crate::run_error::RunError;
use palisade_config::{ApiConfig, StateConfig};
use palisade_sys::lock::InstanceLock;
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::SocketAddr;
use std::path::{Path, PathBuf};

/// The name of the lock file in the state directory.
pub const LOCK_FILE: &str = "agent.lock";

/// A start that has not been committed yet.
#[derive(Debug)]
pub struct StartupGuard {
    lock: Option<InstanceLock>,
    /// In the order of creation.
    created_paths: Vec<PathBuf>,
}

impl StartupGuard {
    /// Creates the directories, takes the lock, and checks whether the socket can be created.
    ///
    /// # Errors
    /// If a directory or file cannot be created, or another agent is running.
    pub fn begin(state: &StateConfig, api: &ApiConfig) -> Result<Self, RunError> {
        let mut startup = StartupGuard {
            lock: None,
            created_paths: Vec::new(),
        };
        startup.create_directory(&state.dir)?;
        let path = state.dir.join(LOCK_FILE);
        let is_new = !path.exists();
        startup.lock = Some(InstanceLock::acquire_without_pid(&path)?);
        if is_new {
            startup.created_paths.push(path);
        }
        // Created by the source.
        let last_valid_dir = state.dir.join("valid");
        if !last_valid_dir.exists() {
            startup.created_paths.push(last_valid_dir);
        }
        startup.create_directory(api.socket.parent().unwrap_or(Path::new("/")))?;
        check_socket(&api.socket)?;
        Ok(startup)
    }

    /// Commits the start: the created files stay.
    ///
    /// # Errors
    /// If the lock file cannot be written.
    pub fn commit(mut self) -> Result<InstanceLock, RunError> {
        let signed_lock = self
            .lock
            .take()
            .map(|mut lock| lock.write_pid().map(|()| lock));
        match signed_lock {
            Some(Ok(lock)) => {
                self.created_paths.clear();
                Ok(lock)
            }
            Some(Err(error)) => Err(error.into()),
            None => Err(file_error("locking", Path::new(LOCK_FILE))(
                io::Error::other("the lock is not held"),
            )),
        }
    }

    /// Creates a directory with its parents.
    fn create_directory(&mut self, path: &Path) -> Result<(), RunError> {
        let missing = path.ancestors().take_while(|above| !above.exists());
        let missing: Vec<PathBuf> = missing
            .filter(|above| !above.as_os_str().is_empty())
            .map(Path::to_path_buf)
            .collect();
        self.created_paths.extend(missing.into_iter().rev());
        std::fs::create_dir_all(path).map_err(file_error("creating", path))
    }
}

impl Drop for StartupGuard {
    fn drop(&mut self) {
        for path in self.created_paths.drain(..).rev() {
            // What is gone, or not empty any more, stays as it is.
            let _ = if path.is_dir() {
                std::fs::remove_dir(&path)
            } else {
                std::fs::remove_file(&path)
            };
        }
    }
}

fn file_error(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> RunError {
    let path = path.to_path_buf();
    move |source| RunError::File {
        doing,
        path,
        source,
    }
}

/// Checks whether a socket can be created here later.
#[allow(
    clippy::disallowed_methods,
    reason = "probes whether the directory is writable; the file is removed at once"
)]
fn check_socket(path: &Path) -> Result<(), RunError> {
    let failed = || file_error("creating the socket", path);
    // Longer paths cannot be bound.
    SocketAddr::from_pathname(path).map_err(failed())?;
    match std::fs::symlink_metadata(path) {
        Ok(found) if !found.file_type().is_socket() => {
            let reason = "the path exists and is not a socket";
            return Err(failed()(io::Error::new(
                io::ErrorKind::AlreadyExists,
                reason,
            )));
        }
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed()(error)),
        _ => {}
    }
    let folder = path.parent().unwrap_or(Path::new("/"));
    let probe_file = folder.join(format!(".palisade-{}", std::process::id()));
    std::fs::File::create_new(&probe_file).map_err(failed())?;
    std::fs::remove_file(&probe_file).map_err(failed())
}

#[cfg(test)]
mod tests {
    use super::*;
    use palisade_config::Config;
    use std::collections::BTreeMap;

    fn config(root: &Path, socket: &str) -> Config {
        let path = |name: &str| root.join(name).display().to_string();
        let flags = BTreeMap::from([
            ("state-dir".to_owned(), path("lib/state")),
            ("socket".to_owned(), path(socket)),
        ]);
        Config::resolve(&flags, |_| None, None).unwrap()
    }

    fn begin(root: &Path, socket: &str) -> Result<StartupGuard, RunError> {
        let config = config(root, socket);
        StartupGuard::begin(&config.state, &config.api)
    }

    fn all(folder: &Path) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(folder).unwrap();
        let mut found: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
        let below: Vec<PathBuf> = found.iter().filter(|p| p.is_dir()).cloned().collect();
        found.extend(below.iter().flat_map(|folder| all(folder)));
        found.sort();
        found
    }

    #[test]
    fn a_start_that_fails_leaves_nothing_and_one_that_succeeds_everything() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        drop(begin(root, "run/p/p.sock").unwrap());
        assert_eq!(all(root), Vec::<PathBuf>::new());
        let lock = begin(root, "run/p/p.sock").unwrap().commit().unwrap();
        let refused = begin(root, "run/p/p.sock").unwrap_err();
        let pid = std::process::id().to_string();
        assert!(refused.to_string().contains(&pid), "{refused}");
        drop(lock);
        let before = all(root);
        assert!(before.contains(&root.join("lib/state").join(LOCK_FILE)));
        palisade_sys::atomic_file::write_atomically(&root.join("file"), b"x").unwrap();
        let before = [before, vec![root.join("file")]].concat();
        let name = "n".repeat(120);
        for socket in ["file/p.sock", "file", "lib", &name] {
            let error = begin(root, socket).unwrap_err();
            assert!(error.to_string().contains("creating"), "{error}");
        }
        let mut now = all(root);
        let mut before = before;
        now.sort();
        before.sort();
        assert_eq!(now, before);
    }
}
