//! Texts that flows have in common, each kept once under a number: the ends of flows, and what decided.
//!
//! Promises: equal texts have equal numbers, which begin at 1 and are consecutive.
//!
//! Never: forgets a text. A dictionary that has become too large is replaced by a new one.

use foldhash::fast::FixedState;
use hashbrown::HashTable;
use serde::Serialize;
use std::hash::BuildHasher;
use std::sync::Arc;

/// The number of a text.
pub(crate) type EntryNumber = u32;

/// The number that no text has.
pub(crate) const NO_ENTRY: EntryNumber = 0;

/// Texts by number, and numbers by text.
#[derive(Default)]
pub(crate) struct Dictionary {
    hasher: FixedState,
    numbers: HashTable<EntryNumber>,
    texts: Vec<Arc<[u8]>>,
    /// The text that is looked up.
    scratch: Vec<u8>,
}

impl Dictionary {
    /// The text of a number.
    pub(crate) fn text(&self, number: EntryNumber) -> Option<&Arc<[u8]>> {
        self.texts.get((number as usize).checked_sub(1)?)
    }

    /// The texts, from that with the number 1 on.
    pub(crate) fn texts(&self) -> &[Arc<[u8]>] {
        &self.texts
    }

    /// The number of a value as JSON; `None` if it is new, and there are this many already.
    pub(crate) fn number_of(&mut self, value: &impl Serialize, max: usize) -> Option<EntryNumber> {
        let mut scratch = std::mem::take(&mut self.scratch);
        scratch.clear();
        // These types contain no map with non-string keys, so serialization cannot fail.
        let _ = serde_json::to_writer(&mut scratch, value);
        let number = self.insert(&scratch, max, || Arc::from(&*scratch));
        self.scratch = scratch;
        number
    }

    /// The number of a text that another dictionary has.
    pub(crate) fn number_of_text(&mut self, text: &Arc<[u8]>) -> EntryNumber {
        let number = self.insert(text, usize::MAX, || Arc::clone(text));
        number.unwrap_or(NO_ENTRY)
    }

    fn insert(
        &mut self,
        text: &[u8],
        max: usize,
        keep: impl FnOnce() -> Arc<[u8]>,
    ) -> Option<EntryNumber> {
        let (hasher, texts) = (&self.hasher, &self.texts);
        let known = |number: &EntryNumber| texts.get(*number as usize - 1).map(|text| &**text);
        let hash = hasher.hash_one(text);
        let found = self
            .numbers
            .find(hash, |number| known(number) == Some(text));
        if let Some(number) = found {
            return Some(*number);
        }
        if texts.len() >= max {
            return None;
        }
        let number = texts.len() as EntryNumber + 1;
        self.numbers.insert_unique(hash, number, |number| {
            hasher.hash_one(known(number).unwrap_or_default())
        });
        self.texts.push(keep());
        Some(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_texts_have_one_number() {
        let mut dictionary = Dictionary::default();
        let numbers = |dictionary: &mut Dictionary| -> Vec<EntryNumber> {
            (0..5_000)
                .map(|n| dictionary.number_of(&(n % 1_000), 1_000).unwrap())
                .collect()
        };
        let first = numbers(&mut dictionary);
        assert_eq!(first, (0..5_000).map(|n| n % 1_000 + 1).collect::<Vec<_>>());
        assert_eq!(dictionary.texts().len(), 1_000);
        assert_eq!(dictionary.number_of(&1_000, 1_000), None);
        let text = Arc::clone(dictionary.text(8).unwrap());
        assert_eq!(&*text, b"7");
        assert_eq!(dictionary.number_of_text(&text), 8);
        assert!(dictionary.text(NO_ENTRY).is_none() && dictionary.text(1_001).is_none());
    }
}
