//! The kernel's numbers for identities, policy sets and classes.
//!
//! The engine numbers things anew at every start; the kernel keeps the numbers it has, so that a
//! restart on unchanged input changes nothing there.

use alloc::collections::BTreeMap;

/// One kind's numbers, from 1. A number is not given out again until all others were.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NumberAllocator<K> {
    by_key: BTreeMap<K, u32>,
    by_number: BTreeMap<u32, K>,
    next: u32,
    first: u32,
    last: u32,
}

impl<K: Copy + Ord> NumberAllocator<K> {
    /// Nothing has a number yet; all will be from `first` to `last`.
    pub(crate) fn new(first: u32, last: u32) -> Self {
        NumberAllocator {
            by_key: BTreeMap::new(),
            by_number: BTreeMap::new(),
            next: first,
            first,
            last,
        }
    }

    /// The number of `key`, if it has one.
    pub(crate) fn get(&self, key: K) -> Option<u32> {
        self.by_key.get(&key).copied()
    }

    /// The number of `key`, which gets a new one if it has none.
    pub(crate) fn get_or_allocate(&mut self, key: K) -> u32 {
        if let Some(number) = self.get(key) {
            return number;
        }
        while !(self.first..=self.last).contains(&self.next)
            || self.by_number.contains_key(&self.next)
        {
            self.next = self.successor(self.next);
        }
        let number = self.next;
        self.next = self.successor(number);
        self.assign(key, number);
        number
    }

    fn successor(&self, number: u32) -> u32 {
        match number < self.last {
            true => number + 1,
            false => self.first,
        }
    }

    /// Gives `key` this number.
    pub(crate) fn assign(&mut self, key: K, number: u32) {
        self.by_key.insert(key, number);
        self.by_number.insert(number, key);
        if number >= self.next {
            self.next = self.successor(number);
        }
    }

    /// No number below this one is given out until all others were.
    pub(crate) fn skip_to(&mut self, next: u32) {
        self.next = self.next.max(next);
    }

    /// Takes the number of `key` back.
    pub(crate) fn release(&mut self, key: K) {
        if let Some(number) = self.by_key.remove(&key) {
            self.by_number.remove(&number);
        }
    }
}
