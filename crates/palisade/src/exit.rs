//! Exit codes and command errors.

use palisade_text::{printable, printable_lines};
use std::fmt;
use std::process::ExitCode;

/// Exit code of the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ExitStatus {
    /// Success; no problem, no difference.
    Success = 0,
    /// Problems or differences were found.
    ProblemsFound = 1,
    /// Invalid usage.
    Usage = 2,
    /// The agent could not be reached.
    NotReached = 3,
    /// Not permitted.
    NotPermitted = 4,
    /// A thread of the agent terminated unexpectedly.
    AgentFailed = 5,
    /// A change would deny recorded flows.
    WouldCut = 6,
}

impl ExitStatus {
    /// Whether problems or differences were found.
    pub(crate) fn of(problems_found: bool) -> Self {
        if problems_found {
            ExitStatus::ProblemsFound
        } else {
            ExitStatus::Success
        }
    }
}

impl From<ExitStatus> for ExitCode {
    fn from(exit: ExitStatus) -> ExitCode {
        ExitCode::from(exit as u8)
    }
}

/// Why a command failed: a message, a hint if there is one, and an exit code.
#[derive(Debug)]
pub(crate) struct CommandError {
    pub(crate) exit: ExitStatus,
    pub(crate) message: String,
    pub(crate) hint: Option<String>,
}

impl CommandError {
    /// An error with this exit code.
    pub(crate) fn new(exit: ExitStatus, message: impl Into<String>) -> Self {
        CommandError {
            exit,
            message: message.into(),
            hint: None,
        }
    }

    /// The command line is invalid.
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        CommandError::new(ExitStatus::Usage, message)
    }

    /// The input or the response has a problem.
    pub(crate) fn problem(message: impl Into<String>) -> Self {
        CommandError::new(ExitStatus::ProblemsFound, message)
    }

    /// Adds a hint.
    pub(crate) fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

impl fmt::Display for CommandError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "palisade: {}", printable_lines(&self.message))?;
        match &self.hint {
            Some(hint) => write!(f, "\n  try: {}", printable(hint)),
            None => Ok(()),
        }
    }
}

/// The result of a command.
pub(crate) type CommandResult = Result<ExitStatus, CommandError>;
