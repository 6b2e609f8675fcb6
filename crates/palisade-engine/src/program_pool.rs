//! Classes and credits: programs and rules by number, counted by what uses them.

use crate::policies::PolicyNumber;
use crate::pool::{HashMap, hash};
use alloc::sync::Arc;
use alloc::vec::Vec;
use hashbrown::HashTable;
use palisade_model::{Direction, RuleOrigin};
use palisade_tables::{ClassId, Credit, Program, RuleId};

#[derive(Debug)]
struct ProgramEntry {
    program: Arc<Program>,
    /// See [`Program::element_count`].
    elements: usize,
    uses: usize,
}

/// Programs by number, while anything uses them.
#[derive(Debug, Default)]
pub(crate) struct ProgramPool {
    numbers: HashTable<(u64, ClassId)>,
    programs: HashMap<ClassId, ProgramEntry>,
    next: u32,
    created: Vec<ClassId>,
    /// What may have lost its last use, repeats included.
    unused: Vec<ClassId>,
}

impl ProgramPool {
    /// The class of a program, if there is one.
    pub(crate) fn find(&self, program: &Program) -> Option<ClassId> {
        self.find_hashed(hash(program), program)
    }

    fn find_hashed(&self, key: u64, program: &Program) -> Option<ClassId> {
        let same = |(of, class): &(u64, ClassId)| {
            *of == key && self.get(*class).is_some_and(|known| **known == *program)
        };
        self.numbers.find(key, same).map(|(_, class)| *class)
    }

    /// A number that stands for no program yet.
    pub(crate) fn allocate_id(&mut self) -> ClassId {
        let class = ClassId(self.next);
        self.next = self.next.wrapping_add(1);
        class
    }

    pub(crate) fn get(&self, class: ClassId) -> Option<&Arc<Program>> {
        self.programs.get(&class).map(|known| &known.program)
    }

    /// How many elements a program has; 0 for one that is not there.
    pub(crate) fn elements(&self, class: ClassId) -> usize {
        self.programs.get(&class).map_or(0, |known| known.elements)
    }

    /// The class of a program, which may be new. It is not used yet: see [`ProgramPool::acquire`]. `None`
    /// where it has more elements than `most`.
    pub(crate) fn intern(&mut self, program: Program, max_elements: usize) -> Option<ClassId> {
        let elements = program.element_count();
        if elements > max_elements {
            return None;
        }
        let key = hash(&program);
        if let Some(class) = self.find_hashed(key, &program) {
            return Some(class);
        }
        let class = self.allocate_id();
        self.numbers
            .insert_unique(key, (key, class), |(key, _)| *key);
        let numbered = ProgramEntry {
            program: Arc::new(program),
            elements,
            uses: 0,
        };
        self.programs.insert(class, numbered);
        self.created.push(class);
        self.unused.push(class);
        Some(class)
    }

    /// Counts one use more.
    pub(crate) fn acquire(&mut self, class: ClassId) {
        if let Some(known) = self.programs.get_mut(&class) {
            known.uses += 1;
        }
    }

    /// Counts one use less.
    pub(crate) fn release(&mut self, class: ClassId) {
        if let Some(known) = self.programs.get_mut(&class) {
            known.uses -= 1;
            if known.uses == 0 {
                self.unused.push(class);
            }
        }
    }

    /// The programs that were new since the last call.
    pub(crate) fn take_created(&mut self) -> Vec<ClassId> {
        core::mem::take(&mut self.created)
    }

    /// Forgets the programs that nothing uses, and returns them.
    pub(crate) fn sweep(&mut self) -> Vec<(ClassId, Arc<Program>)> {
        let mut gone = Vec::new();
        for class in core::mem::take(&mut self.unused) {
            let known = self.programs.get(&class);
            let idle = known.is_some_and(|known| known.uses == 0);
            if idle && let Some(ProgramEntry { program, .. }) = self.programs.remove(&class) {
                let key = hash(&*program);
                if let Ok(entry) = self.numbers.find_entry(key, |(_, of)| *of == class) {
                    entry.remove();
                }
                gone.push((class, program));
            }
        }
        if self.numbers.is_empty() {
            self.numbers = HashTable::new();
        }
        gone
    }
}

