//! Grace periods that pass at once.

use palisade_sys::grace::{GraceError, GracePeriod};

/// Counts the requested waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FakeGracePeriod {
    /// Waits so far.
    pub waits: usize,
}

impl GracePeriod for FakeGracePeriod {
    fn wait(&mut self) -> Result<(), GraceError> {
        self.waits += 1;
        Ok(())
    }
}
