//! The part of a file that is in memory while the file is read piece by piece.

use crate::location::Position;
use std::io::{self, Read};

/// Bytes that are asked of the reader at a time.
const STEP: usize = 1 << 20;

/// Bytes of a file from `position` on, as far as they have been read.
pub(crate) struct Window<'r> {
    reader: &'r mut dyn Read,
    bytes: Vec<u8>,
    /// What is before is done with.
    from: usize,
    /// What is before is UTF-8; never less than `from`.
    sound: usize,
    /// Whether the reader has no more.
    ended: bool,
    /// What stands at `sound`, if it can stand in no UTF-8.
    broken: Option<u8>,
    position: Position,
    step: usize,
}

impl<'r> Window<'r> {
    /// At the beginning of what `reader` gives; `step` bytes are looked at together, at most.
    pub(crate) fn new(reader: &'r mut dyn Read, step: usize) -> Self {
        Window {
            reader,
            bytes: Vec::new(),
            from: 0,
            sound: 0,
            ended: false,
            broken: None,
            position: Position::line(1),
            step: step.clamp(1, STEP),
        }
    }

    /// All bytes that are there.
    pub(crate) fn all(&self) -> &[u8] {
        self.bytes.get(self.from..).unwrap_or_default()
    }

    /// Those before the first that is not UTF-8.
    pub(crate) fn sound(&self) -> &[u8] {
        self.bytes.get(self.from..self.sound).unwrap_or_default()
    }

    /// What ends the sound bytes, if it is not UTF-8.
    pub(crate) fn broken(&self) -> Option<u8> {
        self.broken
    }

    /// Whether all of the rest is there.
    pub(crate) fn ended(&self) -> bool {
        self.ended
    }

    /// Where the first byte stands.
    pub(crate) fn position(&self) -> Position {
        self.position
    }

    /// Takes the first byte for the first of the file.
    pub(crate) fn restart(&mut self) {
        self.position = Position::line(1);
    }

    /// Goes on by so many bytes.
    pub(crate) fn pass(&mut self, count: usize) {
        let to = self.from.saturating_add(count).min(self.bytes.len());
        self.position.pass(&self.bytes[self.from..to]);
        self.from = to;
        if self.from > self.sound {
            self.sound = self.from;
            self.check();
        }
    }

    /// Reads on until a step is there, or the end.
    pub(crate) fn fill(&mut self) -> io::Result<()> {
        self.at_least(self.step)
    }

    /// Reads on until so many bytes are there, or the end.
    pub(crate) fn at_least(&mut self, count: usize) -> io::Result<()> {
        while self.all().len() < count && !self.ended {
            self.more()?;
        }
        Ok(())
    }

    /// Reads on by one step.
    pub(crate) fn more(&mut self) -> io::Result<()> {
        if self.ended {
            return Ok(());
        }
        self.bytes.drain(..self.from);
        self.sound -= self.from;
        self.from = 0;
        let before = self.bytes.len();
        let most = self.step as u64;
        let read = self.reader.take(most).read_to_end(&mut self.bytes)?;
        self.ended = read < self.step;
        debug_assert_eq!(before + read, self.bytes.len());
        self.check();
        Ok(())
    }

    fn check(&mut self) {
        self.broken = None;
        let rest = self.bytes.get(self.sound..).unwrap_or_default();
        let Err(error) = std::str::from_utf8(rest) else {
            self.sound = self.bytes.len();
            return;
        };
        self.sound += error.valid_up_to();
        if error.error_len().is_some() || self.ended {
            self.broken = self.bytes.get(self.sound).copied();
        }
    }
}
