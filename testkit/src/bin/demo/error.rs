//! Why the demo ended: a message, a hint if there is one, and the exit code of a command that says the same.

use std::error::Error;
use std::fmt;

/// Why the demo ended early, or what it found.
#[derive(Debug)]
pub(crate) struct DemoError {
    /// 1: a problem; 2: invalid usage; 4: not permitted.
    pub(crate) exit: u8,
    /// What happened.
    pub(crate) message: String,
    hint: Option<&'static str>,
}

impl DemoError {
    /// An error with this exit code.
    pub(crate) fn new(exit: u8, message: impl Into<String>) -> Self {
        DemoError {
            exit,
            message: message.into(),
            hint: None,
        }
    }

    /// Something failed, or a check did.
    pub(crate) fn problem(message: impl Into<String>) -> Self {
        DemoError::new(1, message)
    }

    /// What failed, while doing what, with all its causes.
    pub(crate) fn caused(doing: &str, error: &dyn Error) -> Self {
        let mut text = format!("{doing}: {error}");
        let mut next = error.source();
        while let Some(cause) = next {
            let cause_text = cause.to_string();
            if !text.ends_with(&cause_text) {
                text = format!("{text}: {cause_text}");
            }
            next = cause.source();
        }
        DemoError::problem(text)
    }

    /// Adds a hint.
    pub(crate) fn with_hint(mut self, hint: &'static str) -> Self {
        self.hint = Some(hint);
        self
    }
}

impl fmt::Display for DemoError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "palisade: {}", self.message)?;
        match self.hint {
            Some(hint) => write!(f, "\n  try: {hint}"),
            None => Ok(()),
        }
    }
}
