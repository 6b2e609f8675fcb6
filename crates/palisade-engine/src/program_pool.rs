//! Interned programs (classes) and causes, with use counts.

use crate::store::{HashMap, PolicyNumber, hash};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use hashbrown::HashTable;
use palisade_model::{Direction, RuleOrigin};
use palisade_tables::{ClassId, Program, RuleId, Verdict, VerdictCause};

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
    /// Classes that may have lost their last use; may contain repeats.
    unused: Vec<ClassId>,
}

impl ProgramPool {
    /// The class of a program, if it is interned.
    pub(crate) fn find(&self, program: &Program) -> Option<ClassId> {
        self.find_hashed(hash(program), program)
    }

    fn find_hashed(&self, key: u64, program: &Program) -> Option<ClassId> {
        let same = |(program_hash, class): &(u64, ClassId)| {
            *program_hash == key && self.get(*class).is_some_and(|known| **known == *program)
        };
        self.numbers.find(key, same).map(|(_, class)| *class)
    }

    /// An unused class number.
    pub(crate) fn allocate_id(&mut self) -> ClassId {
        let class = ClassId(self.next);
        self.next = self.next.wrapping_add(1);
        class
    }

    pub(crate) fn get(&self, class: ClassId) -> Option<&Arc<Program>> {
        self.programs.get(&class).map(|known| &known.program)
    }

    /// The number of elements of a program; 0 if it is not interned.
    pub(crate) fn elements(&self, class: ClassId) -> usize {
        self.programs.get(&class).map_or(0, |known| known.elements)
    }

    /// The class of a program, new or known, without counting a use: see [`ProgramPool::acquire`].
    /// `None` if it has more than `max_elements` elements.
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

    /// The programs added since the last call.
    pub(crate) fn take_created(&mut self) -> Vec<ClassId> {
        core::mem::take(&mut self.created)
    }

    /// Removes the programs without uses, and returns them.
    pub(crate) fn sweep(&mut self) -> Vec<(ClassId, Arc<Program>)> {
        let mut gone = Vec::new();
        for class in core::mem::take(&mut self.unused) {
            let known = self.programs.get(&class);
            let idle = known.is_some_and(|known| known.uses == 0);
            if idle && let Some(ProgramEntry { program, .. }) = self.programs.remove(&class) {
                let key = hash(&*program);
                if let Ok(entry) = self.numbers.find_entry(key, |(_, other)| *other == class) {
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

/// What distinguishes causes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum CauseKey {
    /// A rule of a policy.
    Rule(PolicyNumber, Direction, RuleOrigin),
    /// A rule of a policy that would be counted if nothing were in audit.
    AuditRule(PolicyNumber, Direction, RuleOrigin, Verdict),
    /// Anything else.
    Other(Arc<VerdictCause>),
}

#[derive(Debug)]
struct CauseEntry {
    key: CauseKey,
    cause: Arc<VerdictCause>,
    /// Number of policy sets that hold it.
    policy_sets: usize,
    /// Number of programs that count for it.
    programs: usize,
}

/// Causes by number, while any policy set or program uses them.
#[derive(Debug, Default)]
pub(crate) struct CausePool {
    numbers: HashMap<CauseKey, RuleId>,
    causes: HashMap<RuleId, CauseEntry>,
    next: u32,
    /// Rule numbers that may have lost their last use; may contain repeats.
    unused: Vec<RuleId>,
}

impl CausePool {
    /// The number of a cause, new or known, without counting a use.
    pub(crate) fn intern(&mut self, cause: VerdictCause) -> RuleId {
        let cause = Arc::new(cause);
        let origin = CauseKey::Other(cause.clone());
        match self.numbers.get(&origin) {
            Some(rule) => *rule,
            None => self.insert(origin, cause),
        }
    }

    /// The number of the audit cause of a rule, without counting a use.
    pub(crate) fn intern_audit(&mut self, rule: RuleId, verdict: Verdict) -> RuleId {
        let Some(audited) = self.causes.get(&rule) else {
            return rule;
        };
        let key = match &audited.key {
            CauseKey::Rule(policy, direction, origin) => {
                CauseKey::AuditRule(*policy, *direction, origin.clone(), verdict)
            }
            _ => {
                let cause = Box::new(VerdictCause::clone(&audited.cause));
                return self.intern(VerdictCause::Audit { verdict, cause });
            }
        };
        if let Some(known) = self.numbers.get(&key) {
            return *known;
        }
        let cause = Box::new(VerdictCause::clone(&audited.cause));
        self.insert(key, Arc::new(VerdictCause::Audit { verdict, cause }))
    }

    /// The number of a policy rule's cause, without counting a use. The cause is made only if it
    /// is new.
    pub(crate) fn intern_rule(
        &mut self,
        policy: PolicyNumber,
        direction: Direction,
        rule: &RuleOrigin,
        cause: impl FnOnce() -> Option<VerdictCause>,
    ) -> Option<RuleId> {
        let origin = CauseKey::Rule(policy, direction, rule.clone());
        match self.numbers.get(&origin) {
            Some(rule) => Some(*rule),
            None => Some(self.insert(origin, Arc::new(cause()?))),
        }
    }

    fn insert(&mut self, origin: CauseKey, cause: Arc<VerdictCause>) -> RuleId {
        let rule = RuleId(self.next);
        self.next = self.next.wrapping_add(1);
        self.numbers.insert(origin.clone(), rule);
        let entry = CauseEntry {
            key: origin,
            cause,
            policy_sets: 0,
            programs: 0,
        };
        self.causes.insert(rule, entry);
        self.unused.push(rule);
        rule
    }

    /// Counts one policy set more.
    pub(crate) fn acquire_for_set(&mut self, rule: RuleId) {
        if let Some(entry) = self.causes.get_mut(&rule) {
            entry.policy_sets += 1;
        }
    }

    /// Counts one policy set less.
    pub(crate) fn release_from_set(&mut self, rule: RuleId) {
        if let Some(entry) = self.causes.get_mut(&rule) {
            entry.policy_sets -= 1;
            if entry.policy_sets + entry.programs == 0 {
                self.unused.push(rule);
            }
        }
    }

    /// Counts one program more. Returns the cause if this is the first.
    pub(crate) fn acquire_for_program(&mut self, rule: RuleId) -> Option<Arc<VerdictCause>> {
        let entry = self.causes.get_mut(&rule)?;
        entry.programs += 1;
        (entry.programs == 1).then(|| entry.cause.clone())
    }

    /// Counts one program less. Returns whether it was the last.
    pub(crate) fn release_from_program(&mut self, rule: RuleId) -> bool {
        let Some(entry) = self.causes.get_mut(&rule) else {
            return false;
        };
        entry.programs -= 1;
        if entry.policy_sets + entry.programs == 0 {
            self.unused.push(rule);
        }
        entry.programs == 0
    }

    /// The number of causes.
    pub(crate) fn len(&self) -> usize {
        self.causes.len()
    }

    /// Removes the causes without uses.
    pub(crate) fn sweep(&mut self) {
        for rule in core::mem::take(&mut self.unused) {
            let unused = |entry: &CauseEntry| entry.policy_sets + entry.programs == 0;
            if self.causes.get(&rule).is_some_and(unused)
                && let Some(gone) = self.causes.remove(&rule)
            {
                self.numbers.remove(&gone.key);
            }
        }
        if self.numbers.is_empty() {
            self.numbers = HashMap::default();
        }
    }
}
