//! Bases: what large programs have in common, written once.
//!
//! A base is a program with a number of its own that no packet's class ever is: classes refer to it, and
//! hold only what they say beyond it. Promises: a base is in the kernel exactly as long as a class
//! refers to it; it never changes, and a class that has none gets none, since a packet may be between
//! two lookups; each class of a base refines it ([`Program::refines`]), so its counts are for rules that
//! live, and the kernel never holds more than without bases, but for one element a class. Never:
//! decides what a packet gets.

use crate::batch::Batch;
use crate::content::{ClassContent, Form, class_content};
use crate::names::{self, FIRST_BASE};
use crate::planner::{Planner, harvests};
use crate::{Config, Fault};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;
use palisade_tables::{Change, ClassId, Defaults, Program, best_base, pair_base, share};

/// So many bases, and so many programs without one, are looked at for a program that is new: those with
/// the highest numbers.
const LOOKED_AT: usize = 16;

/// One base.
#[derive(Clone, Debug)]
struct Base {
    program: Arc<Program>,
    /// How many classes refer to it.
    users: usize,
    /// The codes of its residues, in the order of their making.
    residues: Vec<u32>,
}

/// All bases, and the classes that refer to them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Bases {
    of: BTreeMap<ClassId, u32>,
    there: BTreeMap<u32, Base>,
    alike: BTreeMap<Defaults, BTreeSet<u32>>,
    next: u32,
}

impl Bases {
    /// The base of a class, if it has one.
    pub(crate) fn of(&self, class: ClassId) -> Option<u32> {
        self.of.get(&class).copied()
    }

    /// What a base says.
    pub(crate) fn program(&self, number: u32) -> Option<&Arc<Program>> {
        self.there.get(&number).map(|base| &base.program)
    }

    /// A base that is there already.
    pub(crate) fn assign(&mut self, number: u32, program: Arc<Program>, residues: Vec<u32>) {
        let alike = self.alike.entry(program.defaults()).or_default();
        alike.insert(number);
        self.skip_to(number.wrapping_add(1));
        let base = Base {
            program,
            users: 0,
            residues,
        };
        self.there.insert(number, base);
    }

    /// No number below this one is given out until all others were.
    pub(crate) fn skip_to(&mut self, next: u32) {
        self.next = self.next.max(next).max(FIRST_BASE);
    }

    /// A class refers to a base from now on.
    pub(crate) fn refer(&mut self, class: ClassId, number: u32) {
        if let Some(base) = self.there.get_mut(&number) {
            base.users += 1;
            self.of.insert(class, number);
        }
    }

    /// What these classes, under other names, have here.
    pub(crate) fn renamed(&self, classes: &BTreeMap<ClassId, u32>) -> Bases {
        let mut bases = Bases::default();
        for (class, number) in classes {
            let Some(base) = self.of(ClassId(*number)) else {
                continue;
            };
            if !bases.there.contains_key(&base)
                && let Some(Base {
                    program, residues, ..
                }) = self.there.get(&base)
            {
                bases.assign(base, program.clone(), residues.clone());
            }
            bases.refer(*class, base);
        }
        bases.skip_to(self.next);
        bases
    }

    fn fresh(&mut self) -> u32 {
        loop {
            let number = self.next.max(FIRST_BASE);
            self.next = number.wrapping_add(1);
            if !self.there.contains_key(&number) {
                return number;
            }
        }
    }

    fn remove(&mut self, number: u32) -> Option<Base> {
        let base = self.there.remove(&number)?;
        let defaults = base.program.defaults();
        if let Some(alike) = self.alike.get_mut(&defaults) {
            alike.remove(&number);
            if alike.is_empty() {
                self.alike.remove(&defaults);
            }
        }
        Some(base)
    }

    fn content(&self, config: &Config, number: u32) -> ClassContent {
        let Some(base) = self.there.get(&number) else {
            return ClassContent::default();
        };
        let mut codes = base.residues.iter().copied();
        class_content(config, number, &base.program, Form::Base, &mut || {
            codes.next().unwrap_or_default()
        })
    }
}

/// Classes that are about to be written, and what for.
pub(crate) type Coming = BTreeMap<ClassId, (Arc<Program>, u32)>;

impl Planner {
    /// What a base has in the kernel.
    pub(crate) fn base_content(&self, number: u32) -> ClassContent {
        self.numbers.bases.content(&self.config, number)
    }

    /// What all bases have in the kernel, each once.
    pub(crate) fn base_contents(&self) -> impl Iterator<Item = ClassContent> {
        let numbers = self.numbers.bases.there.keys();
        numbers.map(|number| self.base_content(*number))
    }

    /// Writes the bases that are known, as if each were new.
    pub(crate) fn write_known_bases(&mut self, batch: &mut Batch) {
        for content in self.base_contents().collect::<Vec<_>>() {
            write(content, batch);
        }
    }

