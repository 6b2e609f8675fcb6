//! The log on standard error.

use crate::section::section;
use crate::value_parser::one_of;

section! {
    /// The log on standard error.
    pub struct LogConfig: "Log";

    /// The log level: error, warn, info, debug or trace.
    level: &'static str = "log-level", one_of(LEVELS, LEVELS), "info", "LEVEL", Live;

    /// The format of log lines on standard error.
    is_json: bool = "log-format", one_of(&["text", "json"], &[false, true]), "text", "text|json", Live;
}

const LEVELS: &[&str] = &["error", "warn", "info", "debug", "trace"];
