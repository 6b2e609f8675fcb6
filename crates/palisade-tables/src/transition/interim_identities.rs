//! The identity of an address while its classes change.
//!
//! An address that changes its identity has one *interim identity* from the end of the split to the
//! beginning of the merge: the old one, the new one, or one that exists during the transition only. The
//! interim identity first has the classes of the old identity and at the end those of the new one. Where
//! every verdict changes in one direction only, and no class or point that matters changes besides, the
//! address changes its identity in a single write.

use super::changed_points::PointTransitions;
use super::class_comparison::{ClassComparison, VerdictChange};
use super::point_state::PointState;
use super::{HashMap, HashSet};
use super::{PhasedChanges, TransitionContext, class_of};
use crate::{ClassId, IdentityId, PolicySetId, TableChange, Tables};
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use palisade_model::Prefix;

/// How an address gets from one identity to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AddressTransition {
    /// In one write, when verdicts tighten.
    AtTighten,
    /// In one write, when verdicts loosen.
    AtLoosen,
    /// By this interim identity.
    Interim(IdentityId),
}

/// The interim identities of a transition.
pub(super) struct InterimIdentities {
    /// In the order of the addresses that differ.
    transitions: Vec<AddressTransition>,
    /// What the new tables have for each of these addresses.
    new_entries: Vec<Option<IdentityId>>,
    /// Identities that exist during the transition only: from, to.
    temporary: HashMap<IdentityId, (IdentityId, IdentityId)>,
    /// New identities that first have the classes of another.
    copied_from: HashMap<IdentityId, IdentityId>,
    /// Removed identities that finally have the classes of another.
    copied_to: HashMap<IdentityId, IdentityId>,
    /// Identities that one of the tables lacks, and those that exist during the transition only.
    pub(super) transitional: BTreeSet<IdentityId>,
}

/// The identity of a prefix's own addresses: of its entry, which is given, or of the nearest one
/// above.
fn effective_identity(
    context: &TransitionContext<'_>,
    prefix: Prefix,
    own: Option<IdentityId>,
    entry: impl Fn(Prefix) -> Option<IdentityId>,
) -> IdentityId {
    if let Some(own) = own {
        return own;
    }
    let family = prefix.family();
    let lengths = &context.differences.lengths;
    let shorter = lengths.range((family, 0)..(family, prefix.length())).rev();
    let above = shorter.map(|(_, length)| Prefix::new(prefix.address(), *length));
    let mut entries = above.filter_map(entry);
    entries.next().unwrap_or(IdentityId::UNKNOWN)
}

/// The entry that the old tables have for a prefix.
fn old_entry(context: &TransitionContext<'_>, prefix: Prefix) -> Option<IdentityId> {
    let changed = &context.differences.addresses;
    match changed.binary_search_by_key(&prefix, |(key, _)| *key) {
        Ok(at) => changed[at].1,
        Err(_) => new_entry(context, prefix),
    }
}

fn new_entry(context: &TransitionContext<'_>, prefix: Prefix) -> Option<IdentityId> {
    context.new.addresses.get(&prefix).copied()
}

/// The entries that the new tables have for the addresses that differ. Where these are many, both
/// are walked in order; a lookup for each of the addresses of a first flush takes longer.
fn new_entries(context: &TransitionContext<'_>) -> Vec<Option<IdentityId>> {
    let changed = &context.differences.addresses;
    let entries = &context.new.addresses;
    if changed.len() < entries.len() / 8 {
        let prefixes = changed.iter().map(|(prefix, _)| *prefix);
        return prefixes.map(|prefix| new_entry(context, prefix)).collect();
    }
    let mut entries = entries.iter().peekable();
    let entry_of = |(prefix, _): &(Prefix, _)| {
        while entries.next_if(|(other, _)| other < prefix).is_some() {}
        let entry = entries.next_if(|(other, _)| other == prefix);
        entry.map(|(_, identity)| *identity)
    };
    changed.iter().map(entry_of).collect()
}

/// The keys that another key covers or is covered by.
fn nested_prefixes(keys: &[(Prefix, Option<IdentityId>)]) -> HashSet<Prefix> {
    let mut nested = HashSet::default();
    let mut above: Vec<Prefix> = Vec::new();
    for (key, _) in keys {
        while above.last().is_some_and(|top| !top.covers(*key)) {
            above.pop();
        }
        if let Some(top) = above.last() {
            nested.extend([*top, *key]);
        }
        above.push(*key);
    }
    nested
}

