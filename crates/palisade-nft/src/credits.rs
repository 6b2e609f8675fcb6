//! Whom each count in the kernel is credited to.
//!
//! Promises: the places are those of the content planned so far, each once.

use crate::{Harvest, Planner};
use alloc::vec::Vec;
use palisade_tables::ClassId;

impl Planner {
    /// Every place that counts for a rule, after everything planned so far.
    pub fn credits(&self) -> Vec<Harvest> {
        let classes = self.tables().programs.keys();
        classes.flat_map(|class| self.credits_of(*class)).collect()
    }

    /// The places that count for rules in one class; none if it is not there.
    pub fn credits_of(&self, class: ClassId) -> Vec<Harvest> {
        let Some(program) = self.tables().programs.get(&class) else {
            return Vec::new();
        };
        let credits = self.content(class, program).credits.into_iter();
        credits
            .filter(|(_, rules)| !rules.is_empty())
            .map(|(place, rules)| Harvest { place, rules })
            .collect()
    }
}
