//! The part of a file that is in memory while the file is read piece by piece.

use crate::location::Position;
use std::io::{self, Read};

/// The maximum number of bytes read at a time.
const CHUNK_BYTES: usize = 1 << 20;

/// The bytes of a file from `position` on, as far as they have been read.
pub(crate) struct ReadWindow<'r> {
    reader: &'r mut dyn Read,
    bytes: Vec<u8>,
    /// The bytes before it have been consumed.
    start: usize,
    /// The bytes before it are valid UTF-8; never less than `start`.
    valid_end: usize,
    /// Whether the reader is at its end.
    at_eof: bool,
    /// The byte at `valid_end`, if it is not valid in UTF-8.
    invalid_byte: Option<u8>,
    position: Position,
    chunk_size: usize,
}

impl<'r> ReadWindow<'r> {
    /// A window at the beginning of `reader`, which reads at most `chunk_size` bytes at a time.
    pub(crate) fn new(reader: &'r mut dyn Read, chunk_size: usize) -> Self {
        ReadWindow {
            reader,
            bytes: Vec::new(),
            start: 0,
            valid_end: 0,
            at_eof: false,
            invalid_byte: None,
            position: Position::line_start(1),
            chunk_size: chunk_size.clamp(1, CHUNK_BYTES),
        }
    }

    /// All bytes in the window.
    pub(crate) fn buffered(&self) -> &[u8] {
        self.bytes.get(self.start..).unwrap_or_default()
    }

    /// The bytes before the first that is not UTF-8.
    pub(crate) fn valid_utf8(&self) -> &[u8] {
        self.bytes
            .get(self.start..self.valid_end)
            .unwrap_or_default()
    }

    /// The byte after the valid ones, if it is not valid in UTF-8.
    pub(crate) fn invalid_byte(&self) -> Option<u8> {
        self.invalid_byte
    }

    /// Whether the rest of the file is in the window.
    pub(crate) fn at_eof(&self) -> bool {
        self.at_eof
    }

    /// The position of the first byte.
    pub(crate) fn position(&self) -> Position {
        self.position
    }

    /// Makes the first byte the beginning of the file.
    pub(crate) fn reset_position(&mut self) {
        self.position = Position::line_start(1);
    }

    /// Consumes this many bytes.
    pub(crate) fn advance(&mut self, count: usize) {
        let to = self.start.saturating_add(count).min(self.bytes.len());
        let mut position = self.position;
        position.advance(&self.bytes[self.start..to]);
        self.advance_to(count, position);
    }

    /// Consumes this many bytes; the one after them is at `position`.
    pub(crate) fn advance_to(&mut self, count: usize, position: Position) {
        self.position = position;
        self.start = self.start.saturating_add(count).min(self.bytes.len());
        if self.start > self.valid_end {
            self.valid_end = self.start;
            self.validate_utf8();
        }
    }

    /// Reads until one chunk is in the window, or to the end.
    pub(crate) fn fill(&mut self) -> io::Result<()> {
        self.fill_to(self.chunk_size)
    }

    /// Reads until this many bytes are in the window, or to the end.
    pub(crate) fn fill_to(&mut self, count: usize) -> io::Result<()> {
        while self.buffered().len() < count && !self.at_eof {
            self.read_more()?;
        }
        Ok(())
    }

    /// Reads one more chunk.
    pub(crate) fn read_more(&mut self) -> io::Result<()> {
        if self.at_eof {
            return Ok(());
        }
        self.bytes.drain(..self.start);
        self.valid_end -= self.start;
        self.start = 0;
        let before = self.bytes.len();
        let most = self.chunk_size as u64;
        let read = self.reader.take(most).read_to_end(&mut self.bytes)?;
        self.at_eof = read < self.chunk_size;
        debug_assert_eq!(before + read, self.bytes.len());
        self.validate_utf8();
        Ok(())
    }

    fn validate_utf8(&mut self) {
        self.invalid_byte = None;
        let rest = self.bytes.get(self.valid_end..).unwrap_or_default();
        let Err(error) = std::str::from_utf8(rest) else {
            self.valid_end = self.bytes.len();
            return;
        };
        self.valid_end += error.valid_up_to();
        if error.error_len().is_some() || self.at_eof {
            self.invalid_byte = self.bytes.get(self.valid_end).copied();
        }
    }
}
