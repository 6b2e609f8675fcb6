//! The last snapshot of a source on disk: the objects of a server, as text, from which an agent starts while
//! the server cannot be reached.
//!
//! Entries are distributed over a fixed number of files by the hash of their key. A change is appended to one
//! file, and a file that has grown to a multiple of its content is rewritten alone, so the cost of a change
//! does not depend on the number of objects. [`SnapshotMark`] says what the files hold; without it they hold
//! nothing.
//!
//! Promises: what [`SnapshotStore::save`] returned for survives the end of the process, and that of the host
//! some seconds after [`SnapshotStore::set_mark`] was called since. An entry that was being appended when the
//! process died is as if it had never been. Whatever else is wrong with a file is an error, and there is no
//! snapshot then, nor while a change could not be written: a part of the policies would be worse than none.
//!
//! Never: interprets an entry, or keeps one in memory once it is written.

mod entry;

pub use entry::SnapshotEntry;

use crate::source_set::unix_time;
use entry::{checksum, complete_length, encode, last_entries};
use palisade_sys::atomic_file::write_privately;
use serde::{Deserialize, Serialize};
use std::fs::{DirBuilder, File};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// The schema this build writes. It changes as well when fewer or more fields of an object are kept.
const SCHEMA: u32 = 1;
/// The number of files.
const SHARDS: usize = 64;
/// A file is rewritten when it has twice the length of its content, and so many bytes.
const MIN_REWRITE: u64 = 64 << 10;
/// The maximum length of entries that wait because they could not be written.
const MAX_UNSAVED: usize = 16 << 20;
/// The age at which a mark that says the same is written again.
const MARK_INTERVAL: u64 = 60;

/// What the files of a snapshot hold.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotMark {
    schema: u32,
    /// Where the server is.
    location: String,
    /// The parts of the source (resources, prefixes) of which everything is stored.
    pub complete: Vec<String>,
    /// When the source was known to be followed, in seconds since 1970.
    followed_at: u64,
    /// Since when it was not followed any more.
    stale_since: Option<u64>,
}

impl SnapshotMark {
    /// Since when changes may be missing, in seconds since 1970.
    #[must_use]
    pub fn since(&self) -> u64 {
        self.stale_since.unwrap_or(self.followed_at)
    }
}

/// Why a snapshot cannot be used or saved.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    /// Reading or writing failed.
    #[error("{doing} {path}")]
    Io {
        /// The operation.
        doing: &'static str,
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The content of a file is not what was written.
    #[error("{path} is damaged at byte {at}")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Where.
        at: usize,
    },
    /// Another version of Palisade wrote it.
    #[error("{path} has schema {found}, and this build reads schema {SCHEMA}")]
    Schema {
        /// The file.
        path: PathBuf,
        /// Its schema.
        found: u32,
    },
    /// It is the snapshot of another server.
    #[error("{path} is of {found}")]
    Location {
        /// The file.
        path: PathBuf,
        /// The location of that server.
        found: String,
    },
    /// Too many changes could not be written.
    #[error("more than {MAX_UNSAVED} bytes of changes could not be written")]
    Abandoned,
}

/// One file.
#[derive(Debug, Default)]
struct SnapshotShard {
    /// Open for appending after the first write.
    file: Option<File>,
    length: u64,
    /// The length of what it held when it was last rewritten.
    rewritten: u64,
    /// Entries that are not written yet.
    unsaved: Vec<u8>,
    /// Whether something was appended since the last mark.
    is_unsynced: bool,
}

/// The snapshot of one source. See the module's description.
#[derive(Debug)]
pub struct SnapshotStore {
    folder: PathBuf,
    location: String,
    shards: Vec<SnapshotShard>,
    /// The mark as it is on disk.
    mark: Option<SnapshotMark>,
    is_abandoned: bool,
}

