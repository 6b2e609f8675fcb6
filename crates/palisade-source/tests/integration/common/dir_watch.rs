//! Watches of directories that a test supplies with events.

use palisade_sys::watch::{DirWatch, WakeReason, WatchError, WatchId};
use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A fake that records directories and returns events that a test supplies.
#[derive(Clone, Debug, Default)]
pub(crate) struct FakeDirWatch {
    /// Directories watched at present.
    pub(crate) watched: BTreeMap<WatchId, PathBuf>,
    /// Results of the next waits; after them, waits time out.
    pub(crate) wakes: VecDeque<WakeReason>,
    last: i32,
}

impl DirWatch for FakeDirWatch {
    fn add(&mut self, directory: &Path) -> Result<WatchId, WatchError> {
        let known = self.watched.iter().find(|(_, path)| *path == directory);
        if let Some((id, _)) = known {
            return Ok(*id);
        }
        self.last += 1;
        let id = WatchId(self.last);
        self.watched.insert(id, directory.to_owned());
        Ok(id)
    }

    fn remove(&mut self, watch: WatchId) {
        self.watched.remove(&watch);
    }

    fn wait(&mut self, _timeout: Option<Duration>) -> Result<WakeReason, WatchError> {
        Ok(self.wakes.pop_front().unwrap_or(WakeReason::TimedOut))
    }
}
