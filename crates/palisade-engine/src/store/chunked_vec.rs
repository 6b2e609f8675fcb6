//! A vector in chunks: it grows without copying its values and without reserving twice their
//! memory.

use alloc::vec::Vec;

/// The size of a chunk, as a power of two.
const SHIFT: u32 = 10;

/// Values under consecutive numbers.
#[derive(Debug)]
pub(crate) struct ChunkedVec<T> {
    chunks: Vec<Vec<T>>,
}

impl<T> Default for ChunkedVec<T> {
    fn default() -> Self {
        ChunkedVec { chunks: Vec::new() }
    }
}

impl<T> ChunkedVec<T> {
    pub(crate) fn get(&self, number: u32) -> Option<&T> {
        let piece = self.chunks.get((number >> SHIFT) as usize)?;
        piece.get((number & ((1 << SHIFT) - 1)) as usize)
    }

    pub(crate) fn get_mut(&mut self, number: u32) -> Option<&mut T> {
        let piece = self.chunks.get_mut((number >> SHIFT) as usize)?;
        piece.get_mut((number & ((1 << SHIFT) - 1)) as usize)
    }

    /// Adds a value after the last and returns its number.
    pub(crate) fn push(&mut self, value: T) -> u32 {
        if self
            .chunks
            .last()
            .is_none_or(|piece| piece.len() == 1 << SHIFT)
        {
            // The first chunk grows, so that few values take little.
            let capacity = if self.chunks.is_empty() {
                0
            } else {
                1 << SHIFT
            };
            self.chunks.push(Vec::with_capacity(capacity));
        }
        let before = (self.chunks.len() - 1) << SHIFT;
        let Some(piece) = self.chunks.last_mut() else {
            return u32::MAX;
        };
        piece.push(value);
        u32::try_from(before + piece.len() - 1).unwrap_or(u32::MAX)
    }

    /// The number of values.
    pub(crate) fn len(&self) -> usize {
        let last = self.chunks.last();
        last.map_or(0, |last| ((self.chunks.len() - 1) << SHIFT) + last.len())
    }

    /// Every value with its number.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        (0..).zip(self.chunks.iter().flatten())
    }
}
