//! nflog in memory: returns the events that a test supplies.

use std::collections::VecDeque;
use std::time::Duration;

use super::{Nflog, NflogError, NflogEvent};

/// A fake listener.
#[derive(Clone, Debug, Default)]
pub struct FakeNflog {
    /// Next events, in order.
    pub queue: VecDeque<NflogEvent>,
}

impl Nflog for FakeNflog {
    fn next_event(&mut self, _timeout: Option<Duration>) -> Result<Option<NflogEvent>, NflogError> {
        Ok(self.queue.pop_front())
    }
}