impl InterimIdentities {
    pub(super) fn assign(
        context: &TransitionContext<'_>,
        classes: &mut ClassComparison<'_>,
        transitions: &PointTransitions,
    ) -> Self {
        let differences = context.differences;
        let mut identities = InterimIdentities {
            transitions: Vec::new(),
            new_entries: new_entries(context),
            temporary: HashMap::default(),
            copied_from: HashMap::default(),
            copied_to: HashMap::default(),
            transitional: differences
                .new_identities
                .union(&differences.removed_identities)
                .copied()
                .collect(),
        };
        let nested = nested_prefixes(&differences.addresses);
        // Of each pair, the transition in a single write if there is one, and its number once it has an interim identity.
        let mut pairs: HashMap<
            (IdentityId, IdentityId),
            (Option<AddressTransition>, Option<usize>),
        > = HashMap::default();
        let mut fixed: HashSet<IdentityId> = HashSet::default();
        let mut interim_pairs: Vec<((IdentityId, IdentityId), usize)> = Vec::new();
        // The transition of each address, or the number of its pair where it has an interim identity.
        let mut address_transitions: Vec<Result<AddressTransition, usize>> =
            Vec::with_capacity(differences.addresses.len());
        for (at, (key, before)) in differences.addresses.iter().enumerate() {
            let after = identities.new_entries[at];
            let pair = (
                effective_identity(context, *key, *before, |prefix| old_entry(context, prefix)),
                effective_identity(context, *key, after, |prefix| new_entry(context, prefix)),
            );
            if pair.0 == pair.1 {
                address_transitions.push(Ok(AddressTransition::Interim(pair.0)));
                continue;
            }
            let (transition, number) = pairs.entry(pair).or_insert_with(|| {
                (
                    direct_transition(context, classes, transitions, pair.0, pair.1),
                    None,
                )
            });
            match transition {
                Some(transition) if !nested.contains(key) => {
                    address_transitions.push(Ok(*transition));
                    fixed.extend([pair.0, pair.1]);
                }
                _ => {
                    let number = *number.get_or_insert_with(|| {
                        interim_pairs.push((pair, interim_pairs.len()));
                        interim_pairs.len() - 1
                    });
                    address_transitions.push(Err(number));
                }
            }
        }
        let mut interim = alloc::vec![IdentityId::UNKNOWN; interim_pairs.len()];
        interim_pairs.sort_unstable();
        for ((from, to), number) in interim_pairs {
            interim[number] = identities.assign_interim(context, classes, &fixed, from, to);
        }
        let address_transitions = address_transitions.into_iter();
        identities.transitions = address_transitions
            .map(|way| way.unwrap_or_else(|number| AddressTransition::Interim(interim[number])))
            .collect();
        identities
    }

    fn assign_interim(
        &mut self,
        context: &TransitionContext<'_>,
        classes: &mut ClassComparison<'_>,
        pinned: &HashSet<IdentityId>,
        from: IdentityId,
        to: IdentityId,
    ) -> IdentityId {
        let begins = context.differences.new_identities.contains(&to);
        let ends = context.differences.removed_identities.contains(&from);
        let before = if begins {
            self.copied_from.get(&to).copied()
        } else {
            Some(to)
        };
        match before {
            Some(before) if have_same_verdicts(context, context.old, classes, before, from) => {
                return to;
            }
            None if !pinned.contains(&to) => {
                self.copied_from.insert(to, from);
                return to;
            }
            _ => {}
        }
        let after = if ends {
            self.copied_to.get(&from).copied()
        } else {
            Some(from)
        };
        match after {
            Some(after) if have_same_verdicts(context, context.new, classes, after, to) => {
                return from;
            }
            None if !pinned.contains(&from) => {
                self.copied_to.insert(from, to);
                return from;
            }
            _ => {}
        }
        let passing = classes.ids.allocate_identity();
        self.temporary.insert(passing, (from, to));
        self.transitional.insert(passing);
        passing
    }

    /// The class of an identity in a set of the old tables after the split.
    pub(super) fn initial_class(
        &self,
        context: &TransitionContext<'_>,
        set: PolicySetId,
        identity: IdentityId,
    ) -> ClassId {
        if let Some((from, _)) = self.temporary.get(&identity) {
            return class_of(context.old, set, *from);
        }
        if context.differences.new_identities.contains(&identity) {
            return match self.copied_from.get(&identity) {
                Some(parent) => class_of(context.old, set, *parent),
                None if context.new.sets.contains_key(&set) => class_of(context.new, set, identity),
                None => class_of(context.old, set, IdentityId::UNKNOWN),
            };
        }
        class_of(context.old, set, identity)
    }

