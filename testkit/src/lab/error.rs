//! Errors of a lab: what was being done, in which namespace, and what the system answered.

/// Why a lab could not be made or changed.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// A namespace could not be made, entered or removed.
    #[error("{doing} namespace {namespace}: {source}")]
    Namespace {
        /// What was being done.
        doing: &'static str,
        /// The namespace's name.
        namespace: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// Links, addresses or routes were refused.
    #[error("configuring {namespace}: {said}\n{commands}")]
    Configure {
        /// The namespace's name.
        namespace: String,
        /// The `ip` commands that were being run.
        commands: String,
        /// What `ip` said.
        said: String,
    },
    /// A kernel parameter was refused.
    #[error("setting {key} in {namespace}: {source}")]
    Sysctl {
        /// The namespace's name.
        namespace: String,
        /// The parameter, as a path under `/proc/sys`.
        key: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// A node was given something that it cannot have.
    #[error("{0}")]
    Node(String),
}
