//! The file: its limits, damage, kills in the middle of writes, disks that are full.

use super::*;
use crate::aggregate::BUCKET_SECONDS;
use crate::recent::RecentLines;
use crate::recorder::FlowRecorder;
use crate::row::{RowCounts, RowKey, RowPort};
use palisade_api::{RecordedFlowList, RecordedFlowQuery};
use redb::StorageBackend;
use redb::backends::FileBackend;
use std::io::{self, Read};
use std::sync::atomic::{AtomicU64, Ordering};

const BEGIN: u64 = 1_790_000_100;
const DAY: Duration = Duration::from_secs(24 * 3_600);

fn limits(bytes: u64) -> StoreLimits {
    StoreLimits { bytes, age: DAY }
}

/// A bucket with this many rows, each of a source of its own.
fn bucket(number: u64, rows: u32) -> BucketSnapshot {
    let start = BEGIN + number * BUCKET_SECONDS;
    let row = |source| {
        let key = RowKey {
            source,
            destination: 1,
            protocol: 6,
            port: RowPort::Port(80),
            is_denied: false,
            egress: 0,
            ingress: 0,
        };
        let counts = RowCounts {
            count: number,
            ..RowCounts::at(start + 1)
        };
        (key, counts)
    };
    let text = |source: u32| format!(r#"{{"address":"10.{}.{}.1"}}"#, source / 256, source % 256);
    BucketSnapshot {
        number,
        start,
        generation: number / 10,
        texts: (1..=rows)
            .map(|source| text(source).into_bytes().into())
            .collect(),
        rows: (1..=rows).map(row).collect(),
        lost: 1,
        folded: 0,
    }
}

fn now(number: u64) -> Duration {
    Duration::from_secs(BEGIN + (number + 1) * BUCKET_SECONDS)
}

fn list(path: &Path) -> RecordedFlowList {
    let store = FlowStore::new(path.to_path_buf(), limits(1 << 30));
    let clock = Arc::new(|| now(0));
    let record = FlowRecorder::new(RecentLines::new(1), store, clock);
    record.query(&RecordedFlowQuery::default(), "node").unwrap()
}

/// The number of each bucket on disk.
fn numbers(store: &FlowStore) -> Vec<u64> {
    let opened = store.opened.as_ref().unwrap();
    let first = store.first_number();
    opened.buckets.keys().map(|number| number - first).collect()
}

#[test]
fn the_oldest_buckets_go_by_size_with_their_texts() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join(RECORD_FILE);
    let most = 3 << 20;
    let mut store = FlowStore::new(path.clone(), limits(most));
    for number in 1..=100 {
        // A bucket is written while it grows.
        for rows in [500, 4_000] {
            store.write(&bucket(number, rows), now(number)).unwrap();
        }
    }
    let remaining = numbers(&store);
    assert!(
        remaining.len() > 20 && remaining.len() < 90,
        "{}",
        remaining.len()
    );
    assert_eq!(*remaining.last().unwrap(), 100);
    assert!(remaining.is_sorted_by(|a, b| a + 1 == *b));
    let read = store.database().unwrap().0.begin_read().unwrap();
    let texts = read.open_table(TEXTS).unwrap();
    let generations = 100 / 10 - remaining[0] / 10 + 1;
    use redb::ReadableTableMetadata;
    assert_eq!(texts.len().unwrap(), generations * 4_000);
    drop((texts, read, store));
    let used = std::os::unix::fs::MetadataExt::blocks(&std::fs::metadata(&path).unwrap()) * 512;
    assert!(used < most * 3 / 2, "{used}");
    let found = list(&path);
    assert_eq!(found.flows.len(), 1_000);
    assert_eq!(found.flows[0].count, remaining.iter().sum::<u64>());
    assert_eq!(found.lost, remaining.len() as u64);
}

#[test]
fn the_oldest_buckets_go_by_age_one_at_a_time() {
    let directory = tempfile::tempdir().unwrap();
    let mut store = FlowStore::new(directory.path().join(RECORD_FILE), limits(1 << 30));
    for number in 1..=20 {
        store.write(&bucket(number, 1), now(number)).unwrap();
    }
    let later = now(10) + DAY;
    for number in 21..=24 {
        store.write(&bucket(number, 1), later).unwrap();
    }
    assert_eq!(numbers(&store), (5..=24).collect::<Vec<_>>());
    // A clock that was set back keeps what is there.
    store.write(&bucket(25, 1), Duration::from_secs(1)).unwrap();
    assert_eq!(numbers(&store), (5..=25).collect::<Vec<_>>());
    for _ in 0..20 {
        store.write(&bucket(25, 1), later).unwrap();
    }
    assert_eq!(numbers(&store), (11..=25).collect::<Vec<_>>());
}

