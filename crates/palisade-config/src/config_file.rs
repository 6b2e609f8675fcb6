//! The configuration file of an agent: where it is, and what of it is not in effect. Reads nothing.

use std::collections::BTreeMap;
use std::path::PathBuf;

/// The configuration file of an agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigFile {
    /// Its path.
    pub path: PathBuf,
    /// Whether it may be absent, because its path is the default.
    pub optional: bool,
    /// Whether it exists.
    pub exists: bool,
}

/// What of the file is not in effect.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConfigFileStatus {
    /// Parameters that change at the next start, with their new values for display.
    pub pending: BTreeMap<&'static str, String>,
    /// Why the present file is rejected.
    pub error: Option<String>,
}
