//! inotify: changes in directories, as typed events.
//!
//! Promises: a full queue is reported as an event; a wait ends at once when another thread calls
//! [`Stopper::stop`].
//!
//! Never: watches below a directory it was not given, or follows a rename; the caller, which knows the tree,
//! does that.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, poll};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify, InotifyEvent, WatchDescriptor};
use thiserror::Error;

use crate::netlink::poll_timeout;

/// Identifier of a watched directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WatchId(pub i32);

/// A change to an entry of a watched directory, or to the directory itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DirChange {
    /// A file was written to or truncated, and is still open for writing.
    Modified,
    /// A file open for writing was closed.
    CloseWrite,
    /// An entry was moved away; `cookie` pairs it with its [`DirChange::MovedTo`].
    MovedFrom {
        /// The same in both halves of one rename.
        cookie: u32,
    },
    /// An entry was moved into the directory.
    MovedTo {
        /// The same in both halves of one rename.
        cookie: u32,
    },
    /// An entry was created: an empty file, a directory, a symlink or a hard link.
    Created,
    /// An entry was deleted.
    Deleted,
    /// An entry's metadata changed, such as its permissions.
    Attributes,
    /// The directory itself was moved; its watch moves with it.
    SelfMoved,
    /// The directory itself was deleted.
    SelfDeleted,
    /// The watch has ended: it was removed, or its directory was deleted or unmounted.
    Ignored,
}

/// One event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WatchEvent {
    /// A change in a watched directory.
    Changed {
        /// The directory.
        watch: WatchId,
        /// The entry; `None` if the change is to the directory itself.
        name: Option<OsString>,
        /// True if the entry is a directory.
        is_dir: bool,
        /// The change.
        change: DirChange,
    },
    /// The queue overflowed and events were lost: list the directories again.
    Overflow,
}

/// Why [`DirWatch::wait`] returned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WakeReason {
    /// Events, in order; at least one.
    Events(Vec<WatchEvent>),
    /// No event within the timeout, or a [`Waker`] ended the wait.
    TimedOut,
    /// A [`Stopper`] was used; every later wait returns this too.
    Stopped,
}

/// Watching directories failed.
#[derive(Debug, Error)]
pub enum WatchError {
    /// The kernel cannot create an inotify instance.
    #[error("starting to watch directories: {0}")]
    Start(io::Error),
    /// A directory cannot be watched.
    #[error("watching directory {}: {source}", path.display())]
    Add {
        /// The directory.
        path: PathBuf,
        /// The failure; usually `NotFound` or `NotADirectory`.
        source: io::Error,
    },
    /// Events cannot be read.
    #[error("reading directory events: {0}")]
    Read(io::Error),
}

/// Watches directories.
pub trait DirWatch {
    /// Watches the entries of a directory; the same directory gets the same identifier again.
    ///
    /// # Errors
    /// [`WatchError::Add`].
    fn add(&mut self, directory: &Path) -> Result<WatchId, WatchError>;

    /// Ends a watch; [`DirChange::Ignored`] follows. Has no effect on an ended watch.
    fn remove(&mut self, watch: WatchId);

    /// Waits for events, at most `timeout` (`None`: without limit).
    ///
    /// # Errors
    /// [`WatchError::Read`].
    fn wait(&mut self, timeout: Option<Duration>) -> Result<WakeReason, WatchError>;

    /// A handle that ends one wait from another thread, if the implementation supports it.
    fn waker(&self) -> Option<Waker> {
        None
    }
}

/// Ends one wait of an [`InotifyWatch`] from another thread, as if its timeout had expired.
#[derive(Clone, Debug)]
pub struct Waker(Arc<EventFd>);

impl Waker {
    /// Ends the current wait, or the next one if there is none.
    pub fn wake(&self) {
        // Fails only when the counter is full; then a wake-up is already pending.
        let _ = self.0.write(1);
    }
}

/// Ends all waits of an [`InotifyWatch`] from another thread; clones are equivalent.
#[derive(Clone, Debug)]
pub struct Stopper(Arc<EventFd>);

impl Stopper {
    /// Ends the current and every later wait.
    pub fn stop(&self) {
        // Fails only when the counter is full; then a stop is already pending.
        let _ = self.0.write(1);
    }
}

/// The kernel's inotify.
#[derive(Debug)]
pub struct InotifyWatch {
    inotify: Inotify,
    watches: BTreeMap<WatchId, WatchDescriptor>,
    stopper: Stopper,
    waker: Waker,
}

impl AsFd for InotifyWatch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inotify.as_fd()
    }
}

