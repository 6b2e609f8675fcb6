//! How classes compare, and the programs that stand between two of them.

use crate::faults::{EngineFault, on};
use crate::pool::HashMap;
use crate::program_pool::ProgramPool;
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use palisade_tables::{Cell, ClassId, Program, Tables, Verdict};

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

/// The classes of both tables and those made for the time between.
pub(super) struct ClassComparison<'a> {
    old: &'a Tables,
    new: &'a Tables,
    programs: &'a mut ProgramPool,
    /// Programs that neither table has.
    pub(super) interim_programs: BTreeMap<ClassId, Arc<Program>>,
    interim_classes: HashMap<Arc<Program>, ClassId>,
    changes: HashMap<(ClassId, ClassId), VerdictChange>,
    /// How many elements may still be made for the time between.
    remaining_elements: usize,
}

impl<'a> ClassComparison<'a> {
    pub(super) fn new(
        old: &'a Tables,
        new: &'a Tables,
        programs: &'a mut ProgramPool,
        room: usize,
    ) -> Self {
        ClassComparison {
            old,
            new,
            programs,
            interim_classes: HashMap::default(),
            interim_programs: BTreeMap::new(),
            changes: HashMap::default(),
            remaining_elements: room,
        }
    }

    fn program(&self, class: ClassId) -> Option<&Arc<Program>> {
        let known = self.new.programs.get(&class);
        known
            .or_else(|| self.old.programs.get(&class))
            .or_else(|| self.interim_programs.get(&class))
    }

    /// What changing from one class to the other does.
    pub(super) fn verdict_change(&mut self, from: ClassId, to: ClassId) -> VerdictChange {
        if from == to {
            return VerdictChange::SAME;
        }
        if let Some(known) = self.changes.get(&(from, to)) {
            return *known;
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

    /// The class that allows what both allow; nothing where there is no room for more such classes.
    pub(super) fn intersection(&mut self, from: ClassId, to: ClassId) -> ClassId {
        let relation = self.verdict_change(from, to);
        if !relation.tightens {
            return from;
        }
        if !relation.loosens || on(EngineFault::IntersectionSkipped) {
            return to;
        }
        let (Some(a), Some(b)) = (self.program(from), self.program(to)) else {
            return to;
        };
        let both = match self.remaining_elements {
            0 => Program::constant(Cell {
                verdict: Verdict::Deny,
                hits: Vec::new(),
                log: None,
            }),
            _ => a.intersect(b),
        };
        let known = self.programs.find(&both);
        if let Some(class) = known.or_else(|| self.interim_classes.get(&both).copied()) {
            return class;
        }
        self.remaining_elements = self.remaining_elements.saturating_sub(both.element_count());
        let class = self.programs.allocate_id();
        let both = Arc::new(both);
        self.interim_classes.insert(both.clone(), class);
        self.interim_programs.insert(class, both);
        class
    }
}
