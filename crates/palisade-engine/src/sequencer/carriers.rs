//! Which identity an address has while its classes change.
//!
//! An address that goes from one identity to another keeps one *carrier* from the end of the split to
//! the beginning of the merge: the identity it leaves, the one it will have, or one made for the
//! passage. What a carrier means begins as what the address had and ends as what it will have. Where
//! every verdict changes in one direction only and nothing else moves, the address goes at once.

use super::classes::{Classes, Relation};
use super::points::{Moves, Side};
use super::{Case, Script, class};
use crate::pool::{HashMap, HashSet};
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use palisade_model::Prefix;
use palisade_tables::{Change, ClassId, IdentityId, SetId, Tables};

/// How an address gets from one identity to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// In one write, when verdicts tighten.
    AtTighten,
    /// In one write, when verdicts loosen.
    AtLoosen,
    /// Carried by this identity.
    By(IdentityId),
}

/// The identities of a flush.
pub(super) struct Carriers {
    /// By the place of the address among those that differ.
    ways: Vec<Way>,
    /// Identities made for the passage: from, to.
    passing: HashMap<IdentityId, (IdentityId, IdentityId)>,
    /// Fresh identities that begin as a copy of another.
    parents: HashMap<IdentityId, IdentityId>,
    /// Dying identities that end as a copy of another.
    heirs: HashMap<IdentityId, IdentityId>,
    /// Identities that one table lacks, and those made for the passage.
    pub(super) passers: BTreeSet<IdentityId>,
}

/// The identity of a prefix's own addresses: of its entry, which is given, or of the nearest one
/// above.
fn view(
    case: &Case<'_>,
    prefix: Prefix,
    own: Option<IdentityId>,
    entry: impl Fn(Prefix) -> Option<IdentityId>,
) -> IdentityId {
    if let Some(own) = own {
        return own;
    }
    let family = prefix.family();
    let lengths = &case.differences.lengths;
    let shorter = lengths.range((family, 0)..(family, prefix.length())).rev();
    let above = shorter.map(|(_, length)| Prefix::new(prefix.address(), *length));
    let mut found = above.filter_map(entry);
    found.next().unwrap_or(IdentityId::NOBODY)
}

/// The entry that the old tables have for a prefix.
fn old_entry(case: &Case<'_>, prefix: Prefix) -> Option<IdentityId> {
    let changed = &case.differences.addresses;
    match changed.binary_search_by_key(&prefix, |(key, _)| *key) {
        Ok(at) => changed[at].1,
        Err(_) => new_entry(case, prefix),
    }
}

fn new_entry(case: &Case<'_>, prefix: Prefix) -> Option<IdentityId> {
    case.new.addresses.get(&prefix).copied()
}

