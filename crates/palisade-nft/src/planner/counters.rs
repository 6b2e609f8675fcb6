//! The content and the counters of bases and classes as they are after everything planned so far.

use super::Planner;
use crate::AttributedCounter;
use crate::content::{
    ClassContent, ClassForm, KnownNumbers, class_content, to_attributed_counters,
};
use crate::edit_batch::EditBatch;
use alloc::vec::Vec;
use palisade_tables::{ClassId, Program};

impl Planner {
    /// The kernel content of a base.
    pub(super) fn base_content(&self, number: u32, program: &Program) -> ClassContent {
        let codes = self.numbers.base_codes.get(&number);
        let mut numbers = KnownNumbers {
            codes: codes.map_or(&[], |codes| codes),
            redirects: &[],
        };
        class_content(&self.config, number, program, ClassForm::Base, &mut numbers)
    }

    /// The kernel content of all bases.
    fn base_contents(&self) -> impl Iterator<Item = ClassContent> {
        let bases = self.numbers.bases.iter();
        bases.map(|(number, program)| self.base_content(number, program))
    }

    /// Writes the known bases as if they were new.
    pub(super) fn write_known_bases(&self, batch: &mut EditBatch) {
        for content in self.base_contents() {
            batch.add_content(content);
        }
    }

    /// Every counter that counts for rules, after everything planned so far.
    pub fn attributed_counters(&self) -> Vec<AttributedCounter> {
        let bases = self.base_contents();
        let bases = bases.flat_map(|content| to_attributed_counters(content.counters));
        let classes = self.tables().programs.keys();
        let own = classes.flat_map(|class| self.class_own_counters(*class));
        bases.chain(own).collect()
    }

    /// The counters of one class and its base; none if the class does not exist.
    pub fn class_counters(&self, class: ClassId) -> Vec<AttributedCounter> {
        let bases = &self.numbers.bases;
        let base = bases.base_of(class);
        let base = base.and_then(|number| Some(self.base_content(number, bases.program(number)?)));
        let base = to_attributed_counters(base.unwrap_or_default().counters);
        base.chain(self.class_own_counters(class)).collect()
    }

    fn class_own_counters(&self, class: ClassId) -> Vec<AttributedCounter> {
        let Some(program) = self.tables().programs.get(&class) else {
            return Vec::new();
        };
        to_attributed_counters(self.class_content(class, program).counters).collect()
    }
}
