//! The record of flows on disk: whole buckets, the latest of which is written again and again while it grows.
//!
//! Promises: bounded by bytes and by age, the oldest buckets go first. What a write returned for survives a kill and a
//! power failure; a write is whole or not there. Buckets are in the order in which they were made, whatever the clock said.
//! If the disk is full or does not allow writing, each write says so, and the first one that succeeds has everything that
//! its bucket has. Never: removes more than a few buckets at once for their age, since the clock may be wrong.

use crate::block::encode_rows;
use crate::bucket::BucketSnapshot;
use crate::bucket_header::BucketHeader;
use crate::database::{
    BLOCKS, BUCKETS, DatabaseOpener, FlowStoreError, OpenedDatabase, TEXTS, open_file, open_record,
};
use redb::{Database, ReadableDatabase, ReadableTable, WriteTransaction};
use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// The name of the file in the state directory.
pub const RECORD_FILE: &str = "flows.redb";

/// The name that an unreadable file gets.
pub const UNREADABLE_RECORD_FILE: &str = "flows.redb.unreadable";

/// The greatest number of buckets that a write removes because of their age: a clock that is set forward and back costs an
/// hour of the record at most if it is set right within a minute.
const MAX_AGED: usize = 1;

/// The greatest number of buckets that a write removes because of their size.
const MAX_REMOVED: usize = 64;

/// What a page of the database holds beside what is counted here.
const OVERHEAD_PERCENT: u64 = 25;

/// How much is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreLimits {
    /// The greatest number of bytes.
    pub bytes: u64,
    /// The greatest age of a bucket.
    pub age: Duration,
}

/// The record of flows on disk.
pub struct FlowStore {
    path: PathBuf,
    limits: StoreLimits,
    open: DatabaseOpener,
    opened: Option<OpenedStore>,
    /// What is added to the number of a bucket of this process.
    first_number: Option<u64>,
}

struct OpenedStore {
    database: Arc<Database>,
    buckets: BTreeMap<u64, BucketHeader>,
    next_text: u64,
    written: Option<WrittenTexts>,
}

/// The texts of the present dictionary that are on disk.
#[derive(Clone, Copy)]
struct WrittenTexts {
    generation: u64,
    base: u64,
    count: usize,
    bytes: u64,
}

/// A write that succeeded.
#[derive(Debug)]
pub struct BucketWritten {
    /// The bytes of its rows.
    pub bytes: u64,
    /// What happened to the file that was there, if it was opened now.
    pub notice: Option<FlowStoreError>,
}

impl FlowStore {
    /// The record in this file, which is opened when it is first written or read.
    pub fn new(path: PathBuf, limits: StoreLimits) -> Self {
        Self::with_opener(path, limits, open_file)
    }

    pub(crate) fn with_opener(path: PathBuf, limits: StoreLimits, open: DatabaseOpener) -> Self {
        FlowStore {
            path,
            limits,
            open,
            opened: None,
            first_number: None,
        }
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The number on disk of the first bucket of this process.
    pub(crate) fn first_number(&self) -> u64 {
        self.first_number.unwrap_or_default()
    }

    /// The database for readers, opened if it is not; and what happened to the file that was there.
    pub(crate) fn database(
        &mut self,
    ) -> Result<(Arc<Database>, Option<FlowStoreError>), FlowStoreError> {
        if let Some(opened) = &self.opened {
            return Ok((Arc::clone(&opened.database), None));
        }
        let OpenedDatabase { database, notice } = open_record(&self.path, self.open)?;
        let opened = OpenedStore::read(database).map_err(|source| FlowStoreError::Open {
            path: self.path.clone(),
            source: Box::new(source),
        })?;
        let next = opened.buckets.last_key_value().map(|(last, _)| last + 1);
        self.first_number.get_or_insert(next.unwrap_or_default());
        let database = Arc::clone(&opened.database);
        self.opened = Some(opened);
        Ok((database, notice))
    }

    /// Writes a bucket, in place of what was written of it before. `now` is since the epoch.
    ///
    /// # Errors
    /// If the file cannot be opened or written. The next write tries again.
    pub fn write(
        &mut self,
        bucket: &BucketSnapshot,
        now: Duration,
    ) -> Result<BucketWritten, FlowStoreError> {
        let (_, notice) = self.database()?;
        let number = self.first_number() + bucket.number;
        let (limits, path) = (self.limits, self.path.clone());
        let failed = |source: redb::Error| FlowStoreError::Write {
            path,
            source: Box::new(source),
        };
        let Some(opened) = &mut self.opened else {
            return Err(failed(redb::Error::DatabaseClosed));
        };
        // A file that was changed while it is open can make the database panic; it is checked when it is opened again.
        let write = AssertUnwindSafe(|| opened.write(number, bucket, &limits, now));
        let written = catch_unwind(write)
            .unwrap_or_else(|_| Err(redb::Error::Corrupted("its writer panicked".to_owned())));
        match written {
            Ok(bytes) => Ok(BucketWritten { bytes, notice }),
            Err(error) => {
                // After a failed write the database is of no use.
                self.opened = None;
                Err(failed(error))
            }
        }
    }
}

impl OpenedStore {
    /// What is in a database.
    fn read(database: Database) -> Result<Self, redb::Error> {
        let read = database.begin_read()?;
        let mut buckets = BTreeMap::new();
        for entry in read.open_table(BUCKETS)?.iter()? {
            let (number, header) = entry?;
            if let Some(header) = BucketHeader::decode(header.value()) {
                buckets.insert(number.value(), header);
            }
        }
        let texts = read.open_table(TEXTS)?;
        let next_text = texts.last()?.map_or(0, |(number, _)| number.value());
        drop((texts, read));
        Ok(OpenedStore {
            database: Arc::new(database),
            buckets,
            next_text,
            written: None,
        })
    }