#[test]
fn a_damaged_or_foreign_file_is_moved_aside() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join(RECORD_FILE);
    let write = |number| {
        let mut store = FlowStore::new(path.clone(), limits(1 << 30));
        store.write(&bucket(number, 2_000), now(number)).unwrap()
    };
    assert!(write(1).notice.is_none());
    let good = std::fs::read(&path).unwrap();
    let put = |bytes: &[u8]| put_file(&path, bytes);
    let mut damaged = good.clone();
    for byte in &mut damaged[8_192..16_384] {
        *byte ^= 0x55;
    }
    for bytes in [
        &b"something else entirely".repeat(1_000)[..],
        &good[..5_000],
        &damaged,
    ] {
        put(bytes);
        let notice = write(2).notice.unwrap();
        let text = notice.to_string();
        assert!(
            text.contains("flows.redb.unreadable now, and a new one has begun"),
            "{text}"
        );
        let aside = path.with_file_name(UNREADABLE_RECORD_FILE);
        assert!(std::fs::metadata(&aside).unwrap().len() >= 5_000);
        assert_eq!(list(&path).flows.len(), 1_000);
        std::fs::remove_file(aside).unwrap();
        std::fs::remove_file(&path).unwrap();
    }
    // A database of something else.
    let foreign = Database::create(&path).unwrap();
    let table: redb::TableDefinition<'_, u64, u64> = redb::TableDefinition::new("other");
    let begun = foreign.begin_write().unwrap();
    begun.open_table(table).unwrap().insert(1, 1).unwrap();
    begun.commit().unwrap();
    drop(foreign);
    let notice = write(3).notice.unwrap();
    assert!(
        matches!(notice, FlowStoreError::MovedAside { source: None, .. }),
        "{notice:?}"
    );
    // An empty file is no damage.
    put(b"");
    assert!(write(4).notice.is_none());
}

#[allow(clippy::disallowed_methods, reason = "makes a file of a test")]
fn put_file(path: &Path, bytes: &[u8]) {
    std::fs::write(path, bytes).unwrap();
}

/// How many bytes may be written to [`FullDisk`].
static SPACE: AtomicU64 = AtomicU64::new(u64::MAX);

/// A file on a disk that is full after a while.
#[derive(Debug)]
struct FullDisk(FileBackend);

impl StorageBackend for FullDisk {
    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.0.read(offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let length = data.len() as u64;
        let left = SPACE.load(Ordering::SeqCst);
        if left < length {
            return Err(io::ErrorKind::StorageFull.into());
        }
        SPACE.store(left - length, Ordering::SeqCst);
        self.0.write(offset, data)
    }
}

fn open_full_disk(path: &Path) -> Result<Database, redb::DatabaseError> {
    let file = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(path)?;
    redb::Builder::new().create_with_backend(FullDisk(FileBackend::new(file)?))
}

#[test]
fn a_full_disk_costs_nothing_that_was_written() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join(RECORD_FILE);
    let mut store = FlowStore::with_opener(path.clone(), limits(1 << 30), open_full_disk);
    let (mut written, mut failures) = (0, 0);
    for number in 1..=60 {
        // Each time the disk is full at another place of the write.
        SPACE.store(number * 1_500, Ordering::SeqCst);
        match store.write(&bucket(number, 700), now(number)) {
            Ok(_) => written += number,
            Err(error) => {
                failures += 1;
                let is_typed = matches!(
                    error,
                    FlowStoreError::Write { .. } | FlowStoreError::Open { .. }
                );
                assert!(is_typed, "{error:?}");
            }
        }
        if number % 3 == 0 {
            SPACE.store(u64::MAX, Ordering::SeqCst);
            store.write(&bucket(number, 700), now(number)).unwrap();
        }
    }
    SPACE.store(u64::MAX, Ordering::SeqCst);
    assert!(failures > 10, "{failures}");
    let remaining: u64 = numbers(&store).iter().sum();
    assert!(remaining >= written);
    drop(store);
    let found = list(&path);
    assert_eq!((found.flows.len(), found.flows[0].count), (700, remaining));
}

/// In the child process: writes buckets for ever, and tells each.
#[test]
fn write_for_ever() {
    // The child process of the test below; by itself it has no path.
    let Some(path) = std::env::vars_os().find(|(name, _)| name == "PALISADE_FLOWS_TEST") else {
        return;
    };
    let mut store = FlowStore::new(path.1.into(), limits(1 << 30));
    for number in 1.. {
        store.write(&bucket(number, 100), now(number)).unwrap();
        println!("\nwritten {number}");
    }
}

#[test]
#[allow(clippy::disallowed_methods, reason = "a child process that is killed")]
fn a_kill_loses_nothing_that_was_written() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join(RECORD_FILE);
    let mut expected = 0;
    for round in 1..=5 {
        let mut child = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "--nocapture", "store::tests::write_for_ever"])
            .env("PALISADE_FLOWS_TEST", &path)
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut output = child.stdout.take().unwrap();
        let mut text = String::new();
        let mut chunk = [0; 64];
        while text.matches("written").count() < 5 * round {
            let count = output.read(&mut chunk).unwrap();
            assert!(count > 0, "{text}");
            text.push_str(&String::from_utf8_lossy(&chunk[..count]));
        }
        child.kill().unwrap();
        child.wait().unwrap();
        output.read_to_string(&mut text).unwrap();
        let acknowledged = text.matches("written ").count() as u64;
        expected += acknowledged;
        let mut store = FlowStore::new(path.clone(), limits(1 << 30));
        assert!(store.database().unwrap().1.is_none());
        let found = store.opened.as_ref().unwrap().buckets.len() as u64;
        // The last write of each child may have been whole, and not told.
        assert!(
            found >= expected && found <= expected + round as u64,
            "{found} {expected}"
        );
        drop(store);
        assert_eq!(list(&path).flows.len(), 100);
    }
}
