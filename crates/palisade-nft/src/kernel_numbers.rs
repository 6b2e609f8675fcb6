//! The numbers of all objects in the table: those that every dataplane has, and the codes of source-port chains.

use crate::RedirectConfig;
use crate::content::{ClassNumbers, KnownNumbers, redirect_rules};
use crate::names::{ANY_INTERFACE, FIRST_BASE, LAST_VERDICT};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use palisade_layout::{BasePrograms, ObjectNumbers};
use palisade_tables::{ClassId, Program};

/// The kernel's numbers of all objects.
#[derive(Clone, Debug)]
pub(crate) struct KernelNumbers {
    pub(crate) objects: ObjectNumbers,
    pub(crate) bases: BasePrograms,
    /// The codes of each class's source-port chains, in the order of creation.
    pub(crate) source_port_codes: BTreeMap<ClassId, Vec<u32>>,
    /// The same of each base, by its number.
    pub(crate) base_codes: BTreeMap<u32, Vec<u32>>,
    pub(crate) next_code: u32,
    /// The numbers of each class's DNS rules, in the order of the program; empty where there were not enough, so that
    /// its packets are not redirected.
    pub(crate) redirects: BTreeMap<ClassId, Vec<u32>>,
    /// The number of DNS rules that is tried next.
    pub(crate) next_redirect: u32,
}

impl Default for KernelNumbers {
    fn default() -> Self {
        KernelNumbers {
            objects: ObjectNumbers::new(FIRST_BASE - 1, ANY_INTERFACE + 1),
            bases: BasePrograms::new(FIRST_BASE),
            source_port_codes: BTreeMap::new(),
            base_codes: BTreeMap::new(),
            next_code: LAST_VERDICT + 1,
            redirects: BTreeMap::new(),
            next_redirect: 1,
        }
    }
}

impl KernelNumbers {
    /// The numbers that a class has.
    pub(crate) fn of_class(&self, class: ClassId) -> KnownNumbers<'_> {
        KnownNumbers {
            codes: self
                .source_port_codes
                .get(&class)
                .map_or(&[], |codes| codes),
            redirects: self
                .redirects
                .get(&class)
                .map_or(&[], |redirects| redirects),
        }
    }

    /// The numbers of a class that is written: those that it has, or else free ones.
    pub(crate) fn allocation(
        &self,
        class: ClassId,
        program: &Program,
        redirect: Option<RedirectConfig>,
    ) -> ClassAllocation<'_> {
        let last = redirect.map_or(0, |redirect| redirect.last_number());
        let redirects = match self.redirects.get(&class) {
            Some(known) => Some(known.clone()),
            None => match redirect_rules(program).len() {
                0 => None,
                count => Some(self.free_redirects(count, last)),
            },
        };
        let greatest = redirects.iter().flatten().last();
        let next_redirect = greatest.map_or(self.next_redirect, |last| last + 1);
        ClassAllocation {
            known: self.of_class(class),
            remaining_redirects: redirects.iter().flatten().copied().collect(),
            allocated: AllocatedNumbers {
                codes: Vec::new(),
                next_code: self.next_code,
                redirects,
                next_redirect,
            },
        }
    }

    /// So many numbers that no DNS rules have, from the last one given on; none if there are not so many.
    fn free_redirects(&self, count: usize, last: u32) -> Vec<u32> {
        let used: BTreeSet<u32> = self.redirects.values().flatten().copied().collect();
        let first = self.next_redirect.min(last + 1);
        let numbers = (first..=last).chain(1..first);
        let free: Vec<u32> = numbers
            .filter(|number| !used.contains(number))
            .take(count)
            .collect();
        if free.len() == count {
            free
        } else {
            Vec::new()
        }
    }

    /// Gives a class the numbers that were allocated for it.
    pub(crate) fn assign(&mut self, class: ClassId, allocated: AllocatedNumbers) {
        self.next_code = allocated.next_code;
        self.next_redirect = allocated.next_redirect;
        if !allocated.codes.is_empty() {
            self.source_port_codes.insert(class, allocated.codes);
        }
        if let Some(redirects) = allocated.redirects {
            self.redirects.insert(class, redirects);
        }
    }

    /// Releases the numbers of a class.
    pub(crate) fn release(&mut self, class: ClassId) {
        self.source_port_codes.remove(&class);
        self.redirects.remove(&class);
        self.objects.classes.release(class);
    }
}

/// The numbers of one class, and those that follow.
pub(crate) struct AllocatedNumbers {
    codes: Vec<u32>,
    next_code: u32,
    /// `None` where the class has no DNS rules.
    redirects: Option<Vec<u32>>,
    next_redirect: u32,
}

/// Allocates the numbers of one class.
pub(crate) struct ClassAllocation<'a> {
    known: KnownNumbers<'a>,
    remaining_redirects: Vec<u32>,
    allocated: AllocatedNumbers,
}

impl ClassAllocation<'_> {
    /// What was allocated.
    pub(crate) fn finish(self) -> AllocatedNumbers {
        self.allocated
    }
}

impl ClassNumbers for ClassAllocation<'_> {
    fn next_code(&mut self) -> u32 {
        let code = if self.known.codes.is_empty() {
            allocate_code(&mut self.allocated.next_code)
        } else {
            self.known.next_code()
        };
        self.allocated.codes.push(code);
        code
    }

    fn next_redirect(&mut self) -> u32 {
        if self.remaining_redirects.is_empty() {
            0
        } else {
            self.remaining_redirects.remove(0)
        }
    }
}

/// Allocates the codes of one base, which redirects nothing.
pub(crate) struct BaseCodes<'a> {
    next: &'a mut u32,
    pub(crate) codes: Vec<u32>,
}

impl<'a> BaseCodes<'a> {
    pub(crate) fn new(next: &'a mut u32) -> Self {
        BaseCodes {
            next,
            codes: Vec::new(),
        }
    }
}

impl ClassNumbers for BaseCodes<'_> {
    fn next_code(&mut self) -> u32 {
        let code = allocate_code(self.next);
        self.codes.push(code);
        code
    }

    fn next_redirect(&mut self) -> u32 {
        0
    }
}

/// Allocates a code for a source-port chain.
fn allocate_code(next: &mut u32) -> u32 {
    let code = *next;
    *next = code.wrapping_add(1).max(LAST_VERDICT + 1);
    code
}
