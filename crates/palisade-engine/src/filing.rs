//! Where a selector can match at all: filed under one test that it requires.
//!
//! A selector that requires `app == web` is only tried on what has that label, and what has it only
//! tries such selectors. Of several required tests the least loaded is taken.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use palisade_model::{LabelKey, Selector, Str};

/// A test that must hold for a selector to match.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Required {
    /// The key has one of these values.
    Values(LabelKey, BTreeSet<Str>),
    /// The key is there.
    Present(LabelKey),
    /// Nothing that could be looked up.
    Nothing,
}

/// The tests that a selector requires; each alone must hold for it to match.
pub(crate) fn required(selector: &Selector) -> Vec<Required> {
    match selector {
        Selector::In(key, values) => alloc::vec![Required::Values(key.clone(), values.clone())],
        Selector::Has(key)
        | Selector::Contains(key, _)
        | Selector::StartsWith(key, _)
        | Selector::EndsWith(key, _) => alloc::vec![Required::Present(key.clone())],
        Selector::And(parts) => parts.iter().flat_map(required).collect(),
        Selector::Not(_) | Selector::Or(_) => Vec::new(),
    }
}

/// What is filed under one key.
#[derive(Debug, Default)]
struct Bucket {
    values: BTreeMap<Str, BTreeSet<u32>>,
    present: BTreeSet<u32>,
}

/// Selectors by a test that they require.
#[derive(Debug, Default)]
pub(crate) struct Files {
    buckets: BTreeMap<LabelKey, Bucket>,
    loose: BTreeSet<u32>,
    places: BTreeMap<u32, Required>,
}

impl Files {
    /// Files a selector.
    pub(crate) fn file(&mut self, number: u32, selector: &Selector) {
        let tests = required(selector).into_iter();
        let place = tests
            .min_by_key(|test| self.load(test))
            .unwrap_or(Required::Nothing);
        match &place {
            Required::Values(key, values) => {
                let bucket = self.buckets.entry(key.clone()).or_default();
                for value in values {
                    let there = bucket.values.entry(value.clone()).or_default();
                    there.insert(number);
                }
            }
            Required::Present(key) => {
                let bucket = self.buckets.entry(key.clone()).or_default();
                bucket.present.insert(number);
            }
            Required::Nothing => drop(self.loose.insert(number)),
        }
        self.places.insert(number, place);
    }

    /// How many selectors stand under a test already.
    fn load(&self, test: &Required) -> usize {
        match test {
            Required::Values(key, values) => {
                let Some(bucket) = self.buckets.get(key) else {
                    return 0;
                };
                let there = values.iter().filter_map(|value| bucket.values.get(value));
                there.map(BTreeSet::len).sum()
            }
            Required::Present(key) => self.buckets.get(key).map_or(0, |b| b.present.len()),
            Required::Nothing => usize::MAX,
        }
    }

    /// Takes a selector out.
    pub(crate) fn unfile(&mut self, number: u32) {
        let key = match self.places.remove(&number) {
            Some(Required::Values(key, values)) => {
                if let Some(bucket) = self.buckets.get_mut(&key) {
                    for value in &values {
                        if let Some(there) = bucket.values.get_mut(value) {
                            there.remove(&number);
                            if there.is_empty() {
                                bucket.values.remove(value);
                            }
                        }
                    }
                }
                key
            }
            Some(Required::Present(key)) => {
                if let Some(bucket) = self.buckets.get_mut(&key) {
                    bucket.present.remove(&number);
                }
                key
            }
            _ => {
                self.loose.remove(&number);
                return;
            }
        };
        let empty = |bucket: &Bucket| bucket.values.is_empty() && bucket.present.is_empty();
        if self.buckets.get(&key).is_some_and(empty) {
            self.buckets.remove(&key);
        }
    }

    /// The selectors that may match something with these labels.
    pub(crate) fn candidates<'a>(
        &'a self,
        labels: impl Iterator<Item = (&'a LabelKey, &'a Str)>,
    ) -> impl Iterator<Item = u32> {
        let under = labels.filter_map(|(key, value)| {
            let bucket = self.buckets.get(key)?;
            let named = bucket.values.get(value).into_iter().flatten();
            Some(named.chain(&bucket.present))
        });
        under.flatten().chain(&self.loose).copied()
    }
}
