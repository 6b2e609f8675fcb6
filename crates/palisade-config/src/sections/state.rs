//! What the agent keeps between its runs.

use crate::section::section;
use crate::value_parser::path;
use std::path::PathBuf;

section! {
    /// What the agent keeps between its runs.
    pub struct StateConfig: "State directory";

    /// The directory for workload records, last valid objects and counters.
    dir: PathBuf = "state-dir", path(), "/var/lib/palisade", "DIR", Restart, set_by_chart;
}
