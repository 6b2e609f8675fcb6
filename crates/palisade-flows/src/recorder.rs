//! Records recent flows: follows them, sums them up, and writes the record; and answers queries of it.
//!
//! Promises: one thread reads and another writes, so that a slow disk costs no line; what is missed is counted as lost. A
//! query sees what was read, written or not. What is recorded is written every [`WRITE_INTERVAL`], and at the end: a kill
//! loses what was read since. If writing fails, the reason is known ([`FlowRecorder::condition`]), recording goes on in memory
//! for some buckets, and is tried again.
//!
//! Never: holds up the monitor.

use crate::aggregate::Aggregate;
use crate::bucket::BucketSnapshot;
use crate::database::FlowStoreError;
use crate::filter::{FlowFilter, FlowQueryError};
use crate::query::{RecordView, read_flows};
use crate::recent::RecentLines;
use crate::store::FlowStore;
use palisade_api::{RecordedFlowList, RecordedFlowQuery};
use std::collections::BTreeMap;
use std::io;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use thiserror::Error;
use tokio::sync::watch;

/// How often what is new is written.
pub const WRITE_INTERVAL: Duration = Duration::from_secs(5);

/// How long lines are collected before they are read together.
const READ_INTERVAL: Duration = Duration::from_millis(100);

/// The number of lines that are read together.
const LINES_PER_READ: usize = 1_024;

/// The greatest number of buckets in memory that could not be written.
const MAX_UNWRITTEN: usize = 4;

/// With more rows, a bucket is written less often, so that a second of writing costs the same.
const ROWS_PER_INTERVAL: usize = 4_000;

/// Tells the time since the epoch.
pub type WallClock = Arc<dyn Fn() -> Duration + Send + Sync>;

/// Why a query has no answer.
#[derive(Debug, Error)]
pub enum RecordQueryError {
    /// It has no meaning.
    #[error(transparent)]
    Query(FlowQueryError),
    /// The record cannot be read.
    #[error(transparent)]
    Store(FlowStoreError),
}

/// The record of flows of this process, while it is written.
#[derive(Clone)]
pub struct FlowRecorder(Arc<RecordState>);

struct RecordState {
    recent: RecentLines,
    clock: WallClock,
    reading: Mutex<RecordReading>,
    store: Mutex<FlowStore>,
    condition: Mutex<Option<Arc<FlowStoreError>>>,
    stop: watch::Sender<bool>,
}

/// What was read.
struct RecordReading {
    /// The number of the next line.
    next: u64,
    aggregate: Aggregate,
    /// The buckets that are to be written, by number.
    unwritten: BTreeMap<u64, Arc<BucketSnapshot>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl FlowRecorder {
    /// A record of these lines, from those on that there are now.
    pub fn new(recent: RecentLines, store: FlowStore, clock: WallClock) -> Self {
        let (next, _) = recent.bounds();
        FlowRecorder(Arc::new(RecordState {
            recent,
            clock,
            reading: Mutex::new(RecordReading {
                next,
                aggregate: Aggregate::new(),
                unwritten: BTreeMap::new(),
            }),
            store: Mutex::new(store),
            condition: Mutex::default(),
            stop: watch::Sender::new(false),
        }))
    }

    /// Ends [`FlowRecorder::run`], after a last write.
    pub fn stop(&self) {
        self.0.stop.send_replace(true);
    }

    /// Why flows are not recorded, or what happened to the record that was there.
    pub fn condition(&self) -> Option<Arc<FlowStoreError>> {
        lock(&self.0.condition).clone()
    }

    /// The recorded flows that a query asks for.
    ///
    /// # Errors
    /// If the query has no meaning, or the record cannot be read.
    pub fn query(
        &self,
        query: &RecordedFlowQuery,
        node: &str,
    ) -> Result<RecordedFlowList, RecordQueryError> {
        let filter = FlowFilter::new(query, (self.0.clock)()).map_err(RecordQueryError::Query)?;
        self.0.read_lines();
        // What is in memory is read first: a bucket may be written meanwhile, but then it is the one in memory that counts.
        let pending = self.0.pending();
        let (database, first_number, path) = {
            let mut store = lock(&self.0.store);
            // A record that cannot be opened is told by its condition; what is in memory can be read all the same.
            let opened = store.database().ok();
            let database = opened.map(|(database, notice)| {
                self.0.set_notice(notice);
                database
            });
            (database, store.first_number(), store.path().to_path_buf())
        };
        let view = RecordView {
            database,
            first_number,
            pending,
        };
        read_flows(&view, &filter, node).map_err(|source| {
            RecordQueryError::Store(FlowStoreError::Read {
                path,
                source: Box::new(source),
            })
        })
    }

    /// Records until [`FlowRecorder::stop`].
    ///
    /// # Errors
    /// If a thread or its timers cannot be made.
    pub fn run(&self) -> io::Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()?;
        let (wake, woken) = sync_channel(1);
        let state = Arc::clone(&self.0);
        let writer = std::thread::Builder::new().name("flow-store".to_owned());
        let writer: JoinHandle<()> = writer.spawn(move || state.write_when_woken(&woken))?;
        runtime.block_on(self.0.follow(&wake));
        self.0.read_lines();
        lock(&self.0.reading).stage();
        drop(wake);
        writer
            .join()
            .map_err(|_| io::Error::other("the thread that writes the record of flows panicked"))
    }
}

