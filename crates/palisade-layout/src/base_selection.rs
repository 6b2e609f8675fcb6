//! Which classes get a base.
//!
//! See [`BasePrograms`] for what a base promises. Promises: a class that is written has the base that was assigned to
//! it before; a base that is assigned to no class that is written is released. Never: writes an entry; whoever plans
//! is told of each new base, and of each released one.

use crate::bases::{BasePrograms, ReleasedBase};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;
use palisade_tables::{
    ClassId, Program, ProgramDefaults, TableChange, Tables, best_base, find_shared_bases, pair_base,
};

/// Limit on the bases, and on the programs without a base, that are compared with a new program: those with
/// the highest numbers.
const CANDIDATE_LIMIT: usize = 16;

/// The classes that could share a base, and those about to be written.
#[derive(Clone, Debug)]
pub struct BaseSelection {
    /// A class with fewer entries gets no base.
    min_elements: usize,
    /// The classes that could share a base, by their program's defaults.
    large_classes: BTreeMap<ProgramDefaults, BTreeSet<ClassId>>,
    /// The bases of classes that the step being planned writes: program and base number.
    pending: BTreeMap<ClassId, (Arc<Program>, u32)>,
}

impl BaseSelection {
    /// No classes; those with fewer entries than `min_elements` get no base.
    pub fn new(min_elements: usize) -> Self {
        BaseSelection {
            min_elements,
            large_classes: BTreeMap::new(),
            pending: BTreeMap::new(),
        }
    }

    /// Assigns bases to the classes that these changes create; `tables` are those before them. `add` is called for
    /// each new base, which must be in the maps before the classes.
    pub fn assign(
        &mut self,
        bases: &mut BasePrograms,
        tables: &Tables,
        changes: &[TableChange],
        mut add: impl FnMut(u32, &Program),
    ) {
        let mut added: BTreeMap<ClassId, &Arc<Program>> = BTreeMap::new();
        for change in changes {
            if let TableChange::Program(class, Some(program)) = change {
                added.insert(*class, program);
            }
        }
        added.retain(|_, program| self.can_share(program));
        let mut make = |bases: &mut BasePrograms, program: Program| {
            let program = Arc::new(program);
            let number = bases.add(program.clone());
            add(number, &program);
            number
        };
        let mut remaining = Vec::new();
        for (class, program) in added {
            match find_base(bases, program) {
                Some(base) => self.reserve(bases, class, program, base),
                None => remaining.push((class, program)),
            }
        }
        let programs: Vec<&Program> = remaining.iter().map(|(_, program)| &***program).collect();
        let mut alone: BTreeSet<usize> = (0..remaining.len()).collect();
        for shared in find_shared_bases(&programs) {
            let base = make(bases, shared.base);
            for member in shared.members {
                alone.remove(&member);
                if let Some((class, program)) = remaining.get(member) {
                    self.reserve(bases, *class, program, base);
                }
            }
        }
        for (class, program) in alone.into_iter().filter_map(|at| remaining.get(at)) {
            let existing = find_base(bases, program);
            let base = existing.or_else(|| {
                let common = self.common_base(tables, *class, program)?;
                Some(make(bases, common))
            });
            if let Some(base) = base {
                self.reserve(bases, *class, program, base);
            }
        }
    }

    /// Whether a program may have a base: one that redirects packets has none, so that its redirects are in one place.
    fn can_share(&self, program: &Program) -> bool {
        program.element_count() >= self.min_elements && !program.has_redirects()
    }

    /// The common part of a program and another large one.
    fn common_base(&self, tables: &Tables, class: ClassId, program: &Program) -> Option<Program> {
        let alike = self.large_classes.get(&program.defaults())?.iter().rev();
        let others = alike.filter(|other| **other != class).take(CANDIDATE_LIMIT);
        let others = others.filter_map(|other| tables.programs.get(other));
        pair_base(program, others.map(|program| &**program))
    }

    fn reserve(
        &mut self,
        bases: &mut BasePrograms,
        class: ClassId,
        program: &Arc<Program>,
        base: u32,
    ) {
        bases.reserve(base);
        self.pending.insert(class, (program.clone(), base));
    }

    /// Called when the class of a program is written: adds the reference to its assigned base, if any.
    pub fn bind(&mut self, bases: &mut BasePrograms, class: ClassId, program: &Arc<Program>) {
        let pending = self.pending.get(&class);
        if pending.is_some_and(|(pending, _)| Arc::ptr_eq(pending, program))
            && let Some((_, base)) = self.pending.remove(&class)
        {
            bases.bind(class, base);
        }
        if self.can_share(program) {
            let alike = self.large_classes.entry(program.defaults()).or_default();
            alike.insert(class);
        }
    }

    /// Called when the class of a program is deleted: drops its reference.
    pub fn unbind(
        &mut self,
        bases: &mut BasePrograms,
        class: ClassId,
        program: &Program,
    ) -> Option<ReleasedBase> {
        if let Some(alike) = self.large_classes.get_mut(&program.defaults()) {
            alike.remove(&class);
            if alike.is_empty() {
                self.large_classes.remove(&program.defaults());
            }
        }
        let base = bases.unbind(class)?;
        bases.release(base)
    }

    /// Releases the bases of classes that were not written.
    pub fn release_pending(&mut self, bases: &mut BasePrograms) -> Vec<ReleasedBase> {
        let pending = core::mem::take(&mut self.pending).into_values();
        pending
            .filter_map(|(_, base)| bases.release(base))
            .collect()
    }
}

/// The existing base that saves the most entries for a program.
fn find_base(bases: &BasePrograms, program: &Program) -> Option<u32> {
    let defaults = program.defaults();
    let alike = bases.with_defaults(&defaults);
    let candidates = alike.take(CANDIDATE_LIMIT);
    best_base(program, candidates.map(|(number, base)| (number, &**base)))
}
