//! The class of every identity in every set, from the old through the intersection to the new; in the sets of early
//! stages and after them in the order of [`super::judging_positions`].
//!
//! The default of a set is looked up after no entry was found. So where a default changes, every
//! identity that does not change in the same way has an entry from before the change until after it.

use super::class_comparison::ClassComparison;
use super::interim_identities::InterimIdentities;
use super::judging_positions::{ChangeTime, JudgingPosition};
use super::{PhasedChanges, TransitionContext, class_of};
use crate::{ClassId, IdentityId, PolicySet, PolicySetId, TableChange, Tables};
use alloc::collections::BTreeSet;
use alloc::vec::Vec;

/// The identities that have an entry in a set.
pub(super) fn identities_in_set(
    tables: &Tables,
    set: PolicySetId,
) -> impl Iterator<Item = IdentityId> {
    tables
        .classes
        .range((set, IdentityId(0))..=(set, IdentityId(u32::MAX)))
        .map(|((_, identity), _)| *identity)
}

/// Writes the changes of each set's classes. Returns the sets in use in which any class changes.
pub(super) fn write_changes(
    context: &TransitionContext<'_>,
    classes: &mut ClassComparison<'_>,
    interim: &InterimIdentities,
    phased: &mut PhasedChanges,
) -> BTreeSet<PolicySetId> {
    let mut changing = BTreeSet::new();
    // Without transitional identities, only sets that differ have changes.
    let sets: BTreeSet<PolicySetId> = if interim.transitional.is_empty() {
        let classes = context.differences.classes.iter().map(|(set, _)| *set);
        let differing = classes.chain(context.differences.sets.iter().copied());
        differing.filter(|set| context.is_in_both(*set)).collect()
    } else {
        context.sets_in_both().collect()
    };
    for set in sets {
        if write_common_set(context, classes, interim, set, phased) {
            changing.insert(set);
        }
    }
    for set in &context.differences.sets {
        if context.is_in_both(*set) {
            continue;
        }
        match context.new.sets.get(set) {
            Some(added) => {
                phased.split.push(TableChange::Set(*set, Some(*added)));
                write_added_set(context, interim, *set, added.default, phased);
            }
            None => write_removed_set(context, interim, *set, phased),
        }
    }
    changing
}

/// A set that only the new tables have: no point refers to it before it is complete.
fn write_added_set(
    context: &TransitionContext<'_>,
    interim: &InterimIdentities,
    set: PolicySetId,
    default: ClassId,
    phased: &mut PhasedChanges,
) {
    let identities: BTreeSet<IdentityId> = identities_in_set(context.new, set)
        .chain(interim.transitional.iter().copied())
        .collect();
    for identity in identities {
        let last = interim.final_class(context, set, identity);
        let stays = context.new.classes.contains_key(&(set, identity));
        if last == default && !stays {
            continue;
        }
        let entry = TableChange::Class(set, identity, Some(last));
        phased.split.push(entry);
        if !stays {
            phased.delete.push(TableChange::Class(set, identity, None));
        }
    }
}

/// A set that only the old tables have: it does not change until no point refers to it.
fn write_removed_set(
    context: &TransitionContext<'_>,
    interim: &InterimIdentities,
    set: PolicySetId,
    phased: &mut PhasedChanges,
) {
    let default = class_of(context.old, set, IdentityId::UNKNOWN);
    let identities: BTreeSet<IdentityId> = identities_in_set(context.old, set)
        .chain(interim.transitional.iter().copied())
        .collect();
    for identity in identities {
        let first = interim.initial_class(context, set, identity);
        let written = context.old.classes.contains_key(&(set, identity));
        if !written && first != default {
            phased
                .split
                .push(TableChange::Class(set, identity, Some(first)));
        }
        if written || first != default {
            phased.delete.push(TableChange::Class(set, identity, None));
        }
    }
    phased.delete.push(TableChange::Set(set, None));
}