impl SnapshotStore {
    /// The snapshot of a source in a state directory. Nothing is read or written yet.
    #[must_use]
    pub fn new(state_dir: &Path, source: &str, location: &str) -> Self {
        SnapshotStore {
            folder: state_dir.join("snapshot").join(source),
            location: location.to_owned(),
            shards: (0..SHARDS).map(|_| SnapshotShard::default()).collect(),
            mark: None,
            is_abandoned: false,
        }
    }

    /// The folder of its files.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Passes on every entry, in any order; `None` if there is no snapshot.
    ///
    /// # Errors
    /// Why there is none that can be used. Nothing was passed on then, and an empty one is begun.
    pub fn restore(
        &mut self,
        mut take: impl FnMut(SnapshotEntry<'_>),
    ) -> Result<Option<SnapshotMark>, SnapshotError> {
        let read = self.verify();
        if !matches!(read, Ok(Some(_))) {
            self.clear()?;
            return read;
        }
        for shard in 0..SHARDS {
            let (path, text) = (self.path(shard), self.read(shard)?);
            for entry in last_entries(&text, &path)?.into_values().flatten() {
                take(entry);
            }
        }
        self.mark = read?;
        Ok(self.mark.clone())
    }

    /// Reads everything once, so that nothing is passed on of a snapshot that is damaged at its end.
    fn verify(&mut self) -> Result<Option<SnapshotMark>, SnapshotError> {
        let Some(mark) = self.read_mark()? else {
            return Ok(None);
        };
        for shard in 0..SHARDS {
            let path = self.path(shard);
            let text = self.read(shard)?;
            let end = complete_length(&text, &path)?;
            let entries = last_entries(text.get(..end).unwrap_or_default(), &path)?;
            let present = entries
                .values()
                .flatten()
                .map(SnapshotEntry::encoded_length);
            self.shards[shard].rewritten = present.sum::<usize>() as u64;
            if end < text.len() {
                let cut = File::options().write(true).open(&path);
                cut.and_then(|file| file.set_len(end as u64))
                    .map_err(io_error("shortening", &path))?;
            }
            self.shards[shard].length = end as u64;
        }
        Ok(Some(mark))
    }

    fn read_mark(&self) -> Result<Option<SnapshotMark>, SnapshotError> {
        #[derive(Deserialize)]
        struct MarkHeader {
            schema: u32,
        }
        let path = self.mark_path();
        let text = match palisade_sys::plain_file::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(io_error("reading", &path)(error)),
        };
        let damaged = |error: serde_json::Error| SnapshotError::Damaged {
            path: path.clone(),
            at: error.column(),
        };
        let MarkHeader { schema: found } = serde_json::from_slice(&text).map_err(damaged)?;
        if found != SCHEMA {
            return Err(SnapshotError::Schema { path, found });
        }
        let mark: SnapshotMark = serde_json::from_slice(&text).map_err(damaged)?;
        if mark.location == self.location {
            Ok(Some(mark))
        } else {
            Err(SnapshotError::Location {
                path,
                found: mark.location,
            })
        }
    }

    /// Begins an empty snapshot: the mark goes first.
    fn clear(&mut self) -> Result<(), SnapshotError> {
        self.mark = None;
        remove(&self.mark_path())?;
        for shard in 0..SHARDS {
            self.shards[shard] = SnapshotShard::default();
            remove(&self.path(shard))?;
        }
        Ok(())
    }

    /// Adds or replaces an object; it is written by [`SnapshotStore::save`].
    pub fn put(&mut self, entry: SnapshotEntry<'_>) {
        self.add(entry.key, Some((entry.version, entry.text)));
    }

    /// Removes an object; this is written by [`SnapshotStore::save`].
    pub fn remove(&mut self, key: &str) {
        self.add(key, None);
    }

    fn add(&mut self, key: &str, value: Option<(&str, &str)>) {
        if !self.is_abandoned {
            encode(key, value, &mut self.shards[shard_of(key)].unsaved);
        }
    }

