//! The file of the record: a database of blocks of rows, of the texts that they name, and of a header of each bucket.
//!
//! Promises: a file that is damaged, or not of this format, is moved aside, and a new one begins.
//!
//! Never: deletes a file that it cannot read.

use redb::backends::FileBackend;
use redb::{
    Builder, Database, DatabaseError, ReadableDatabase, StorageError, TableDefinition, TableError,
};
use std::fs::OpenOptions;
use std::io::ErrorKind;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// The blocks of rows, by number of the bucket and place in it.
pub(crate) const BLOCKS: TableDefinition<'_, (u64, u32), &[u8]> = TableDefinition::new("blocks");
/// A [`crate::bucket_header::BucketHeader`] of each bucket.
pub(crate) const BUCKETS: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("buckets");
/// The texts that rows name: the number of a text is that in the row and `text_base` of the header.
pub(crate) const TEXTS: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("texts");
/// What the file is.
const ABOUT: TableDefinition<'_, &str, u64> = TableDefinition::new("about");

/// The version of the format, in [`ABOUT`].
const FORMAT: (&str, u64) = ("palisade-flows", 1);

/// The database's cache: what is read is read once and in order.
const CACHE_BYTES: usize = 4 << 20;

/// What opens the database of a path.
pub(crate) type DatabaseOpener = fn(&Path) -> Result<Database, DatabaseError>;

/// Why flows are not recorded, or not read.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum FlowStoreError {
    /// The file cannot be opened.
    #[error("opening the record of flows {}", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// Why.
        source: Box<redb::Error>,
    },
    /// The file was damaged, or no record; a new one has begun.
    #[error("the record of flows {} could not be read; it is {} now, and a new one has begun", path.display(), aside.display())]
    MovedAside {
        /// The file.
        path: PathBuf,
        /// Where it is now.
        aside: PathBuf,
        /// Why; `None` if it is of another format.
        source: Option<Box<redb::Error>>,
    },
    /// The file is damaged, and cannot be moved.
    #[error("moving the unreadable record of flows {}", path.display())]
    Move {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The file cannot be written.
    #[error("writing the record of flows {}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
        source: Box<redb::Error>,
    },
    /// The file cannot be read.
    #[error("reading the record of flows {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: Box<redb::Error>,
    },
}

impl FlowStoreError {
    /// Which error it is, as one word in upper camel case that never changes.
    pub fn reason(&self) -> &'static str {
        match self {
            FlowStoreError::Open { .. } => "OpenFailed",
            FlowStoreError::MovedAside { .. } => "MovedAside",
            FlowStoreError::Move { .. } => "MoveFailed",
            FlowStoreError::Write { .. } => "WriteFailed",
            FlowStoreError::Read { .. } => "ReadFailed",
        }
    }
}

/// Opens the file of a path, which not everybody may read, with a check of all its bytes.
pub(crate) fn open_file(path: &Path) -> Result<Database, DatabaseError> {
    let mut builder = Builder::new();
    builder.set_cache_size(CACHE_BYTES);
    builder.set_check_integrity_on_open(true);
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    let file = options.mode(0o640).open(path)?;
    builder.create_with_backend(FileBackend::new(file)?)
}

/// The database, and what is to be told about it if it is not the one that was there.
pub(crate) struct OpenedDatabase {
    pub(crate) database: Database,
    pub(crate) notice: Option<FlowStoreError>,
}

/// Opens the record, or begins a new one.
pub(crate) fn open_record(
    path: &Path,
    open: DatabaseOpener,
) -> Result<OpenedDatabase, FlowStoreError> {
    let failed = |source: redb::Error| FlowStoreError::Open {
        path: path.to_path_buf(),
        source: Box::new(source),
    };
    let damage = match open(path) {
        Ok(database) => match has_format(&database) {
            Ok(true) => {
                return Ok(OpenedDatabase {
                    database,
                    notice: None,
                });
            }
            Ok(false) => None,
            Err(error) => Some(Box::new(error)),
        },
        Err(error) if is_damage(&error) => Some(Box::new(error.into())),
        Err(error) => return Err(failed(error.into())),
    };
    let mut aside = path.as_os_str().to_owned();
    aside.push(".unreadable");
    let aside = PathBuf::from(aside);
    std::fs::rename(path, &aside).map_err(|source| FlowStoreError::Move {
        path: path.to_path_buf(),
        source,
    })?;
    let database = open(path).map_err(|error| failed(error.into()))?;
    has_format(&database).map_err(failed)?;
    Ok(OpenedDatabase {
        database,
        notice: Some(FlowStoreError::MovedAside {
            path: path.to_path_buf(),
            aside,
            source: damage,
        }),
    })
}

/// Whether an error means that the file is not what was written.
fn is_damage(error: &DatabaseError) -> bool {
    match error {
        DatabaseError::UpgradeRequired(_)
        | DatabaseError::Storage(StorageError::Corrupted(_))
        | DatabaseError::RepairAborted => true,
        DatabaseError::Storage(StorageError::Io(error)) => {
            matches!(
                error.kind(),
                ErrorKind::InvalidData | ErrorKind::UnexpectedEof
            )
        }
        _ => false,
    }
}

/// Whether a database is of our format; an empty one is from now on.
fn has_format(database: &Database) -> Result<bool, redb::Error> {
    let read = database.begin_read()?;
    match read.open_table(ABOUT) {
        Ok(about) => {
            let format = about.get(FORMAT.0)?.map(|format| format.value());
            return Ok(format == Some(FORMAT.1));
        }
        Err(TableError::TableDoesNotExist(_)) => {}
        Err(TableError::Storage(error)) => return Err(error.into()),
        Err(_) => return Ok(false),
    }
    if read.list_tables()?.next().is_some() {
        return Ok(false);
    }
    drop(read);
    let write = database.begin_write()?;
    write.open_table(ABOUT)?.insert(FORMAT.0, FORMAT.1)?;
    write.open_table(BLOCKS)?;
    write.open_table(BUCKETS)?;
    write.open_table(TEXTS)?;
    write.commit()?;
    Ok(true)
}
