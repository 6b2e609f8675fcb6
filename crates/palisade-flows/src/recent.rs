//! The most recent packets and flows, or other events, whole, for readers in this process: each reads at its own pace,
//! from any place.
//!
//! Promises: lines have consecutive numbers in the order in which they were published; a reader that falls behind learns
//! how many it missed, and holds nobody up; memory is bounded by a number of lines.
//!
//! Never: waits for a reader, or encodes a line.

use palisade_api::MonitorLine;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::watch;

/// A line, with its place.
#[derive(Debug)]
pub struct RecentLine<L = MonitorLine> {
    /// Its number: the first line of the process has 0.
    pub number: u64,
    /// When it happened, since the epoch.
    pub time: Duration,
    /// What happened.
    pub line: L,
}

/// Lines that were read together.
#[derive(Debug)]
pub struct RecentBatch<L = MonitorLine> {
    /// The lines, in order.
    pub lines: Vec<Arc<RecentLine<L>>>,
    /// How many lines after the place of the reader were overwritten before it read them.
    pub missed: u64,
    /// The number to read from next.
    pub next: u64,
}

/// The most recent lines, shared by their writer and all readers.
#[derive(Debug)]
pub struct RecentLines<L = MonitorLine>(Arc<SharedLines<L>>);

impl<L> Clone for RecentLines<L> {
    fn clone(&self) -> Self {
        RecentLines(Arc::clone(&self.0))
    }
}

#[derive(Debug)]
struct SharedLines<L> {
    lines: Mutex<VecDeque<Arc<RecentLine<L>>>>,
    capacity: usize,
    /// The number of the next line.
    next: watch::Sender<u64>,
}

impl<L> RecentLines<L> {
    /// At most this many lines, and at least one.
    pub fn new(capacity: usize) -> Self {
        RecentLines(Arc::new(SharedLines {
            lines: Mutex::default(),
            capacity: capacity.max(1),
            next: watch::Sender::new(0),
        }))
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Arc<RecentLine<L>>>> {
        (self.0.lines.lock()).unwrap_or_else(PoisonError::into_inner)
    }

    /// The greatest number of lines.
    pub fn capacity(&self) -> usize {
        self.0.capacity
    }

    /// Adds a line; the oldest goes if there is no room.
    pub fn push(&self, time: Duration, line: L) {
        self.extend(time, [line]);
    }

    /// Adds lines that happened at the same time, and wakes readers once.
    pub fn extend(&self, time: Duration, added: impl IntoIterator<Item = L>) {
        let mut lines = self.lock();
        let mut number = *self.0.next.borrow();
        for line in added {
            if lines.len() == self.0.capacity {
                lines.pop_front();
            }
            lines.push_back(Arc::new(RecentLine { number, time, line }));
            number += 1;
        }
        self.0.next.send_replace(number);
    }

    /// The number of the oldest line, and that of the next one.
    pub fn bounds(&self) -> (u64, u64) {
        let lines = self.lock();
        let next = *self.0.next.borrow();
        (lines.front().map_or(next, |line| line.number), next)
    }

    /// At most this many lines from a number on.
    pub fn read(&self, from: u64, max: usize) -> RecentBatch<L> {
        let lines = self.lock();
        let Some(oldest) = lines.front().map(|line| line.number) else {
            return RecentBatch {
                lines: Vec::new(),
                missed: 0,
                next: from,
            };
        };
        let first = from.max(oldest);
        let skip = usize::try_from(first - oldest).unwrap_or(usize::MAX);
        let lines: Vec<_> = lines.iter().skip(skip).take(max).cloned().collect();
        RecentBatch {
            next: lines.last().map_or(first, |line| line.number + 1),
            missed: first - from,
            lines,
        }
    }

    /// Waits until there is a line with this number.
    pub async fn wait(&self, number: u64) {
        let mut next = self.0.next.subscribe();
        // The sender is as old as this, so it cannot be gone.
        let _ = next.wait_for(|next| *next > number).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use palisade_api::{LossCause, LostEvents};

    fn line(count: u64) -> MonitorLine {
        MonitorLine::Lost(Box::new(LostEvents {
            api_version: palisade_api::api_version(),
            time: "t".to_owned(),
            cause: LossCause::Kernel,
            count,
            reason: None,
            rule: None,
            policies: Vec::new(),
        }))
    }

    fn push(lines: &RecentLines, numbers: std::ops::Range<u64>) {
        for number in numbers {
            lines.push(Duration::from_secs(number), line(number));
        }
    }

    #[test]
    fn each_reader_has_a_place_of_its_own() {
        let lines = RecentLines::new(4);
        assert_eq!(lines.bounds(), (0, 0));
        assert_eq!(lines.read(0, 9).next, 0);
        push(&lines, 0..3);
        let batch = lines.read(1, 1);
        assert_eq!((batch.lines[0].number, batch.next, batch.missed), (1, 2, 0));
        push(&lines, 3..10);
        assert_eq!(lines.bounds(), (6, 10));
        let batch = lines.read(2, 9);
        let numbers: Vec<u64> = batch.lines.iter().map(|line| line.number).collect();
        assert_eq!(
            (numbers, batch.next, batch.missed),
            (vec![6, 7, 8, 9], 10, 4)
        );
        let batch = lines.read(10, 9);
        assert_eq!((batch.lines.len(), batch.next, batch.missed), (0, 10, 0));
    }

    #[tokio::test]
    async fn a_reader_waits_for_a_line() {
        let lines = RecentLines::new(4);
        let writer = lines.clone();
        let reader = tokio::spawn(async move { lines.wait(1).await });
        push(&writer, 0..1);
        tokio::task::yield_now().await;
        assert!(!reader.is_finished());
        push(&writer, 1..2);
        reader.await.unwrap();
    }
}