impl RecordState {
    /// Reads lines and has them written, until the end.
    async fn follow(&self, wake: &SyncSender<()>) {
        let mut stop = self.stop.subscribe();
        let mut is_due = Box::pin(tokio::time::sleep(WRITE_INTERVAL));
        loop {
            let next = lock(&self.reading).next;
            tokio::select! {
                () = &mut is_due => {
                    let rows = lock(&self.reading).stage();
                    // It is being written if this is full.
                    let _ = wake.try_send(());
                    let factor = u32::try_from(rows / ROWS_PER_INTERVAL).unwrap_or(u32::MAX);
                    is_due.set(tokio::time::sleep(WRITE_INTERVAL.saturating_mul(factor.saturating_add(1))));
                    continue;
                }
                _ = stop.wait_for(|stop| *stop) => return,
                () = self.recent.wait(next) => {}
            }
            let stopped = stop.wait_for(|stop| *stop);
            if tokio::time::timeout(READ_INTERVAL, stopped).await.is_ok() {
                return;
            }
            self.read_lines();
        }
    }

    /// Reads all lines that there are.
    fn read_lines(&self) {
        loop {
            let mut reading = lock(&self.reading);
            let batch = self.recent.read(reading.next, LINES_PER_READ);
            reading.next = batch.next;
            reading.aggregate.add_lost(batch.missed);
            for line in &batch.lines {
                if !reading.aggregate.covers(line.time) {
                    reading.stage();
                    reading.aggregate.begin_bucket(line.time);
                }
                reading.aggregate.add(line.time, &line.line);
            }
            if batch.lines.len() < LINES_PER_READ {
                return;
            }
        }
    }

    /// The buckets in memory.
    fn pending(&self) -> BTreeMap<u64, Arc<BucketSnapshot>> {
        let reading = lock(&self.reading);
        let mut pending = reading.unwritten.clone();
        if reading.aggregate.has_begun() {
            let present = reading.aggregate.snapshot();
            pending.insert(present.number, Arc::new(present));
        }
        pending
    }

    /// Writes what there is whenever it is woken, and when nobody can wake it any more.
    fn write_when_woken(&self, woken: &Receiver<()>) {
        while woken.recv().is_ok() {
            self.write();
        }
        self.write();
    }

    /// Writes the buckets that are to be written.
    fn write(&self) {
        let unwritten = lock(&self.reading).unwritten.clone();
        for (number, bucket) in unwritten {
            let written = lock(&self.store).write(&bucket, (self.clock)());
            match written {
                Ok(written) => {
                    let mut reading = lock(&self.reading);
                    let staged = reading.unwritten.get(&number);
                    if staged.is_some_and(|staged| Arc::ptr_eq(staged, &bucket)) {
                        reading.unwritten.remove(&number);
                    }
                    drop(reading);
                    self.clear_failure();
                    self.set_notice(written.notice);
                }
                Err(error) => return self.set_condition(error),
            }
        }
    }

    fn set_notice(&self, notice: Option<FlowStoreError>) {
        if let Some(notice) = notice {
            self.set_condition(notice);
        }
    }

    /// Sets the condition; one that is new is logged.
    fn set_condition(&self, error: FlowStoreError) {
        let mut condition = lock(&self.condition);
        let is_known = condition
            .as_ref()
            .is_some_and(|known| known.to_string() == error.to_string());
        if !is_known {
            let why = std::error::Error::source(&error).map(ToString::to_string);
            tracing::warn!(why, "{error}");
        }
        *condition = Some(Arc::new(error));
    }

    /// Takes the condition back, unless it is about what happened once.
    fn clear_failure(&self) {
        let mut condition = lock(&self.condition);
        if !matches!(
            condition.as_deref(),
            None | Some(FlowStoreError::MovedAside { .. })
        ) {
            *condition = None;
            tracing::info!("flows are recorded again");
        }
    }
}

impl RecordReading {
    /// Has the present bucket written, if anything in it is new; the number of its rows. If too many buckets could not be
    /// written, the oldest is lost.
    fn stage(&mut self) -> usize {
        if !self.aggregate.take_changed() {
            return 0;
        }
        let present = self.aggregate.snapshot();
        let rows = present.rows.len();
        self.unwritten.insert(present.number, Arc::new(present));
        while self.unwritten.len() > MAX_UNWRITTEN {
            if let Some((_, oldest)) = self.unwritten.pop_first() {
                let lost = oldest.count().saturating_add(oldest.lost);
                self.aggregate.add_lost(lost);
            }
        }
        rows
    }
}

#[cfg(test)]
mod tests;
