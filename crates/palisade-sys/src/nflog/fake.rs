//! nflog in memory: says what a test puts in.

use std::collections::VecDeque;
use std::time::Duration;

use super::{Nflog, NflogError, NflogEvent};

/// A stand-in for a listener.
#[derive(Clone, Debug, Default)]
pub struct FakeNflog {
    /// What comes next, in order.
    pub queue: VecDeque<NflogEvent>,
}

impl Nflog for FakeNflog {
    fn next_event(&mut self, _timeout: Option<Duration>) -> Result<Option<NflogEvent>, NflogError> {
        Ok(self.queue.pop_front())
    }
}
