//! The last repairs of what other programs changed, for the log and the status.

use crate::clock::{Clock, millis, rfc3339};
use palisade_api::RepairReport;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

/// The maximum number of repairs in the status.
const MAX_REPAIRS: usize = 16;
/// The maximum number of differences that one repair names.
const MAX_NAMED_IN_REPAIR: usize = 4;

/// The last repairs.
pub struct RepairLog {
    clock: Arc<dyn Clock>,
    recent: VecDeque<RepairReport>,
    count: u64,
}

impl RepairLog {
    /// No repairs.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        RepairLog {
            clock,
            recent: VecDeque::new(),
            count: 0,
        }
    }

    /// Records a repair of a change detected at `detected_at`.
    pub fn record(&mut self, what: &[String], writes: usize, detected_at: Instant) {
        let millis = millis(self.clock.monotonic() - detected_at);
        let mut text = what
            .iter()
            .take(MAX_NAMED_IN_REPAIR)
            .cloned()
            .collect::<Vec<_>>()
            .join(", ");
        if what.len() > MAX_NAMED_IN_REPAIR {
            text += &format!(" and {} more", what.len() - MAX_NAMED_IN_REPAIR);
        }
        tracing::warn!(what = %text, writes, millis, "another program changed state of the agent: repaired");
        self.recent.push_back(RepairReport {
            at: rfc3339(self.clock.wall()),
            what: text,
            writes,
            millis,
        });
        self.count += 1;
        if self.recent.len() > MAX_REPAIRS {
            self.recent.pop_front();
        }
    }

    /// The last repairs, oldest first.
    pub fn recent(&self) -> impl Iterator<Item = &RepairReport> {
        self.recent.iter()
    }

    /// The number of repairs since the start.
    pub fn count(&self) -> u64 {
        self.count
    }
}
