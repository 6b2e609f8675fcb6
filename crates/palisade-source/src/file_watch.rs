//! Watches one file that may be replaced, edited, reached through links, or absent, and tells when to read it
//! again.
//!
//! Promises: every change that gives the path other content is noticed, including a replaced link on the path
//! and a folder created later. A file that is open for writing is not announced before it is closed. What could not be
//! watched or read is announced again, with growing delays. It never reads the file.

use crate::directory::monotonic;
use crate::path_entries::{FolderEntry, entries_on_path};
use palisade_sys::watch::{
    DirChange, DirWatch, InotifyWatch, Stopper, WakeReason, WatchError, WatchEvent, WatchId,
};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long a file must be quiet before it is read again.
const QUIET_PERIOD: Duration = Duration::from_millis(100);

/// First and longest delay before what could not be watched or read is announced again.
const RETRY_DELAYS: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// A watch on one path.
pub struct FileWatch {
    path: PathBuf,
    watch: InotifyWatch,
    entries: BTreeSet<FolderEntry>,
    folders: BTreeMap<WatchId, BTreeSet<PathBuf>>,
    started: bool,
    /// Whether a folder that exists could not be watched.
    is_incomplete: bool,
    /// Whether the file could not be read.
    has_failed: bool,
    /// Delay before the file is announced again.
    retry_delay: Duration,
}

/// Stops a watch of a file from another thread.
#[derive(Clone, Debug)]
pub struct StopHandle(Stopper);

impl StopHandle {
    /// Makes [`FileWatch::wait_for_change`] return soon.
    pub fn stop(&self) {
        self.0.stop();
    }
}

impl FileWatch {
    /// Watches a path, which need not exist yet.
    ///
    /// # Errors
    /// If the kernel provides no inotify watch.
    pub fn open(path: &Path) -> Result<Self, WatchError> {
        Ok(FileWatch {
            path: std::path::absolute(path).unwrap_or_else(|_| path.to_owned()),
            watch: InotifyWatch::new()?,
            entries: BTreeSet::new(),
            folders: BTreeMap::new(),
            started: false,
            is_incomplete: false,
            has_failed: false,
            retry_delay: RETRY_DELAYS.0,
        })
    }

    /// A handle that stops [`FileWatch::wait_for_change`] from another thread.
    pub fn stop_handle(&self) -> StopHandle {
        StopHandle(self.watch.stopper())
    }

    /// Sets whether the file could not be read when it was last announced: then it is announced again.
    pub fn set_failed(&mut self, has_failed: bool) {
        self.has_failed = has_failed;
    }

    /// Waits until the file should be read: the first call returns at once, later ones after the file has
    /// changed and been quiet for 100 ms. False after a stop request.
    pub fn wait_for_change(&mut self) -> bool {
        let mut since: Option<Instant> = None;
        if !std::mem::replace(&mut self.started, true) {
            self.update_watches();
            return true;
        }
        loop {
            let quiet = since.map(|since| QUIET_PERIOD.saturating_sub(monotonic() - since));
            let retry = (self.has_failed || self.is_incomplete).then_some(self.retry_delay);
            let left = quiet.or(retry);
            let wake = self.watch.wait(left).unwrap_or_else(|error| {
                tracing::warn!(%error, "events could not be read: the file is read again");
                // The kernel sends no event when it can answer again.
                std::thread::park_timeout(RETRY_DELAYS.0);
                WakeReason::TimedOut
            });
            match wake {
                WakeReason::Stopped => return false,
                WakeReason::Events(events) if left != Some(Duration::ZERO) => {
                    if events.iter().any(|event| self.is_relevant(event)) {
                        since = Some(monotonic());
                    }
                }
                WakeReason::Events(_) | WakeReason::TimedOut => {
                    self.retry_delay = if since.is_some() {
                        RETRY_DELAYS.0
                    } else {
                        (self.retry_delay * 2).min(RETRY_DELAYS.1)
                    };
                    // Before the file is read, so that changes during the read are seen.
                    self.update_watches();
                    return true;
                }
            }
        }
    }

