//! Paths as text, and problems of a file or folder as a whole. It reads no file.

use palisade_manifest::{Location, Problem};
use palisade_text::printable;
use std::path::Path;
use std::sync::Arc;

/// A path as printed in messages.
pub(crate) fn printable_path(path: &Path) -> String {
    printable(&path.display().to_string()).into_owned()
}

/// A path as text, different for different paths. Not for output.
pub(crate) fn origin_path(path: &Path) -> Arc<str> {
    match path.to_str() {
        Some(text) => text.into(),
        None => {
            let bytes = path.as_os_str().as_encoded_bytes();
            format!("{}#{}", path.display(), bytes.escape_ascii()).into()
        }
    }
}

/// A problem of a file or folder as a whole.
pub(crate) fn file_problem(path: &Path, reason: String) -> Problem {
    let location = Location {
        file: printable_path(path).into(),
        line: 1,
        column: 1,
    };
    Problem {
        location,
        object: None,
        field: String::new(),
        reason,
    }
}
