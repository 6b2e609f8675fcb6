//! Deletions that the plugin wrote down while no agent ran: carried out once, when one starts.
//!
//! The agent listens first, then takes the lock, then carries out what is there, and only then
//! answers. The plugin writes under the lock and only while nobody listens, so none is written after
//! the agent has looked. What cannot be carried out stays, is told, and is tried again.

use crate::core::{Core, error_chain};
use palisade_api::{CniAttachment, cni_queue};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

/// The folder of deletions within a state directory.
pub fn queue_dir(state_dir: &Path) -> PathBuf {
    state_dir.join("cni-queue")
}

/// The deletions that wait in a folder.
///
/// # Errors
/// If it cannot be listed. One that is not there holds none.
#[allow(
    clippy::disallowed_methods,
    reason = "files of the plugin, which has no other way to be heard"
)]
pub fn queued_files(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other?,
    };
    let mut found = Vec::new();
    for entry in entries {
        let path = entry?.path();
        if path.extension().is_some_and(|e| e == "json") {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

impl Core {
    /// Carries out every deletion that waits; says how many there were.
    ///
    /// # Errors
    /// If the folder cannot be locked or read. What one file holds is no reason.
    #[allow(
        clippy::disallowed_methods,
        reason = "files of the plugin, which has no other way to be heard"
    )]
    pub fn run_queued_deletions(&mut self) -> io::Result<usize> {
        let folder = queue_dir(&self.config.state_dir);
        fs::create_dir_all(&folder)?;
        let lock = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(folder.join(cni_queue::LOCK))?;
        lock.lock()?;
        let mut done = 0;
        if palisade_sys::fault::is_injected("deletion-ignored") {
            return Ok(done);
        }
        self.deletions_failed = false;
        for path in queued_files(&folder)? {
            match self.run_queued_deletion(&path) {
                Ok(()) => done += 1,
                Err(error) => {
                    self.deletions_failed = true;
                    tracing::error!(file = %path.display(), %error, "a deletion that waits; it is tried again");
                }
            }
        }
        if self.deletions_failed {
            self.ensure_retry();
        }
        if done > 0 {
            tracing::info!(
                deletions = done,
                "carried out what was asked while no agent ran"
            );
        }
        Ok(done)
    }

    #[allow(
        clippy::disallowed_methods,
        reason = "files of the plugin, which has no other way to be heard"
    )]
    fn run_queued_deletion(&mut self, path: &Path) -> Result<(), String> {
        let text = fs::read(path).map_err(|error| error.to_string())?;
        let attachment: CniAttachment =
            serde_json::from_slice(&text).map_err(|error| error.to_string())?;
        self.cni_del(&attachment)
            .map_err(|error| error_chain(&error))?;
        fs::remove_file(path).map_err(|error| error.to_string())
    }
}
