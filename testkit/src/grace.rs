//! Grace periods that pass at once.

use palisade_sys::grace::{GraceError, GracePeriod};

/// Counts the requested waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FakeGracePeriod {
    /// Waits so far.
    pub waits: usize,
    /// Waits that were begun so far.
    pub begun: usize,
    /// How often the end of a wait that was begun was asked for.
    pub finished: usize,
}

impl GracePeriod for FakeGracePeriod {
    fn wait(&mut self) -> Result<(), GraceError> {
        self.waits += 1;
        Ok(())
    }

    fn begin(&mut self) -> Result<(), GraceError> {
        self.begun += 1;
        Ok(())
    }

    fn finish(&mut self) -> Result<(), GraceError> {
        self.finished += 1;
        Ok(())
    }
}
