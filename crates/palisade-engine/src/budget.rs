//! What policy sets take of a dataplane, counted, and how much they may.
//!
//! A set that would take more than its budget, or that finds no room on the host, is closed: it denies
//! everything, as if each of its policies had no rules. What is closed follows from the objects and
//! the budget alone: room on the host is given by the names of the sets' policies, never by who came
//! first. Nothing here compiles anything; compiling ends where a budget does.

use crate::pool::HashMap;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use palisade_model::{Direction, PolicyId, SourceLine};
use palisade_tables::{ClassId, PolicySetId, Program, SHARE_MIN_ELEMENTS, find_shared_bases};

/// So many elements may be compiled for each that may be written: programs that share most of what
/// they say are written once and held by the engine whole.
pub(crate) const COMPILED_PER_WRITTEN: usize = 8;

/// What of a budget something needs that is written as so many elements, of so many that were compiled.
pub(crate) fn required_elements(written: usize, compiled: usize) -> usize {
    written.max(compiled.div_ceil(COMPILED_PER_WRITTEN))
}

/// How many elements these programs have less where what they have in common is written once
/// ([`palisade_tables::find_shared_bases`]). Small ones are written whole.
pub(crate) fn sharing_savings(programs: &[&Program]) -> usize {
    let is_large = |program: &&&Program| program.element_count() >= SHARE_MIN_ELEMENTS;
    let large: Vec<&Program> = programs.iter().filter(is_large).copied().collect();
    if large.len() < 2 {
        return 0;
    }
    let saved = find_shared_bases(&large).into_iter().map(|shared| {
        let members = shared.members.iter().filter_map(|at| large.get(*at));
        let each = members.map(|program| {
            let whole = program.element_count();
            whole.saturating_sub(program.element_count_over(&shared.base))
        });
        each.sum::<usize>()
            .saturating_sub(shared.base.element_count())
    });
    saved.sum()
}

/// How many elements of a dataplane policy may take: entries of the class table, and elements of
/// programs ([`palisade_tables::Program::element_count`]), what several of a set share counted once. Eight
/// times as many may be compiled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ElementBudget {
    /// One policy set.
    pub set: usize,
    /// All policy sets of this host.
    pub host: usize,
}

impl Default for ElementBudget {
    fn default() -> Self {
        ElementBudget {
            set: 1 << 17,
            host: 1 << 20,
        }
    }
}

/// Which budget was not enough.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ExceededLimit {
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
pub struct ClosedPolicySet {
    /// The policies of the set, in the order in which they decide.
    pub policies: Vec<PolicyId>,
    /// The direction it judges.
    pub direction: Direction,
    /// Which budget was not enough.
    pub exceeded: ExceededLimit,
    /// The elements it would take, about.
    pub elements: usize,
    /// The budget.
    pub budget: usize,
    /// The rules that take the most, the dearest first.
    pub rules: Vec<RuleCost>,
}

/// What one set takes.
#[derive(Debug, Default)]
struct SetUsage {
    /// The elements of its entries, and of its programs, each whole.
    compiled: usize,
    /// How many of them sharing saves, as far as that was found.
    saved: usize,
    /// How often each class is named.
    classes: HashMap<ClassId, usize>,
    closed: Option<CloseReason>,
}

/// Why a set is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CloseReason {
    pub(crate) exceeded: ExceededLimit,
    /// What it would take, where that is known.
    pub(crate) required_elements: usize,
}

impl SetUsage {
    fn written(&self) -> usize {
        self.compiled.saturating_sub(self.saved)
    }

    fn required_elements(&self) -> usize {
        required_elements(self.written(), self.compiled)
    }
}

/// What all sets take.
#[derive(Debug, Default)]
pub(crate) struct BudgetUsage {
    sets: BTreeMap<PolicySetId, SetUsage>,
    /// What all sets need.
    total: usize,
    closed: usize,
    /// The sets whose large programs are others than when it was found what sharing them saves.
    stale: BTreeSet<PolicySetId>,
}