/// The keys that another key covers or is covered by.
fn nested(keys: &[(Prefix, Option<IdentityId>)]) -> HashSet<Prefix> {
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

impl Carriers {
    pub(super) fn assign(
        case: &Case<'_>,
        classes: &mut Classes<'_>,
        moves: &Moves,
        fresh: &mut impl FnMut() -> IdentityId,
    ) -> Self {
        let differences = case.differences;
        let mut carriers = Carriers {
            ways: Vec::new(),
            passing: HashMap::default(),
            parents: HashMap::default(),
            heirs: HashMap::default(),
            passers: differences
                .fresh
                .union(&differences.dead)
                .copied()
                .collect(),
        };
        let nested = nested(&differences.addresses);
        // Of each pair, the way in a single write if there is one, and its number once it is carried.
        let mut pairs: HashMap<(IdentityId, IdentityId), (Option<Way>, Option<usize>)> =
            HashMap::default();
        let mut pinned: HashSet<IdentityId> = HashSet::default();
        let mut carried: Vec<((IdentityId, IdentityId), usize)> = Vec::new();
        // The way of each address, or the number of the pair that it is carried with.
        let mut ways: Vec<Result<Way, usize>> = Vec::with_capacity(differences.addresses.len());
        for (key, was) in &differences.addresses {
            let will = new_entry(case, *key);
            let pair = (
                view(case, *key, *was, |prefix| old_entry(case, prefix)),
                view(case, *key, will, |prefix| new_entry(case, prefix)),
            );
            if pair.0 == pair.1 {
                ways.push(Ok(Way::By(pair.0)));
                continue;
            }
            let (way, number) = pairs
                .entry(pair)
                .or_insert_with(|| (straight(case, classes, moves, pair.0, pair.1), None));
            match way {
                Some(way) if !nested.contains(key) => {
                    ways.push(Ok(*way));
                    pinned.extend([pair.0, pair.1]);
                }
                _ => {
                    let number = *number.get_or_insert_with(|| {
                        carried.push((pair, carried.len()));
                        carried.len() - 1
                    });
                    ways.push(Err(number));
                }
            }
        }
        let mut by = alloc::vec![IdentityId::NOBODY; carried.len()];
        carried.sort_unstable();
        for ((from, to), number) in carried {
            by[number] = carriers.carrier(case, classes, &pinned, from, to, fresh);
        }
        let ways = ways.into_iter();
        carriers.ways = ways
            .map(|way| way.unwrap_or_else(|number| Way::By(by[number])))
            .collect();
        carriers
    }

    fn carrier(
        &mut self,
        case: &Case<'_>,
        classes: &mut Classes<'_>,
        pinned: &HashSet<IdentityId>,
        from: IdentityId,
        to: IdentityId,
        fresh: &mut impl FnMut() -> IdentityId,
    ) -> IdentityId {
        let begins = case.differences.fresh.contains(&to);
        let ends = case.differences.dead.contains(&from);
        let was = if begins {
            self.parents.get(&to).copied()
        } else {
            Some(to)
        };
        match was {
            Some(was) if agree(case, case.old, classes, was, from) => return to,
            None if !pinned.contains(&to) => {
                self.parents.insert(to, from);
                return to;
            }
            _ => {}
        }
        let will = if ends {
            self.heirs.get(&from).copied()
        } else {
            Some(from)
        };
        match will {
            Some(will) if agree(case, case.new, classes, will, to) => return from,
            None if !pinned.contains(&from) => {
                self.heirs.insert(from, to);
                return from;
            }
            _ => {}
        }
        let passing = fresh();
        self.passing.insert(passing, (from, to));
        self.passers.insert(passing);
        passing
    }

    /// The class that an identity has in a set of the old tables when the split is done.
    pub(super) fn start(&self, case: &Case<'_>, set: SetId, identity: IdentityId) -> ClassId {
        if let Some((from, _)) = self.passing.get(&identity) {
            return class(case.old, set, *from);
        }
        if case.differences.fresh.contains(&identity) {
            return match self.parents.get(&identity) {
                Some(parent) => class(case.old, set, *parent),
                None if case.new.sets.contains_key(&set) => class(case.new, set, identity),
                None => class(case.old, set, IdentityId::NOBODY),
            };
        }
        class(case.old, set, identity)
    }

    /// The class that an identity has in a set of the new tables when the merge begins.
    pub(super) fn end(&self, case: &Case<'_>, set: SetId, identity: IdentityId) -> ClassId {
        if let Some((_, to)) = self.passing.get(&identity) {
            return class(case.new, set, *to);
        }
        if case.differences.dead.contains(&identity) {
            return match self.heirs.get(&identity) {
                Some(heir) => class(case.new, set, *heir),
                None if case.old.sets.contains_key(&set) => class(case.old, set, identity),
                None => class(case.new, set, IdentityId::NOBODY),
            };
        }
        class(case.new, set, identity)
    }

    /// Whether any address has this identity while classes change; of the others it does not matter
    /// what they mean to a point that moves.
    pub(super) fn carries(&self, case: &Case<'_>, identity: IdentityId) -> bool {
        let differences = case.differences;
        let begun = self.parents.contains_key(&identity) || !differences.fresh.contains(&identity);
        let lasts = self.heirs.contains_key(&identity) || !differences.dead.contains(&identity);
        begun && lasts
    }

    /// Writes the moves of addresses.
    pub(super) fn write(&self, case: &Case<'_>, script: &mut Script) {
        for ((key, was), way) in case.differences.addresses.iter().zip(&self.ways) {
            let was = *was;
            let will = new_entry(case, *key);
            let last = Change::Address(*key, will);
            match way {
                Way::AtTighten => script.tighten.push(last),
                Way::AtLoosen => script.loosen.push(last),
                Way::By(carrier) => {
                    if was != Some(*carrier) {
                        script.split.push(Change::Address(*key, Some(*carrier)));
                    }
                    if will != Some(*carrier) {
                        script.merge.push(last);
                    }
                }
            }
        }
    }
}

/// Whether two identities get the same verdicts in every set.
fn agree(
    case: &Case<'_>,
    tables: &Tables,
    classes: &mut Classes<'_>,
    a: IdentityId,
    b: IdentityId,
) -> bool {
    let mut telling = case.telling(a, b).into_iter();
    telling.all(|set| {
        let (a, b) = (class(tables, set, a), class(tables, set, b));
        classes.relation(a, b).is_same()
    })
}

/// How an address can go from one identity to the other in a single write, if it can: what both mean
/// stays as it is, verdicts change in one direction only, and nobody who looks at it moves in a way
/// that matters.
fn straight(
    case: &Case<'_>,
    classes: &mut Classes<'_>,
    moves: &Moves,
    from: IdentityId,
    to: IdentityId,
) -> Option<Way> {
    let differences = case.differences;
    let begins = differences.fresh.contains(&to);
    let ends = differences.dead.contains(&from);
    if case.defaults_change {
        return None;
    }
    let stable = |identity: IdentityId, passes: bool| passes || !case.unstable.contains(&identity);
    if !stable(from, ends) || !stable(to, begins) {
        return None;
    }
    let mut all = Relation::SAME;
    for set in case.telling(from, to) {
        if !case.survives(set) {
            continue;
        }
        let relation = classes.relation(class(case.old, set, from), class(case.new, set, to));
        all = all.and(relation);
        if all.tightens && all.loosens {
            return None;
        }
    }
    for (source, target) in moves.kinds() {
        let matters = match (source, target) {
            (Side::Denied, _) | (Side::Open, Side::Open | Side::Denied) => false,
            (Side::Set(set), Side::Denied) => {
                all.tightens
                    && (begins
                        || classes
                            .relation(class(case.old, *set, from), class(case.old, *set, to))
                            .loosens)
            }
            (source, target) => {
                let differs = |classes: &mut Classes<'_>, tables: &Tables, side: &Side| match side {
                    Side::Set(set) => {
                        let (a, b) = (class(tables, *set, from), class(tables, *set, to));
                        !classes.relation(a, b).is_same()
                    }
                    _ => false,
                };
                begins
                    || ends
                    || differs(classes, case.old, source)
                    || differs(classes, case.new, target)
            }
        };
        if matters {
            return None;
        }
    }
    match all {
        Relation::SAME => None,
        _ if all.tightens => Some(Way::AtTighten),
        _ => Some(Way::AtLoosen),
    }
}
