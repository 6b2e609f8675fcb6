//! How classes compare, and the programs that stand between two of them.

use crate::classes::Programs;
use crate::faults::{Fault, on};
use crate::pool::HashMap;
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use palisade_tables::{Cell, ClassId, Program, Tables, Verdict};

/// What a change from one class to another does to verdicts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Relation {
    /// Something that was allowed is denied.
    pub(super) tightens: bool,
    /// Something that was denied is allowed.
    pub(super) loosens: bool,
}

impl Relation {
    pub(super) const SAME: Relation = Relation {
        tightens: false,
        loosens: false,
    };

    pub(super) fn is_same(self) -> bool {
        self == Relation::SAME
    }

    pub(super) fn and(self, other: Relation) -> Relation {
        Relation {
            tightens: self.tightens || other.tightens,
            loosens: self.loosens || other.loosens,
        }
    }
}

/// The classes of both tables and those made for the time between.
pub(super) struct Classes<'a> {
    old: &'a Tables,
    new: &'a Tables,
    programs: &'a mut Programs,
    /// Programs that neither table has.
    pub(super) between: BTreeMap<ClassId, Arc<Program>>,
    made: HashMap<Arc<Program>, ClassId>,
    known: HashMap<(ClassId, ClassId), Relation>,
    /// How many elements may still be made for the time between.
    room: usize,
}

impl<'a> Classes<'a> {
    pub(super) fn new(
        old: &'a Tables,
        new: &'a Tables,
        programs: &'a mut Programs,
        room: usize,
    ) -> Self {
        Classes {
            old,
            new,
            programs,
            made: HashMap::default(),
            between: BTreeMap::new(),
            known: HashMap::default(),
            room,
        }
    }

    fn program(&self, class: ClassId) -> Option<&Arc<Program>> {
        let known = self.new.programs.get(&class);
        known
            .or_else(|| self.old.programs.get(&class))
            .or_else(|| self.between.get(&class))
    }

    /// What changing from one class to the other does.
    pub(super) fn relation(&mut self, from: ClassId, to: ClassId) -> Relation {
        if from == to {
            return Relation::SAME;
        }
        if let Some(known) = self.known.get(&(from, to)) {
            return *known;
        }
        let relation = match (self.program(from), self.program(to)) {
            (Some(a), Some(b)) => Relation {
                tightens: !a.allows_no_more_than(b),
                loosens: !b.allows_no_more_than(a),
            },
            _ => Relation {
                tightens: true,
                loosens: true,
            },
        };
        self.known.insert((from, to), relation);
        relation
    }

    /// The class that allows what both allow; nothing where there is no room for more such classes.
    pub(super) fn meet(&mut self, from: ClassId, to: ClassId) -> ClassId {
        let relation = self.relation(from, to);
        if !relation.tightens {
            return from;
        }
        if !relation.loosens || on(Fault::IntersectionSkipped) {
            return to;
        }
        let (Some(a), Some(b)) = (self.program(from), self.program(to)) else {
            return to;
        };
        let both = match self.room {
            0 => Program::constant(Cell {
                verdict: Verdict::Deny,
                hits: Vec::new(),
                log: None,
            }),
            _ => a.intersect(b),
        };
        let known = self.programs.find(&both);
        if let Some(class) = known.or_else(|| self.made.get(&both).copied()) {
            return class;
        }
        self.room = self.room.saturating_sub(both.elements());
        let class = self.programs.fresh();
        let both = Arc::new(both);
        self.made.insert(both.clone(), class);
        self.between.insert(class, both);
        class
    }
}
