//! What is wrong with a configuration: the problem, and where its value came from.

/// One problem of a configuration.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
pub enum ConfigProblem {
    /// A value is invalid.
    #[error("{name}: {value:?} ({given_by}) {reason}")]
    Value {
        /// The parameter.
        name: &'static str,
        /// The text.
        value: String,
        /// The source: a flag, a variable, or a location in the file.
        given_by: String,
        /// Why it is invalid.
        reason: String,
    },
    /// An entry of the file is invalid.
    #[error("{location}: {reason}")]
    File {
        /// File, line and column.
        location: String,
        /// Why it is invalid.
        reason: String,
    },
    /// A parameter of a former release is set.
    #[error("{given_by}: the parameter {name} was removed: {replacement}")]
    Removed {
        /// The parameter.
        name: &'static str,
        /// The source: a flag, a variable, or a location in the file.
        given_by: String,
        /// What replaces it.
        replacement: &'static str,
    },
    /// Two values contradict each other.
    #[error("{one} and {other} contradict each other: {reason}")]
    Contradiction {
        /// The first parameter, with its source.
        one: String,
        /// The second parameter, with its source.
        other: String,
        /// Why, and what to do.
        reason: String,
    },
}

/// Why a configuration was rejected: all of its problems.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// At least one.
    pub problems: Vec<ConfigProblem>,
}

impl std::fmt::Display for ConfigError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &*self.problems {
            [problem] => write!(f, "configuration: {problem}"),
            problems => {
                write!(f, "configuration: {} problems", problems.len())?;
                for problem in problems {
                    write!(f, "\n  {problem}")?;
                }
                Ok(())
            }
        }
    }
}

impl std::error::Error for ConfigError {}
