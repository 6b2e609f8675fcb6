//! The errors of drivers: what was being done to which object, and what the caller can decide on.
//!
//! Never: exposes the error types of a driver's kernel interface; they are causes, for messages only.

use std::error::Error;
use std::fmt;

/// What follows from an error of a driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DriverErrorKind {
    /// The kernel's state is unknown; the driver may succeed when it reads the kernel again.
    Retryable,
    /// The kernel has no room for the change: a retry succeeds only once there is room.
    Limit,
    /// Another running program owns the object.
    Owned,
    /// The driver cannot be used with this kernel or these parameters.
    Unusable,
}

/// An operation of a driver failed.
#[derive(Debug)]
pub struct DriverError {
    kind: DriverErrorKind,
    operation: &'static str,
    object: &'static str,
    cause: Box<dyn Error + Send + Sync>,
}

impl DriverError {
    /// The operation on the object failed because of `cause`.
    pub fn new(
        kind: DriverErrorKind,
        operation: &'static str,
        object: &'static str,
        cause: impl Into<Box<dyn Error + Send + Sync>>,
    ) -> Self {
        Self {
            kind,
            operation,
            object,
            cause: cause.into(),
        }
    }

    /// What follows from it.
    #[must_use]
    pub fn kind(&self) -> DriverErrorKind {
        self.kind
    }
}

impl fmt::Display for DriverError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.operation, self.object)
    }
}

impl Error for DriverError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&*self.cause)
    }
}