impl InotifyWatch {
    /// An instance without watches.
    ///
    /// # Errors
    /// [`WatchError::Start`], for example at the limit of inotify instances.
    pub fn new() -> Result<Self, WatchError> {
        let start = |errno: Errno| WatchError::Start(errno.into());
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        Ok(Self {
            inotify: Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK)
                .map_err(start)?,
            watches: BTreeMap::new(),
            stopper: Stopper(Arc::new(EventFd::from_flags(flags).map_err(start)?)),
            waker: Waker(Arc::new(EventFd::from_flags(flags).map_err(start)?)),
        })
    }

    /// A handle that ends all waits from another thread.
    #[must_use]
    pub fn stopper(&self) -> Stopper {
        self.stopper.clone()
    }

    /// All pending events.
    fn read(&mut self) -> Result<Vec<WatchEvent>, WatchError> {
        let mut events = Vec::new();
        loop {
            match self.inotify.read_events() {
                Ok(raw) => events.extend(raw.iter().flat_map(decode_event)),
                Err(Errno::EAGAIN) => break,
                Err(Errno::EINTR) => {}
                Err(errno) => return Err(WatchError::Read(errno.into())),
            }
        }
        for event in &events {
            if let WatchEvent::Changed {
                watch,
                change: DirChange::Ignored,
                ..
            } = event
            {
                self.watches.remove(watch);
            }
        }
        Ok(events)
    }
}

impl DirWatch for InotifyWatch {
    fn add(&mut self, directory: &Path) -> Result<WatchId, WatchError> {
        let mask = AddWatchFlags::IN_CLOSE_WRITE
            | AddWatchFlags::IN_MODIFY
            | AddWatchFlags::IN_MOVED_FROM
            | AddWatchFlags::IN_MOVED_TO
            | AddWatchFlags::IN_CREATE
            | AddWatchFlags::IN_DELETE
            | AddWatchFlags::IN_ATTRIB
            | AddWatchFlags::IN_MOVE_SELF
            | AddWatchFlags::IN_DELETE_SELF
            | AddWatchFlags::IN_ONLYDIR;
        let descriptor =
            self.inotify
                .add_watch(directory, mask)
                .map_err(|errno| WatchError::Add {
                    path: directory.to_owned(),
                    source: errno.into(),
                })?;
        let id = WatchId(descriptor.as_raw());
        self.watches.insert(id, descriptor);
        Ok(id)
    }

    fn waker(&self) -> Option<Waker> {
        Some(self.waker.clone())
    }

    fn remove(&mut self, watch: WatchId) {
        if let Some(descriptor) = self.watches.remove(&watch) {
            // Fails only if the directory is gone; then the watch is gone too.
            let _ = self.inotify.rm_watch(descriptor);
        }
    }

    fn wait(&mut self, timeout: Option<Duration>) -> Result<WakeReason, WatchError> {
        loop {
            let mut fds = [
                PollFd::new(self.stopper.0.as_fd(), PollFlags::POLLIN),
                PollFd::new(self.inotify.as_fd(), PollFlags::POLLIN),
                PollFd::new(self.waker.0.as_fd(), PollFlags::POLLIN),
            ];
            let ready = match poll(&mut fds, poll_timeout(timeout)) {
                Ok(ready) => ready,
                // A signal restarts the wait.
                Err(Errno::EINTR) => continue,
                Err(errno) => return Err(WatchError::Read(errno.into())),
            };
            if fds[0].any() == Some(true) {
                return Ok(WakeReason::Stopped);
            }
            let woken = fds[2].any() == Some(true);
            if woken {
                // Fails only if there was no wake-up.
                let _ = self.waker.0.read();
            }
            let events = self.read()?;
            if !events.is_empty() {
                return Ok(WakeReason::Events(events));
            }
            if ready == 0 || woken {
                return Ok(WakeReason::TimedOut);
            }
        }
    }
}

/// One inotify event can carry several changes.
fn decode_event(raw: &InotifyEvent) -> Vec<WatchEvent> {
    if raw.mask.contains(AddWatchFlags::IN_Q_OVERFLOW) {
        return vec![WatchEvent::Overflow];
    }
    let cookie = raw.cookie;
    let table = [
        (AddWatchFlags::IN_MODIFY, DirChange::Modified),
        (AddWatchFlags::IN_CLOSE_WRITE, DirChange::CloseWrite),
        (
            AddWatchFlags::IN_MOVED_FROM,
            DirChange::MovedFrom { cookie },
        ),
        (AddWatchFlags::IN_MOVED_TO, DirChange::MovedTo { cookie }),
        (AddWatchFlags::IN_CREATE, DirChange::Created),
        (AddWatchFlags::IN_DELETE, DirChange::Deleted),
        (AddWatchFlags::IN_ATTRIB, DirChange::Attributes),
        (AddWatchFlags::IN_MOVE_SELF, DirChange::SelfMoved),
        (AddWatchFlags::IN_DELETE_SELF, DirChange::SelfDeleted),
        (AddWatchFlags::IN_IGNORED, DirChange::Ignored),
    ];
    table
        .into_iter()
        .filter(|(bit, _)| raw.mask.contains(*bit))
        .map(|(_, change)| WatchEvent::Changed {
            watch: WatchId(raw.wd.as_raw()),
            name: raw.name.clone(),
            is_dir: raw.mask.contains(AddWatchFlags::IN_ISDIR),
            change,
        })
        .collect()
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "tests write files as editors do")]
mod tests {
    use super::*;

