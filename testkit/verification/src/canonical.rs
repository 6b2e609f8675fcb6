//! Tables independent of numbering, for comparison.

use palisade_model::{Prefix, Str};
use palisade_tables::{Point, Program, RuleId, Tables, VerdictCause};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The content of tables up to the numbering of identities, sets, classes and rules. Two tables with
/// the same canonical form give every packet the same verdict and cause, have the same entries, and
/// group addresses and points alike.
///
/// Identities are replaced by their prefixes, sets by their points, rules by the index of their cause
/// in the sorted list of causes, and classes by their programs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CanonicalTables {
    /// Whether policy applies to packets from an endpoint to itself.
    pub judge_hairpin: bool,
    /// The managed interfaces.
    pub interfaces: BTreeSet<Str>,
    /// The interfaces of the host with points of their own.
    pub host_interfaces: BTreeSet<Str>,
    /// The groups of prefixes that share an identity.
    pub identities: BTreeSet<Vec<Prefix>>,
    /// The groups of points that share a set, with that set.
    pub sets: BTreeMap<Vec<Point>, CanonicalPolicySet>,
    /// The number of classes.
    pub classes: usize,
    /// The causes in use, sorted.
    pub causes: Vec<Arc<VerdictCause>>,
}

/// One policy set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CanonicalPolicySet {
    /// The program of every identity without an entry; `None` where the set or its program is missing.
    pub default: Option<Program>,
    /// The program of each group of prefixes that has an entry.
    pub classes: BTreeMap<Vec<Prefix>, Option<Program>>,
}

/// The canonical form of these tables.
#[must_use]
pub fn canonical(tables: &Tables) -> CanonicalTables {
    let mut causes: Vec<Arc<VerdictCause>> = tables.rules.values().cloned().collect();
    causes.sort();
    let ranks: BTreeMap<RuleId, RuleId> = tables
        .rules
        .iter()
        .filter_map(|(id, cause)| {
            let rank = causes.binary_search(cause).ok()?;
            Some((*id, RuleId(u32::try_from(rank).ok()?)))
        })
        .collect();
    let mut members: BTreeMap<_, Vec<Prefix>> = BTreeMap::new();
    for (prefix, identity) in tables.addresses.iter() {
        members.entry(*identity).or_default().push(prefix);
    }
    let mut points: BTreeMap<_, Vec<Point>> =
        tables.sets.keys().map(|id| (*id, Vec::new())).collect();
    for (point, set) in &tables.points {
        points.entry(*set).or_default().push(point.clone());
    }
    let program = |class| {
        let program: Option<&Arc<Program>> = tables.programs.get(&class);
        program
            .map(|p| p.renumber_rules(|rule| ranks.get(&rule).copied().unwrap_or(RuleId(u32::MAX))))
    };
    let mut sets: BTreeMap<_, _> = points
        .iter()
        .map(|(id, points)| {
            let default = tables.sets.get(id).and_then(|set| program(set.default));
            (
                points.clone(),
                CanonicalPolicySet {
                    default,
                    classes: BTreeMap::new(),
                },
            )
        })
        .collect();
    for ((set, identity), class) in &tables.classes {
        let set_points = points.get(set).cloned().unwrap_or_default();
        let prefixes = members.get(identity).cloned().unwrap_or_default();
        sets.entry(set_points)
            .or_default()
            .classes
            .insert(prefixes, program(*class));
    }
    CanonicalTables {
        judge_hairpin: tables.judgement.judge_hairpin,
        interfaces: tables.interfaces.clone(),
        host_interfaces: tables.host_interfaces.clone(),
        identities: members.into_values().collect(),
        sets,
        classes: tables.programs.len(),
        causes,
    }
}
