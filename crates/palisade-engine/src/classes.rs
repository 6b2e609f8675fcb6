//! Classes and credits: programs and rules by number, counted by what uses them.

use crate::policies::PolicyNumber;
use crate::pool::{HashMap, hash};
use alloc::sync::Arc;
use alloc::vec::Vec;
use hashbrown::HashTable;
use palisade_model::{Direction, RuleOrigin};
use palisade_tables::{ClassId, Credit, Program, RuleId};

#[derive(Debug)]
struct Numbered {
    program: Arc<Program>,
    /// See [`Program::elements`].
    elements: usize,
    uses: usize,
}

/// Programs by number, while anything uses them.
#[derive(Debug, Default)]
pub(crate) struct Programs {
    numbers: HashTable<(u64, ClassId)>,
    programs: HashMap<ClassId, Numbered>,
    next: u32,
    begun: Vec<ClassId>,
    /// What may have lost its last use, repeats included.
    idle: Vec<ClassId>,
}

impl Programs {
    /// The class of a program, if there is one.
    pub(crate) fn find(&self, program: &Program) -> Option<ClassId> {
        self.find_by(hash(program), program)
    }

    fn find_by(&self, key: u64, program: &Program) -> Option<ClassId> {
        let same = |(of, class): &(u64, ClassId)| {
            *of == key && self.get(*class).is_some_and(|known| **known == *program)
        };
        self.numbers.find(key, same).map(|(_, class)| *class)
    }

    /// A number that stands for no program yet.
    pub(crate) fn fresh(&mut self) -> ClassId {
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

    /// The class of a program, which may be new. It is not used yet: see [`Programs::take`]. `None`
    /// where it has more elements than `most`.
    pub(crate) fn number(&mut self, program: Program, most: usize) -> Option<ClassId> {
        let elements = program.elements();
        if elements > most {
            return None;
        }
        let key = hash(&program);
        if let Some(class) = self.find_by(key, &program) {
            return Some(class);
        }
        let class = self.fresh();
        self.numbers
            .insert_unique(key, (key, class), |(key, _)| *key);
        let numbered = Numbered {
            program: Arc::new(program),
            elements,
            uses: 0,
        };
        self.programs.insert(class, numbered);
        self.begun.push(class);
        self.idle.push(class);
        Some(class)
    }

    /// Counts one use more.
    pub(crate) fn take(&mut self, class: ClassId) {
        if let Some(known) = self.programs.get_mut(&class) {
            known.uses += 1;
        }
    }

    /// Counts one use less.
    pub(crate) fn give(&mut self, class: ClassId) {
        if let Some(known) = self.programs.get_mut(&class) {
            known.uses -= 1;
            if known.uses == 0 {
                self.idle.push(class);
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
            let known = self.programs.get(&class);
            let idle = known.is_some_and(|known| known.uses == 0);
            if idle && let Some(Numbered { program, .. }) = self.programs.remove(&class) {
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
enum Origin {
    /// A rule of a policy.
    Rule(PolicyNumber, Direction, RuleOrigin),
    /// Anything else.
    Other(Arc<Credit>),
}

#[derive(Debug)]
struct Credited {
    origin: Origin,
    credit: Arc<Credit>,
    /// Policy sets that hold it.
    holders: usize,
    /// Programs that credit it.
    programs: usize,
}

/// Credits by number, while any policy set or program uses them.
#[derive(Debug, Default)]
pub(crate) struct Credits {
    numbers: HashMap<Origin, RuleId>,
    credits: HashMap<RuleId, Credited>,
    next: u32,
    /// What may have lost its last use, repeats included.
    idle: Vec<RuleId>,
}

impl Credits {
    /// The number of a credit. It is not used yet.
    pub(crate) fn number(&mut self, credit: Credit) -> RuleId {
        let credit = Arc::new(credit);
        let origin = Origin::Other(credit.clone());
        match self.numbers.get(&origin) {
            Some(rule) => *rule,
            None => self.begin(origin, credit),
        }
    }

    /// The number of a policy's rule, whose credit is only made where it is new. It is not used yet.
    pub(crate) fn rule(
        &mut self,
        policy: PolicyNumber,
        direction: Direction,
        rule: &RuleOrigin,
        credit: impl FnOnce() -> Option<Credit>,
    ) -> Option<RuleId> {
        let origin = Origin::Rule(policy, direction, rule.clone());
        match self.numbers.get(&origin) {
            Some(rule) => Some(*rule),
            None => Some(self.begin(origin, Arc::new(credit()?))),
        }
    }

    fn begin(&mut self, origin: Origin, credit: Arc<Credit>) -> RuleId {
        let rule = RuleId(self.next);
        self.next = self.next.wrapping_add(1);
        self.numbers.insert(origin.clone(), rule);
        let credited = Credited {
            origin,
            credit,
            holders: 0,
            programs: 0,
        };
        self.credits.insert(rule, credited);
        self.idle.push(rule);
        rule
    }

    /// One policy set more holds a credit.
    pub(crate) fn hold(&mut self, rule: RuleId) {
        if let Some(credited) = self.credits.get_mut(&rule) {
            credited.holders += 1;
        }
    }

    /// One policy set less holds it.
    pub(crate) fn give(&mut self, rule: RuleId) {
        if let Some(credited) = self.credits.get_mut(&rule) {
            credited.holders -= 1;
            if credited.holders + credited.programs == 0 {
                self.idle.push(rule);
            }
        }
    }

    /// One program more credits it. Returns what it stands for where that is the first.
    pub(crate) fn hit(&mut self, rule: RuleId) -> Option<Arc<Credit>> {
        let credited = self.credits.get_mut(&rule)?;
        credited.programs += 1;
        (credited.programs == 1).then(|| credited.credit.clone())
    }

    /// One program less credits it. Returns whether it was the last.
    pub(crate) fn miss(&mut self, rule: RuleId) -> bool {
        let Some(credited) = self.credits.get_mut(&rule) else {
            return false;
        };
        credited.programs -= 1;
        if credited.holders + credited.programs == 0 {
            self.idle.push(rule);
        }
        credited.programs == 0
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.credits.len()
    }

    /// Forgets the credits that nothing uses.
    pub(crate) fn sweep(&mut self) {
        for rule in core::mem::take(&mut self.idle) {
            let unused = |credited: &Credited| credited.holders + credited.programs == 0;
            if self.credits.get(&rule).is_some_and(unused)
                && let Some(gone) = self.credits.remove(&rule)
            {
                self.numbers.remove(&gone.origin);
            }
        }
        if self.numbers.is_empty() {
            self.numbers = HashMap::default();
        }
    }
}
