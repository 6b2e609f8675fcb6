//! The last valid versions on disk, where the next start reads them: of objects that can be invalid (policies,
//! tiers, profiles, network sets), never of pods and the like, which are dropped from older files.
//!
//! They are distributed over a fixed number of files by the hash of the name, so that one edit
//! rewrites one small file. Each file carries a schema number and is replaced by temporary file, fsync and
//! rename.

use crate::file_problem::printable_path;
use crate::stored_parts::StoredPart;
use palisade_dialects::{ContentHash, network_set_kind};
use palisade_effective::{
    EffectiveVersion, ObjectOrigin, RestoredObject, SharedId, ValidVersion, is_saved,
};
use palisade_manifest::Location;
use palisade_model::{Object, ObjectId, Str};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The schema this build writes.
const SCHEMA: u32 = 1;
/// The number of files.
const SHARDS: usize = 64;

/// An object in force, as stored on disk.
#[derive(Serialize, Deserialize)]
struct StoredObject {
    id: ObjectId,
    version: Option<StoredVersion>,
    /// The file, or the name of the resource.
    file: String,
    /// The resource version, if it was not read from a file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    resource_version: Option<Str>,
    /// The name of its source; older files have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    source: Option<Str>,
    objects: Arc<Vec<Object>>,
    /// The parts that are held closed; older files have none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    closed: Vec<StoredPart>,
    #[serde(default, skip_serializing_if = "is_zero")]
    more_closed: usize,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
fn is_zero(count: &usize) -> bool {
    *count == 0
}

#[derive(Serialize, Deserialize)]
struct StoredVersion {
    hash: String,
    since: u64,
}

impl StoredObject {
    fn of(id: &ObjectId, saved: &SavedVersion) -> Self {
        let (file, resource_version) = match &saved.version.origin {
            ObjectOrigin::File { path, .. } => (path.to_string(), None),
            ObjectOrigin::Resource { version, location } => {
                (location.file.to_string(), Some(version.clone()))
            }
        };
        StoredObject {
            id: id.clone(),
            version: saved.version.version.map(|version| StoredVersion {
                hash: version.hash.to_string(),
                since: version.since,
            }),
            file,
            resource_version,
            source: saved.source.clone(),
            objects: Arc::clone(&saved.version.objects),
            closed: StoredPart::all_of(saved.version.closed.as_deref()),
            more_closed: saved
                .version
                .closed
                .as_ref()
                .map_or(0, |closed| closed.more),
        }
    }

    fn into_saved(self) -> (SharedId, SavedVersion) {
        let mut objects = self.objects;
        for object in Arc::make_mut(&mut objects) {
            if let Object::NetworkSet(set) = object {
                // It may have been stored before there was a field for it.
                set.kind = network_set_kind(&set.id.kind);
            }
        }
        let version = self.version.map(|version| ValidVersion {
            // An unreadable hash matches no version: the object is read again.
            hash: ContentHash(u128::from_str_radix(&version.hash, 16).unwrap_or_default()),
            since: version.since,
        });
        let location = Location {
            file: printable_path(Path::new(&self.file)).into(),
            line: 1,
            column: 1,
        };
        let origin = match self.resource_version {
            Some(version) => ObjectOrigin::Resource { version, location },
            None => ObjectOrigin::File {
                path: self.file.into(),
                location,
            },
        };
        let saved = SavedVersion {
            version: EffectiveVersion {
                version,
                source: 0,
                origin,
                objects,
                closed: StoredPart::into_parts(self.closed, self.more_closed),
            },
            source: self.source,
            is_read: true,
        };
        (Arc::new(self.id), saved)
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

/// A version on disk.
#[derive(Clone, Debug)]
struct SavedVersion {
    version: EffectiveVersion,
    /// The name of its source.
    source: Option<Str>,
    /// Whether it was read from disk: this build may lower the object differently.
    is_read: bool,
}

impl SavedVersion {
    /// Whether the other needs no write: a moved line alone needs none.
    fn is_same(&self, other: &SavedVersion) -> bool {
        let origin = |saved: &SavedVersion| match &saved.version.origin {
            ObjectOrigin::File { path, .. } => path.to_string(),
            ObjectOrigin::Resource { version, location } => format!("{version} {}", location.file),
        };
        self.version.version == other.version.version
            && self.source == other.source
            && origin(self) == origin(other)
            && (!self.is_read
                || self.version.objects == other.version.objects
                    && self.version.closed == other.version.closed)
    }
}

/// The saved versions, by name.
#[derive(Debug)]
pub(crate) struct VersionStore {
    folder: PathBuf,
    shards: Vec<BTreeMap<SharedId, SavedVersion>>,
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
        let text = match palisade_sys::plain_file::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            // No plain file: damaged like one without sense.
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
                self.forget_damaged(shard, &error);
                return Ok(());
            }
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
                let all = read.objects.len();
                self.shards[shard] = read
                    .objects
                    .into_iter()
                    .filter(|object| is_saved(&object.objects))
                    .map(StoredObject::into_saved)
                    .collect();
                if self.shards[shard].len() < all {
                    self.changed.insert(shard);
                }
            }
            Err(error) => self.forget_damaged(shard, &error),
        }
        Ok(())
    }

    /// Reports a file that cannot be read; it is rewritten, so that the error is logged once.
    fn forget_damaged(&mut self, shard: usize, error: &dyn std::fmt::Display) {
        let path = self.path(shard);
        tracing::error!(path = %path.display(), %error, "ignored a corrupt file of last valid \
            versions; the policy directory is read instead");
        self.changed.insert(shard);
    }

    /// The objects that were saved.
    pub(crate) fn restored(&self) -> impl Iterator<Item = RestoredObject> {
        let saved = self.shards.iter().flatten();
        saved.map(|(id, saved)| RestoredObject {
            id: id.clone(),
            source: saved.source.clone(),
            version: saved.version.clone(),
        })
    }

    /// Replaces or removes the version of an object; it is written by [`VersionStore::save`].
    pub(crate) fn put(
        &mut self,
        id: &SharedId,
        version: Option<EffectiveVersion>,
        source: Option<&Str>,
    ) {
        let shard = shard_of(id);
        let Some(version) = version else {
            if self.shards[shard].remove(id).is_some() {
                self.changed.insert(shard);
            }
            return;
        };
        let saved = SavedVersion {
            version,
            source: source.cloned(),
            is_read: false,
        };
        // Removed first, so that the key is the shared name and not the one read from disk.
        let previous = self.shards[shard].remove(id);
        if !previous.is_some_and(|previous| previous.is_same(&saved)) {
            self.changed.insert(shard);
        }
        self.shards[shard].insert(SharedId::clone(id), saved);
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
                .map(|(id, saved)| StoredObject::of(id, saved))
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
        id.kind.name(),
    ];
    let bytes = parts.iter().flat_map(|part| part.bytes());
    // Source: FNV-1a of 32 bits.
    let hash = bytes.fold(0x811c_9dc5_u32, |hash, byte| {
        (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
    });
    hash as usize % SHARDS
}
