//! How the verdicts of classes differ, and the intersections of classes.
//!
//! A class whose program is unknown differs in both directions, so it is never taken for another.

use super::{HashMap, TransitionIds};
use crate::faults::TransitionFault;
use crate::{Cell, ClassId, Program, Tables, Verdict};
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;

fn constant_program(verdict: Verdict) -> Program {
    Program::constant(Cell {
        verdict,
        causes: Vec::new(),
        log: None,
        audit: None,
        redirect: None,
    })
}

/// What a change from one class to another does to verdicts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct VerdictChange {
    /// Something that was allowed is denied.
    pub(super) tightens: bool,
    /// Something that was denied is allowed.
    pub(super) loosens: bool,
}

impl VerdictChange {
    pub(super) const SAME: VerdictChange = VerdictChange {
        tightens: false,
        loosens: false,
    };

    pub(super) fn is_same(self) -> bool {
        self == VerdictChange::SAME
    }

    pub(super) fn union(self, other: VerdictChange) -> VerdictChange {
        VerdictChange {
            tightens: self.tightens || other.tightens,
            loosens: self.loosens || other.loosens,
        }
    }
}

/// The classes of both tables, and the interim classes.
pub(super) struct ClassComparison<'a> {
    old: &'a Tables,
    new: &'a Tables,
    /// Numbers for what exists during the transition only.
    pub(super) ids: &'a mut dyn TransitionIds,
    /// Programs that neither table has.
    pub(super) interim_programs: BTreeMap<ClassId, Arc<Program>>,
    interim_classes: HashMap<Arc<Program>, ClassId>,
    changes: HashMap<(ClassId, ClassId), VerdictChange>,
    /// How many elements further interim programs may have.
    remaining_elements: usize,
}

impl<'a> ClassComparison<'a> {
    pub(super) fn new(
        old: &'a Tables,
        new: &'a Tables,
        max_elements: usize,
        ids: &'a mut dyn TransitionIds,
    ) -> Self {
        ClassComparison {
            old,
            new,
            ids,
            interim_classes: HashMap::default(),
            interim_programs: BTreeMap::new(),
            changes: HashMap::default(),
            remaining_elements: max_elements,
        }
    }

    fn program(&self, class: ClassId) -> Option<&Arc<Program>> {
        let new_program = self.new.programs.get(&class);
        new_program
            .or_else(|| self.old.programs.get(&class))
            .or_else(|| self.interim_programs.get(&class))
    }

    /// What changing from one class to the other does.
    pub(super) fn verdict_change(&mut self, from: ClassId, to: ClassId) -> VerdictChange {
        if from == to {
            return VerdictChange::SAME;
        }
        if let Some(change) = self.changes.get(&(from, to)) {
            return *change;
        }
        let relation = match (self.program(from), self.program(to)) {
            (Some(a), Some(b)) => VerdictChange {
                tightens: !a.is_subset_of(b),
                loosens: !b.is_subset_of(a),
            },
            _ => VerdictChange {
                tightens: true,
                loosens: true,
            },
        };
        self.changes.insert((from, to), relation);
        relation
    }

    /// The class that allows what both allow, and nothing once interim programs have their maximum of
    /// elements.
    pub(super) fn intersection(&mut self, from: ClassId, to: ClassId) -> ClassId {
        let relation = self.verdict_change(from, to);
        if !relation.tightens {
            return from;
        }
        if !relation.loosens || TransitionFault::IntersectionSkipped.is_injected() {
            return to;
        }
        let (Some(a), Some(b)) = (self.program(from), self.program(to)) else {
            return to;
        };
        let both = a.intersect(b);
        self.interim_class(both)
    }

    /// The class whose cells are those of the first, and where these do not decide, those of the second.
    pub(super) fn addition(&mut self, from: ClassId, to: ClassId) -> ClassId {
        self.selection(from, to, |from, _| from != Verdict::Continue)
    }

    /// The class whose cells are those of the second, and where these do not decide, those of the first.
    pub(super) fn switch(&mut self, from: ClassId, to: ClassId) -> ClassId {
        self.selection(from, to, |_, to| to == Verdict::Continue)
    }

    fn selection(
        &mut self,
        from: ClassId,
        to: ClassId,
        is_first: fn(Verdict, Verdict) -> bool,
    ) -> ClassId {
        if self.verdict_change(from, to).is_same() {
            return from;
        }
        let (Some(a), Some(b)) = (self.program(from), self.program(to)) else {
            return to;
        };
        let selected = a.select(b, is_first);
        let same =
            |program: &Program| program.is_subset_of(&selected) && selected.is_subset_of(program);
        match (same(a), same(b)) {
            (true, _) => from,
            (_, true) => to,
            _ => self.interim_class(selected),
        }
    }

    /// The class that decides nothing.
    pub(super) fn undecided(&mut self) -> ClassId {
        self.interim_class(constant_program(Verdict::Continue))
    }

    /// The class that denies everything.
    pub(super) fn denied(&mut self) -> ClassId {
        self.interim_class(constant_program(Verdict::Deny))
    }

    /// The class of a program that may exist during the transition only.
    fn interim_class(&mut self, both: Program) -> ClassId {
        let both = match self.remaining_elements {
            0 if !both.protocols().is_empty() => constant_program(Verdict::Deny),
            _ => both,
        };
        let existing = self.ids.find_class(&both);
        if let Some(class) = existing.or_else(|| self.interim_classes.get(&both).copied()) {
            return class;
        }
        self.remaining_elements = self.remaining_elements.saturating_sub(both.element_count());
        let class = self.ids.allocate_class();
        let both = Arc::new(both);
        self.interim_classes.insert(both.clone(), class);
        self.interim_programs.insert(class, both);
        class
    }
}
