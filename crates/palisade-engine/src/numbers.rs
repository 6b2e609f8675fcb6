//! Numbers for values: equal values share one number while anything uses it, and no number is ever
//! given out twice.

use alloc::collections::BTreeMap;

/// Values with their numbers.
#[derive(Debug)]
pub(crate) struct Numbers<K> {
    numbers: BTreeMap<K, u32>,
    next: u32,
}

impl<K: Ord + Clone> Numbers<K> {
    /// No values; numbers begin at `first`.
    pub(crate) fn from(first: u32) -> Self {
        Numbers {
            numbers: BTreeMap::new(),
            next: first,
        }
    }

    /// The number of a value; a new one where it has none yet.
    pub(crate) fn of(&mut self, value: &K) -> u32 {
        if let Some(number) = self.numbers.get(value) {
            return *number;
        }
        let number = self.fresh();
        self.numbers.insert(value.clone(), number);
        number
    }

    /// A number that stands for no value.
    pub(crate) fn fresh(&mut self) -> u32 {
        let number = self.next;
        self.next = self.next.wrapping_add(1);
        number
    }

    /// Forgets the values whose numbers are not used any more.
    pub(crate) fn keep(&mut self, mut used: impl FnMut(u32) -> bool) {
        self.numbers.retain(|_, number| used(*number));
    }

    /// Every value and its number.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&K, u32)> {
        self.numbers.iter().map(|(value, number)| (value, *number))
    }
}
