//! The objects in force, in memory and on disk, where the next start reads them.
//!
//! On disk they are distributed over a fixed number of files by the hash of the name, so that one edit
//! rewrites one small file. Each file carries a schema number and is replaced by temporary file, fsync and
//! rename.

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
    /// `None` for the isolation policy of an object that was never valid.
    pub(crate) version: Option<ValidVersion>,
    /// The file it came from, or the file that may hold a later version.
    pub(crate) file: Arc<Path>,
    /// Its model objects.
    pub(crate) objects: Arc<Vec<Object>>,
}

/// A valid version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ValidVersion {
    /// Its hash.
    pub(crate) hash: ContentHash,
    /// When it was first read, in seconds since 1970.
    pub(crate) since: u64,
}

/// An object in force, as stored on disk.
#[derive(Serialize, Deserialize)]
struct StoredObject {
    id: ObjectId,
    version: Option<StoredVersion>,
    /// Two names that are not UTF-8 may be equal after a restart.
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
            // An unreadable hash matches no version: the object is read again.
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

/// Why the stored versions could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum VersionStoreError {
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
    /// A newer Palisade wrote the file.
    #[error(
        "reading {path}: schema {found} is newer than schema {SCHEMA} of this build; enforcement in the \
         kernel is unchanged; start the newer version again"
    )]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its schema.
        found: u32,
    },
}

/// The objects in force, by name.
#[derive(Debug)]
pub(crate) struct VersionStore {
    folder: PathBuf,
    shards: Vec<BTreeMap<SharedId, EffectiveObject>>,
    /// The shards that differ from the files.
    changed: BTreeSet<usize>,
    /// Whether the files are never written.
    read_only: bool,
}

impl VersionStore {
    /// Reads the stored versions of a state directory. A corrupt file loses its objects, with an error in the
    /// log; other files are unaffected, and the objects are read again from the source where they are valid.
    pub(crate) fn open(state_dir: &Path) -> Result<Self, VersionStoreError> {
        let folder = state_dir.join("valid");
        std::fs::create_dir_all(&folder).map_err(|source| VersionStoreError::Io {
            doing: "making",
            path: folder.clone(),
            source,
        })?;
        VersionStore::load(folder, false)
    }

    /// Like [`VersionStore::open`], but never writes.
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
                tracing::error!(path = %path.display(), %error, "ignored a corrupt file of last valid \
                    versions; the policy directory is read instead");
                // Rewritten, so that the error is logged once.
                self.changed.insert(shard);
            }
        }
        Ok(())
    }

    /// All objects in force.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&SharedId, &EffectiveObject)> {
        self.shards.iter().flatten()
    }

    /// The number of objects in force.
    pub(crate) fn len(&self) -> usize {
        self.shards.iter().map(BTreeMap::len).sum()
    }

    /// The version in force of this object.
    pub(crate) fn get(&self, id: &ObjectId) -> Option<&EffectiveObject> {
        self.shards[shard_of(id)].get(id)
    }

    /// Puts an object in force; returns the previous version.
    pub(crate) fn insert(
        &mut self,
        id: &SharedId,
        object: EffectiveObject,
    ) -> Option<EffectiveObject> {
        let shard = shard_of(id);
        let (version, file) = (object.version, Arc::clone(&object.file));
        // Removed first, so that the key is the shared name and not the one read from disk.
        let previous = self.shards[shard].remove(id);
        self.shards[shard].insert(SharedId::clone(id), object);
        // Only content and file are stored: a moved line needs no write.
        let same = previous
            .as_ref()
            .is_some_and(|before| before.version == version && before.file == file);
        if !same {
            self.changed.insert(shard);
        }
        previous
    }

    /// Removes an object; returns its version.
    pub(crate) fn remove(&mut self, id: &ObjectId) -> Option<EffectiveObject> {
        let shard = shard_of(id);
        let previous = self.shards[shard].remove(id);
        if previous.is_some() {
            self.changed.insert(shard);
        }
        previous
    }

    /// Marks an object for writing although its version is the same: this build lowers it differently.
    pub(crate) fn mark_changed(&mut self, id: &ObjectId) {
        self.changed.insert(shard_of(id));
    }

    /// Writes the changed files. A file that could not be written is tried again at the next call.
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
