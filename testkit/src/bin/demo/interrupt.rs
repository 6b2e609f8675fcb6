//! Handling of Ctrl-C and similar signals: every wait of the demo ends early, so that its objects are
//! removed.

use crate::error::DemoError;
use std::time::Duration;

/// Whether the demo was interrupted.
#[derive(Clone, Debug)]
pub(crate) struct DemoInterrupt(palisade_testkit::interrupt::Interrupt);

impl DemoInterrupt {
    /// Starts listening for SIGINT, SIGTERM and SIGHUP.
    pub(crate) fn listen() -> Result<Self, DemoError> {
        let listening = palisade_testkit::interrupt::Interrupt::listen();
        let failed = |error| DemoError::caused("listening for signals", &error);
        listening.map(DemoInterrupt).map_err(failed)
    }

    /// Waits; returns an error as soon as the demo is interrupted.
    pub(crate) fn wait(&self, time: Duration) -> Result<(), DemoError> {
        if self.0.wait(time) {
            Err(DemoError::problem(
                "interrupted: all objects of the demo are removed",
            ))
        } else {
            Ok(())
        }
    }

    /// An error if the demo was interrupted.
    pub(crate) fn check(&self) -> Result<(), DemoError> {
        self.wait(Duration::ZERO)
    }
}
