//! The numbers under which a dataplane's maps know identities, policy sets, classes and interfaces.
//!
//! The engine assigns new numbers at every start; those of the maps are kept, so that a restart on unchanged
//! input writes nothing.
//!
//! Promises: a number is reused only after all others of its kind were used, except for interfaces, which have the
//! lowest free one. Never: knows what a number is written as.

use alloc::collections::{BTreeMap, BTreeSet};
use palisade_model::Str;
use palisade_tables::{ClassId, IdentityId, PolicySetId, Renumbering};

/// The numbers of one kind of object, from 1. A number is not reused before all others were used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NumberAllocator<K> {
    by_key: BTreeMap<K, u32>,
    by_number: BTreeMap<u32, K>,
    next: u32,
    first: u32,
    last: u32,
}

impl<K: Copy + Ord> NumberAllocator<K> {
    /// An empty allocator for numbers from `first` to `last`.
    pub fn new(first: u32, last: u32) -> Self {
        NumberAllocator {
            by_key: BTreeMap::new(),
            by_number: BTreeMap::new(),
            next: first,
            first,
            last,
        }
    }

    /// The number of `key`, if it has one.
    pub fn get(&self, key: K) -> Option<u32> {
        self.by_key.get(&key).copied()
    }

    /// The number of `key`; allocates one if it has none.
    pub fn get_or_allocate(&mut self, key: K) -> u32 {
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
        if number < self.last {
            number + 1
        } else {
            self.first
        }
    }

    /// Gives `key` a number that it has in the maps.
    pub fn assign(&mut self, key: K, number: u32) {
        self.by_key.insert(key, number);
        self.by_number.insert(number, key);
        if number >= self.next {
            self.next = self.successor(number);
        }
    }

    /// No lower number is allocated until the number space wraps around.
    pub fn skip_to(&mut self, next: u32) {
        self.next = self.next.max(next);
    }

    /// Releases the number of `key`.
    pub fn release(&mut self, key: K) {
        if let Some(number) = self.by_key.remove(&key) {
            self.by_number.remove(&number);
        }
    }
}

/// The numbers of interfaces by name: the lowest free one, from a first number on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InterfaceNumbers {
    by_name: BTreeMap<Str, u32>,
    first: u32,
}

impl InterfaceNumbers {
    /// No interface has a number; the first one gets `first`.
    pub fn new(first: u32) -> Self {
        InterfaceNumbers {
            by_name: BTreeMap::new(),
            first,
        }
    }

    /// The number of an interface; allocates one if it has none.
    pub fn get_or_allocate(&mut self, name: &Str) -> u32 {
        if let Some(number) = self.by_name.get(name) {
            return *number;
        }
        let used: BTreeSet<u32> = self.by_name.values().copied().collect();
        let mut free = self.first;
        while used.contains(&free) {
            free += 1;
        }
        self.by_name.insert(name.clone(), free);
        free
    }

    /// Gives an interface a number that it has in the maps.
    pub fn assign(&mut self, name: Str, number: u32) {
        self.by_name.insert(name, number);
    }

    /// Releases the number of an interface.
    pub fn release(&mut self, name: &str) {
        self.by_name.remove(name);
    }
}

/// The numbers of all objects.
#[derive(Clone, Debug)]
pub struct ObjectNumbers {
    /// Identities; the unknown identity has none.
    pub identities: NumberAllocator<IdentityId>,
    /// Policy sets.
    pub sets: NumberAllocator<PolicySetId>,
    /// Classes.
    pub classes: NumberAllocator<ClassId>,
    /// Named interfaces of the host.
    pub interfaces: InterfaceNumbers,
}

impl ObjectNumbers {
    /// No object has a number; `last_class` is the greatest number of a class, and `first_interface` the lowest of an
    /// interface.
    pub fn new(last_class: u32, first_interface: u32) -> Self {
        ObjectNumbers {
            identities: NumberAllocator::new(1, u32::MAX),
            sets: NumberAllocator::new(1, u32::MAX),
            classes: NumberAllocator::new(1, last_class),
            interfaces: InterfaceNumbers::new(first_interface),
        }
    }

    /// Gives every object of tables that are in the maps' numbers its own number.
    pub fn assign_held(&mut self, numbers: &Renumbering) {
        for number in 1..numbers.next_identity.0 {
            self.identities.assign(IdentityId(number), number);
        }
        for number in 1..numbers.next_set.0 {
            self.sets.assign(PolicySetId(number), number);
        }
        for number in 1..numbers.next_class.0 {
            self.classes.assign(ClassId(number), number);
        }
    }

    /// Gives every object of the desired tables the number that it has in the maps.
    pub fn assign_desired(&mut self, numbers: &Renumbering) {
        for (id, number) in &numbers.identities {
            if *id != IdentityId::UNKNOWN {
                self.identities.assign(*id, number.0);
            }
        }
        for (set, number) in &numbers.sets {
            self.sets.assign(*set, number.0);
        }
        for (class, number) in &numbers.classes {
            self.classes.assign(*class, number.0);
        }
        self.identities.skip_to(numbers.next_identity.0);
        self.sets.skip_to(numbers.next_set.0);
        self.classes.skip_to(numbers.next_class.0);
    }

    /// The number of an identity; 0 is the unknown identity.
    pub fn identity(&mut self, id: IdentityId) -> u32 {
        match id {
            IdentityId::UNKNOWN => 0,
            id => self.identities.get_or_allocate(id),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_reused_after_all_others() {
        let mut numbers = NumberAllocator::new(1, 3);
        assert_eq!(numbers.get_or_allocate('a'), 1);
        assert_eq!(numbers.get_or_allocate('b'), 2);
        numbers.release('a');
        assert_eq!(numbers.get_or_allocate('c'), 3);
        assert_eq!(numbers.get_or_allocate('d'), 1);
        assert_eq!(numbers.get('b'), Some(2));
    }

    #[test]
    fn an_interface_has_the_lowest_free_number() {
        let mut numbers = InterfaceNumbers::new(2);
        numbers.assign("eth1".into(), 3);
        assert_eq!(numbers.get_or_allocate(&"eth0".into()), 2);
        assert_eq!(numbers.get_or_allocate(&"eth2".into()), 4);
        numbers.release("eth0");
        assert_eq!(numbers.get_or_allocate(&"eth3".into()), 2);
        assert_eq!(numbers.get_or_allocate(&"eth1".into()), 3);
    }
}
