//! What is in force, and the same on disk: an input of the next start.
//!
//! On disk it is kept in a fixed number of files by the object's name, so that one edit rewrites one
//! small file. Each carries a schema number and is written by temporary file, fsync and rename.

use crate::file_object::SharedId;
use palisade_dialects::ContentHash;
use palisade_model::{Object, ObjectId};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The schema this build writes.
const SCHEMA: u32 = 1;
/// The number of files.
const SHARDS: usize = 64;

/// An object in force.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct EffectiveObject {
    /// `None` for an isolation in the place of an object that was never valid.
    pub(crate) version: Option<ValidVersion>,
    /// The file it came from, or that may hold what came after it.
    pub(crate) file: Arc<Path>,
    /// What it says.
    pub(crate) objects: Arc<Vec<Object>>,
}

/// A version that was valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ValidVersion {
    /// Its hash.
    pub(crate) hash: ContentHash,
    /// When it was first read, in seconds since 1970.
    pub(crate) since: u64,
}

/// An object in force, on disk.
#[derive(Serialize, Deserialize)]
struct StoredObject {
    id: ObjectId,
    version: Option<StoredVersion>,
    /// A name that is no text cannot be told apart from another such name after a restart.
    file: String,
    objects: Arc<Vec<Object>>,
}

#[derive(Serialize, Deserialize)]
struct StoredVersion {
    hash: String,
    since: u64,
}

impl StoredObject {
    fn of(id: &ObjectId, object: &EffectiveObject) -> Self {
        StoredObject {
            id: id.clone(),
            version: object.version.map(|version| StoredVersion {
                hash: version.hash.to_string(),
                since: version.since,
            }),
            file: object.file.to_string_lossy().into_owned(),
            objects: Arc::clone(&object.objects),
        }
    }

    fn into_effective(self) -> (SharedId, EffectiveObject) {
        let version = self.version.map(|version| ValidVersion {
            // A hash that is none is no version's: the object is read anew.
            hash: ContentHash(u128::from_str_radix(&version.hash, 16).unwrap_or_default()),
            since: version.since,
        });
        let object = EffectiveObject {
            version,
            file: PathBuf::from(self.file).into(),
            objects: self.objects,
        };
        (Arc::new(self.id), object)
    }
}

#[derive(Serialize, Deserialize)]
struct Shard {
    schema: u32,
    objects: Vec<StoredObject>,
}

/// Why the memory could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum VersionStoreError {
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

/// What is in force, by object.
#[derive(Debug)]
pub(crate) struct VersionStore {
    folder: PathBuf,
    shards: Vec<BTreeMap<SharedId, EffectiveObject>>,
    /// The shards that differ from what is on disk.
    changed: BTreeSet<usize>,
    /// Whether the disk is left as it is.
    read_only: bool,
}

impl VersionStore {
    /// Reads what is kept in a state directory. A damaged file loses what it held, loudly, and
    /// nothing else: its objects are read again from the source if they are valid there.
    pub(crate) fn open(state_dir: &Path) -> Result<Self, VersionStoreError> {
        let folder = state_dir.join("valid");
        std::fs::create_dir_all(&folder).map_err(|source| VersionStoreError::Io {
            doing: "making",
            path: folder.clone(),
            source,
        })?;
        VersionStore::load(folder, false)
    }

    /// The same, and never writes anything.
    pub(crate) fn open_read_only(state_dir: &Path) -> Result<Self, VersionStoreError> {
        VersionStore::load(state_dir.join("valid"), true)
    }

    fn load(folder: PathBuf, reads_only: bool) -> Result<Self, VersionStoreError> {
        let mut memory = VersionStore {
            folder,
            shards: vec![BTreeMap::new(); SHARDS],
            changed: BTreeSet::new(),
            read_only: reads_only,
        };
        for shard in 0..SHARDS {
            memory.read(shard)?;
        }
        Ok(memory)
    }

    fn path(&self, shard: usize) -> PathBuf {
        self.folder.join(format!("{shard:02x}.json"))
    }

    fn read(&mut self, shard: usize) -> Result<(), VersionStoreError> {
        #[derive(Deserialize)]
        struct ShardHeader {
            schema: u32,
        }
        let path = self.path(shard);
        let text = match std::fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(source) => {
                return Err(VersionStoreError::Io {
                    doing: "reading",
                    path,
                    source,
                });
            }
        };
        if let Ok(ShardHeader { schema: found }) = serde_json::from_slice(&text)
            && found > SCHEMA
        {
            return Err(VersionStoreError::Newer { path, found });
        }
        match serde_json::from_slice::<Shard>(&text) {
            Ok(read) => {
                self.shards[shard] = read
                    .objects
                    .into_iter()
                    .map(StoredObject::into_effective)
                    .collect();
            }
            Err(error) => {
                tracing::error!(path = %path.display(), %error, "a file of last valid objects is damaged: ignored");
                // Written anew, so that it is complained about once.
                self.changed.insert(shard);
            }
        }
        Ok(())
    }

    /// Everything in force.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&SharedId, &EffectiveObject)> {
        self.shards.iter().flatten()
    }

    /// How many objects are in force.
    pub(crate) fn len(&self) -> usize {
        self.shards.iter().map(BTreeMap::len).sum()
    }

    /// What is in force of this name.
    pub(crate) fn get(&self, id: &ObjectId) -> Option<&EffectiveObject> {
        self.shards[shard_of(id)].get(id)
    }

    /// Puts an object in force; gives what was before.
    pub(crate) fn insert(
        &mut self,
        id: &SharedId,
        object: EffectiveObject,
    ) -> Option<EffectiveObject> {
        let shard = shard_of(id);
        let (version, file) = (object.version, Arc::clone(&object.file));
        // Taken out first, so that the name is the one the pieces share, not the one read from disk.
        let previous = self.shards[shard].remove(id);
        self.shards[shard].insert(SharedId::clone(id), object);
        // Only contents and files matter on disk: a moved line is no reason to write.
        let same = previous
            .as_ref()
            .is_some_and(|before| before.version == version && before.file == file);
        if !same {
            self.changed.insert(shard);
        }
        previous
    }

    /// Takes an object out of force; gives what it was.
    pub(crate) fn remove(&mut self, id: &ObjectId) -> Option<EffectiveObject> {
        let shard = shard_of(id);
        let previous = self.shards[shard].remove(id);
        if previous.is_some() {
            self.changed.insert(shard);
        }
        previous
    }

    /// Has an object written though its version is the same: this build reads it otherwise.
    pub(crate) fn mark_changed(&mut self, id: &ObjectId) {
        self.changed.insert(shard_of(id));
    }

    /// Writes what changed. What could not be written is tried again at the next call.
    pub(crate) fn save(&mut self) -> Result<(), VersionStoreError> {
        if self.read_only {
            self.changed.clear();
        }
        while let Some(shard) = self.changed.first().copied() {
            let path = self.path(shard);
            let error = |source| VersionStoreError::Io {
                doing: "writing",
                path: path.clone(),
                source,
            };
            let objects = self.shards[shard]
                .iter()
                .map(|(id, object)| StoredObject::of(id, object))
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
    let parts = [
        id.namespace.as_deref().unwrap_or_default(),
        &id.name,
        &id.kind,
    ];
    let bytes = parts.iter().flat_map(|part| part.bytes());
    // Source: FNV-1a of 32 bits.
    let hash = bytes.fold(0x811c_9dc5_u32, |hash, byte| {
        (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
    });
    hash as usize % SHARDS
}
