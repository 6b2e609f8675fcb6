//! How points get from one policy set to another.
//!
//! Directly, where verdicts change in one direction only and the sets stand still meanwhile; through
//! a set of intersections made for the passage otherwise.

use super::carriers::Carriers;
use super::classes::{Classes, Relation};
use super::trajectories::listed;
use super::{Case, Script, class};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use palisade_tables::{Change, ClassId, IdentityId, Point, PolicySet, SetId, Tables};

/// What judges a point.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Side {
    /// Nothing: its interface is not ours.
    Open,
    /// Nothing, and its interface is ours: all is denied.
    Denied,
    /// A policy set.
    Set(SetId),
}

/// The points that change what judges them.
pub(super) struct Moves {
    kinds: BTreeMap<(Side, Side), Vec<Point>>,
}

impl Moves {
    /// The distinct moves.
    pub(super) fn kinds(&self) -> impl Iterator<Item = (&Side, &Side)> {
        self.kinds.keys().map(|(source, target)| (source, target))
    }
}

fn side(tables: &Tables, point: &Point) -> Side {
    if !tables.interfaces.contains(&point.interface) {
        return Side::Open;
    }
    match tables.points.get(point) {
        Some(set) => Side::Set(*set),
        None => Side::Denied,
    }
}

/// The points that move, by where from and where to.
pub(super) fn moves(case: &Case<'_>) -> Moves {
    let mut kinds: BTreeMap<(Side, Side), Vec<Point>> = BTreeMap::new();
    for point in &case.differences.points {
        let kind = (side(case.old, point), side(case.new, point));
        kinds.entry(kind).or_default().push(point.clone());
    }
    Moves { kinds }
}

/// Writes the moves. Returns whether those that leave a set must have left before classes change.
pub(super) fn write(
    case: &Case<'_>,
    classes: &mut Classes<'_>,
    carriers: &Carriers,
    moves: &Moves,
    changing: &BTreeSet<SetId>,
    fresh: &mut impl FnMut() -> SetId,
    script: &mut Script,
) -> bool {
    let mut apart = false;
    for ((source, target), points) in &moves.kinds {
        let put = |changes: &mut Vec<Change>, set: Option<SetId>| {
            changes.extend(points.iter().map(|p| Change::Point(p.clone(), set)));
        };
        let still = |side: &Side| !matches!(side, Side::Set(set) if changing.contains(set));
        let relation = relation(case, classes, carriers, *source, *target);
        match (*source, *target) {
            (Side::Denied, Side::Set(to)) => put(&mut script.loosen, Some(to)),
            (Side::Set(_), Side::Denied) => put(&mut script.leave, None),
            (Side::Open, Side::Set(to)) if still(target) => put(&mut script.split, Some(to)),
            (Side::Set(_), Side::Open) if still(source) => put(&mut script.delete, None),
            (Side::Set(_), Side::Set(to)) if !relation.tightens && still(source) => {
                put(&mut script.loosen, Some(to));
            }
            (Side::Set(_), Side::Set(to)) if !relation.loosens && still(target) => {
                put(&mut script.leave, Some(to));
                apart |= !still(source);
            }
            (Side::Open | Side::Denied, Side::Open | Side::Denied) => {}
            (source, target) => {
                let passage = fresh();
                between(case, classes, carriers, source, target, passage, script);
                match source {
                    Side::Set(_) => {
                        put(&mut script.leave, Some(passage));
                        apart |= !still(&source);
                    }
                    _ => put(&mut script.split, Some(passage)),
                }
                match target {
                    Side::Set(to) => put(&mut script.loosen, Some(to)),
                    _ => put(&mut script.delete, None),
                }
            }
        }
    }
    apart
}

/// The identities that either side may tell apart from nobody.
fn concerned(
    case: &Case<'_>,
    carriers: &Carriers,
    source: Side,
    target: Side,
) -> BTreeSet<IdentityId> {
    let mut identities = carriers.passers.clone();
    if let Side::Set(set) = source {
        identities.extend(listed(case.old, set));
    }
    if let Side::Set(set) = target {
        identities.extend(listed(case.new, set));
    }
    identities.insert(IdentityId::NOBODY);
    identities.retain(|identity| carriers.carries(case, *identity));
    identities
}

/// What a move from one set to another does to verdicts.
fn relation(
    case: &Case<'_>,
    classes: &mut Classes<'_>,
    carriers: &Carriers,
    source: Side,
    target: Side,
) -> Relation {
    let (Side::Set(from), Side::Set(to)) = (source, target) else {
        return Relation::SAME;
    };
    let mut all = Relation::SAME;
    for identity in concerned(case, carriers, source, target) {
        let first = carriers.start(case, from, identity);
        let last = carriers.end(case, to, identity);
        all = all.and(classes.relation(first, last));
    }
    all
}

/// Writes a set that allows what both sides allow, for the time between.
fn between(
    case: &Case<'_>,
    classes: &mut Classes<'_>,
    carriers: &Carriers,
    source: Side,
    target: Side,
    passage: SetId,
    script: &mut Script,
) {
    let mut meet = |identity: IdentityId| -> ClassId {
        match (source, target) {
            (Side::Set(from), Side::Set(to)) => {
                let first = carriers.start(case, from, identity);
                let last = carriers.end(case, to, identity);
                classes.meet(first, last)
            }
            (Side::Set(from), _) => carriers.start(case, from, identity),
            (_, Side::Set(to)) => carriers.end(case, to, identity),
            _ => class(case.new, passage, identity),
        }
    };
    let default = meet(IdentityId::NOBODY);
    script
        .split
        .push(Change::Set(passage, Some(PolicySet { default })));
    for identity in concerned(case, carriers, source, target) {
        let between = meet(identity);
        if between != default {
            let entry = Change::Class(passage, identity, Some(between));
            script.split.push(entry);
            script.delete.push(Change::Class(passage, identity, None));
        }
    }
    script.delete.push(Change::Set(passage, None));
}
