//! The last valid version of every object, on disk.
//!
//! Kept in a fixed number of files by the object's name, so that one edit rewrites one small file.
//! Each carries a schema number and is written by temporary file, fsync and rename.

use palisade_model::{Object, ObjectId};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

/// The schema this build writes.
const SCHEMA: u32 = 1;
/// The number of files.
const SHARDS: usize = 64;

/// A version that was valid.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Remembered {
    /// Its hash.
    pub(crate) hash: String,
    /// When it was read, in seconds since 1970.
    pub(crate) since: u64,
    /// The file it came from.
    pub(crate) file: String,
    /// What it said.
    pub(crate) objects: Vec<Object>,
}

#[derive(Serialize, Deserialize)]
struct Item {
    id: ObjectId,
    #[serde(flatten)]
    version: Remembered,
}

#[derive(Serialize, Deserialize)]
struct Shard {
    schema: u32,
    objects: Vec<Item>,
}

/// Why the memory could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum MemoryError {
    /// Reading or writing failed.
    #[error("{doing} {path}")]
    Io {
        /// What was being done.
        doing: &'static str,
        /// To which file.
        path: PathBuf,
        /// What went wrong.
        source: io::Error,
    },
    /// A newer Palisade wrote it.
    #[error(
        "reading {path}: schema {found} is newer than {SCHEMA}, which this build knows; enforcement in \
         the kernel stays as it is; start the newer version again"
    )]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its schema.
        found: u32,
    },
}

/// What was valid last, by object.
#[derive(Debug)]
pub(crate) struct Memory {
    folder: PathBuf,
    shards: Vec<BTreeMap<ObjectId, Remembered>>,
    changed: BTreeSet<usize>,
}

impl Memory {
    /// Reads what is kept in a state directory. A damaged file loses what it held, loudly, and
    /// nothing else: its objects are read again from the source if they are valid there.
    pub(crate) fn open(state_dir: &Path) -> Result<Self, MemoryError> {
        let folder = state_dir.join("valid");
        std::fs::create_dir_all(&folder).map_err(|source| MemoryError::Io {
            doing: "making",
            path: folder.clone(),
            source,
        })?;
        let mut memory = Memory {
            folder,
            shards: vec![BTreeMap::new(); SHARDS],
            changed: BTreeSet::new(),
        };
        for shard in 0..SHARDS {
            memory.read(shard)?;
        }
        Ok(memory)
    }

    fn path(&self, shard: usize) -> PathBuf {
        self.folder.join(format!("{shard:02x}.json"))
    }

    fn read(&mut self, shard: usize) -> Result<(), MemoryError> {
        #[derive(Deserialize)]
        struct Head {
            schema: u32,
        }
        let path = self.path(shard);
        let text = match std::fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(source) => {
                return Err(MemoryError::Io {
                    doing: "reading",
                    path,
                    source,
                });
            }
        };
        if let Ok(Head { schema: found }) = serde_json::from_slice(&text)
            && found > SCHEMA
        {
            return Err(MemoryError::Newer { path, found });
        }
        match serde_json::from_slice::<Shard>(&text) {
            Ok(read) => {
                self.shards[shard] = read
                    .objects
                    .into_iter()
                    .map(|item| (item.id, item.version))
                    .collect();
            }
            Err(error) => {
                tracing::error!(path = %path.display(), %error, "a file of last valid objects is damaged: ignored");
            }
        }
        Ok(())
    }

    /// Everything remembered.
    pub(crate) fn all(&self) -> impl Iterator<Item = (&ObjectId, &Remembered)> {
        self.shards.iter().flatten()
    }

    /// Remembers a version.
    pub(crate) fn remember(&mut self, id: &ObjectId, version: Remembered) {
        let shard = shard_of(id);
        let known = self.shards[shard].get(id);
        // Only the contents matter on disk: a moved line is no reason to write.
        let same =
            known.is_some_and(|known| known.hash == version.hash && known.file == version.file);
        if !same {
            self.shards[shard].insert(id.clone(), version);
            self.changed.insert(shard);
        }
    }

    /// Forgets an object.
    pub(crate) fn forget(&mut self, id: &ObjectId) {
        let shard = shard_of(id);
        if self.shards[shard].remove(id).is_some() {
            self.changed.insert(shard);
        }
    }

    /// Writes what changed. What could not be written is tried again at the next call.
    pub(crate) fn save(&mut self) -> Result<(), MemoryError> {
        while let Some(shard) = self.changed.first().copied() {
            let path = self.path(shard);
            let error = |source| MemoryError::Io {
                doing: "writing",
                path: path.clone(),
                source,
            };
            let objects = self.shards[shard]
                .iter()
                .map(|(id, version)| Item {
                    id: id.clone(),
                    version: version.clone(),
                })
                .collect();
            let text = serde_json::to_vec(&Shard {
                schema: SCHEMA,
                objects,
            })
            .map_err(|e| error(e.into()))?;
            palisade_sys::atomic_file::write_atomically(&path, &text)
                .map_err(|e| error(io::Error::other(e)))?;
            self.changed.remove(&shard);
        }
        Ok(())
    }
}

fn shard_of(id: &ObjectId) -> usize {
    let text = id.to_string();
    let hash = text.bytes().fold(0x811c_9dc5_u32, |hash, byte| {
        (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
    });
    hash as usize % SHARDS
}
