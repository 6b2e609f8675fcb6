//! Splits a file at its `---` lines before parsing, as kubectl does.
//!
//! YAML has no way to resynchronize inside a broken document, but a line that begins with `---` is never
//! inside a document; so an error is confined between two such lines.

use crate::location::Position;

/// U+FEFF in UTF-8.
pub(crate) const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// The text of one document, its `---` line included.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Chunk<'a> {
    pub(crate) bytes: &'a [u8],
    /// The line of the file at which `bytes` begin.
    pub(crate) first_line: u32,
    /// The column, from 1, of text after `---` on its line, if that is not a comment.
    pub(crate) content_after_separator: Option<u32>,
}

/// The documents of a file, empty ones included.
pub(crate) fn split(bytes: &[u8]) -> Chunks<'_> {
    Chunks {
        rest: bytes,
        line: 1,
        first: true,
    }
}

pub(crate) struct Chunks<'a> {
    rest: &'a [u8],
    line: u32,
    first: bool,
}

impl<'a> Iterator for Chunks<'a> {
    type Item = Chunk<'a>;

    fn next(&mut self) -> Option<Chunk<'a>> {
        if self.rest.is_empty() {
            return None;
        }
        let mut end = next_separator(self.rest);
        if self.first && is_directives(&self.rest[..end]) && end < self.rest.len() {
            // Directives belong to the following document.
            end += next_separator(&self.rest[end..]);
        }
        self.first = false;
        let (bytes, rest) = self.rest.split_at(end);
        let chunk = Chunk {
            bytes,
            first_line: self.line,
            content_after_separator: content_after_separator(bytes),
        };
        self.rest = rest;
        self.line = self.line.saturating_add(line_breaks(bytes));
        Some(chunk)
    }
}

/// The position after `before`, which begins at the first column of `first_line`.
pub(crate) fn position_of(before: &[u8], first_line: u32) -> Position {
    let line = before
        .iter()
        .rposition(|b| matches!(b, b'\n' | b'\r'))
        .map_or(before, |at| &before[at + 1..]);
    // Counts characters: every byte except UTF-8 continuation bytes.
    let column = line.iter().filter(|b| **b & 0xc0 != 0x80).count();
    Position {
        line: first_line.saturating_add(line_breaks(before)),
        column: u32::try_from(column).unwrap_or(u32::MAX).saturating_add(1),
    }
}

/// The offset of the first separator line after the first line.
pub(crate) fn next_separator(bytes: &[u8]) -> usize {
    let mut from = 0;
    while let Some(at) = bytes[from..].iter().position(|b| *b == b'\n') {
        from += at + 1;
        if is_separator(&bytes[from..]) {
            return from;
        }
    }
    bytes.len()
}

/// Allows a byte order mark, which occurs where files are concatenated.
pub(crate) fn is_separator(bytes: &[u8]) -> bool {
    let bytes = bytes.strip_prefix(BYTE_ORDER_MARK).unwrap_or(bytes);
    match bytes.strip_prefix(b"---") {
        Some([]) => true,
        Some([next, ..]) => matches!(next, b' ' | b'\t' | b'\r' | b'\n'),
        None => false,
    }
}

pub(crate) fn content_after_separator(bytes: &[u8]) -> Option<u32> {
    if !is_separator(bytes) {
        return None;
    }
    let bytes = bytes.strip_prefix(BYTE_ORDER_MARK).unwrap_or(bytes);
    let line = bytes.split(|b| matches!(b, b'\n' | b'\r')).next()?;
    let at = 3 + line[3..].iter().position(|b| !b.is_ascii_whitespace())?;
    let column = || u32::try_from(at).unwrap_or(u32::MAX).saturating_add(1);
    (line[at] != b'#').then(column)
}

/// Whether there are only directives, comments and empty lines, and at least one directive.
pub(crate) fn is_directives(bytes: &[u8]) -> bool {
    let mut lines = bytes.split(|b| *b == b'\n');
    let blank = |line: &[u8]| {
        let line = line.trim_ascii_start();
        line.is_empty() || line.starts_with(b"#")
    };
    bytes.starts_with(b"%") | bytes.windows(2).any(|pair| pair == b"\n%")
        && lines.all(|line| line.starts_with(b"%") || blank(line))
}

/// The number of YAML line breaks: CR, LF, and CR LF as one.
pub(crate) fn line_breaks(bytes: &[u8]) -> u32 {
    let feeds = bytes.iter().filter(|b| **b == b'\n').count();
    let lone = bytes
        .iter()
        .enumerate()
        .filter(|(at, b)| **b == b'\r' && bytes.get(at + 1) != Some(&b'\n'))
        .count();
    u32::try_from(feeds + lone).unwrap_or(u32::MAX)
}
