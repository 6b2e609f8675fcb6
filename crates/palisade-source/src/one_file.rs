//! One file that may be replaced, edited, turned by a link, or absent: when to read it again.
//!
//! Promises: whatever makes the path lead to another content is noticed, also a link on the way that
//! is turned, and a folder that appears only later. A file that somebody is writing is not announced
//! before it is closed. It never reads the file.

use crate::directory::{StopHandle, monotonic};
use crate::places::{Entry, entries_on_the_way};
use palisade_sys::watch::{Change, DirWatch, InotifyWatch, Wake, WatchError, WatchEvent, WatchId};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long nothing must happen to a file before it is read again.
const QUIET: Duration = Duration::from_millis(100);

/// Watches one path.
pub struct FileWatch {
    path: PathBuf,
    watch: InotifyWatch,
    entries: BTreeSet<Entry>,
    folders: BTreeMap<WatchId, BTreeSet<PathBuf>>,
    began: bool,
}

impl FileWatch {
    /// A watch over a path, of which nothing need be there yet.
    ///
    /// # Errors
    /// If the kernel gives no watch.
    pub fn open(path: &Path) -> Result<Self, WatchError> {
        Ok(FileWatch {
            path: std::path::absolute(path).unwrap_or_else(|_| path.to_owned()),
            watch: InotifyWatch::new()?,
            entries: BTreeSet::new(),
            folders: BTreeMap::new(),
            began: false,
        })
    }

    /// Ends [`FileWatch::changed`] from another thread.
    pub fn stop_handle(&self) -> StopHandle {
        StopHandle(self.watch.stopper())
    }

    /// Waits until the file should be read: at once the first time, since nothing was seen of what
    /// happened before, then whenever something happened to it and it has been left alone for a
    /// tenth of a second. False when told to stop.
    ///
    /// # Errors
    /// If the kernel's notices cannot be read.
    pub fn changed(&mut self) -> Result<bool, WatchError> {
        let mut since: Option<Instant> = None;
        if !std::mem::replace(&mut self.began, true) {
            self.follow();
            return Ok(true);
        }
        loop {
            let left = since.map(|since| QUIET.saturating_sub(monotonic() - since));
            match self.watch.wait(left)? {
                Wake::Stopped => return Ok(false),
                Wake::Events(events) if left != Some(Duration::ZERO) => {
                    if events.iter().any(|event| self.is_about(event)) {
                        since = Some(monotonic());
                    }
                }
                Wake::Events(_) | Wake::TimedOut => {
                    // Before the file is read, so that what happens meanwhile is seen.
                    self.follow();
                    return Ok(true);
                }
            }
        }
    }

    fn is_about(&self, event: &WatchEvent) -> bool {
        let WatchEvent::Changed {
            watch,
            name,
            change,
            ..
        } = event
        else {
            return true;
        };
        // Being written; that it is closed comes.
        if *change == Change::Modified {
            return false;
        }
        let Some(name) = name else {
            return matches!(change, Change::SelfMoved | Change::SelfDeleted);
        };
        let folders = self.folders.get(watch).into_iter().flatten();
        folders
            .map(|folder| (folder.clone(), name.clone()))
            .any(|entry| self.entries.contains(&entry))
    }

    /// Watches every folder in which something can change where the path leads. What cannot be
    /// watched is left out: a folder that is gone is told by the one above it.
    fn follow(&mut self) {
        self.entries = entries_on_the_way(&self.path);
        let folders: BTreeSet<&PathBuf> = self.entries.iter().map(|(folder, _)| folder).collect();
        let before = std::mem::take(&mut self.folders);
        for folder in folders {
            if let Ok(id) = self.watch.add(folder) {
                self.folders.entry(id).or_default().insert(folder.clone());
            }
        }
        for (id, _) in before {
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

    /// Says what is in the file each time it should be read.
    fn contents(path: PathBuf) -> (Receiver<Option<String>>, StopHandle) {
        let mut watch = FileWatch::open(&path).unwrap();
        let stop = watch.stop_handle();
        let (say, said) = channel();
        std::thread::spawn(move || {
            while watch.changed().unwrap() {
                say.send(std::fs::read_to_string(&path).ok()).unwrap();
            }
        });
        (said, stop)
    }

    #[test]
    fn each_way_to_change_a_file_is_seen() {
        let dir = tempfile::tempdir().unwrap();
        let top = dir.path();
        let file = top.join("etc/palisade.yaml");
        let (said, stop) = contents(file.clone());
        let next = |expected: Option<&str>| {
            // Something may be announced twice, but the last word is right.
            loop {
                let text = said.recv_timeout(Duration::from_secs(20)).unwrap();
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
        // As Kubernetes mounts a ConfigMap: a link to a folder is turned.
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
        // What happens beside it is none of its business.
        write(top.join("etc/other.yaml"), "x").unwrap();
        let silent = said.recv_timeout(QUIET * 5);
        assert_eq!(silent, Err(RecvTimeoutError::Timeout));
        stop.stop();
        let ended = said.recv_timeout(Duration::from_secs(20));
        assert_eq!(ended, Err(RecvTimeoutError::Disconnected));
    }
}
