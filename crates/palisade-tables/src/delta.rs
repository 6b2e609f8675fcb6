//! The changes of one flush: ordered steps, each one a transaction.

use crate::{
    ClassId, IdentityId, Point, PolicySet, PolicySetId, Program, RuleId, Tables, VerdictCause,
};
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use palisade_model::{Prefix, Str};

/// A change of one table entry: its new value, or `None` where it is removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TableChange {
    /// Whether an interface is managed.
    Interface(Str, bool),
    /// Whether an interface of this host has points of its own.
    HostInterface(Str, bool),
    /// The identity of an address or prefix.
    Address(Prefix, Option<IdentityId>),
    /// The policy set of a point.
    Point(Point, Option<PolicySetId>),
    /// A policy set.
    Set(PolicySetId, Option<PolicySet>),
    /// The class of an identity in a policy set.
    Class(PolicySetId, IdentityId, Option<ClassId>),
    /// The program of a class; set once when the class is created and removed when it is deleted.
    Program(ClassId, Option<Arc<Program>>),
    /// The cause of a rule number.
    Rule(RuleId, Option<Arc<VerdictCause>>),
}

impl TableChange {
    /// Whether this adds an entry that nothing refers to, so that no lookup can reach it.
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

/// The phases of a flush, in order. After a step the executor waits for a grace period, until no packet
/// is still between two lookups, before it applies the next one.
/// [`Delta::needs_grace_period_after`] tells which steps need none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Phase {
    /// Adds new rules, programs, sets and identities, and moves addresses to identities that still
    /// have the same classes. No verdict changes.
    Split,
    /// Verdicts change from allow to deny only.
    Tighten,
    /// Decisions of host interfaces move between stages, in an order in which every verdict is the old or the new one
    /// ([`palisade_model::PolicyStage::is_early`]). Only where tables have early stages.
    Shift,
    /// The generation of established flows is incremented, so that each is re-evaluated at its next
    /// packet. The step has no changes.
    Revoke,
    /// Verdicts change from deny to allow only.
    Loosen,
    /// Moves addresses to their final identities. No verdict changes.
    Merge,
    /// Removes entries that nothing refers to. No verdict changes.
    Delete,
}

/// What of a step a dataplane writes at once. A delta is safe with either: every packet gets the verdict from before or
/// after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Atomicity {
    /// A whole step: packets see all of it or nothing, and a step that fails has no effect (nftables: a transaction).
    Step,
    /// One entry: packets see any prefix of a step, and a step that fails leaves a prefix of it (maps of eBPF).
    Entry,
}

/// One transaction. The changes of a step are in an order in which each could be applied alone: an
/// entry is added before the entries that refer to it, and removed after them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeltaStep {
    /// The phase that it belongs to.
    pub phase: Phase,
    /// The changes, in order.
    pub changes: Vec<TableChange>,
}

/// All changes of one flush.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Delta {
    /// The policy revision that is in force after the last step.
    pub revision: u64,
    /// The steps, ordered by phase. None is empty, except [`Phase::Revoke`].
    pub steps: Vec<DeltaStep>,
}

impl Delta {
    /// Whether nothing changes.
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    /// Whether a grace period has to pass between a step and the next. `before` is the tables before
    /// that step.
    ///
    /// None is needed where the step only adds entries that no lookup can reach before the next step
    /// refers to them: a packet whose lookups began before the step then gets the same result as one
    /// whose lookups began after it.
    pub fn needs_grace_period_after(&self, step: usize, before: &Tables) -> bool {
        let next = self.steps.get(step + 1).map(|next| next.phase);
        let is_followed_by_verdicts =
            matches!(next, Some(Phase::Tighten | Phase::Shift | Phase::Loosen));
        let is_unreachable = |step: &DeltaStep| {
            let mut changes = step.changes.iter();
            step.phase == Phase::Split && changes.all(|change| change.is_unreferenced(before))
        };
        !(is_followed_by_verdicts && self.steps.get(step).is_some_and(is_unreachable))
    }

    /// Whether it is one step that only moves addresses to identities that allow more.
    ///
    /// No grace period is needed between two such deltas: a judgement looks up one address, and whether it finds the
    /// identity of before, between or after them, it allows no more than the last and no less than the first. Numbers
    /// that a lookup has found keep their meaning, since no other entry changes.
    pub fn only_loosens_addresses(&self) -> bool {
        let [step] = self.steps.as_slice() else {
            return false;
        };
        let mut changes = step.changes.iter();
        step.phase == Phase::Loosen
            && changes.all(|change| matches!(change, TableChange::Address(..)))
    }

    /// Applies every change to `tables`.
    pub fn apply_to(&self, tables: &mut Tables) {
        for change in self.steps.iter().flat_map(|step| &step.changes) {
            tables.apply(change);
        }
    }
}

impl Tables {
    /// The changes that create these tables from empty ones, in an order in which each can be applied alone.
    pub fn entries(&self) -> Vec<TableChange> {
        let rules = self.rules.iter();
        let rules = rules.map(|(id, cause)| TableChange::Rule(*id, Some(cause.clone())));
        let programs = self.programs.iter();
        let programs = programs.map(|(id, code)| TableChange::Program(*id, Some(code.clone())));
        let sets = self.sets.iter();
        let sets = sets.map(|(id, set)| TableChange::Set(*id, Some(*set)));
        let rows = self.classes.iter();
        let rows = rows.map(|((set, id), class)| TableChange::Class(*set, *id, Some(*class)));
        let addresses = self.addresses.iter();
        let addresses = addresses.map(|(prefix, id)| TableChange::Address(prefix, Some(*id)));
        let interfaces = self.interfaces.iter();
        let interfaces = interfaces.map(|name| TableChange::Interface(name.clone(), true));
        let host = self.host_interfaces.iter();
        let host = host.map(|name| TableChange::HostInterface(name.clone(), true));
        let points = self.points.iter();
        let points = points.map(|(point, set)| TableChange::Point(point.clone(), Some(*set)));
        let objects = rules.chain(programs).chain(sets).chain(rows);
        let lookups = addresses.chain(interfaces).chain(host).chain(points);
        objects.chain(lookups).collect()
    }

    /// Applies one change.
    pub fn apply(&mut self, change: &TableChange) {
        fn set_or_remove<K: Ord + Clone, V: Clone>(
            map: &mut BTreeMap<K, V>,
            key: &K,
            value: &Option<V>,
        ) {
            match value {
                Some(value) => drop(map.insert(key.clone(), value.clone())),
                None => drop(map.remove(key)),
            }
        }
        match change {
            TableChange::Interface(name, true) => drop(self.interfaces.insert(name.clone())),
            TableChange::Interface(name, false) => drop(self.interfaces.remove(name)),
            TableChange::HostInterface(name, true) => {
                self.host_interfaces.insert(name.clone());
            }
            TableChange::HostInterface(name, false) => {
                self.host_interfaces.remove(name);
            }
            TableChange::Address(prefix, Some(identity)) => {
                self.addresses.insert(*prefix, *identity);
            }
            TableChange::Address(prefix, None) => drop(self.addresses.remove(prefix)),
            TableChange::Point(point, set) => set_or_remove(&mut self.points, point, set),
            TableChange::Set(id, set) => set_or_remove(&mut self.sets, id, set),
            TableChange::Class(set, identity, class) => {
                set_or_remove(&mut self.classes, &(*set, *identity), class)
            }
            TableChange::Program(class, program) => {
                set_or_remove(&mut self.programs, class, program)
            }
            TableChange::Rule(rule, cause) => set_or_remove(&mut self.rules, rule, cause),
        }
    }
}