    /// Writes what was added and removed.
    ///
    /// # Errors
    /// If a file cannot be written. It is tried again at the next call, until too much waits: then there is no
    /// snapshot any more.
    pub fn save(&mut self) -> Result<(), SnapshotError> {
        if self.is_abandoned {
            return Err(SnapshotError::Abandoned);
        }
        let mut failed = None;
        for shard in 0..SHARDS {
            if !self.shards[shard].unsaved.is_empty()
                && let Err(error) = self.append(shard)
            {
                failed = Some(error);
                break;
            }
        }
        let unsaved: usize = self.shards.iter().map(|shard| shard.unsaved.len()).sum();
        if unsaved > MAX_UNSAVED {
            self.is_abandoned = true;
            self.clear()?;
        } else if failed.is_some() && self.mark.take().is_some() {
            // Without this change it is not what the source had.
            remove(&self.mark_path())?;
        }
        failed.map_or(Ok(()), Err)
    }

    fn append(&mut self, number: usize) -> Result<(), SnapshotError> {
        let path = self.path(number);
        let shard = &mut self.shards[number];
        let file = match &mut shard.file {
            Some(file) => file,
            none => {
                let mut folder = DirBuilder::new();
                folder
                    .recursive(true)
                    .mode(0o700)
                    .create(&self.folder)
                    .map_err(io_error("creating", &self.folder))?;
                let mut options = File::options();
                let options = options.append(true).create(true).mode(0o600);
                let file = palisade_sys::plain_file::open_with(options, &path)
                    .map_err(io_error("opening", &path))?;
                // Of an entry that was only written in part.
                file.set_len(shard.length)
                    .map_err(io_error("shortening", &path))?;
                none.insert(file)
            }
        };
        let written = file.write_all(&shard.unsaved);
        if let Err(error) = written {
            // The next attempt shortens the file first.
            shard.file = None;
            return Err(io_error("writing", &path)(error));
        }
        shard.length += shard.unsaved.len() as u64;
        shard.unsaved = Vec::new();
        shard.is_unsynced = true;
        Ok(())
    }

    /// Rewrites the files that consist mostly of entries that others have replaced.
    ///
    /// # Errors
    /// If one cannot be read or written; it is as before.
    pub fn compact(&mut self) -> Result<(), SnapshotError> {
        if self.mark.is_none() {
            // While the first list is read, nothing is replaced.
            return Ok(());
        }
        for number in 0..SHARDS {
            let shard = &self.shards[number];
            if shard.length < MIN_REWRITE.max(2 * shard.rewritten) {
                continue;
            }
            let path = self.path(number);
            let text = self.read(number)?;
            let mut content = Vec::new();
            for entry in last_entries(&text, &path)?.into_values().flatten() {
                let value = Some((entry.version, entry.text));
                encode(entry.key, value, &mut content);
            }
            self.shards[number].file = None;
            let written = write_privately(&path, &content);
            written.map_err(|error| io_error("writing", &path)(io::Error::other(error)))?;
            let shard = &mut self.shards[number];
            shard.length = content.len() as u64;
            shard.rewritten = shard.length;
        }
        Ok(())
    }

