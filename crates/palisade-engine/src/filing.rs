//! Where a selector can match at all: filed under one test that it requires.
//!
//! A selector that requires `app == web` is only tried on what has that label, and what has it only
//! tries such selectors. Of several required tests the least loaded is taken.

use crate::pool::Pool;
use crate::selectors::{KeyNumber, find_key};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use palisade_model::{LabelKey, Selector, Str};

/// A test that must hold for a selector to match.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Required {
    /// The key has one of these values.
    Values(KeyNumber, Vec<u32>),
    /// The key is there.
    Present(KeyNumber),
    /// Nothing has the key.
    Never,
}

/// The tests that a selector requires; each alone must hold for it to match. Names that nothing
/// knows are nobody's.
pub(crate) fn required(selector: &Selector, names: &Pool<Str>) -> Vec<Required> {
    let present = |key: &LabelKey| {
        let key = find_key(names, key);
        alloc::vec![key.map_or(Required::Never, Required::Present)]
    };
    match selector {
        Selector::In(key, values) => {
            let values = values.iter().filter_map(|v| names.find::<str>(v)).collect();
            let key = find_key(names, key);
            alloc::vec![key.map_or(Required::Never, |key| Required::Values(key, values))]
        }
        Selector::Has(key)
        | Selector::Contains(key, _)
        | Selector::StartsWith(key, _)
        | Selector::EndsWith(key, _) => present(key),
        Selector::And(parts) => parts.iter().flat_map(|p| required(p, names)).collect(),
        Selector::Not(_) | Selector::Or(_) => Vec::new(),
    }
}

/// What is filed under one key.
#[derive(Debug, Default)]
struct Bucket {
    values: BTreeMap<u32, BTreeSet<u32>>,
    present: BTreeSet<u32>,
}

/// Selectors by a test that they require.
#[derive(Debug, Default)]
pub(crate) struct Files {
    buckets: BTreeMap<KeyNumber, Bucket>,
    loose: BTreeSet<u32>,
    /// Where each is filed that is not loose.
    places: BTreeMap<u32, Required>,
}

impl Files {
    /// Files a selector.
    pub(crate) fn file(&mut self, number: u32, selector: &Selector, names: &Pool<Str>) {
        let tests = required(selector, names).into_iter();
        let Some(place) = tests.min_by_key(|test| self.load(test)) else {
            self.loose.insert(number);
            return;
        };
        match &place {
            Required::Values(key, values) => {
                let bucket = self.buckets.entry(*key).or_default();
                for value in values {
                    bucket.values.entry(*value).or_default().insert(number);
                }
            }
            Required::Present(key) => {
                let bucket = self.buckets.entry(*key).or_default();
                bucket.present.insert(number);
            }
            Required::Never => {}
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
            Required::Never => 0,
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
            Some(Required::Never) => return,
            None => {
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
    pub(crate) fn candidates(
        &self,
        labels: impl Iterator<Item = (KeyNumber, u32)>,
    ) -> impl Iterator<Item = u32> {
        let under = labels.filter_map(|(key, value)| {
            let bucket = self.buckets.get(&key)?;
            let named = bucket.values.get(&value).into_iter().flatten();
            Some(named.chain(&bucket.present))
        });
        under.flatten().chain(&self.loose).copied()
    }
}
