//! What a change opens and closes.

use crate::connections::{
    Connection, ConnectionFilter, ConnectionFilterError, ConnectionRows, ResolvedFilter,
    ValueRenderer, merge_families,
};
use crate::equivalence::{EquivalenceClasses, LayerTraffic};
use crate::pair_evaluator::{TrafficSetId, TrafficSetInterner};
use crate::reachability::{Reachability, ReportUnit};
use crate::traffic::TrafficSet;
use crate::workload::WorkloadRef;
use palisade_model::{Family, State};
use serde::Serialize;
use std::collections::BTreeMap;
use std::rc::Rc;

/// What differs between two states.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ConnectionDiff {
    /// What only the new state allows, ordered like connections.
    pub opened: Vec<Connection>,
    /// What only the old state allows.
    pub closed: Vec<Connection>,
    /// Workloads that only the new state has. What they may do is in `opened`.
    pub appeared: Vec<WorkloadRef>,
    /// Workloads that only the old state has. What they could do is in `closed`.
    pub vanished: Vec<WorkloadRef>,
}

impl ConnectionDiff {
    /// Whether nothing differs.
    pub fn is_empty(&self) -> bool {
        *self == ConnectionDiff::default()
    }
}

/// What a change from `old` to `new` opens and closes, as exactly as [`crate::connections`].
///
/// Pods are told apart if they differ in either state. The outside is every address that is outside
/// in both: what becomes of an address that a workload takes or leaves is said under that workload.
pub fn diff(old: &State, new: &State) -> ConnectionDiff {
    let sets = Rc::new(TrafficSetInterner::new());
    let change = StatePair::new(old, new, &sets);
    let views = [&change.views[0], &change.views[1]];
    let kinds = EquivalenceClasses::new(&views, &change.units, &sets);
    let rows = ConnectionRows::build(&kinds, &|value| differs(value));
    let held = Family::BOTH.map(|f| {
        views[0].workload_addresses[f as usize].union(&views[1].workload_addresses[f as usize])
    });
    let [opened, closed] = [true, false].map(|opened| {
        let said = |value: &LayerTraffic, pair: bool| render_change(value, pair, opened, &sets);
        rows.list_pairs(&held, &said)
    });
    change.diff(opened, closed)
}

/// The same in as few rows as can be; see [`crate::grouped_connections`].
///
/// # Errors
/// If nothing goes by a name of the scope.
pub fn grouped_diff(
    old: &State,
    new: &State,
    scope: &ConnectionFilter,
) -> Result<ConnectionDiff, ConnectionFilterError> {
    let sets = Rc::new(TrafficSetInterner::new());
    let change = StatePair::new(old, new, &sets);
    let views = [&change.views[0], &change.views[1]];
    let wanted = ResolvedFilter::resolve(scope, &views)?;
    let kinds = EquivalenceClasses::new(&views, &change.units, &sets);
    let rows = ConnectionRows::build(&kinds, &|value| differs(value));
    let [opened, closed] = [true, false].map(|opened| {
        let said = |value: &LayerTraffic, pair: bool| render_change(value, pair, opened, &sets);
        let said: &ValueRenderer<'_> = &said;
        rows.list_groups(&wanted, said)
    });
    Ok(change.diff(opened, closed))
}

/// Both sides of a change.
struct StatePair {
    views: [Reachability; 2],
    units: [BTreeMap<WorkloadRef, ReportUnit>; 2],
}

impl StatePair {
    fn new(old: &State, new: &State, sets: &Rc<TrafficSetInterner>) -> Self {
        let views = [Reachability::new(old, sets), Reachability::new(new, sets)];
        let split = views[0]
            .find_split_workloads()
            .union(views[1].find_split_workloads());
        let units = [views[0].units(&split), views[1].units(&split)];
        StatePair { views, units }
    }

    fn diff(&self, opened: Vec<Connection>, closed: Vec<Connection>) -> ConnectionDiff {
        let only_in = |a: usize, b: usize| {
            let names = self.units[a].keys();
            let names = names.filter(|name| !self.units[b].contains_key(*name));
            names.cloned().collect()
        };
        ConnectionDiff {
            opened,
            closed,
            appeared: only_in(1, 0),
            vanished: only_in(0, 1),
        }
    }
}

/// Whether the old state and the new one allow other things.
fn differs(value: &LayerTraffic) -> bool {
    let set = |at: usize| {
        value
            .get(at)
            .copied()
            .flatten()
            .unwrap_or(TrafficSetInterner::NONE)
    };
    set(0) != set(2) || set(1) != set(3)
}

/// What is opened, or closed, by family; one that neither state has is none.
fn render_change(
    value: &LayerTraffic,
    is_pair: bool,
    opened: bool,
    sets: &TrafficSetInterner,
) -> Vec<(Option<Family>, Rc<TrafficSet>)> {
    let only = |family: usize| -> Option<TrafficSetId> {
        let [old, new] = [family, family + 2].map(|at| value.get(at).copied().flatten());
        let (here, there) = if opened { (new, old) } else { (old, new) };
        here.or(there)?;
        let [here, there] = [here, there].map(|set| set.unwrap_or(TrafficSetInterner::NONE));
        Some(sets.subtract(here, there))
    };
    let found = [only(0), only(1)];
    match is_pair {
        true => merge_families(found, sets),
        // What is outside is of one family.
        false => merge_families([found[0].or(found[1]), None], sets),
    }
}