    /// Says which parts are complete, and whether the source is followed. What says the same as the mark on disk
    /// is written once a minute.
    ///
    /// # Errors
    /// If it cannot be written, or what it is about is not on disk; it is tried again at the next call.
    pub fn set_mark(&mut self, complete: &[&str], is_followed: bool) -> Result<(), SnapshotError> {
        let now = unix_time().as_secs();
        let old = self.mark.as_ref();
        let mark = SnapshotMark {
            schema: SCHEMA,
            location: self.location.clone(),
            complete: complete.iter().map(|part| (*part).to_owned()).collect(),
            followed_at: match (is_followed, old) {
                (false, Some(old)) => old.followed_at,
                _ => now,
            },
            stale_since: match (is_followed, old) {
                (true, _) => None,
                (false, old) => Some(old.and_then(|old| old.stale_since).unwrap_or(now)),
            },
        };
        let is_recent = old.is_some_and(|old| {
            let is_same = SnapshotMark {
                followed_at: mark.followed_at,
                ..old.clone()
            };
            is_same == mark && mark.followed_at.abs_diff(old.followed_at) < MARK_INTERVAL
        });
        let has_unsaved = self.shards.iter().any(|shard| !shard.unsaved.is_empty());
        if is_recent || complete.is_empty() || has_unsaved || self.is_abandoned {
            return Ok(());
        }
        let unsynced = self.shards.iter_mut().filter_map(|shard| {
            let is_unsynced = std::mem::take(&mut shard.is_unsynced);
            shard
                .file
                .as_ref()
                .filter(|_| is_unsynced)?
                .try_clone()
                .ok()
        });
        let unsynced: Vec<File> = unsynced.collect();
        if self.mark.is_some() {
            sync_beside(unsynced)
        } else {
            let mut synced = unsynced.iter().map(File::sync_data);
            synced
                .try_for_each(|synced| synced)
                .map_err(io_error("syncing", &self.folder))?;
        }
        let path = self.mark_path();
        let failed = io_error("writing", &path);
        let text = match serde_json::to_vec(&mark) {
            Ok(text) => text,
            Err(error) => return Err(failed(error.into())),
        };
        std::fs::create_dir_all(&self.folder).map_err(io_error("creating", &self.folder))?;
        write_privately(&path, &text).map_err(|error| failed(io::Error::other(error)))?;
        if self.mark.replace(mark).is_none() {
            for shard in &mut self.shards {
                shard.rewritten = shard.length;
            }
        }
        Ok(())
    }

    /// The text of one object as it was written last, whether or not the snapshot is complete.
    ///
    /// # Errors
    /// If its file cannot be read or is damaged.
    pub fn find(&self, key: &str) -> Result<Option<String>, SnapshotError> {
        let shard = shard_of(key);
        let (path, text) = (self.path(shard), self.read(shard)?);
        let end = complete_length(&text, &path)?;
        let entries = last_entries(text.get(..end).unwrap_or_default(), &path)?;
        let entry = entries.get(key).copied().flatten();
        Ok(entry.map(|entry| entry.text.to_owned()))
    }

    fn path(&self, shard: usize) -> PathBuf {
        self.folder.join(format!("{shard:02x}.log"))
    }

    fn mark_path(&self) -> PathBuf {
        self.folder.join("mark.json")
    }

    /// The bytes of a file; none if there is no file.
    fn read(&self, shard: usize) -> Result<Vec<u8>, SnapshotError> {
        let path = self.path(shard);
        match palisade_sys::plain_file::read(&path) {
            Ok(text) => Ok(text),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            Err(error) => Err(io_error("reading", &path)(error)),
        }
    }
}

fn io_error(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> SnapshotError + use<> {
    let path = path.to_path_buf();
    move |source| SnapshotError::Io {
        doing,
        path,
        source,
    }
}

fn remove(path: &Path) -> Result<(), SnapshotError> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(io_error("removing", path)(error))
        }
        _ => Ok(()),
    }
}

/// Syncs files in another thread: the source does not wait for a disk.
fn sync_beside(files: Vec<File>) {
    let sync = move || {
        for file in files {
            if let Err(error) = file.sync_data() {
                tracing::warn!(%error, "syncing a file of the snapshot failed");
            }
        }
    };
    let thread = std::thread::Builder::new().name("snapshot-sync".to_owned());
    if let Err(error) = thread.spawn(sync) {
        tracing::warn!(%error, "starting the thread that syncs the snapshot failed");
    }
}

fn shard_of(key: &str) -> usize {
    checksum(key.as_bytes()) as usize % SHARDS
}

#[cfg(test)]
mod tests;