impl BudgetUsage {
    /// A set names a class of so many elements once more.
    pub(crate) fn add_class(&mut self, set: PolicySetId, class: ClassId, elements: usize) {
        let used = self.sets.entry(set).or_default();
        self.total -= used.required_elements();
        let named = used.classes.entry(class).or_default();
        *named += 1;
        used.compiled += 1;
        if *named == 1 {
            used.compiled += elements;
            if elements >= SHARE_MIN_ELEMENTS {
                self.stale.insert(set);
            }
        }
        self.total += used.required_elements();
    }

    /// A set names a class once less.
    pub(crate) fn remove_class(&mut self, set: PolicySetId, class: ClassId, elements: usize) {
        let Some(used) = self.sets.get_mut(&set) else {
            return;
        };
        let Some(named) = used.classes.get_mut(&class) else {
            return;
        };
        *named -= 1;
        let is_last = *named == 0;
        self.total -= used.required_elements();
        used.compiled -= 1;
        if is_last {
            used.classes.remove(&class);
            used.compiled -= elements;
            if elements >= SHARE_MIN_ELEMENTS {
                // What it shared is not known to be shared any more.
                used.saved = 0;
                self.stale.insert(set);
            }
        }
        self.total += used.required_elements();
    }

    /// The sets of which it is not known what sharing saves.
    pub(crate) fn take_stale(&mut self) -> BTreeSet<PolicySetId> {
        core::mem::take(&mut self.stale)
    }

    /// The classes of a set.
    pub(crate) fn classes(&self, set: PolicySetId) -> impl Iterator<Item = ClassId> {
        let used = self.sets.get(&set).into_iter();
        used.flat_map(|used| used.classes.keys().copied())
    }

    /// Says what sharing saves in a set.
    pub(crate) fn set_savings(&mut self, set: PolicySetId, saved: usize) {
        self.stale.remove(&set);
        if let Some(used) = self.sets.get_mut(&set) {
            self.total -= used.required_elements();
            used.saved = saved;
            self.total += used.required_elements();
        }
    }

    /// Forgets a set that takes nothing any more.
    pub(crate) fn remove(&mut self, set: PolicySetId) {
        if let Some(gone) = self.sets.remove(&set) {
            self.stale.remove(&set);
            self.total -= gone.required_elements();
            self.closed -= usize::from(gone.closed.is_some());
        }
    }

    /// Says that a set is closed, or open.
    pub(crate) fn set_closed(&mut self, set: PolicySetId, closed: Option<CloseReason>) {
        let used = self.sets.entry(set).or_default();
        self.closed -= usize::from(used.closed.is_some());
        self.closed += usize::from(closed.is_some());
        used.closed = closed;
    }

    /// What of its budget a set needs.
    pub(crate) fn required(&self, set: PolicySetId) -> usize {
        self.sets.get(&set).map_or(0, SetUsage::required_elements)
    }

    /// What was compiled for a set.
    pub(crate) fn compiled_elements(&self, set: PolicySetId) -> usize {
        self.sets.get(&set).map_or(0, |used| used.compiled)
    }

    /// What of the host's budget all sets need.
    pub(crate) fn total(&self) -> usize {
        self.total
    }

    /// The elements that all sets take.
    pub(crate) fn written_elements(&self) -> usize {
        self.sets.values().map(SetUsage::written).sum()
    }

    /// Why a set is closed, if it is.
    pub(crate) fn close_reason(&self, set: PolicySetId) -> Option<CloseReason> {
        self.sets.get(&set)?.closed
    }

    /// Every closed set. Nearly always there is none.
    pub(crate) fn closed_sets(&self) -> impl Iterator<Item = (PolicySetId, CloseReason)> {
        let sets = (self.closed > 0).then_some(&self.sets);
        let sets = sets.into_iter().flatten();
        sets.filter_map(|(set, used)| Some((*set, used.closed?)))
    }

    /// Every set.
    pub(crate) fn sets(&self) -> impl Iterator<Item = PolicySetId> {
        self.sets.keys().copied()
    }
}
