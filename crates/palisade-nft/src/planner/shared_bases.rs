//! Which classes get a base, and the counters of classes and bases.
//!
//! See [`crate::bases`] for what a base promises.

use super::Planner;
use crate::content::{ClassContent, ClassForm, class_content, to_credited_counters};
use crate::edit_batch::EditBatch;
use crate::numbers::allocate_code;
use crate::{CreditedCounter, NftFault};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;
use palisade_tables::{ClassId, Program, TableChange, best_base, find_shared_bases, pair_base};

/// Limit on the bases, and on the programs without a base, that are compared with a new program: those with
/// the highest numbers.
const CANDIDATE_LIMIT: usize = 16;

impl Planner {
    /// The kernel content of a base.
    pub(crate) fn base_content(&self, number: u32) -> ClassContent {
        self.numbers.bases.content(&self.config, number)
    }

    /// The kernel content of all bases.
    pub(crate) fn base_contents(&self) -> impl Iterator<Item = ClassContent> {
        let numbers = self.numbers.bases.by_number.keys();
        numbers.map(|number| self.base_content(*number))
    }

    /// Writes the known bases as if they were new.
    pub(crate) fn write_known_bases(&mut self, batch: &mut EditBatch) {
        for content in self.base_contents().collect::<Vec<_>>() {
            batch.add_content(content);
        }
    }

    /// Assigns bases to the classes that these changes create, and writes new bases.
    pub(crate) fn assign_bases(&mut self, changes: &[TableChange], batch: &mut EditBatch) {
        let mut added: BTreeMap<ClassId, &Arc<Program>> = BTreeMap::new();
        for change in changes {
            if let TableChange::Program(class, Some(program)) = change {
                added.insert(*class, program);
            }
        }
        added.retain(|_, program| program.element_count() >= self.config.min_shared_elements);
        let mut left = Vec::new();
        for (class, program) in added {
            match self.find_base(program) {
                Some(base) => self.reserve_base(class, program, base),
                None => left.push((class, program)),
            }
        }
        let programs: Vec<&Program> = left.iter().map(|(_, program)| &***program).collect();
        let mut alone: BTreeSet<usize> = (0..left.len()).collect();
        for shared in find_shared_bases(&programs) {
            let base = self.make_base(shared.base, batch);
            for member in shared.members {
                alone.remove(&member);
                if let Some((class, program)) = left.get(member) {
                    self.reserve_base(*class, program, base);
                }
            }
        }
        for (class, program) in alone.into_iter().filter_map(|at| left.get(at)) {
            let known = self.find_base(program);
            let base = known.or_else(|| {
                let common = self.common_base(*class, program)?;
                Some(self.make_base(common, batch))
            });
            if let Some(base) = base {
                self.reserve_base(*class, program, base);
            }
        }
    }

    /// The existing base that saves the most elements for a program.
    fn find_base(&self, program: &Program) -> Option<u32> {
        let bases = &self.numbers.bases;
        let alike = bases.by_defaults.get(&program.defaults())?.iter().rev();
        let known = alike.take(CANDIDATE_LIMIT).filter_map(|number| {
            let base = bases.program(*number)?;
            Some((*number, &**base))
        });
        best_base(program, known)
    }

    /// The common part of a program and another large one.
    fn common_base(&self, class: ClassId, program: &Program) -> Option<Program> {
        let alike = self.large_classes.get(&program.defaults())?.iter().rev();
        let others = alike.filter(|other| **other != class).take(CANDIDATE_LIMIT);
        let others = others.filter_map(|other| self.tables.programs.get(other));
        pair_base(program, others.map(|program| &**program))
    }

    fn reserve_base(&mut self, class: ClassId, program: &Arc<Program>, base: u32) {
        if let Some(base) = self.numbers.bases.by_number.get_mut(&base) {
            base.references += 1;
        }
        self.pending_classes.insert(class, (program.clone(), base));
    }

    /// Creates and writes a base.
    fn make_base(&mut self, program: Program, batch: &mut EditBatch) -> u32 {
        let number = self.numbers.bases.allocate();
        let next_residue = &mut self.numbers.next_code;
        let mut residues = Vec::new();
        let content = class_content(&self.config, number, &program, ClassForm::Base, &mut || {
            let code = allocate_code(next_residue);
            residues.push(code);
            code
        });
        batch.add_content(content);
        let bases = &mut self.numbers.bases;
        bases.assign(number, Arc::new(program), residues);
        number
    }

    /// Called when the class of a program is written: adds the reference to its assigned base, if any.
    pub(crate) fn bind_base(&mut self, class: ClassId, program: &Arc<Program>) {
        let coming = self.pending_classes.get(&class);
        if coming.is_some_and(|(of, _)| Arc::ptr_eq(of, program))
            && let Some((_, base)) = self.pending_classes.remove(&class)
        {
            self.numbers.bases.by_class.insert(class, base);
        }
        if program.element_count() >= self.config.min_shared_elements {
            let alike = self.large_classes.entry(program.defaults()).or_default();
            alike.insert(class);
        }
    }

    /// Called when the class of a program is deleted: drops its reference, and deletes the base with the
    /// last one.
    pub(crate) fn unbind_base(&mut self, class: ClassId, program: &Program, batch: &mut EditBatch) {
        if let Some(alike) = self.large_classes.get_mut(&program.defaults()) {
            alike.remove(&class);
            if alike.is_empty() {
                self.large_classes.remove(&program.defaults());
            }
        }
        if let Some(base) = self.numbers.bases.by_class.remove(&class) {
            self.release_base(base, batch);
        }
    }

    /// Releases the bases of classes that were not written.
    pub(crate) fn release_unused_bases(&mut self, batch: &mut EditBatch) {
        for (_, base) in core::mem::take(&mut self.pending_classes).into_values() {
            self.release_base(base, batch);
        }
    }

    fn release_base(&mut self, number: u32, batch: &mut EditBatch) {
        let Some(base) = self.numbers.bases.by_number.get_mut(&number) else {
            return;
        };
        base.references -= 1;
        let last = base.references == 0;
        if !last && !NftFault::BaseDroppedEarly.is_injected() {
            return;
        }
        let content = self.base_content(number);
        if last {
            self.numbers.bases.remove(number);
        }
        batch.delete_content(content);
    }

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
