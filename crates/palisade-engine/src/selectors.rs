//! The selectors of active rules, interned, and the label keys that they test.
//!
//! A selector is active while it selects peers in a rule of an active policy or of a local
//! endpoint's profile. Nothing here evaluates selectors.

use crate::key_numbers::{KeyNumber, find_key, key_number, key_parts};
use crate::selector_index::{ActiveSelectorIndex, SelectorNumber};
use crate::store::{HashMap, InternPool};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;
use palisade_model::{LabelKey, LabelScope, LabelValues, Selector, Str};

/// A key, or a value of a key, that active selectors did not test before.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TestedKeyChange {
    pub(crate) key: KeyNumber,
    /// The number of the value; `None` if any value matters.
    pub(crate) value: Option<u32>,
}

/// How active selectors test a key.
#[derive(Debug, Default)]
pub(crate) struct KeyUsage {
    /// Tests of any kind.
    tests: usize,
    /// Tests of a part of the value: these distinguish all values.
    pub(crate) substring_tests: usize,
    named_values: BTreeMap<u32, usize>,
}

impl KeyUsage {
    /// Whether a selector names this value.
    pub(crate) fn names_value(&self, value: u32) -> bool {
        self.named_values.contains_key(&value)
    }

    /// Whether selectors test values, and not only presence.
    pub(crate) fn depends_on_value(&self) -> bool {
        self.substring_tests > 0 || !self.named_values.is_empty()
    }
}

/// The keys that active selectors test.
#[derive(Debug, Default)]
pub(crate) struct TestedKeys {
    uses: HashMap<KeyNumber, KeyUsage>,
    /// The names of tested keys, by scope.
    scopes: [BTreeSet<u32>; 5],
}

impl TestedKeys {
    /// How a key is tested; `None` if it is not.
    pub(crate) fn get(&self, key: KeyNumber) -> Option<&KeyUsage> {
        self.uses.get(&key)
    }

    /// The names of the tested keys of a scope, as numbers.
    pub(crate) fn names_in_scope(&self, scope: LabelScope) -> impl Iterator<Item = u32> {
        self.scopes[scope as usize].iter().copied()
    }

    fn add(&mut self, key: KeyNumber) -> &mut KeyUsage {
        self.uses.entry(key).or_insert_with(|| {
            let (scope, name) = key_parts(key);
            self.scopes[scope as usize].insert(name);
            KeyUsage::default()
        })
    }

    fn remove(&mut self, key: KeyNumber) {
        let (scope, name) = key_parts(key);
        self.uses.remove(&key);
        self.scopes[scope as usize].remove(&name);
    }
}

/// The active selectors.
#[derive(Debug, Default)]
pub(crate) struct ActiveSelectors {
    numbers: BTreeMap<Arc<Selector>, SelectorNumber>,
    selectors: BTreeMap<SelectorNumber, (Arc<Selector>, usize)>,
    next: u32,
    keys: TestedKeys,
    pub(crate) index: ActiveSelectorIndex,
    /// Selectors added, and selectors that may be unused, since [`Self::take_changes`] was last
    /// called.
    added: BTreeSet<SelectorNumber>,
    removed: BTreeSet<SelectorNumber>,
}

/// Changes between two calls of [`ActiveSelectors::take_changes`].
#[derive(Debug, Default)]
pub(crate) struct SelectorChanges {
    pub(crate) keys: Vec<TestedKeyChange>,
    pub(crate) added: BTreeSet<SelectorNumber>,
    pub(crate) removed: BTreeMap<SelectorNumber, Arc<Selector>>,
}

impl ActiveSelectors {
    /// Counts one use more and returns the selector's number.
    pub(crate) fn acquire(&mut self, selector: &Selector) -> SelectorNumber {
        if let Some(number) = self.numbers.get(selector) {
            let number = *number;
            if let Some((_, uses)) = self.selectors.get_mut(&number) {
                *uses += 1;
            }
            return number;
        }
        let number = SelectorNumber(self.next);
        self.next += 1;
        let shared = Arc::new(selector.clone());
        self.numbers.insert(shared.clone(), number);
        self.selectors.insert(number, (shared, 1));
        self.added.insert(number);
        number
    }

    /// Counts one use less.
    pub(crate) fn release(&mut self, number: SelectorNumber) {
        if let Some((_, uses)) = self.selectors.get_mut(&number) {
            *uses = uses.saturating_sub(1);
            if *uses == 0 {
                self.removed.insert(number);
            }
        }
    }