/// The identities whose entries in a set that both tables have may change.
fn affected_identities(
    context: &TransitionContext<'_>,
    interim: &InterimIdentities,
    set: PolicySetId,
) -> BTreeSet<IdentityId> {
    let mut identities = interim.transitional.clone();
    if context.default_changes(set) {
        identities.extend(identities_in_set(context.old, set));
        identities.extend(identities_in_set(context.new, set));
    } else {
        let range = (set, IdentityId(0))..=(set, IdentityId(u32::MAX));
        let differing = context.differences.classes.range(range);
        identities.extend(differing.map(|(_, identity)| *identity));
    }
    identities
}

/// A set that both tables have. Returns whether any class changes in it.
fn write_common_set(
    context: &TransitionContext<'_>,
    classes: &mut ClassComparison<'_>,
    interim: &InterimIdentities,
    set: PolicySetId,
    phased: &mut PhasedChanges,
) -> bool {
    let position = context.positions.of_set(set);
    let default = ClassTransition::of(
        classes,
        position,
        class_of(context.old, set, IdentityId::UNKNOWN),
        class_of(context.new, set, IdentityId::UNKNOWN),
    );
    let moves = default.changes();
    let mut changes = moves;
    for identity in affected_identities(context, interim, set) {
        let transition = ClassTransition::of(
            classes,
            position,
            interim.initial_class(context, set, identity),
            interim.final_class(context, set, identity),
        );
        changes |= transition.changes();
        let written = context.old.classes.contains_key(&(set, identity));
        if moves && transition == default && !written {
            continue;
        }
        // Where the default does not change, an identity with the same class needs no entry.
        let stays = context.new.classes.contains_key(&(set, identity));
        let needs_entry = |class: ClassId| moves || class != default.first || stays;
        let mut present = written;
        let entry = |class: ClassId| {
            let entry = needs_entry(class).then_some(class);
            TableChange::Class(set, identity, entry)
        };
        if !written && needs_entry(transition.first) {
            phased.split.push(entry(transition.first));
            present = true;
        }
        for (time, class) in transition.writes() {
            time.changes(phased).push(entry(class));
            present = needs_entry(class);
        }
        if present && !stays {
            phased.delete.push(TableChange::Class(set, identity, None));
        }
    }
    for (time, class) in default.writes() {
        let becomes = TableChange::Set(set, Some(PolicySet { default: class }));
        time.changes(phased).push(becomes);
    }
    changes
}

/// The classes that an identity has in a set, one after the other.
#[derive(Clone, PartialEq, Eq)]
struct ClassTransition {
    first: ClassId,
    /// What it becomes, and when; may repeat the class before.
    steps: Vec<(ChangeTime, ClassId)>,
}

impl ClassTransition {
    fn of(
        classes: &mut ClassComparison<'_>,
        position: JudgingPosition,
        first: ClassId,
        last: ClassId,
    ) -> Self {
        let steps = match position {
            JudgingPosition::Alone => alloc::vec![
                (ChangeTime::Tighten, classes.intersection(first, last)),
                (ChangeTime::Loosen, last),
            ],
            JudgingPosition::Last => alloc::vec![(ChangeTime::Switch, last)],
            JudgingPosition::Early(stage) => alloc::vec![
                (ChangeTime::Add(stage), classes.addition(first, last)),
                (ChangeTime::Switch, classes.switch(first, last)),
                (ChangeTime::Remove(stage), last),
            ],
        };
        ClassTransition { first, steps }
    }

    fn changes(&self) -> bool {
        self.steps
            .last()
            .is_some_and(|(_, last)| *last != self.first)
    }

    /// The steps that change the class.
    fn writes(&self) -> impl Iterator<Item = (ChangeTime, ClassId)> {
        let before = core::iter::once(self.first).chain(self.steps.iter().map(|(_, class)| *class));
        let pairs = self.steps.iter().copied().zip(before);
        pairs.filter_map(|((time, class), before)| (class != before).then_some((time, class)))
    }
}