/// What makes a credit.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum CreditKey {
    /// A rule of a policy.
    Rule(PolicyNumber, Direction, RuleOrigin),
    /// Anything else.
    Other(Arc<Credit>),
}

#[derive(Debug)]
struct CreditEntry {
    key: CreditKey,
    credit: Arc<Credit>,
    /// Policy sets that hold it.
    policy_sets: usize,
    /// Programs that credit it.
    programs: usize,
}

/// Credits by number, while any policy set or program uses them.
#[derive(Debug, Default)]
pub(crate) struct CreditPool {
    numbers: HashMap<CreditKey, RuleId>,
    credits: HashMap<RuleId, CreditEntry>,
    next: u32,
    /// What may have lost its last use, repeats included.
    unused: Vec<RuleId>,
}

impl CreditPool {
    /// The number of a credit. It is not used yet.
    pub(crate) fn intern(&mut self, credit: Credit) -> RuleId {
        let credit = Arc::new(credit);
        let origin = CreditKey::Other(credit.clone());
        match self.numbers.get(&origin) {
            Some(rule) => *rule,
            None => self.insert(origin, credit),
        }
    }

    /// The number of a policy's rule, whose credit is only made where it is new. It is not used yet.
    pub(crate) fn intern_rule(
        &mut self,
        policy: PolicyNumber,
        direction: Direction,
        rule: &RuleOrigin,
        credit: impl FnOnce() -> Option<Credit>,
    ) -> Option<RuleId> {
        let origin = CreditKey::Rule(policy, direction, rule.clone());
        match self.numbers.get(&origin) {
            Some(rule) => Some(*rule),
            None => Some(self.insert(origin, Arc::new(credit()?))),
        }
    }

    fn insert(&mut self, origin: CreditKey, credit: Arc<Credit>) -> RuleId {
        let rule = RuleId(self.next);
        self.next = self.next.wrapping_add(1);
        self.numbers.insert(origin.clone(), rule);
        let credited = CreditEntry {
            key: origin,
            credit,
            policy_sets: 0,
            programs: 0,
        };
        self.credits.insert(rule, credited);
        self.unused.push(rule);
        rule
    }

    /// One policy set more holds a credit.
    pub(crate) fn acquire_for_set(&mut self, rule: RuleId) {
        if let Some(credited) = self.credits.get_mut(&rule) {
            credited.policy_sets += 1;
        }
    }

    /// One policy set less holds it.
    pub(crate) fn release_from_set(&mut self, rule: RuleId) {
        if let Some(credited) = self.credits.get_mut(&rule) {
            credited.policy_sets -= 1;
            if credited.policy_sets + credited.programs == 0 {
                self.unused.push(rule);
            }
        }
    }

    /// One program more credits it. Returns what it stands for where that is the first.
    pub(crate) fn acquire_for_program(&mut self, rule: RuleId) -> Option<Arc<Credit>> {
        let credited = self.credits.get_mut(&rule)?;
        credited.programs += 1;
        (credited.programs == 1).then(|| credited.credit.clone())
    }

    /// One program less credits it. Returns whether it was the last.
    pub(crate) fn release_from_program(&mut self, rule: RuleId) -> bool {
        let Some(credited) = self.credits.get_mut(&rule) else {
            return false;
        };
        credited.programs -= 1;
        if credited.policy_sets + credited.programs == 0 {
            self.unused.push(rule);
        }
        credited.programs == 0
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.credits.len()
    }

    /// Forgets the credits that nothing uses.
    pub(crate) fn sweep(&mut self) {
        for rule in core::mem::take(&mut self.unused) {
            let unused = |credited: &CreditEntry| credited.policy_sets + credited.programs == 0;
            if self.credits.get(&rule).is_some_and(unused)
                && let Some(gone) = self.credits.remove(&rule)
            {
                self.numbers.remove(&gone.key);
            }
        }
        if self.numbers.is_empty() {
            self.numbers = HashMap::default();
        }
    }
}
