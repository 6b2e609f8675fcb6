//! Bases: programs that large classes have in common, written once.
//!
//! A base is a program with a number that is never a packet's class: classes refer to it, and hold only the
//! entries that differ. Promises: a base is in the maps exactly as long as a class refers to it; it never
//! changes, and a class never gets or changes a base later, since a packet may be between two lookups; each
//! class refines its base ([`Program::refines`]), so counters count for existing rules only, and the
//! maps never hold more than without bases, except for one entry per class. Never: decides a verdict.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use palisade_tables::{ClassId, Program, ProgramDefaults};

/// A base.
#[derive(Clone, Debug)]
struct BaseProgram {
    program: Arc<Program>,
    /// The number of classes that refer to it.
    references: usize,
}

/// A base that lost a reference.
#[derive(Clone, Debug)]
pub struct ReleasedBase {
    /// Its number.
    pub number: u32,
    /// Its program.
    pub program: Arc<Program>,
    /// Whether the reference was the last one. Then the base is removed here, and must be from the maps.
    pub is_unused: bool,
}

/// All bases, and the classes that refer to them.
#[derive(Clone, Debug)]
pub struct BasePrograms {
    by_class: BTreeMap<ClassId, u32>,
    by_number: BTreeMap<u32, BaseProgram>,
    by_defaults: BTreeMap<ProgramDefaults, BTreeSet<u32>>,
    first_number: u32,
    next_number: u32,
}

impl BasePrograms {
    /// No bases; they get numbers from `first_number` on.
    pub fn new(first_number: u32) -> Self {
        BasePrograms {
            by_class: BTreeMap::new(),
            by_number: BTreeMap::new(),
            by_defaults: BTreeMap::new(),
            first_number,
            next_number: first_number,
        }
    }

    /// The base of a class, if it has one.
    pub fn base_of(&self, class: ClassId) -> Option<u32> {
        self.by_class.get(&class).copied()
    }

    /// The program of a base.
    pub fn program(&self, number: u32) -> Option<&Arc<Program>> {
        self.by_number.get(&number).map(|base| &base.program)
    }

    /// All bases, by number.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &Arc<Program>)> {
        let bases = self.by_number.iter();
        bases.map(|(number, base)| (*number, &base.program))
    }

    /// The bases with these defaults, the highest number first.
    pub(crate) fn with_defaults(
        &self,
        defaults: &ProgramDefaults,
    ) -> impl Iterator<Item = (u32, &Arc<Program>)> {
        let numbers = self.by_defaults.get(defaults).into_iter().flatten().rev();
        numbers.filter_map(|number| Some((*number, self.program(*number)?)))
    }

    /// Adds a base that exists in the maps.
    pub fn assign(&mut self, number: u32, program: Arc<Program>) {
        let alike = self.by_defaults.entry(program.defaults()).or_default();
        alike.insert(number);
        self.skip_to(number.wrapping_add(1));
        let base = BaseProgram {
            program,
            references: 0,
        };
        self.by_number.insert(number, base);
    }

    /// No lower number is allocated until the number space wraps around.
    pub fn skip_to(&mut self, next: u32) {
        self.next_number = self.next_number.max(next).max(self.first_number);
    }

    /// Adds the reference of a class to a base.
    pub fn add_reference(&mut self, class: ClassId, number: u32) {
        if self.reserve(number) {
            self.by_class.insert(class, number);
        }
    }

    /// Adds the reference of a class that is not written yet; returns whether there is such a base.
    pub(crate) fn reserve(&mut self, number: u32) -> bool {
        let base = self.by_number.get_mut(&number);
        base.map(|base| base.references += 1).is_some()
    }

    /// Makes a reserved reference that of a class.
    pub(crate) fn bind(&mut self, class: ClassId, number: u32) {
        self.by_class.insert(class, number);
    }

    /// Removes the reference of a class, if it has one; returns its base.
    pub(crate) fn unbind(&mut self, class: ClassId) -> Option<u32> {
        self.by_class.remove(&class)
    }

    /// The bases of these classes, with the references under other class numbers.
    #[must_use]
    pub fn with_class_ids(&self, classes: &BTreeMap<ClassId, ClassId>) -> BasePrograms {
        let mut bases = BasePrograms::new(self.first_number);
        for (class, number) in classes {
            let Some(base) = self.base_of(*number) else {
                continue;
            };
            if bases.program(base).is_none()
                && let Some(program) = self.program(base)
            {
                bases.assign(base, program.clone());
            }
            bases.add_reference(*class, base);
        }
        bases.skip_to(self.next_number);
        bases
    }

    /// Adds a base under an unused number, which it returns.
    pub(crate) fn add(&mut self, program: Arc<Program>) -> u32 {
        loop {
            let number = self.next_number.max(self.first_number);
            self.next_number = number.wrapping_add(1);
            if !self.by_number.contains_key(&number) {
                self.assign(number, program);
                return number;
            }
        }
    }

    /// Removes a reference to a base, and the base with the last one.
    pub(crate) fn release(&mut self, number: u32) -> Option<ReleasedBase> {
        let base = self.by_number.get_mut(&number)?;
        base.references -= 1;
        let (program, is_unused) = (base.program.clone(), base.references == 0);
        if is_unused {
            self.remove(number, &program.defaults());
        }
        Some(ReleasedBase {
            number,
            program,
            is_unused,
        })
    }

    fn remove(&mut self, number: u32, defaults: &ProgramDefaults) {
        self.by_number.remove(&number);
        if let Some(alike) = self.by_defaults.get_mut(defaults) {
            alike.remove(&number);
            if alike.is_empty() {
                self.by_defaults.remove(defaults);
            }
        }
    }
}
