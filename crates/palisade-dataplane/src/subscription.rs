//! A subscription to what a driver notices, for a thread that waits for nothing else.
//!
//! Never: polls; whoever makes it gives a function that blocks.

use std::fmt;
use std::time::Duration;

use crate::error::DriverError;

/// A subscription to events of one kind. It is independent of the driver that made it, and can be moved to another
/// thread.
pub struct Subscription<T> {
    next: Box<NextEvent<T>>,
}

type NextEvent<T> = dyn FnMut(Duration) -> Result<Option<T>, DriverError> + Send;

impl<T> Subscription<T> {
    /// Wraps a function that waits for the next event, at most for the time given.
    pub fn new(
        next: impl FnMut(Duration) -> Result<Option<T>, DriverError> + Send + 'static,
    ) -> Self {
        Subscription {
            next: Box::new(next),
        }
    }

    /// The next event; `None` if there was none within `timeout`.
    ///
    /// # Errors
    /// If there will be no more events.
    pub fn wait(&mut self, timeout: Duration) -> Result<Option<T>, DriverError> {
        (self.next)(timeout)
    }
}

impl<T> fmt::Debug for Subscription<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Subscription")
    }
}
