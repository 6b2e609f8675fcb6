//! The one source of chance: a seeded generator with the few draws that worlds are made of.

use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};

/// Draws that repeat for the same seed and case.
#[derive(Clone, Debug)]
pub struct Dice(StdRng);

impl Dice {
    /// The draws of one case under one seed.
    #[must_use]
    pub fn new(seed: u64, case: u64) -> Self {
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&seed.to_le_bytes());
        bytes[8..16].copy_from_slice(&case.to_le_bytes());
        Dice(StdRng::from_seed(bytes))
    }

    /// True in this many of a hundred draws.
    pub fn chance(&mut self, percent: u32) -> bool {
        self.0.random_range(0..100) < percent
    }

    /// A number below `n`; 0 where `n` is 0.
    pub fn below(&mut self, n: usize) -> usize {
        if n == 0 { 0 } else { self.0.random_range(0..n) }
    }

    /// A number from `low` to `high`, both included.
    pub fn between(&mut self, low: usize, high: usize) -> usize {
        self.0.random_range(low..=high)
    }

    /// One of these.
    ///
    /// # Panics
    /// If there are none.
    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len())]
    }

    /// At most `most` of these, each at most once, in a random order.
    pub fn some<T: Clone>(&mut self, from: &[T], most: usize) -> Vec<T> {
        let mut all = from.to_vec();
        all.shuffle(&mut self.0);
        let count = self.between(0, most.min(all.len()));
        all.truncate(count);
        all
    }

    /// Puts them into a random order.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        items.shuffle(&mut self.0);
    }
}
