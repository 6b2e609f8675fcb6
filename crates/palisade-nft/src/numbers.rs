//! The kernel's numbers for identities, policy sets and classes.
//!
//! The engine assigns new numbers at every start; the kernel's numbers are kept, so that a restart on
//! unchanged input writes nothing.

use alloc::collections::BTreeMap;

/// The numbers of one kind of object, from 1. A number is not reused before all others were used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NumberAllocator<K> {
    by_key: BTreeMap<K, u32>,
    by_number: BTreeMap<u32, K>,
    next: u32,
    first: u32,
    last: u32,
}

impl<K: Copy + Ord> NumberAllocator<K> {
    /// An empty allocator for numbers from `first` to `last`.
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

    /// The number of `key`; allocates one if it has none.
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

    /// Assigns this number to `key`.
    pub(crate) fn assign(&mut self, key: K, number: u32) {
        self.by_key.insert(key, number);
        self.by_number.insert(number, key);
        if number >= self.next {
            self.next = self.successor(number);
        }
    }

    /// No lower number is allocated until the number space wraps around.
    pub(crate) fn skip_to(&mut self, next: u32) {
        self.next = self.next.max(next);
    }

    /// Releases the number of `key`.
    pub(crate) fn release(&mut self, key: K) {
        if let Some(number) = self.by_key.remove(&key) {
            self.by_number.remove(&number);
        }
    }
}
