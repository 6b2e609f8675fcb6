//! Index of selectors by one test that each requires.
//!
//! A selector that requires `app == web` is evaluated only for labels with that value, and such
//! labels are evaluated only against selectors indexed under them. Of several required tests the
//! one with the fewest selectors is used.

use crate::key_numbers::{KeyNumber, find_key};
use crate::store::InternPool;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use palisade_model::{LabelKey, Selector, Str};

/// The number of an active selector.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct SelectorNumber(pub(crate) u32);

/// A test that must hold for a selector to match.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RequiredTest {
    /// The key has one of these values.
    Values(KeyNumber, Vec<u32>),
    /// The key is present.
    Present(KeyNumber),
    /// No label satisfies the test.
    Never,
}

/// The tests that a selector requires: each must hold for it to match. A key that is not interned
/// is on no label.
pub(crate) fn required_tests(selector: &Selector, names: &InternPool<Str>) -> Vec<RequiredTest> {
    let present = |key: &LabelKey| {
        let key = find_key(names, key);
        alloc::vec![key.map_or(RequiredTest::Never, RequiredTest::Present)]
    };
    match selector {
        Selector::In(key, values) => {
            let values = values.iter().filter_map(|v| names.find::<str>(v)).collect();
            let key = find_key(names, key);
            alloc::vec![key.map_or(RequiredTest::Never, |key| RequiredTest::Values(key, values))]
        }
        Selector::Has(key)
        | Selector::Contains(key, _)
        | Selector::StartsWith(key, _)
        | Selector::EndsWith(key, _)
        | Selector::Domain(key, _) => present(key),
        Selector::And(parts) => parts
            .iter()
            .flat_map(|p| required_tests(p, names))
            .collect(),
        Selector::Not(_) | Selector::Or(_) => Vec::new(),
    }
}

/// The selectors under one key.
#[derive(Debug, Default)]
struct KeyBucket {
    values: BTreeMap<u32, BTreeSet<SelectorNumber>>,
    present: BTreeSet<SelectorNumber>,
}

/// Active selectors by a test that they require.
#[derive(Debug, Default)]
pub(crate) struct ActiveSelectorIndex {
    buckets: BTreeMap<KeyNumber, KeyBucket>,
    unindexed: BTreeSet<SelectorNumber>,
    /// The test under which each indexed selector is entered.
    tests: BTreeMap<SelectorNumber, RequiredTest>,
}

impl ActiveSelectorIndex {
    /// Adds a selector.
    pub(crate) fn insert(
        &mut self,
        number: SelectorNumber,
        selector: &Selector,
        names: &InternPool<Str>,
    ) {
        let tests = required_tests(selector, names).into_iter();
        let Some(test) = tests.min_by_key(|test| self.load(test)) else {
            self.unindexed.insert(number);
            return;
        };
        match &test {
            RequiredTest::Values(key, values) => {
                let bucket = self.buckets.entry(*key).or_default();
                for value in values {
                    bucket.values.entry(*value).or_default().insert(number);
                }
            }
            RequiredTest::Present(key) => {
                let bucket = self.buckets.entry(*key).or_default();
                bucket.present.insert(number);
            }
            RequiredTest::Never => {}
        }
        self.tests.insert(number, test);
    }

    /// The number of selectors already under a test.
    fn load(&self, test: &RequiredTest) -> usize {
        match test {
            RequiredTest::Values(key, values) => {
                let Some(bucket) = self.buckets.get(key) else {
                    return 0;
                };
                let selectors = values.iter().filter_map(|value| bucket.values.get(value));
                selectors.map(BTreeSet::len).sum()
            }
            RequiredTest::Present(key) => self.buckets.get(key).map_or(0, |b| b.present.len()),
            RequiredTest::Never => 0,
        }
    }

    /// Removes a selector.
    pub(crate) fn remove(&mut self, number: SelectorNumber) {
        let key = match self.tests.remove(&number) {
            Some(RequiredTest::Values(key, values)) => {
                if let Some(bucket) = self.buckets.get_mut(&key) {
                    for value in &values {
                        if let Some(selectors) = bucket.values.get_mut(value) {
                            selectors.remove(&number);
                            if selectors.is_empty() {
                                bucket.values.remove(value);
                            }
                        }
                    }
                }
                key
            }
            Some(RequiredTest::Present(key)) => {
                if let Some(bucket) = self.buckets.get_mut(&key) {
                    bucket.present.remove(&number);
                }
                key
            }
            Some(RequiredTest::Never) => return,
            None => {
                self.unindexed.remove(&number);
                return;
            }
        };
        let empty = |bucket: &KeyBucket| bucket.values.is_empty() && bucket.present.is_empty();
        if self.buckets.get(&key).is_some_and(empty) {
            self.buckets.remove(&key);
        }
    }

    /// The selectors that may match these labels.
    pub(crate) fn candidates(
        &self,
        labels: impl Iterator<Item = (KeyNumber, u32)>,
    ) -> impl Iterator<Item = SelectorNumber> {
        let under = labels.filter_map(|(key, value)| {
            let bucket = self.buckets.get(&key)?;
            let named = bucket.values.get(&value).into_iter().flatten();
            Some(named.chain(&bucket.present))
        });
        under.flatten().chain(&self.unindexed).copied()
    }
}
