//! Locations in files, and problems at them.

use crate::describe::cut_middle;
use std::fmt;
use std::sync::Arc;

/// A location in a file, or in an object of a server.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Location {
    /// The file's name, as the caller gave it; for an object of a server the name of its resource.
    pub file: Arc<str>,
    /// The line, counted from 1; 0 for an object of a server, whose text nobody has written.
    pub line: u32,
    /// The column in characters, counted from 1.
    pub column: u32,
}

impl Location {
    /// An object of a server, by the name of its resource.
    #[must_use]
    pub fn of_server(resource: Arc<str>) -> Self {
        Location {
            file: resource,
            line: 0,
            column: 0,
        }
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => f.write_str(&self.file),
            line => write!(f, "{}:{line}:{}", self.file, self.column),
        }
    }
}

/// A problem of an input: location, object, field and reason.
///
/// Not an `Error`: problems are collected and shown together, and a problem does not prevent reading the
/// rest.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Problem {
    /// The location.
    pub location: Location,
    /// The object, as `Kind namespace/name`, as far as it could be read.
    pub object: Option<String>,
    /// The path of the field, `spec.ingress[0].from[1]`; empty for the whole document.
    pub field: String,
    /// The reason, for the author of the file.
    pub reason: String,
}

impl Problem {
    /// The problem with each part cut to the maximum length of a message: about 1 KiB each.
    #[must_use]
    pub fn truncated(self) -> Self {
        Problem {
            location: self.location,
            object: self.object.map(cut_middle),
            field: cut_middle(self.field),
            reason: cut_middle(self.reason),
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.location)?;
        if !self.field.is_empty() {
            write!(f, "{}: ", self.field)?;
        }
        f.write_str(&self.reason)
    }
}

/// A location without its file, as counted by the scanners.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Position {
    pub(crate) line: u32,
    pub(crate) column: u32,
}

impl Position {
    /// The beginning of a line.
    pub(crate) fn line_start(line: u32) -> Self {
        Position { line, column: 1 }
    }

    /// Advances over UTF-8 text, whose lines end in LF.
    pub(crate) fn advance(&mut self, bytes: &[u8]) {
        let number = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        let mut last = bytes;
        if let Some(at) = bytes.iter().rposition(|byte| *byte == b'\n') {
            let feeds = bytes[..=at].iter().filter(|byte| **byte == b'\n').count();
            self.line = self.line.saturating_add(number(feeds));
            self.column = 1;
            last = &bytes[at + 1..];
        }
        let characters = last.iter().filter(|byte| **byte & 0xc0 != 0x80).count();
        self.column = self.column.saturating_add(number(characters));
    }

    pub(crate) fn in_file(self, file: &Arc<str>) -> Location {
        Location {
            file: Arc::clone(file),
            line: self.line,
            column: self.column,
        }
    }
}
