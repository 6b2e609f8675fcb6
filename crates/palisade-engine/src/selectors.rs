//! The selectors that active rules ask for, interned, and which labels they can see.
//!
//! A selector is active while a rule of an active policy or of a local endpoint's profile uses it at
//! the other end. Nothing here knows what a selector matches.

use crate::filing::Files;
use crate::pool::{HashMap, Pool};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;
use palisade_model::{LabelKey, Scope, Selector, Str, Values};

/// A label key by number: its scope and the number of its name.
pub(crate) type KeyNumber = u32;

/// The number of a key whose name has this number.
pub(crate) fn key_number(scope: Scope, name: u32) -> KeyNumber {
    name << 2 | place(scope)
}

/// The scope and the number of the name of a key.
pub(crate) fn key_parts(key: KeyNumber) -> (Scope, u32) {
    let scope = match key & 3 {
        0 => Scope::Own,
        1 => Scope::Namespace,
        2 => Scope::ServiceAccount,
        _ => Scope::Reserved,
    };
    (scope, key >> 2)
}

/// The number of a key, if anything knows its name.
pub(crate) fn find_key(names: &Pool<Str>, key: &LabelKey) -> Option<KeyNumber> {
    Some(key_number(key.scope, names.find::<str>(&key.name)?))
}

/// A key, or a value of a key, that no active selector tested before.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeyChange {
    pub(crate) key: KeyNumber,
    /// The number of the value; `None` where any value matters.
    pub(crate) value: Option<u32>,
}

/// How active selectors test a key.
#[derive(Debug, Default)]
pub(crate) struct KeyUse {
    /// Tests of any kind.
    tests: usize,
    /// Tests of a part of the value: they tell all values apart.
    pub(crate) parts: usize,
    named: BTreeMap<u32, usize>,
}

impl KeyUse {
    /// Whether a value is named.
    pub(crate) fn names(&self, value: u32) -> bool {
        self.named.contains_key(&value)
    }

    /// Whether values matter, and not only that there is one.
    pub(crate) fn looks_at_values(&self) -> bool {
        self.parts > 0 || !self.named.is_empty()
    }
}

/// The keys that active selectors test.
#[derive(Debug)]
pub(crate) struct Keys {
    uses: HashMap<KeyNumber, KeyUse>,
    /// The numbers of their names, by scope.
    scopes: [BTreeSet<u32>; 4],
    /// Grows when the set of tested keys changes.
    pub(crate) epoch: u64,
}

impl Default for Keys {
    fn default() -> Self {
        Keys {
            uses: HashMap::default(),
            scopes: Default::default(),
            epoch: 1,
        }
    }
}

impl Keys {
    /// How a key is tested; `None` where it is not.
    pub(crate) fn get(&self, key: KeyNumber) -> Option<&KeyUse> {
        self.uses.get(&key)
    }

    /// The numbers of the names of the tested keys of a scope.
    pub(crate) fn of(&self, scope: Scope) -> impl Iterator<Item = u32> {
        self.scopes[place(scope) as usize].iter().copied()
    }

    fn begin(&mut self, key: KeyNumber) -> &mut KeyUse {
        self.uses.entry(key).or_insert_with(|| {
            let (scope, name) = key_parts(key);
            self.scopes[place(scope) as usize].insert(name);
            self.epoch += 1;
            KeyUse::default()
        })
    }

    fn end(&mut self, key: KeyNumber) {
        let (scope, name) = key_parts(key);
        self.uses.remove(&key);
        self.scopes[place(scope) as usize].remove(&name);
        self.epoch += 1;
    }
}

fn place(scope: Scope) -> u32 {
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
    pub(crate) fn settle(&mut self, names: &mut Pool<Str>) -> SelectorChanges {
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
                if !changes.begun.remove(&number) {
                    self.files.unfile(number);
                    self.untest(&selector, names);
                    changes.ended.insert(number, selector);
                }
            }
        }
        for number in &changes.begun {
            let Some((selector, _)) = self.selectors.get(number) else {
                continue;
            };
            let selector = selector.clone();
            self.test(&selector, names, &mut changes.keys);
            self.files.file(*number, &selector, names);
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

    fn test(&mut self, selector: &Selector, names: &mut Pool<Str>, new: &mut Vec<KeyChange>) {
        each_test(selector, &mut |key, test| {
            let name = names.take_as::<str>(&key.name, || key.name.clone());
            let key = key_number(key.scope, name);
            let used = self.keys.begin(key);
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
                        let value = names.take_as::<str>(value, || value.clone());
                        let uses = used.named.entry(value).or_default();
                        *uses += 1;
                        if *uses == 1 && !first {
                            let value = Some(value);
                            new.push(KeyChange { key, value });
                        }
                    }
                }
            }
            if all {
                new.push(KeyChange { key, value: None });
            }
        });
    }

    fn untest(&mut self, selector: &Selector, names: &mut Pool<Str>) {
        each_test(selector, &mut |key, test| {
            let Some(key) = find_key(names, key) else {
                return;
            };
            let Some(used) = self.keys.uses.get_mut(&key) else {
                return;
            };
            used.tests -= 1;
            match test {
                Test::Present => {}
                Test::Part => used.parts -= 1,
                Test::Values(values) => {
                    for value in values {
                        let Some(value) = names.find::<str>(value) else {
                            continue;
                        };
                        if let Some(uses) = used.named.get_mut(&value) {
                            *uses -= 1;
                            if *uses == 0 {
                                used.named.remove(&value);
                            }
                        }
                        names.give(value);
                    }
                }
            }
            if used.tests == 0 {
                self.keys.end(key);
            }
            names.give(key_parts(key).1);
        });
    }
}

/// What a selector asks of one key.
enum Test<'a> {
    Present,
    Part,
    Values(&'a Values),
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