    /// The selectors added and removed since the last call. Removed ones are dropped from the pool.
    pub(crate) fn take_changes(&mut self, names: &mut InternPool<Str>) -> SelectorChanges {
        let mut changes = SelectorChanges {
            added: core::mem::take(&mut self.added),
            ..SelectorChanges::default()
        };
        for number in core::mem::take(&mut self.removed) {
            let unused = self.selectors.get(&number).is_some_and(|(_, n)| *n == 0);
            if !unused {
                continue;
            }
            if let Some((selector, _)) = self.selectors.remove(&number) {
                self.numbers.remove(&selector);
                if !changes.added.remove(&number) {
                    self.index.remove(number);
                    self.remove_tests(&selector, names);
                    changes.removed.insert(number, selector);
                }
            }
        }
        for number in &changes.added {
            let Some((selector, _)) = self.selectors.get(number) else {
                continue;
            };
            let selector = selector.clone();
            self.add_tests(&selector, names, &mut changes.keys);
            self.index.insert(*number, &selector, names);
        }
        changes
    }

    /// The selector with this number.
    pub(crate) fn get(&self, number: SelectorNumber) -> Option<&Selector> {
        self.selectors.get(&number).map(|(selector, _)| &**selector)
    }

    /// Every active selector with its number.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (SelectorNumber, &Selector)> {
        self.selectors
            .iter()
            .map(|(number, (selector, _))| (*number, &**selector))
    }

    /// The keys that active selectors test.
    pub(crate) fn keys(&self) -> &TestedKeys {
        &self.keys
    }

    fn add_tests(
        &mut self,
        selector: &Selector,
        names: &mut InternPool<Str>,
        new: &mut Vec<TestedKeyChange>,
    ) {
        each_test(selector, &mut |key, test| {
            let name = names.acquire_with::<str>(&key.name, || key.name.clone());
            let key = key_number(key.scope, name);
            let used = self.keys.add(key);
            let first = used.tests == 0;
            used.tests += 1;
            let mut all = first;
            match test {
                LabelKeyTest::Present => {}
                LabelKeyTest::Part => {
                    all |= used.substring_tests == 0;
                    used.substring_tests += 1;
                }
                LabelKeyTest::Values(values) => {
                    for value in values {
                        let value = names.acquire_with::<str>(value, || value.clone());
                        let uses = used.named_values.entry(value).or_default();
                        *uses += 1;
                        if *uses == 1 && !first {
                            let value = Some(value);
                            new.push(TestedKeyChange { key, value });
                        }
                    }
                }
            }
            if all {
                new.push(TestedKeyChange { key, value: None });
            }
        });
    }

    fn remove_tests(&mut self, selector: &Selector, names: &mut InternPool<Str>) {
        each_test(selector, &mut |key, test| {
            let Some(key) = find_key(names, key) else {
                return;
            };
            let Some(used) = self.keys.uses.get_mut(&key) else {
                return;
            };
            used.tests -= 1;
            match test {
                LabelKeyTest::Present => {}
                LabelKeyTest::Part => used.substring_tests -= 1,
                LabelKeyTest::Values(values) => {
                    for value in values {
                        let Some(value) = names.find::<str>(value) else {
                            continue;
                        };
                        if let Some(uses) = used.named_values.get_mut(&value) {
                            *uses -= 1;
                            if *uses == 0 {
                                used.named_values.remove(&value);
                            }
                        }
                        names.release(value);
                    }
                }
            }
            if used.tests == 0 {
                self.keys.remove(key);
            }
            names.release(key_parts(key).1);
        });
    }
}

/// A test that a selector makes on one key.
enum LabelKeyTest<'a> {
    Present,
    Part,
    Values(&'a LabelValues),
}

fn each_test<'a>(selector: &'a Selector, each: &mut impl FnMut(&'a LabelKey, LabelKeyTest<'a>)) {
    match selector {
        Selector::In(key, values) => each(key, LabelKeyTest::Values(values)),
        Selector::Has(key) => each(key, LabelKeyTest::Present),
        Selector::Contains(key, _)
        | Selector::StartsWith(key, _)
        | Selector::EndsWith(key, _)
        | Selector::Domain(key, _) => {
            each(key, LabelKeyTest::Part);
        }
        Selector::Not(inner) => each_test(inner, each),
        Selector::And(parts) | Selector::Or(parts) => {
            for part in parts {
                each_test(part, each);
            }
        }
    }
}
