//! Exit codes, and the errors that lead to them.

use palisade_text::{printable, printable_lines};
use std::fmt;
use std::process::ExitCode;

/// How the command ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ExitStatus {
    /// Answered; no problem, no difference.
    Success = 0,
    /// Problems or differences were found.
    ProblemsFound = 1,
    /// The command line is wrong.
    Usage = 2,
    /// The agent was not reached.
    NotReached = 3,
    /// Not permitted.
    NotPermitted = 4,
    /// A part of the agent ended while it ran.
    AgentFailed = 5,
}

impl From<ExitStatus> for ExitCode {
    fn from(exit: ExitStatus) -> ExitCode {
        ExitCode::from(exit as u8)
    }
}

/// Why a command could not be done: one message, a next step where there is one, an exit code.
#[derive(Debug)]
pub(crate) struct CommandError {
    pub(crate) exit: ExitStatus,
    pub(crate) message: String,
    pub(crate) hint: Option<String>,
}

impl CommandError {
    /// A failure with this exit code.
    pub(crate) fn new(exit: ExitStatus, message: impl Into<String>) -> Self {
        CommandError {
            exit,
            message: message.into(),
            hint: None,
        }
    }

    /// What was asked cannot be understood.
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        CommandError::new(ExitStatus::Usage, message)
    }

    /// Something is wrong with the input or the answer.
    pub(crate) fn problem(message: impl Into<String>) -> Self {
        CommandError::new(ExitStatus::ProblemsFound, message)
    }

    /// The same with a next step.
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

/// The outcome of a command.
pub(crate) type CommandResult = Result<ExitStatus, CommandError>;
