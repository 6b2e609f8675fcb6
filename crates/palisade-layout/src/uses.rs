//! What is in use: identities by addresses and class rows, pairs of set and class by rows.
//!
//! Promises: an identity is reported unused with its last use; a pair that lost its last row is deleted only when no
//! packet can be between the two lookups that need it, which is a grace period later.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use palisade_tables::IdentityId;

/// The number of addresses and class rows that refer to each identity.
#[derive(Clone, Debug, Default)]
pub struct IdentityUses(BTreeMap<IdentityId, usize>);

impl IdentityUses {
    /// Adds a use.
    pub fn acquire(&mut self, id: IdentityId) {
        *self.0.entry(id).or_default() += 1;
    }

    /// Removes a use; returns whether it was the last one.
    pub fn release(&mut self, id: IdentityId) -> bool {
        let Some(uses) = self.0.get_mut(&id) else {
            return false;
        };
        *uses -= 1;
        let is_last = *uses == 0;
        if is_last {
            self.0.remove(&id);
        }
        is_last
    }
}

/// A policy set and a class, in the maps' numbers.
type Pair = (u32, u32);

/// The number of rows of each pair of policy set and class.
#[derive(Clone, Debug, Default)]
pub struct PairUses {
    rows: BTreeMap<Pair, usize>,
    /// Pairs without rows that are in the maps, and the step in which each lost its last row.
    unused: BTreeMap<Pair, usize>,
    /// The step that is being planned, from 1.
    step: usize,
}

impl PairUses {
    /// Another step begins.
    pub fn begin_step(&mut self) {
        self.step += 1;
    }

    /// Adds pairs that are in the maps although no row has them.
    pub fn add_unused(&mut self, pairs: impl IntoIterator<Item = Pair>) {
        self.unused.extend(pairs.into_iter().map(|pair| (pair, 0)));
    }

    /// Adds a row; returns whether the pair is not in the maps yet.
    pub fn acquire(&mut self, pair: Pair) -> bool {
        let rows = self.rows.entry(pair).or_default();
        *rows += 1;
        *rows == 1 && self.unused.remove(&pair).is_none()
    }

    /// Removes a row.
    pub fn release(&mut self, pair: Pair) {
        if let Some(rows) = self.rows.get_mut(&pair) {
            *rows -= 1;
            if *rows == 0 {
                self.rows.remove(&pair);
                self.unused.insert(pair, self.step);
            }
        }
    }

    /// The policy set is deleted: no packet refers to it, so its pairs can go at once.
    pub fn release_set(&mut self, set: u32) {
        for (pair, step) in &mut self.unused {
            if pair.0 == set {
                *step = 0;
            }
        }
    }

    /// Ends a delta, and gives the pairs to delete: those that the last step may delete, and those that only a step
    /// after its grace period may.
    pub fn take_unused(&mut self) -> (Vec<Pair>, Vec<Pair>) {
        let last = core::mem::take(&mut self.step);
        let unused = core::mem::take(&mut self.unused).into_iter();
        let (fresh, safe): (Vec<_>, Vec<_>) = unused.partition(|(_, step)| *step == last);
        let pairs = |uses: Vec<(Pair, usize)>| uses.into_iter().map(|(pair, _)| pair).collect();
        (pairs(safe), pairs(fresh))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pair_of_the_last_step_waits_for_a_grace_period() {
        let mut pairs = PairUses::default();
        pairs.begin_step();
        assert!(pairs.acquire((1, 1)) && pairs.acquire((1, 2)) && pairs.acquire((2, 1)));
        assert!(!pairs.acquire((1, 1)), "it is there");
        pairs.release((1, 2));
        pairs.release((1, 1));
        pairs.begin_step();
        pairs.release((1, 1));
        pairs.release((2, 1));
        pairs.release_set(2);
        let (safe, fresh) = pairs.take_unused();
        assert_eq!((safe, fresh), ([(1, 2), (2, 1)].into(), [(1, 1)].into()));
        pairs.add_unused([(3, 3)]);
        assert!(!pairs.acquire((3, 3)), "it is in the maps");
    }

    #[test]
    fn the_last_use_of_an_identity_is_told() {
        let mut uses = IdentityUses::default();
        let id = IdentityId(4);
        uses.acquire(id);
        uses.acquire(id);
        assert_eq!([(); 3].map(|()| uses.release(id)), [false, true, false]);
    }
}
