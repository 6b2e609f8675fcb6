//! The kernel's numbers for identities, policy sets and classes.
//!
//! The engine numbers things anew at every start; the kernel keeps the numbers it has, so that a
//! restart on unchanged input changes nothing there.

use alloc::collections::BTreeMap;

/// One kind's numbers, from 1. A number is not given out again until all others were.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Numbers<K> {
    of: BTreeMap<K, u32>,
    back: BTreeMap<u32, K>,
    next: u32,
    first: u32,
    last: u32,
}

impl<K: Copy + Ord> Numbers<K> {
    /// Nothing has a number yet; all will be from `first` to `last`.
    pub(crate) fn within(first: u32, last: u32) -> Self {
        Numbers {
            of: BTreeMap::new(),
            back: BTreeMap::new(),
            next: first,
            first,
            last,
        }
    }

    /// The number of `key`, if it has one.
    pub(crate) fn get(&self, key: K) -> Option<u32> {
        self.of.get(&key).copied()
    }

    /// The number of `key`, which gets a new one if it has none.
    pub(crate) fn number(&mut self, key: K) -> u32 {
        if let Some(number) = self.get(key) {
            return number;
        }
        while !(self.first..=self.last).contains(&self.next) || self.back.contains_key(&self.next) {
            self.next = self.after(self.next);
        }
        let number = self.next;
        self.next = self.after(number);
        self.assign(key, number);
        number
    }

    fn after(&self, number: u32) -> u32 {
        match number < self.last {
            true => number + 1,
            false => self.first,
        }
    }

    /// Gives `key` this number.
    pub(crate) fn assign(&mut self, key: K, number: u32) {
        self.of.insert(key, number);
        self.back.insert(number, key);
        if number >= self.next {
            self.next = self.after(number);
        }
    }

    /// No number below this one is given out until all others were.
    pub(crate) fn skip_to(&mut self, next: u32) {
        self.next = self.next.max(next);
    }

    /// Takes the number of `key` back.
    pub(crate) fn free(&mut self, key: K) {
        if let Some(number) = self.of.remove(&key) {
            self.back.remove(&number);
        }
    }
}