    /// Writes a bucket; the bytes of its rows.
    fn write(
        &mut self,
        number: u64,
        bucket: &BucketSnapshot,
        limits: &StoreLimits,
        now: Duration,
    ) -> Result<u64, redb::Error> {
        let mut texts = match self.written {
            Some(written) if written.generation == bucket.generation => written,
            _ => WrittenTexts {
                generation: bucket.generation,
                base: self.next_text,
                count: 0,
                bytes: 0,
            },
        };
        let write = self.database.begin_write()?;
        write_texts(&write, &mut texts, bucket)?;
        let blocks = encode_rows(&bucket.rows, bucket.start);
        let block_bytes = blocks.iter().map(|block| block.len() as u64).sum();
        let header = BucketHeader {
            start: bucket.start,
            last: bucket.last(),
            text_base: texts.base,
            text_bytes: texts.bytes,
            blocks: blocks.len() as u64,
            block_bytes,
            rows: bucket.rows.len() as u64,
            lost: bucket.lost,
            folded: bucket.folded,
        };
        let mut buckets = self.buckets.clone();
        let before = buckets.insert(number, header);
        write_blocks(&write, number, &blocks, before.map_or(0, |old| old.blocks))?;
        (write.open_table(BUCKETS)?).insert(number, header.encode().as_slice())?;
        let removed = surplus(&mut buckets, number, limits, now);
        remove_buckets(&write, &removed, &buckets)?;
        write.commit()?;
        self.buckets = buckets;
        self.next_text = texts.base + texts.count as u64;
        self.written = Some(texts);
        Ok(block_bytes)
    }
}

/// Writes the texts of a bucket that are not on disk.
fn write_texts(
    write: &WriteTransaction,
    texts: &mut WrittenTexts,
    bucket: &BucketSnapshot,
) -> Result<(), redb::Error> {
    let mut table = write.open_table(TEXTS)?;
    for text in bucket.texts.iter().skip(texts.count) {
        texts.count += 1;
        texts.bytes += text.len() as u64;
        table.insert(texts.base + texts.count as u64, &**text)?;
    }
    Ok(())
}

/// Writes the blocks of a bucket in place of the ones before.
fn write_blocks(
    write: &WriteTransaction,
    number: u64,
    blocks: &[Vec<u8>],
    before: u64,
) -> Result<(), redb::Error> {
    let mut table = write.open_table(BLOCKS)?;
    let mut place = 0;
    for block in blocks {
        table.insert((number, place), block.as_slice())?;
        place += 1;
    }
    for surplus in place..u32::try_from(before).unwrap_or(u32::MAX) {
        table.remove((number, surplus))?;
    }
    Ok(())
}

/// Takes the buckets out that are too many, but for the one that is written.
fn surplus(
    buckets: &mut BTreeMap<u64, BucketHeader>,
    present: u64,
    limits: &StoreLimits,
    now: Duration,
) -> Vec<(u64, BucketHeader)> {
    let mut removed = Vec::new();
    let mut bytes = disk_bytes(buckets);
    while removed.len() < MAX_REMOVED {
        let Some((number, oldest)) = buckets.first_key_value().map(|(n, header)| (*n, *header))
        else {
            break;
        };
        let age = now.as_secs().saturating_sub(oldest.last);
        let is_aged = age > limits.age.as_secs() && removed.len() < MAX_AGED;
        if number == present || !(is_aged || bytes > limits.bytes) {
            break;
        }
        buckets.remove(&number);
        removed.push((number, oldest));
        bytes = disk_bytes(buckets);
    }
    removed
}

/// The bytes that buckets need on disk, as good as it can be said.
fn disk_bytes(buckets: &BTreeMap<u64, BucketHeader>) -> u64 {
    let mut texts = BTreeMap::new();
    let mut bytes = 0;
    for header in buckets.values() {
        bytes += header.block_bytes;
        let of_base = texts.entry(header.text_base).or_insert(0);
        *of_base = header.text_bytes.max(*of_base);
    }
    bytes += texts.values().sum::<u64>();
    bytes + bytes / 100 * OVERHEAD_PERCENT
}

/// Removes buckets, and the texts that only they name.
fn remove_buckets(
    write: &WriteTransaction,
    removed: &[(u64, BucketHeader)],
    remaining: &BTreeMap<u64, BucketHeader>,
) -> Result<(), redb::Error> {
    if removed.is_empty() {
        return Ok(());
    }
    let mut blocks = write.open_table(BLOCKS)?;
    let mut buckets = write.open_table(BUCKETS)?;
    for (number, header) in removed {
        buckets.remove(number)?;
        for place in 0..u32::try_from(header.blocks).unwrap_or(u32::MAX) {
            blocks.remove((*number, place))?;
        }
    }
    let bases: BTreeSet<u64> = remaining.values().map(|header| header.text_base).collect();
    if let Some(oldest) = bases.first() {
        // The number of the first text of a base is greater than the base.
        write
            .open_table(TEXTS)?
            .retain_in(..=*oldest, |_, _| false)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
