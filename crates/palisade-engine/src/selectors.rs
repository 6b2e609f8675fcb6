//! The selectors that active rules ask for, interned, and which labels they can see.
//!
//! A selector is active while a rule of an active policy or of a local endpoint's profile uses it at
//! the other end. Nothing here knows what a selector matches.

use crate::filing::Files;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;
use palisade_model::{LabelKey, Scope, Selector, Str};

/// A key, or a value of a key, that no active selector tested before.
#[derive(Clone, Debug)]
pub(crate) struct KeyChange {
    pub(crate) key: LabelKey,
    /// The value; `None` where any value matters.
    pub(crate) value: Option<Str>,
}

/// How active selectors test a key.
#[derive(Debug, Default)]
pub(crate) struct KeyUse {
    /// Tests of any kind.
    tests: usize,
    /// Tests of a part of the value: they tell all values apart.
    parts: usize,
    named: BTreeMap<Str, usize>,
}

impl KeyUse {
    /// The value as selectors see it: itself where that matters, `None` where it is any other.
    pub(crate) fn sees(&self, value: &str) -> Option<Str> {
        if let Some((named, _)) = self.named.get_key_value(value) {
            return Some(named.clone());
        }
        (self.parts > 0).then(|| value.into())
    }
}

/// The keys that active selectors test, by scope and name.
#[derive(Debug, Default)]
pub(crate) struct Keys([BTreeMap<Str, KeyUse>; 4]);

impl Keys {
    /// How a key is tested, with the key's shared name; `None` where it is not.
    pub(crate) fn get(&self, scope: Scope, name: &str) -> Option<(&Str, &KeyUse)> {
        self.0[place(scope)].get_key_value(name)
    }

    fn of(&mut self, scope: Scope) -> &mut BTreeMap<Str, KeyUse> {
        &mut self.0[place(scope)]
    }
}

fn place(scope: Scope) -> usize {
    match scope {
        Scope::Own => 0,
        Scope::Namespace => 1,
        Scope::ServiceAccount => 2,
        Scope::Reserved => 3,
    }
}

/// The active selectors.
#[derive(Debug, Default)]
pub(crate) struct Selectors {
    numbers: BTreeMap<Arc<Selector>, u32>,
    selectors: BTreeMap<u32, (Arc<Selector>, usize)>,
    next: u32,
    keys: Keys,
    pub(crate) files: Files,
    /// Selectors that became active, and those that may have ended, since the last settling.
    begun: BTreeSet<u32>,
    ended: BTreeSet<u32>,
}

/// What changed between two settlings.
#[derive(Debug, Default)]
pub(crate) struct SelectorChanges {
    pub(crate) keys: Vec<KeyChange>,
    pub(crate) begun: BTreeSet<u32>,
    pub(crate) ended: BTreeMap<u32, Arc<Selector>>,
}

impl Selectors {
    /// Counts one use more and returns the selector's number.
    pub(crate) fn take(&mut self, selector: &Selector) -> u32 {
        if let Some(number) = self.numbers.get(selector) {
            let number = *number;
            if let Some((_, uses)) = self.selectors.get_mut(&number) {
                *uses += 1;
            }
            return number;
        }
        let number = self.next;
        self.next += 1;
        let shared = Arc::new(selector.clone());
        self.numbers.insert(shared.clone(), number);
        self.files.file(number, selector);
        self.selectors.insert(number, (shared, 1));
        self.begun.insert(number);
        number
    }

    /// Counts one use less.
    pub(crate) fn give(&mut self, number: u32) {
        if let Some((_, uses)) = self.selectors.get_mut(&number) {
            *uses = uses.saturating_sub(1);
            if *uses == 0 {
                self.ended.insert(number);
            }
        }
    }

    /// What began and what ended since the last call; ended selectors are forgotten.
    pub(crate) fn settle(&mut self) -> SelectorChanges {
        let mut changes = SelectorChanges {
            begun: core::mem::take(&mut self.begun),
            ..SelectorChanges::default()
        };
        for number in core::mem::take(&mut self.ended) {
            let unused = self.selectors.get(&number).is_some_and(|(_, n)| *n == 0);
            if !unused {
                continue;
            }
            if let Some((selector, _)) = self.selectors.remove(&number) {
                self.numbers.remove(&selector);
                self.files.unfile(number);
                if !changes.begun.remove(&number) {
                    self.untest(&selector);
                    changes.ended.insert(number, selector);
                }
            }
        }
        let begun: Vec<Arc<Selector>> = changes
            .begun
            .iter()
            .filter_map(|number| self.selectors.get(number))
            .map(|(selector, _)| selector.clone())
            .collect();
        for selector in begun {
            self.test(&selector, &mut changes.keys);
        }
        changes
    }

    /// The selector of a number.
    pub(crate) fn get(&self, number: u32) -> Option<&Selector> {
        self.selectors.get(&number).map(|(selector, _)| &**selector)
    }

    /// Every active selector with its number.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &Selector)> {
        self.selectors
            .iter()
            .map(|(number, (selector, _))| (*number, &**selector))
    }

    /// The keys that are tested.
    pub(crate) fn keys(&self) -> &Keys {
        &self.keys
    }

    fn test(&mut self, selector: &Selector, new: &mut Vec<KeyChange>) {
        let mut change = |key: &LabelKey, value: Option<&Str>| {
            new.push(KeyChange {
                key: key.clone(),
                value: value.cloned(),
            });
        };
        each_test(selector, &mut |key, test| {
            let used = self.keys.of(key.scope).entry(key.name.clone()).or_default();
            let first = used.tests == 0;
            used.tests += 1;
            let mut all = first;
            match test {
                Test::Present => {}
                Test::Part => {
                    all |= used.parts == 0;
                    used.parts += 1;
                }
                Test::Values(values) => {
                    for value in values {
                        let uses = used.named.entry(value.clone()).or_default();
                        *uses += 1;
                        if *uses == 1 && !first {
                            change(key, Some(value));
                        }
                    }
                }
            }
            if all {
                change(key, None);
            }
        });
    }

    fn untest(&mut self, selector: &Selector) {
        each_test(selector, &mut |key, test| {
            let keys = self.keys.of(key.scope);
            let Some(used) = keys.get_mut(&key.name) else {
                return;
            };
            used.tests -= 1;
            match test {
                Test::Present => {}
                Test::Part => used.parts -= 1,
                Test::Values(values) => {
                    for value in values {
                        if let Some(uses) = used.named.get_mut(value) {
                            *uses -= 1;
                            if *uses == 0 {
                                used.named.remove(value);
                            }
                        }
                    }
                }
            }
            if used.tests == 0 {
                keys.remove(&key.name);
            }
        });
    }
}

/// What a selector asks of one key.
enum Test<'a> {
    Present,
    Part,
    Values(&'a BTreeSet<Str>),
}

fn each_test<'a>(selector: &'a Selector, each: &mut impl FnMut(&'a LabelKey, Test<'a>)) {
    match selector {
        Selector::In(key, values) => each(key, Test::Values(values)),
        Selector::Has(key) => each(key, Test::Present),
        Selector::Contains(key, _) | Selector::StartsWith(key, _) | Selector::EndsWith(key, _) => {
            each(key, Test::Part);
        }
        Selector::Not(inner) => each_test(inner, each),
        Selector::And(parts) | Selector::Or(parts) => {
            for part in parts {
                each_test(part, each);
            }
        }
    }
}
