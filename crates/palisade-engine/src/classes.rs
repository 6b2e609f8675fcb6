//! Classes and credits: programs and rules by number, counted by what uses them.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;
use palisade_tables::{ClassId, Credit, Program, RuleId};

/// Programs by number, while anything uses them.
#[derive(Debug, Default)]
pub(crate) struct Programs {
    numbers: BTreeMap<Arc<Program>, ClassId>,
    programs: BTreeMap<ClassId, (Arc<Program>, usize)>,
    next: u32,
    begun: Vec<ClassId>,
    idle: BTreeSet<ClassId>,
}

impl Programs {
    /// The class of a program, if there is one.
    pub(crate) fn find(&self, program: &Program) -> Option<ClassId> {
        self.numbers.get(program).copied()
    }

    /// A number that stands for no program yet.
    pub(crate) fn fresh(&mut self) -> ClassId {
        let class = ClassId(self.next);
        self.next = self.next.wrapping_add(1);
        class
    }

    /// Whether a class stands for a program.
    pub(crate) fn lives(&self, class: ClassId) -> bool {
        self.programs.contains_key(&class)
    }

    pub(crate) fn get(&self, class: ClassId) -> Option<&Arc<Program>> {
        self.programs.get(&class).map(|(program, _)| program)
    }

    /// The class of a program, which may be new. It is not used yet: see [`Programs::take`].
    pub(crate) fn number(&mut self, program: Program) -> ClassId {
        if let Some(class) = self.find(&program) {
            return class;
        }
        let class = self.fresh();
        let program = Arc::new(program);
        self.numbers.insert(program.clone(), class);
        self.programs.insert(class, (program, 0));
        self.begun.push(class);
        self.idle.insert(class);
        class
    }

    /// Counts one use more.
    pub(crate) fn take(&mut self, class: ClassId) {
        if let Some((_, uses)) = self.programs.get_mut(&class) {
            *uses += 1;
        }
    }

    /// Counts one use less.
    pub(crate) fn give(&mut self, class: ClassId) {
        if let Some((_, uses)) = self.programs.get_mut(&class) {
            *uses -= 1;
            if *uses == 0 {
                self.idle.insert(class);
            }
        }
    }

    /// The programs that were new since the last call.
    pub(crate) fn take_begun(&mut self) -> Vec<ClassId> {
        core::mem::take(&mut self.begun)
    }

    /// Forgets the programs that nothing uses, and returns them.
    pub(crate) fn sweep(&mut self) -> Vec<(ClassId, Arc<Program>)> {
        let mut gone = Vec::new();
        for class in core::mem::take(&mut self.idle) {
            let idle = self.programs.get(&class).is_some_and(|(_, n)| *n == 0);
            if idle && let Some((program, _)) = self.programs.remove(&class) {
                self.numbers.remove(&program);
                gone.push((class, program));
            }
        }
        gone
    }
}

/// Credits by number, while any policy set or program uses them.
#[derive(Debug, Default)]
pub(crate) struct Credits {
    numbers: BTreeMap<Arc<Credit>, RuleId>,
    credits: BTreeMap<RuleId, (Arc<Credit>, usize)>,
    next: u32,
    idle: BTreeSet<RuleId>,
}

impl Credits {
    /// The number of a credit, with one use more.
    pub(crate) fn take(&mut self, credit: &Arc<Credit>) -> RuleId {
        let rule = match self.numbers.get(credit) {
            Some(rule) => *rule,
            None => {
                let rule = RuleId(self.next);
                self.next = self.next.wrapping_add(1);
                self.numbers.insert(credit.clone(), rule);
                self.credits.insert(rule, (credit.clone(), 0));
                rule
            }
        };
        self.retain(rule);
        rule
    }

    /// Counts one use more.
    pub(crate) fn retain(&mut self, rule: RuleId) {
        if let Some((_, uses)) = self.credits.get_mut(&rule) {
            *uses += 1;
        }
    }

    /// Counts one use less.
    pub(crate) fn give(&mut self, rule: RuleId) {
        if let Some((_, uses)) = self.credits.get_mut(&rule) {
            *uses -= 1;
            if *uses == 0 {
                self.idle.insert(rule);
            }
        }
    }

    pub(crate) fn get(&self, rule: RuleId) -> Option<&Arc<Credit>> {
        self.credits.get(&rule).map(|(credit, _)| credit)
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.credits.len()
    }

    /// Forgets the credits that nothing uses.
    pub(crate) fn sweep(&mut self) {
        for rule in core::mem::take(&mut self.idle) {
            let idle = self.credits.get(&rule).is_some_and(|(_, n)| *n == 0);
            if idle && let Some((credit, _)) = self.credits.remove(&rule) {
                self.numbers.remove(&credit);
            }
        }
    }
}
