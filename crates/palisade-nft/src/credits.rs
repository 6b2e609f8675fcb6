//! Whom each count in the kernel is credited to.
//!
//! Promises: the places are those of the content planned so far, each once.

use crate::{Harvest, Planner};
use alloc::vec::Vec;

impl Planner {
    /// Every place that counts for a rule, after everything planned so far.
    pub fn credits(&self) -> Vec<Harvest> {
        let programs = self.tables().programs.iter();
        let credits = programs.flat_map(|(class, program)| self.content(*class, program).credits);
        credits
            .filter(|(_, rules)| !rules.is_empty())
            .map(|(place, rules)| Harvest { place, rules })
            .collect()
    }
}