    fn is_relevant(&self, event: &WatchEvent) -> bool {
        let WatchEvent::Changed {
            watch,
            name,
            change,
            ..
        } = event
        else {
            return true;
        };
        // Still being written; a close event follows.
        if *change == DirChange::Modified {
            return false;
        }
        let Some(name) = name else {
            return matches!(change, DirChange::SelfMoved | DirChange::SelfDeleted);
        };
        let folders = self.folders.get(watch).into_iter().flatten();
        folders
            .map(|folder| (folder.clone(), name.clone()))
            .any(|entry| self.entries.contains(&entry))
    }

    /// Watches every folder in which a change can lead the path elsewhere. A folder that was removed is left out: its
    /// parent reports that.
    fn update_watches(&mut self) {
        self.entries = entries_on_path(&self.path);
        let folders: BTreeSet<&PathBuf> = self.entries.iter().map(|(folder, _)| folder).collect();
        let previous = std::mem::take(&mut self.folders);
        self.is_incomplete = false;
        for folder in folders {
            match self.watch.add(folder) {
                Ok(id) => drop(self.folders.entry(id).or_default().insert(folder.clone())),
                Err(_) => self.is_incomplete |= folder.exists(),
            }
        }
        for (id, _) in previous {
            if !self.folders.contains_key(&id) {
                self.watch.remove(id);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::disallowed_methods, reason = "a test writes as editors do")]
    use super::*;
    use std::fs::{create_dir, remove_file, rename, write};
    use std::os::unix::fs::symlink;
    use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};

    /// Sends the content of the file each time it should be read.
    fn contents(path: PathBuf) -> (Receiver<Option<String>>, StopHandle) {
        let mut watch = FileWatch::open(&path).unwrap();
        let stop = watch.stop_handle();
        let (say, contents) = channel();
        std::thread::spawn(move || {
            while watch.wait_for_change() {
                say.send(std::fs::read_to_string(&path).ok()).unwrap();
            }
        });
        (contents, stop)
    }

    #[test]
    fn each_way_to_change_a_file_is_seen() {
        let dir = tempfile::tempdir().unwrap();
        let top = dir.path();
        let file = top.join("etc/palisade.yaml");
        let (contents, stop) = contents(file.clone());
        let next = |expected: Option<&str>| {
            // A change may be announced twice, but the last announcement has the final content.
            loop {
                let text = contents.recv_timeout(Duration::from_secs(20)).unwrap();
                if text.as_deref() == expected {
                    return;
                }
            }
        };
        next(None);
        create_dir(top.join("etc")).unwrap();
        write(&file, "made").unwrap();
        next(Some("made"));
        write(&file, "written").unwrap();
        next(Some("written"));
        write(top.join("etc/.new"), "renamed").unwrap();
        rename(top.join("etc/.new"), &file).unwrap();
        next(Some("renamed"));
        remove_file(&file).unwrap();
        next(None);
        // As a ConfigMap volume does: a link to a folder is replaced.
        for version in ["v1", "v2"] {
            create_dir(top.join("etc").join(version)).unwrap();
            write(top.join("etc").join(version).join("palisade.yaml"), version).unwrap();
        }
        symlink("v1", top.join("etc/..data")).unwrap();
        symlink("..data/palisade.yaml", &file).unwrap();
        next(Some("v1"));
        symlink("v2", top.join("etc/..next")).unwrap();
        rename(top.join("etc/..next"), top.join("etc/..data")).unwrap();
        next(Some("v2"));
        // A change of another file in the folder is not reported.
        write(top.join("etc/other.yaml"), "x").unwrap();
        let silent = contents.recv_timeout(QUIET_PERIOD * 5);
        assert_eq!(silent, Err(RecvTimeoutError::Timeout));
        stop.stop();
        let ended = contents.recv_timeout(Duration::from_secs(20));
        assert_eq!(ended, Err(RecvTimeoutError::Disconnected));
    }
}
