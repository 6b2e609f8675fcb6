//! The rules that each counter in the kernel is credited to.
//!
//! Promises: the counters are those of the content planned so far, each listed once.

use crate::planner::to_credited_counters;
use crate::{CreditedCounter, Planner};
use alloc::vec::Vec;
use palisade_tables::ClassId;

impl Planner {
    /// Every counter that is credited to rules, after everything planned so far.
    pub fn credited_counters(&self) -> Vec<CreditedCounter> {
        let bases = self.base_contents();
        let bases = bases.flat_map(|content| to_credited_counters(content.counters));
        let classes = self.tables().programs.keys();
        let own = classes.flat_map(|class| self.class_own_counters(*class));
        bases.chain(own).collect()
    }

    /// The counters of one class and its base; none if the class does not exist.
    pub fn class_counters(&self, class: ClassId) -> Vec<CreditedCounter> {
        let base = self.numbers.bases.base_of(class);
        let base = base.map(|number| self.base_content(number).counters);
        let base = to_credited_counters(base.unwrap_or_default());
        base.chain(self.class_own_counters(class)).collect()
    }

    fn class_own_counters(&self, class: ClassId) -> Vec<CreditedCounter> {
        let Some(program) = self.tables().programs.get(&class) else {
            return Vec::new();
        };
        to_credited_counters(self.class_content(class, program).counters).collect()
    }
}
