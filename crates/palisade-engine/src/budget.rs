//! Accounting of the elements that policy sets take in a dataplane, and their limits.
//!
//! A set that would exceed its own limit or that of the host is closed: it denies everything, as if
//! each of its policies had no rules. What is closed follows from the objects and the budget alone:
//! the host budget is allocated by the names of the sets' policies, never in order of arrival.
//! Nothing here compiles programs; the limits here bound the compiler.

use crate::store::HashMap;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use palisade_model::{Direction, PolicyId, SourceLine};
use palisade_tables::{ClassId, PolicySetId, Program, SHARE_MIN_ELEMENTS, find_shared_bases};

/// The most elements compiled for each element that may be written: programs that share most of
/// their elements are written once, but the engine holds each of them whole.
pub(crate) const COMPILED_PER_WRITTEN: usize = 8;

/// The budget needed for this many elements written and compiled.
pub(crate) fn required_elements(written: usize, compiled: usize) -> usize {
    written.max(compiled.div_ceil(COMPILED_PER_WRITTEN))
}

/// The elements saved when what these programs have in common is written once
/// ([`palisade_tables::find_shared_bases`]). Small programs are written whole.
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

/// Limits on dataplane elements: entries of the class table and elements of programs
/// ([`palisade_tables::Program::element_count`]). Elements shared by several programs of a set
/// count once. Eight times as many may be compiled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ElementBudget {
    /// The limit for one policy set.
    pub set: usize,
    /// The limit for all policy sets of this host.
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

/// The limit that a policy set exceeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ExceededLimit {
    /// The limit for one policy set.
    Set,
    /// The limit for the host.
    Host,
}

/// The elements of one rule in a closed policy set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleCost {
    /// The rule's policy.
    pub policy: PolicyId,
    /// Its direction.
    pub direction: Direction,
    /// Its index in the policy's list of that direction, from 0.
    pub index: u32,
    /// Where it was written.
    pub line: Option<SourceLine>,
    /// Estimated elements of the rule.
    pub elements: usize,
}

/// A policy set that is closed because it would exceed a limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClosedPolicySet {
    /// The policies of the set, in evaluation order.
    pub policies: Vec<PolicyId>,
    /// The direction it judges.
    pub direction: Direction,
    /// The limit that it would exceed.
    pub exceeded: ExceededLimit,
    /// Estimated elements of the set.
    pub elements: usize,
    /// The value of the limit, in elements.
    pub budget: usize,
    /// The rules with the most elements, the most expensive first.
    pub rules: Vec<RuleCost>,
}

/// The elements of one set.
#[derive(Debug, Default)]
struct SetUsage {
    /// The elements of its entries and of its programs, without sharing.
    compiled: usize,
    /// The elements that sharing saves, as last computed.
    saved: usize,
    /// The number of references to each class.
    classes: HashMap<ClassId, usize>,
    closed: Option<CloseReason>,
}

/// Why a set is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CloseReason {
    pub(crate) exceeded: ExceededLimit,
    /// The budget it would need; the limit itself if compiling stopped there.
    pub(crate) required_elements: usize,
    /// The budget it would need without what would be decided if nothing were in audit, once that is known.
    pub(crate) without_audit: Option<usize>,
}

/// Why a set is compiled without what would be decided if nothing were in audit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AuditOmission {
    pub(crate) exceeded: ExceededLimit,
    /// The budget it would need with that; the limit itself if compiling stopped there.
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

/// The elements of all sets.
#[derive(Debug, Default)]
pub(crate) struct BudgetUsage {
    sets: BTreeMap<PolicySetId, SetUsage>,
    /// The budget that all sets need.
    total: usize,
    closed: usize,
    /// Sets whose large programs changed since their savings were computed.
    stale: BTreeSet<PolicySetId>,
}

impl BudgetUsage {
    /// Adds a reference of a set to a class with this many elements.
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

    /// Removes a reference of a set to a class.
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
                // It is not known whether anything is still shared.
                used.saved = 0;
                self.stale.insert(set);
            }
        }
        self.total += used.required_elements();
    }

    /// The sets whose savings have to be computed.
    pub(crate) fn take_stale(&mut self) -> BTreeSet<PolicySetId> {
        core::mem::take(&mut self.stale)
    }

    /// The classes of a set.
    pub(crate) fn classes(&self, set: PolicySetId) -> impl Iterator<Item = ClassId> {
        let used = self.sets.get(&set).into_iter();
        used.flat_map(|used| used.classes.keys().copied())
    }

    /// Records the savings of a set.
    pub(crate) fn set_savings(&mut self, set: PolicySetId, saved: usize) {
        self.stale.remove(&set);
        if let Some(used) = self.sets.get_mut(&set) {
            self.total -= used.required_elements();
            used.saved = saved;
            self.total += used.required_elements();
        }
    }

    /// Removes a set that has no elements left.
    pub(crate) fn remove(&mut self, set: PolicySetId) {
        if let Some(gone) = self.sets.remove(&set) {
            self.stale.remove(&set);
            self.total -= gone.required_elements();
            self.closed -= usize::from(gone.closed.is_some());
        }
    }

    /// Records whether and why a set is closed.
    pub(crate) fn set_closed(&mut self, set: PolicySetId, closed: Option<CloseReason>) {
        let used = self.sets.entry(set).or_default();
        self.closed -= usize::from(used.closed.is_some());
        self.closed += usize::from(closed.is_some());
        used.closed = closed;
    }

    /// The budget that a set needs.
    pub(crate) fn required(&self, set: PolicySetId) -> usize {
        self.sets.get(&set).map_or(0, SetUsage::required_elements)
    }

    /// The elements compiled for a set.
    pub(crate) fn compiled_elements(&self, set: PolicySetId) -> usize {
        self.sets.get(&set).map_or(0, |used| used.compiled)
    }

    /// The host budget that all sets need.
    pub(crate) fn total(&self) -> usize {
        self.total
    }

    /// The elements written for all sets.
    pub(crate) fn written_elements(&self) -> usize {
        self.sets.values().map(SetUsage::written).sum()
    }

    /// Why a set is closed, if it is.
    pub(crate) fn close_reason(&self, set: PolicySetId) -> Option<CloseReason> {
        self.sets.get(&set)?.closed
    }

    /// All closed sets; rarely any.
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
