//! Whom each count in the kernel is credited to.
//!
//! Promises: the places are those of the content planned so far, each once.

use crate::planner::harvests;
use crate::{Harvest, Planner};
use alloc::vec::Vec;
use palisade_tables::ClassId;

impl Planner {
    /// Every place that counts for a rule, after everything planned so far.
    pub fn credits(&self) -> Vec<Harvest> {
        let bases = self.base_contents();
        let bases = bases.flat_map(|content| harvests(content.credits));
        let classes = self.tables().programs.keys();
        let own = classes.flat_map(|class| self.own_credits(*class));
        bases.chain(own).collect()
    }

    /// The places that count for rules in one class, its base's included; none if it is not there.
    pub fn credits_of(&self, class: ClassId) -> Vec<Harvest> {
        let base = self.numbers.bases.of(class);
        let base = base.map(|number| self.base_content(number).credits);
        let base = harvests(base.unwrap_or_default());
        base.chain(self.own_credits(class)).collect()
    }

    fn own_credits(&self, class: ClassId) -> Vec<Harvest> {
        let Some(program) = self.tables().programs.get(&class) else {
            return Vec::new();
        };
        harvests(self.content(class, program).credits).collect()
    }
}
