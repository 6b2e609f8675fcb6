//! Bases: programs that large classes have in common, written once.
//!
//! A base is a program with a number that is never a packet's class: classes refer to it, and hold only the
//! elements that differ. Promises: a base is in the kernel exactly as long as a class refers to it; it never
//! changes, and a class never gets or changes a base later, since a packet may be between two lookups; each
//! class refines its base ([`Program::refines`]), so counters are credited only to existing rules, and the
//! kernel never holds more than without bases, except for one element per class. Never: decides a verdict.

use crate::Config;
use crate::content::{ClassContent, ClassForm, class_content};
use crate::names::FIRST_BASE;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;
use palisade_tables::{ClassId, Program, ProgramDefaults};

/// A base.
#[derive(Clone, Debug)]
pub(crate) struct BaseProgram {
    pub(crate) program: Arc<Program>,
    /// The number of classes that refer to it.
    pub(crate) references: usize,
    /// The codes of its source-port chains, in the order of creation.
    source_port_codes: Vec<u32>,
}

/// All bases, and the classes that refer to them.
#[derive(Clone, Debug, Default)]
pub(crate) struct BasePrograms {
    pub(crate) by_class: BTreeMap<ClassId, u32>,
    pub(crate) by_number: BTreeMap<u32, BaseProgram>,
    pub(crate) by_defaults: BTreeMap<ProgramDefaults, BTreeSet<u32>>,
    next_number: u32,
}

impl BasePrograms {
    /// The base of a class, if it has one.
    pub(crate) fn base_of(&self, class: ClassId) -> Option<u32> {
        self.by_class.get(&class).copied()
    }

    /// The program of a base.
    pub(crate) fn program(&self, number: u32) -> Option<&Arc<Program>> {
        self.by_number.get(&number).map(|base| &base.program)
    }

    /// Adds a base that exists in the kernel.
    pub(crate) fn assign(
        &mut self,
        number: u32,
        program: Arc<Program>,
        source_port_codes: Vec<u32>,
    ) {
        let alike = self.by_defaults.entry(program.defaults()).or_default();
        alike.insert(number);
        self.skip_to(number.wrapping_add(1));
        let base = BaseProgram {
            program,
            references: 0,
            source_port_codes,
        };
        self.by_number.insert(number, base);
    }

    /// No lower number is allocated until the number space wraps around.
    pub(crate) fn skip_to(&mut self, next: u32) {
        self.next_number = self.next_number.max(next).max(FIRST_BASE);
    }

    /// Adds the reference of a class to a base.
    pub(crate) fn add_reference(&mut self, class: ClassId, number: u32) {
        if let Some(base) = self.by_number.get_mut(&number) {
            base.references += 1;
            self.by_class.insert(class, number);
        }
    }

    /// The bases of these classes, with the references under other class numbers.
    pub(crate) fn with_class_ids(&self, classes: &BTreeMap<ClassId, ClassId>) -> BasePrograms {
        let mut bases = BasePrograms::default();
        for (class, number) in classes {
            let Some(base) = self.base_of(*number) else {
                continue;
            };
            if !bases.by_number.contains_key(&base)
                && let Some(BaseProgram {
                    program,
                    source_port_codes: residues,
                    ..
                }) = self.by_number.get(&base)
            {
                bases.assign(base, program.clone(), residues.clone());
            }
            bases.add_reference(*class, base);
        }
        bases.skip_to(self.next_number);
        bases
    }

    /// An unused number.
    pub(crate) fn allocate(&mut self) -> u32 {
        loop {
            let number = self.next_number.max(FIRST_BASE);
            self.next_number = number.wrapping_add(1);
            if !self.by_number.contains_key(&number) {
                return number;
            }
        }
    }

    /// Removes a base.
    pub(crate) fn remove(&mut self, number: u32) -> Option<BaseProgram> {
        let base = self.by_number.remove(&number)?;
        let defaults = base.program.defaults();
        if let Some(alike) = self.by_defaults.get_mut(&defaults) {
            alike.remove(&number);
            if alike.is_empty() {
                self.by_defaults.remove(&defaults);
            }
        }
        Some(base)
    }

    /// The kernel content of a base.
    pub(crate) fn content(&self, config: &Config, number: u32) -> ClassContent {
        let Some(base) = self.by_number.get(&number) else {
            return ClassContent::default();
        };
        let mut codes = base.source_port_codes.iter().copied();
        class_content(config, number, &base.program, ClassForm::Base, &mut || {
            codes.next().unwrap_or_default()
        })
    }
}

/// Classes about to be written, with program and base number.
pub(crate) type PendingClasses = BTreeMap<ClassId, (Arc<Program>, u32)>;
