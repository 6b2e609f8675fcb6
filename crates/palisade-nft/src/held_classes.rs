//! Which classes in the kernel are those of the desired tables: the ones with equal elements, chains and fingerprint.
//!
//! Promises: two are equal only if writing the desired one would give what is stored, its base included. Never: decides
//! what changes, or when.

use crate::Config;
use crate::content::{
    ClassContent, ClassForm, class_content, fingerprint, redirect_rules, stored_fingerprint,
};
use crate::decode::DecodedTable;
use crate::kernel_numbers::KernelNumbers;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use palisade_tables::{ClassId, Program, Tables};

/// The decoded table and the desired tables.
pub(crate) struct HeldClasses<'a> {
    pub(crate) config: &'a Config,
    pub(crate) stored: &'a DecodedTable,
    pub(crate) desired: &'a Tables,
}

impl HeldClasses<'_> {
    /// Numbers for the held and the wanted classes, equal where they have equal elements and chains and
    /// count for the same rules.
    pub(crate) fn equal_programs(&self) -> [BTreeMap<ClassId, u32>; 2] {
        let mut wanted = BTreeMap::new();
        // One class of each content, by fingerprint: two of one fingerprint may differ in what they report.
        let mut by_fingerprint: BTreeMap<String, Vec<(u32, &Program)>> = BTreeMap::new();
        let mut next = 0;
        let normalized = |program: &Program, print: &str| {
            let numbers = KernelNumbers::default();
            let mut allocation = numbers.allocation(ClassId(1), program, self.config.redirect);
            let form = ClassForm::Whole(print);
            class_content(self.config, 1, program, form, &mut allocation)
        };
        for (class, program) in &self.desired.programs {
            let digest = fingerprint(self.desired, program);
            let same = by_fingerprint.entry(digest.clone()).or_default();
            let equal = |other: &Program| {
                let (a, b) = (normalized(program, &digest), normalized(other, &digest));
                a.elements == b.elements && a.chains == b.chains
            };
            let first = same.iter().find(|(_, other)| equal(other));
            let number = match first {
                Some((number, _)) => *number,
                None => {
                    next += 1;
                    same.push((next, program));
                    next
                }
            };
            wanted.insert(*class, number);
        }
        let mut stored_programs = BTreeMap::new();
        for (number, stored) in &self.stored.classes {
            let digest = stored_fingerprint(*number, stored).unwrap_or("");
            let mut candidates = by_fingerprint.get(digest).into_iter().flatten();
            let equal =
                |program: &Program| self.is_stored_program(*number, stored, program, digest);
            if let Some((program, _)) = candidates.find(|(_, program)| equal(program)) {
                stored_programs.insert(ClassId(*number), *program);
            }
        }
        [stored_programs, wanted]
    }

    /// Whether a class in the kernel, with its base, is written as a program of this fingerprint would be.
    fn is_stored_program(
        &self,
        number: u32,
        stored: &ClassContent,
        program: &Program,
        digest: &str,
    ) -> bool {
        // The fingerprint says which DNS rules there are, and not that their elements are.
        let redirects = self.stored.numbers(number).redirects.len();
        if self.config.redirect.is_some() && redirects != redirect_rules(program).len() {
            return false;
        }
        let Some(base) = self.stored.layout.base_of_class.get(&number) else {
            return self.is_same_content(number, stored, program, ClassForm::Whole(digest));
        };
        let bases = self.stored;
        let base_content = bases
            .bases
            .get(base)
            .zip(bases.layout.base_programs.get(base));
        base_content.is_some_and(|(content, shape)| {
            let shared = program.restrict_to(shape);
            program.refines(&shared)
                && self.is_same_content(*base, content, &shared, ClassForm::Base)
                && self.is_same_content(
                    number,
                    stored,
                    program,
                    ClassForm::Refining(digest, *base, &shared),
                )
        })
    }

    fn is_same_content(
        &self,
        number: u32,
        stored: &ClassContent,
        program: &Program,
        form: ClassForm<'_>,
    ) -> bool {
        let mut numbers = self.stored.numbers(number);
        let mut content = class_content(self.config, number, program, form, &mut numbers);
        content.chains.sort_by(|a, b| a.0.cmp(&b.0));
        let mut chains = stored.chains.clone();
        chains.sort_by(|a, b| a.0.cmp(&b.0));
        content.elements == stored.elements && content.chains == chains
    }
}