    /// Finds bases for the classes that these changes make, and writes those that are new.
    pub(crate) fn choose_bases(&mut self, changes: &[Change], batch: &mut Batch) {
        let mut added: BTreeMap<ClassId, &Arc<Program>> = BTreeMap::new();
        for change in changes {
            if let Change::Program(class, Some(program)) = change {
                added.insert(*class, program);
            }
        }
        added.retain(|_, program| program.elements() >= self.config.share_from);
        let mut left = Vec::new();
        for (class, program) in added {
            match self.known_base(program) {
                Some(base) => self.come(class, program, base),
                None => left.push((class, program)),
            }
        }
        let programs: Vec<&Program> = left.iter().map(|(_, program)| &***program).collect();
        let mut alone: BTreeSet<usize> = (0..left.len()).collect();
        for shared in share(&programs) {
            let base = self.make_base(shared.base, batch);
            for member in shared.members {
                alone.remove(&member);
                if let Some((class, program)) = left.get(member) {
                    self.come(*class, program, base);
                }
            }
        }
        for (class, program) in alone.into_iter().filter_map(|at| left.get(at)) {
            let known = self.known_base(program);
            let base = known.or_else(|| {
                let common = self.common_with_others(*class, program)?;
                Some(self.make_base(common, batch))
            });
            if let Some(base) = base {
                self.come(*class, program, base);
            }
        }
    }

    /// The base that is there and saves the most of a program.
    fn known_base(&self, program: &Program) -> Option<u32> {
        let bases = &self.numbers.bases;
        let alike = bases.alike.get(&program.defaults())?.iter().rev();
        let known = alike.take(LOOKED_AT).filter_map(|number| {
            let base = bases.program(*number)?;
            Some((*number, &**base))
        });
        best_base(program, known)
    }

    /// What a program has in common with another large one that is there.
    fn common_with_others(&self, class: ClassId, program: &Program) -> Option<Program> {
        let alike = self.large.get(&program.defaults())?.iter().rev();
        let others = alike.filter(|other| **other != class).take(LOOKED_AT);
        let others = others.filter_map(|other| self.tables.programs.get(other));
        pair_base(program, others.map(|program| &**program))
    }

    fn come(&mut self, class: ClassId, program: &Arc<Program>, base: u32) {
        if let Some(base) = self.numbers.bases.there.get_mut(&base) {
            base.users += 1;
        }
        self.coming.insert(class, (program.clone(), base));
    }

    /// Makes a base, and writes it.
    fn make_base(&mut self, program: Program, batch: &mut Batch) -> u32 {
        let number = self.numbers.bases.fresh();
        let next_residue = &mut self.numbers.next_residue;
        let mut residues = Vec::new();
        let content = class_content(&self.config, number, &program, Form::Base, &mut || {
            let code = take_code(next_residue);
            residues.push(code);
            code
        });
        write(content, batch);
        let bases = &mut self.numbers.bases;
        bases.assign(number, Arc::new(program), residues);
        number
    }

    /// The class of a program is written now: it refers to the base that was found for it, if one was.
    pub(crate) fn settle_base(&mut self, class: ClassId, program: &Arc<Program>) {
        let coming = self.coming.get(&class);
        if coming.is_some_and(|(of, _)| Arc::ptr_eq(of, program))
            && let Some((_, base)) = self.coming.remove(&class)
        {
            self.numbers.bases.of.insert(class, base);
        }
        if program.elements() >= self.config.share_from {
            let alike = self.large.entry(program.defaults()).or_default();
            alike.insert(class);
        }
    }

    /// The class of a program goes, and its base with the last class that refers to it.
    pub(crate) fn leave_base(&mut self, class: ClassId, program: &Program, batch: &mut Batch) {
        if let Some(alike) = self.large.get_mut(&program.defaults()) {
            alike.remove(&class);
            if alike.is_empty() {
                self.large.remove(&program.defaults());
            }
        }
        if let Some(base) = self.numbers.bases.of.remove(&class) {
            self.release(base, batch);
        }
    }

    /// Releases the bases of classes that were not written after all.
    pub(crate) fn leave_coming(&mut self, batch: &mut Batch) {
        for (_, base) in core::mem::take(&mut self.coming).into_values() {
            self.release(base, batch);
        }
    }

    fn release(&mut self, number: u32, batch: &mut Batch) {
        let Some(base) = self.numbers.bases.there.get_mut(&number) else {
            return;
        };
        base.users -= 1;
        let last = base.users == 0;
        if !last && !Fault::BaseDroppedEarly.is_on() {
            return;
        }
        let content = self.base_content(number);
        if last {
            self.numbers.bases.remove(number);
        }
        for ((set, key), element) in content.elements {
            batch.edit(set, key, Some(element), None);
        }
        let chains = content.chains.into_iter().rev();
        batch.dead_chains.extend(chains.map(|(name, _)| name));
        batch.harvest.extend(harvests(content.credits));
    }
}

/// A code that no residue has.
pub(crate) fn take_code(next: &mut u32) -> u32 {
    let code = *next;
    *next = code.wrapping_add(1).max(names::LAST_VERDICT + 1);
    code
}

fn write(content: ClassContent, batch: &mut Batch) {
    for ((set, key), element) in content.elements {
        batch.edit(set, key, None, Some(element));
    }
    batch.new_chains.extend(content.chains);
}
