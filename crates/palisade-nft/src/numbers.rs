//! The kernel's numbers for identities, policy sets and classes.
//!
//! The engine assigns new numbers at every start; the kernel's numbers are kept, so that a restart on
//! unchanged input writes nothing.

use crate::bases::BasePrograms;
use crate::names;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use palisade_model::Str;
use palisade_tables::{ClassId, IdentityId, PolicySetId};

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

/// The kernel's numbers of all objects.
#[derive(Clone, Debug)]
pub(crate) struct KernelNumbers {
    pub(crate) identities: NumberAllocator<IdentityId>,
    pub(crate) sets: NumberAllocator<PolicySetId>,
    pub(crate) classes: NumberAllocator<ClassId>,
    /// The codes of each class's source-port chains, in the order of creation.
    pub(crate) source_port_codes: BTreeMap<ClassId, Vec<u32>>,
    pub(crate) next_code: u32,
    pub(crate) bases: BasePrograms,
    /// The numbers of the places of named interfaces of the host.
    pub(crate) places: BTreeMap<Str, u32>,
}

impl Default for KernelNumbers {
    fn default() -> Self {
        KernelNumbers {
            identities: NumberAllocator::new(1, u32::MAX),
            sets: NumberAllocator::new(1, u32::MAX),
            classes: NumberAllocator::new(1, names::FIRST_BASE - 1),
            source_port_codes: BTreeMap::new(),
            next_code: names::LAST_VERDICT + 1,
            bases: BasePrograms::default(),
            places: BTreeMap::new(),
        }
    }
}

/// Allocates a code for a source-port chain.
pub(crate) fn allocate_code(next: &mut u32) -> u32 {
    let code = *next;
    *next = code.wrapping_add(1).max(names::LAST_VERDICT + 1);
    code
}