    /// The class of an identity in a set of the new tables before the merge.
    pub(super) fn final_class(
        &self,
        context: &TransitionContext<'_>,
        set: PolicySetId,
        identity: IdentityId,
    ) -> ClassId {
        if let Some((_, to)) = self.temporary.get(&identity) {
            return class_of(context.new, set, *to);
        }
        if context.differences.removed_identities.contains(&identity) {
            return match self.copied_to.get(&identity) {
                Some(heir) => class_of(context.new, set, *heir),
                None if context.old.sets.contains_key(&set) => class_of(context.old, set, identity),
                None => class_of(context.new, set, IdentityId::UNKNOWN),
            };
        }
        class_of(context.new, set, identity)
    }

    /// Whether any address may have this identity while classes change. The classes of other identities
    /// do not matter to a point that changes its set.
    pub(super) fn is_in_use(&self, context: &TransitionContext<'_>, identity: IdentityId) -> bool {
        let differences = context.differences;
        let begun = self.copied_from.contains_key(&identity)
            || !differences.new_identities.contains(&identity);
        let lasts = self.copied_to.contains_key(&identity)
            || !differences.removed_identities.contains(&identity);
        begun && lasts
    }

    /// Writes the changes of addresses.
    pub(super) fn write_changes(
        &self,
        context: &TransitionContext<'_>,
        phased: &mut PhasedChanges,
    ) {
        let new_entries = self.new_entries.iter().copied();
        let transitions = self.transitions.iter().zip(new_entries);
        let addresses = context.differences.addresses.iter().copied();
        for ((key, before), (transition, after)) in addresses.zip(transitions) {
            let last = TableChange::Address(key, after);
            match transition {
                AddressTransition::AtTighten => phased.tighten.push(last),
                AddressTransition::AtLoosen => phased.loosen.push(last),
                AddressTransition::Interim(interim) => {
                    if before != Some(*interim) {
                        phased.split.push(TableChange::Address(key, Some(*interim)));
                    }
                    if after != Some(*interim) {
                        phased.merge.push(last);
                    }
                }
            }
        }
    }
}

/// Whether two identities get the same verdicts in every set.
fn have_same_verdicts(
    context: &TransitionContext<'_>,
    tables: &Tables,
    classes: &mut ClassComparison<'_>,
    a: IdentityId,
    b: IdentityId,
) -> bool {
    let mut sets = context.distinguishing_sets(a, b).into_iter();
    sets.all(|set| {
        let (a, b) = (class_of(tables, set, a), class_of(tables, set, b));
        classes.verdict_change(a, b).is_same()
    })
}

/// How an address can change from one identity to the other in a single write, if it can: the classes of
/// both do not change, verdicts change in one direction only, and no point that looks it up changes its
/// set in a way that matters.
fn direct_transition(
    context: &TransitionContext<'_>,
    classes: &mut ClassComparison<'_>,
    transitions: &PointTransitions,
    from: IdentityId,
    to: IdentityId,
) -> Option<AddressTransition> {
    let differences = context.differences;
    let begins = differences.new_identities.contains(&to);
    let ends = differences.removed_identities.contains(&from);
    // Between the stages of a host interface decisions may move, and an address would change in all of them at once.
    if context.defaults_change || context.positions.is_layered() {
        return None;
    }
    let stable =
        |identity: IdentityId, passes: bool| passes || !context.unstable.contains(&identity);
    if !stable(from, ends) || !stable(to, begins) {
        return None;
    }
    let mut all = VerdictChange::SAME;
    for set in context.distinguishing_sets(from, to) {
        if !context.is_in_both(set) {
            continue;
        }
        let relation = classes.verdict_change(
            class_of(context.old, set, from),
            class_of(context.new, set, to),
        );
        all = all.union(relation);
        if all.tightens && all.loosens {
            return None;
        }
    }
    for (source, target) in transitions.transitions() {
        let matters = match (source, target) {
            (PointState::Denied, _) | (PointState::Open, PointState::Open | PointState::Denied) => {
                false
            }
            (PointState::Set(set), PointState::Denied) => {
                all.tightens
                    && (begins
                        || classes
                            .verdict_change(
                                class_of(context.old, *set, from),
                                class_of(context.old, *set, to),
                            )
                            .loosens)
            }
            (source, target) => {
                let differs = |classes: &mut ClassComparison<'_>,
                               tables: &Tables,
                               side: &PointState| match side {
                    PointState::Set(set) => {
                        let (a, b) = (class_of(tables, *set, from), class_of(tables, *set, to));
                        !classes.verdict_change(a, b).is_same()
                    }
                    _ => false,
                };
                begins
                    || ends
                    || differs(classes, context.old, source)
                    || differs(classes, context.new, target)
            }
        };
        if matters {
            return None;
        }
    }
    match all {
        VerdictChange::SAME => None,
        _ if all.tightens => Some(AddressTransition::AtTighten),
        _ => Some(AddressTransition::AtLoosen),
    }
}
