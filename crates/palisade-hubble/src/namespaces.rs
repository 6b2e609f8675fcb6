//! The namespaces that had flows in the last hour.
//!
//! Promises: those of every line that was read in time are there, also of lines that are no longer kept.
//!
//! Never: grows without bound.

use crate::limits::BATCH;
use palisade_api::{MonitorEndpoint, MonitorLine};
use palisade_flows::recent::RecentLines;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How long a namespace is listed after its last flow.
const KEPT_FOR: Duration = Duration::from_secs(3600);

/// The greatest number of namespaces.
const MOST: usize = 16_384;

/// How often new lines are read.
const PERIOD: Duration = Duration::from_secs(1);

/// What was read so far.
#[derive(Debug, Default)]
struct ReadSoFar {
    next: u64,
    /// The time of the last flow of each.
    last: BTreeMap<String, Duration>,
}

/// The namespaces of recent flows.
pub(crate) struct RecentNamespaces {
    lines: RecentLines,
    state: Mutex<ReadSoFar>,
}

impl RecentNamespaces {
    pub(crate) fn new(lines: RecentLines) -> Self {
        RecentNamespaces {
            lines,
            state: Mutex::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, ReadSoFar> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads lines as they come, for ever.
    pub(crate) async fn follow(&self, now: impl Fn() -> Duration) {
        loop {
            self.read().await;
            self.forget(now());
            // A pause, because a line alone is not worth being woken for.
            tokio::time::sleep(PERIOD).await;
            let next = self.lock().next;
            self.lines.wait(next).await;
        }
    }

    /// The namespaces, sorted.
    pub(crate) async fn list(&self, now: Duration) -> Vec<String> {
        self.read().await;
        self.forget(now);
        self.lock().last.keys().cloned().collect()
    }

    async fn read(&self) {
        while self.read_batch() {
            tokio::task::yield_now().await;
        }
    }

    /// Reads some lines; whether there may be more.
    fn read_batch(&self) -> bool {
        let mut state = self.lock();
        let batch = self.lines.read(state.next, BATCH);
        state.next = batch.next;
        for line in &batch.lines {
            let ends = match &line.line {
                MonitorLine::Packet(packet) => [&packet.source, &packet.destination],
                MonitorLine::Flow(record) => [&record.source, &record.destination],
                MonitorLine::Lost(_) => continue,
            };
            for namespace in ends.into_iter().filter_map(namespace) {
                if let Some(last) = state.last.get_mut(namespace) {
                    *last = line.time.max(*last);
                } else if state.last.len() < MOST {
                    state.last.insert(namespace.to_owned(), line.time);
                }
            }
        }
        !batch.lines.is_empty()
    }

    fn forget(&self, now: Duration) {
        let oldest = now.saturating_sub(KEPT_FOR);
        self.lock().last.retain(|_, last| *last >= oldest);
    }
}

fn namespace(end: &MonitorEndpoint) -> Option<&str> {
    end.name.as_ref()?;
    end.namespace.as_deref()
}
