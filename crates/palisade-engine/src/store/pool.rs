//! Intern pools: equal values are kept once, under a number, as long as anything uses them.
//!
//! A number belongs to its value while the use count is above 0; afterwards it may be reused.
//! Hashes are only used to find values: no output of the engine depends on their order.

use super::chunked_vec::ChunkedVec;
use alloc::vec::Vec;
use core::borrow::Borrow;
use core::hash::{BuildHasher, Hash};
use foldhash::fast::FixedState;
use hashbrown::HashTable;

/// A map whose order is never observed.
pub(crate) type HashMap<K, V> = hashbrown::HashMap<K, V, FixedState>;

/// The hash under which a value is found.
pub(crate) fn hash(value: &(impl Hash + ?Sized)) -> u64 {
    FixedState::default().hash_one(value)
}

#[derive(Debug)]
struct PoolSlot<T> {
    value: Option<T>,
    uses: u32,
}

/// Interned values with use counts.
#[derive(Debug)]
pub(crate) struct InternPool<T> {
    slots: ChunkedVec<PoolSlot<T>>,
    free: Vec<u32>,
    index: HashTable<u32>,
}

impl<T> Default for InternPool<T> {
    fn default() -> Self {
        InternPool {
            slots: ChunkedVec::default(),
            free: Vec::new(),
            index: HashTable::new(),
        }
    }
}

impl<T: Hash + Eq> InternPool<T> {
    /// The number of values.
    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// The number of a value, if it is interned.
    pub(crate) fn find<Q: Hash + Eq + ?Sized>(&self, value: &Q) -> Option<u32>
    where
        T: Borrow<Q>,
    {
        let same = |number: &u32| self.get(*number).is_some_and(|v| v.borrow() == value);
        self.index.find(hash(value), same).copied()
    }

    /// The number of a value, interned if it is new; counts one use more.
    pub(crate) fn acquire(&mut self, value: T) -> u32 {
        if let Some(number) = self.find::<T>(&value) {
            self.retain(number);
            return number;
        }
        let slot = PoolSlot {
            value: Some(value),
            uses: 1,
        };
        self.insert(slot)
    }

    /// As [`Self::acquire`], but makes the value only if it is new.
    pub(crate) fn acquire_with<Q: Hash + Eq + ?Sized>(
        &mut self,
        value: &Q,
        make: impl FnOnce() -> T,
    ) -> u32
    where
        T: Borrow<Q>,
    {
        if let Some(number) = self.find(value) {
            self.retain(number);
            return number;
        }
        let slot = PoolSlot {
            value: Some(make()),
            uses: 1,
        };
        self.insert(slot)
    }

    fn insert(&mut self, slot: PoolSlot<T>) -> u32 {
        let Some(key) = slot.value.as_ref().map(hash) else {
            return u32::MAX;
        };
        let number = match self.free.pop() {
            Some(number) => {
                if let Some(free) = self.slots.get_mut(number) {
                    *free = slot;
                }
                number
            }
            None => self.slots.push(slot),
        };
        let slots = &self.slots;
        let again = |number: &u32| {
            let slot = slots.get(*number);
            slot.and_then(|p| p.value.as_ref()).map_or(0, hash)
        };
        self.index.insert_unique(key, number, again);
        number
    }

    /// The value with this number.
    pub(crate) fn get(&self, number: u32) -> Option<&T> {
        self.slots.get(number)?.value.as_ref()
    }

    /// Every value with its number.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        let slots = self.slots.iter();
        slots.filter_map(|(number, slot)| Some((number, slot.value.as_ref()?)))
    }

    /// Counts one use more.
    pub(crate) fn retain(&mut self, number: u32) {
        if let Some(slot) = self.slots.get_mut(number) {
            slot.uses += 1;
        }
    }

    /// Counts one use less. Removes and returns the value if it was the last.
    pub(crate) fn release(&mut self, number: u32) -> Option<T> {
        let slot = self.slots.get_mut(number)?;
        slot.uses = slot.uses.saturating_sub(1);
        if slot.uses > 0 {
            return None;
        }
        let value = slot.value.take()?;
        let index_entry = self.index.find_entry(hash(&value), |n| *n == number);
        if let Ok(entry) = index_entry {
            entry.remove();
        }
        self.free.push(number);
        if self.len() == 0 {
            *self = InternPool::default();
        }
        Some(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use palisade_model::Str;

    #[test]
    fn equal_values_are_kept_once_while_used() {
        let mut pool: InternPool<Str> = InternPool::default();
        let a = pool.acquire("a".into());
        let b = pool.acquire_with("b", || "b".into());
        assert_eq!(pool.acquire("a".into()), a);
        assert_eq!((pool.find("a"), pool.find("b")), (Some(a), Some(b)));
        pool.release(a);
        assert_eq!(pool.get(a).map(|name| &**name), Some("a"));
        pool.release(a);
        assert_eq!((pool.find("a"), pool.len()), (None, 1));
        assert_eq!(pool.acquire("c".into()), a, "a free number is used again");
        pool.release(a);
        pool.release(b);
        assert_eq!(pool.len(), 0);
    }
}
