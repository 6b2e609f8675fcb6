//! What policy sets take of a dataplane, counted, and how much they may.
//!
//! A set that would take more than its budget, or that finds no room on the host, is closed: it denies
//! everything, as if each of its policies had no rules. What is closed follows from the objects and
//! the budget alone: room on the host is given by the names of the sets' policies, never by who came
//! first. Nothing here compiles anything; compiling ends where a budget does.

use crate::pool::HashMap;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use palisade_model::{Direction, PolicyId, SourceLine};
use palisade_tables::{ClassId, SetId};

/// How many elements of a dataplane policy may take: entries of the class table, and elements of
/// programs ([`palisade_tables::Program::elements`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// One policy set.
    pub set: usize,
    /// All policy sets of this host.
    pub host: usize,
}

impl Default for Budget {
    fn default() -> Self {
        Budget {
            set: 1 << 17,
            host: 1 << 20,
        }
    }
}

/// Which budget was not enough.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Bound {
    /// That of one policy set.
    Set,
    /// That of the host.
    Host,
}

/// What a rule has part in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleCost {
    /// The rule's policy.
    pub policy: PolicyId,
    /// Its direction.
    pub direction: Direction,
    /// Its place in the policy's list of that direction, from 0.
    pub index: u32,
    /// Where it was written.
    pub line: Option<SourceLine>,
    /// The elements that say it, about.
    pub elements: usize,
}

/// A policy set that is closed because it would take too much.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OverBudget {
    /// The policies of the set, in the order in which they decide.
    pub policies: Vec<PolicyId>,
    /// The direction it judges.
    pub direction: Direction,
    /// Which budget was not enough.
    pub bound: Bound,
    /// The elements it would take, about.
    pub elements: usize,
    /// The budget.
    pub budget: usize,
    /// The rules that take the most, the dearest first.
    pub rules: Vec<RuleCost>,
}

/// What one set takes.
#[derive(Debug, Default)]
struct Used {
    elements: usize,
    /// How often each class is named.
    classes: HashMap<ClassId, usize>,
    closed: Option<Closed>,
}

/// Why a set is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Closed {
    pub(crate) bound: Bound,
    /// What it would take, where that is known.
    pub(crate) needs: usize,
}

/// What all sets take.
#[derive(Debug, Default)]
pub(crate) struct Usage {
    sets: BTreeMap<SetId, Used>,
    total: usize,
    closed: usize,
}

impl Usage {
    /// A set names a class of so many elements once more.
    pub(crate) fn take(&mut self, set: SetId, class: ClassId, elements: usize) {
        let used = self.sets.entry(set).or_default();
        let named = used.classes.entry(class).or_default();
        *named += 1;
        let more = 1 + if *named == 1 { elements } else { 0 };
        used.elements += more;
        self.total += more;
    }

    /// A set names a class once less.
    pub(crate) fn give(&mut self, set: SetId, class: ClassId, elements: usize) {
        let Some(used) = self.sets.get_mut(&set) else {
            return;
        };
        let Some(named) = used.classes.get_mut(&class) else {
            return;
        };
        *named -= 1;
        let mut less = 1;
        if *named == 0 {
            used.classes.remove(&class);
            less += elements;
        }
        used.elements -= less;
        self.total -= less;
    }

    /// Forgets a set that takes nothing any more.
    pub(crate) fn forget(&mut self, set: SetId) {
        if let Some(gone) = self.sets.remove(&set) {
            self.total -= gone.elements;
            self.closed -= usize::from(gone.closed.is_some());
        }
    }

    /// Says that a set is closed, or open.
    pub(crate) fn mark(&mut self, set: SetId, closed: Option<Closed>) {
        let used = self.sets.entry(set).or_default();
        self.closed -= usize::from(used.closed.is_some());
        self.closed += usize::from(closed.is_some());
        used.closed = closed;
    }

    /// What a set takes.
    pub(crate) fn of(&self, set: SetId) -> usize {
        self.sets.get(&set).map_or(0, |used| used.elements)
    }

    /// What all sets take.
    pub(crate) fn total(&self) -> usize {
        self.total
    }

    /// Why a set is closed, if it is.
    pub(crate) fn closed(&self, set: SetId) -> Option<Closed> {
        self.sets.get(&set)?.closed
    }

    /// Every closed set. Nearly always there is none.
    pub(crate) fn all_closed(&self) -> impl Iterator<Item = (SetId, Closed)> {
        let sets = (self.closed > 0).then_some(&self.sets);
        let sets = sets.into_iter().flatten();
        sets.filter_map(|(set, used)| Some((*set, used.closed?)))
    }

    /// Every set.
    pub(crate) fn sets(&self) -> impl Iterator<Item = SetId> {
        self.sets.keys().copied()
    }
}
