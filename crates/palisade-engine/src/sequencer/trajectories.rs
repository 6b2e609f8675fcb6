//! What every identity means in every set, from the old class through the intersection to the new.
//!
//! An identity without an entry means the set's default, which is looked up after the entry was
//! missed. So where a default changes, every identity that does not change like it has an entry of
//! its own before that and until after.

use super::carriers::Carriers;
use super::classes::Classes;
use super::{Case, Script, class};
use alloc::collections::BTreeSet;
use palisade_tables::{Change, ClassId, IdentityId, PolicySet, SetId, Tables};

/// The identities that have an entry in a set.
pub(super) fn listed(tables: &Tables, set: SetId) -> impl Iterator<Item = IdentityId> {
    tables
        .classes
        .range((set, IdentityId(0))..=(set, IdentityId(u32::MAX)))
        .map(|((_, identity), _)| *identity)
}

/// Writes what becomes of each set's classes, and returns the sets in which any class changes while
/// packets look.
pub(super) fn write(
    case: &Case<'_>,
    classes: &mut Classes<'_>,
    carriers: &Carriers,
    script: &mut Script,
) -> BTreeSet<SetId> {
    let mut changing = BTreeSet::new();
    // Where no identity passes, only sets that differ have anything to do.
    let sets: BTreeSet<SetId> = if carriers.passers.is_empty() {
        let classes = case.differences.classes.iter().map(|(set, _)| *set);
        let differing = classes.chain(case.differences.sets.iter().copied());
        differing.filter(|set| case.survives(*set)).collect()
    } else {
        case.surviving().collect()
    };
    for set in sets {
        if survivor(case, classes, carriers, set, script) {
            changing.insert(set);
        }
    }
    for set in &case.differences.sets {
        if case.survives(*set) {
            continue;
        }
        match case.new.sets.get(set) {
            Some(begun) => {
                script.split.push(Change::Set(*set, Some(*begun)));
                begin(case, carriers, *set, begun.default, script);
            }
            None => end(case, carriers, *set, script),
        }
    }
    changing
}

/// A set that only the new tables have: nobody looks before it is whole.
fn begin(case: &Case<'_>, carriers: &Carriers, set: SetId, default: ClassId, script: &mut Script) {
    let identities: BTreeSet<IdentityId> = listed(case.new, set)
        .chain(carriers.passers.iter().copied())
        .collect();
    for identity in identities {
        let last = carriers.end(case, set, identity);
        if last == default {
            continue;
        }
        let entry = Change::Class(set, identity, Some(last));
        script.split.push(entry);
        if !case.new.classes.contains_key(&(set, identity)) {
            script.delete.push(Change::Class(set, identity, None));
        }
    }
}

/// A set that only the old tables have: it stays as it was until nobody looks.
fn end(case: &Case<'_>, carriers: &Carriers, set: SetId, script: &mut Script) {
    let default = class(case.old, set, IdentityId::NOBODY);
    let identities: BTreeSet<IdentityId> = listed(case.old, set)
        .chain(carriers.passers.iter().copied())
        .collect();
    for identity in identities {
        let first = carriers.start(case, set, identity);
        let written = case.old.classes.contains_key(&(set, identity));
        if !written && first != default {
            script.split.push(Change::Class(set, identity, Some(first)));
        }
        if written || first != default {
            script.delete.push(Change::Class(set, identity, None));
        }
    }
    script.delete.push(Change::Set(set, None));
}

/// The identities whose entries in a set that both tables have may change.
fn concerned(case: &Case<'_>, carriers: &Carriers, set: SetId) -> BTreeSet<IdentityId> {
    let mut identities = carriers.passers.clone();
    if case.default_changes(set) {
        identities.extend(listed(case.old, set));
        identities.extend(listed(case.new, set));
    } else {
        let range = (set, IdentityId(0))..=(set, IdentityId(u32::MAX));
        let differing = case.differences.classes.range(range);
        identities.extend(differing.map(|(_, identity)| *identity));
    }
    identities
}

/// A set that both tables have. Returns whether any class changes in it.
fn survivor(
    case: &Case<'_>,
    classes: &mut Classes<'_>,
    carriers: &Carriers,
    set: SetId,
    script: &mut Script,
) -> bool {
    let default = Trajectory::of(
        classes,
        class(case.old, set, IdentityId::NOBODY),
        class(case.new, set, IdentityId::NOBODY),
    );
    let moves = default.first != default.last;
    let mut changes = moves;
    for identity in concerned(case, carriers, set) {
        let way = Trajectory::of(
            classes,
            carriers.start(case, set, identity),
            carriers.end(case, set, identity),
        );
        changes |= way.first != way.last;
        let written = case.old.classes.contains_key(&(set, identity));
        if moves && way == default && !written {
            continue;
        }
        // Where the default stands still, what equals it needs no entry.
        let entry = |class: ClassId| {
            let needed = moves || class != default.first;
            Change::Class(set, identity, needed.then_some(class))
        };
        if !written && (moves || way.first != default.first) {
            script.split.push(entry(way.first));
        }
        if way.between != way.first {
            script.tighten.push(entry(way.between));
        }
        if way.last != way.between {
            script.loosen.push(entry(way.last));
        }
        let present = moves || way.last != default.first;
        if present && !case.new.classes.contains_key(&(set, identity)) {
            script.delete.push(Change::Class(set, identity, None));
        }
    }
    let becomes = |default| Change::Set(set, Some(PolicySet { default }));
    if default.between != default.first {
        script.tighten.push(becomes(default.between));
    }
    if default.last != default.between {
        script.loosen.push(becomes(default.last));
    }
    changes
}

/// The classes that an identity has in a set, one after the other.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Trajectory {
    first: ClassId,
    between: ClassId,
    last: ClassId,
}

impl Trajectory {
    fn of(classes: &mut Classes<'_>, first: ClassId, last: ClassId) -> Self {
        Trajectory {
            first,
            between: classes.meet(first, last),
            last,
        }
    }
}
