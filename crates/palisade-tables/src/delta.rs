//! What a flush changes: ordered steps, each one a transaction.

use crate::{ClassId, Credit, IdentityId, Point, PolicySet, PolicySetId, Program, RuleId, Tables};
use alloc::sync::Arc;
use alloc::vec::Vec;
use palisade_model::{Prefix, Str};

/// One entry of one table: its new value, or `None` where it goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TableChange {
    /// An interface becomes ours, or is ours no more.
    Interface(Str, bool),
    /// The identity of an address or prefix.
    Address(Prefix, Option<IdentityId>),
    /// The policy set of a point.
    Point(Point, Option<PolicySetId>),
    /// A policy set.
    Set(PolicySetId, Option<PolicySet>),
    /// The class of an identity in a policy set.
    Class(PolicySetId, IdentityId, Option<ClassId>),
    /// What a class stands for; only ever set when the class begins, and removed when it ends.
    Program(ClassId, Option<Arc<Program>>),
    /// What a rule number stands for.
    Rule(RuleId, Option<Arc<Credit>>),
}

impl TableChange {
    /// Whether this adds something that nothing refers to, so that no packet can meet it.
    fn is_unreferenced(&self, before: &Tables) -> bool {
        match self {
            TableChange::Rule(rule, Some(_)) => !before.rules.contains_key(rule),
            TableChange::Program(class, Some(_)) => !before.programs.contains_key(class),
            TableChange::Set(set, Some(_)) | TableChange::Class(set, _, Some(_)) => {
                !before.sets.contains_key(set)
            }
            _ => false,
        }
    }
}

/// The phases of a flush, in order. After a step the executor waits until no packet is still between
/// two lookups (a grace period), and only then makes the next; [`Delta::needs_grace_period_after`] names the steps
/// that need none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Phase {
    /// Rules, programs, sets and identities that are new, and addresses that move to identities
    /// which still have the class they had. No verdict changes.
    Split,
    /// Verdicts change from allow to deny only.
    Tighten,
    /// The generation of established flows is raised: each is judged again at its next packet. The
    /// step has no changes.
    Revoke,
    /// Verdicts change from deny to allow only.
    Loosen,
    /// Addresses move to the identities they keep. No verdict changes.
    Merge,
    /// What nothing refers to goes. No verdict changes.
    Delete,
}

/// One transaction. Inside a step the changes are in an order in which each could be made alone:
/// what is referred to comes before what refers to it, and goes after.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeltaStep {
    /// What it is for.
    pub phase: Phase,
    /// What it changes.
    pub changes: Vec<TableChange>,
}

/// Everything one flush changes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Delta {
    /// The policy revision that is in force once the last step is done.
    pub revision: u64,
    /// The steps, phases in order, no empty ones (but for [`Phase::Revoke`]).
    pub steps: Vec<DeltaStep>,
}

impl Delta {
    /// Whether nothing changes.
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    /// Whether a grace period has to pass between a step and the next. `before` is what the tables
    /// are before that step.
    ///
    /// It need not where the step only adds what no lookup can reach before the next step refers to
    /// it: a packet that began before it is then as one that began after it.
    pub fn needs_grace_period_after(&self, step: usize, before: &Tables) -> bool {
        let next = self.steps.get(step + 1).map(|next| next.phase);
        let is_followed_by_verdicts = matches!(next, Some(Phase::Tighten | Phase::Loosen));
        let is_unreachable = |step: &DeltaStep| {
            let mut changes = step.changes.iter();
            step.phase == Phase::Split && changes.all(|change| change.is_unreferenced(before))
        };
        !(is_followed_by_verdicts && self.steps.get(step).is_some_and(is_unreachable))
    }

    /// Makes every change in `tables`.
    pub fn apply_to(&self, tables: &mut Tables) {
        for change in self.steps.iter().flat_map(|step| &step.changes) {
            tables.apply(change);
        }
    }
}
