//! Spans of an array: which of its elements are in use.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};

/// The free spans of an array, each by its first element.
#[derive(Clone, Debug)]
pub(crate) struct FreeSpans {
    spans: BTreeMap<u32, u32>,
    count: u32,
}

impl FreeSpans {
    /// All elements of an array are free.
    pub(crate) fn new(size: u32) -> Self {
        FreeSpans {
            spans: BTreeMap::from([(0, size)]),
            count: size,
        }
    }

    /// How many elements are free.
    pub(crate) fn count(&self) -> u32 {
        self.count
    }

    /// Takes a span of this length from the first that is long enough; `None` if there is none. One of no element is
    /// anywhere.
    pub(crate) fn take(&mut self, length: u32) -> Option<u32> {
        if length == 0 {
            return Some(0);
        }
        let mut spans = self.spans.iter();
        let (&first, &size) = spans.find(|(_, size)| **size >= length)?;
        self.spans.remove(&first);
        if size > length {
            self.spans.insert(first + length, size - length);
        }
        self.count -= length;
        Some(first)
    }

    /// Gives a span back.
    pub(crate) fn give_back(&mut self, first: u32, length: u32) {
        if length == 0 {
            return;
        }
        self.count += length;
        let (mut first, mut length) = (first, length);
        if let Some((&before, &size)) = self.spans.range(..first).next_back()
            && before + size == first
        {
            self.spans.remove(&before);
            first = before;
            length += size;
        }
        if let Some(size) = self.spans.remove(&(first + length)) {
            length += size;
        }
        self.spans.insert(first, length);
    }
}

/// Numbers from 1 up to a greatest one. Those that are given back are used last.
#[derive(Clone, Debug)]
pub(crate) struct FreeNumbers {
    next: u32,
    end: u32,
    returned: VecDeque<u32>,
    /// Those in use although nobody took them.
    reserved: BTreeSet<u32>,
}

impl FreeNumbers {
    /// The numbers of an array of this size, whose element 0 has no number.
    pub(crate) fn new(size: u32) -> Self {
        FreeNumbers {
            next: 1,
            end: size,
            returned: VecDeque::new(),
            reserved: BTreeSet::new(),
        }
    }

    /// How many numbers are free, but for those that are reserved.
    pub(crate) fn count(&self) -> usize {
        let fresh = self.end.saturating_sub(self.next) as usize;
        fresh.saturating_sub(self.reserved.len()) + self.returned.len()
    }

    /// Takes a number; `None` if all are in use.
    pub(crate) fn take(&mut self) -> Option<u32> {
        while self.next < self.end {
            self.next += 1;
            if !self.reserved.contains(&(self.next - 1)) {
                return Some(self.next - 1);
            }
        }
        self.returned.pop_front()
    }

    /// Has a number that nobody took be in use; whether it was free.
    pub(crate) fn reserve(&mut self, number: u32) -> bool {
        (self.next..self.end).contains(&number) && self.reserved.insert(number)
    }

    /// Gives a number back.
    pub(crate) fn give_back(&mut self, number: u32) {
        self.returned.push_back(number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_that_come_back_are_joined() {
        let mut spans = FreeSpans::new(10);
        let taken = [3, 3, 3].map(|length| spans.take(length));
        assert_eq!(taken, [Some(0), Some(3), Some(6)]);
        assert_eq!(spans.take(2), None);
        spans.give_back(0, 3);
        spans.give_back(6, 3);
        assert_eq!(spans.take(4), Some(6));
        spans.give_back(6, 4);
        spans.give_back(3, 3);
        assert_eq!(spans.take(10), Some(0));
        assert_eq!(spans.take(1), None);
        assert_eq!(spans.take(0), Some(0));
    }

    #[test]
    fn a_number_comes_again_after_all_others() {
        let mut numbers = FreeNumbers::new(3);
        assert_eq!(numbers.take(), Some(1));
        numbers.give_back(1);
        assert!(!numbers.reserve(1) && numbers.reserve(2) && !numbers.reserve(2));
        numbers.give_back(2);
        assert_eq!(
            [numbers.take(), numbers.take(), numbers.take()],
            [Some(1), Some(2), None]
        );
    }
}