    /// Events until a pause, as (name, change).
    fn seen(watch: &mut InotifyWatch) -> Vec<(String, DirChange)> {
        let mut seen = Vec::new();
        while let WakeReason::Events(events) = watch.wait(Some(Duration::from_millis(20))).unwrap()
        {
            for event in events {
                let WatchEvent::Changed { name, change, .. } = event else {
                    panic!("overflow")
                };
                let name = name.unwrap_or_default().into_string().unwrap();
                let change = match change {
                    DirChange::MovedFrom { .. } => DirChange::MovedFrom { cookie: 0 },
                    DirChange::MovedTo { .. } => DirChange::MovedTo { cookie: 0 },
                    other => other,
                };
                seen.push((name, change));
            }
        }
        seen
    }

    fn change(name: &str, change: DirChange) -> (String, DirChange) {
        (name.to_owned(), change)
    }

    #[test]
    fn what_happens_is_told_in_order() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let mut watch = InotifyWatch::new().unwrap();
        watch.add(dir.path()).unwrap();
        std::fs::write(at("a"), "x").unwrap();
        std::fs::rename(at("a"), at("b")).unwrap();
        std::fs::create_dir(at("d")).unwrap();
        std::fs::remove_file(at("b")).unwrap();
        assert_eq!(
            seen(&mut watch),
            [
                change("a", DirChange::Created),
                change("a", DirChange::Modified),
                change("a", DirChange::CloseWrite),
                change("a", DirChange::MovedFrom { cookie: 0 }),
                change("b", DirChange::MovedTo { cookie: 0 }),
                change("d", DirChange::Created),
                change("b", DirChange::Deleted),
            ]
        );
        std::fs::remove_dir(at("d")).unwrap();
        std::fs::remove_dir(dir.path()).unwrap();
        assert_eq!(
            seen(&mut watch),
            [
                change("d", DirChange::Deleted),
                change("", DirChange::SelfDeleted),
                change("", DirChange::Ignored),
            ]
        );
    }

    #[test]
    fn a_write_in_progress_is_told_from_its_end() {
        use std::io::Write;
        let dir = tempfile::tempdir().unwrap();
        let mut watch = InotifyWatch::new().unwrap();
        watch.add(dir.path()).unwrap();
        let mut file = std::fs::File::create(dir.path().join("a")).unwrap();
        file.write_all(b"half").unwrap();
        assert_eq!(
            seen(&mut watch),
            [
                change("a", DirChange::Created),
                change("a", DirChange::Modified)
            ]
        );
        drop(file);
        assert_eq!(seen(&mut watch), [change("a", DirChange::CloseWrite)]);
    }

    #[test]
    fn stop_ends_the_wait() {
        let mut watch = InotifyWatch::new().unwrap();
        let stopper = watch.stopper();
        let thread = std::thread::spawn(move || watch.wait(None).unwrap());
        stopper.stop();
        assert_eq!(thread.join().unwrap(), WakeReason::Stopped);
    }

    #[test]
    fn waking_ends_one_wait() {
        let mut watch = InotifyWatch::new().unwrap();
        let waker = watch.waker().unwrap();
        let thread = std::thread::spawn(move || (watch.wait(None).unwrap(), watch));
        waker.wake();
        let (woken, mut watch) = thread.join().unwrap();
        assert_eq!(woken, WakeReason::TimedOut);
        let stopper = watch.stopper();
        let thread = std::thread::spawn(move || watch.wait(None).unwrap());
        stopper.stop();
        assert_eq!(
            thread.join().unwrap(),
            WakeReason::Stopped,
            "not woken once more"
        );
    }

    #[test]
    fn only_directories_are_watched() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("f");
        std::fs::write(&file, "").unwrap();
        let mut watch = InotifyWatch::new().unwrap();
        for path in [file, dir.path().join("missing")] {
            let error = watch.add(&path).unwrap_err().to_string();
            assert!(
                error.starts_with(&format!("watching directory {}: ", path.display())),
                "{error}"
            );
        }
        let id = watch.add(dir.path()).unwrap();
        watch.remove(id);
        watch.remove(id);
        assert_eq!(seen(&mut watch), [change("", DirChange::Ignored)]);
    }
}
