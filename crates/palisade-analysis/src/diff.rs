//! The connections that a change opens and closes.

use crate::connections::{
    Connection, ConnectionFilter, ConnectionFilterError, ConnectionRows, ResolvedFilter,
    ValueRenderer, merge_families,
};
use crate::equivalence::{EquivalenceClasses, LayerTraffic};
use crate::named_ends::NamedEnds;
use crate::pair_evaluator::{TrafficSetId, TrafficSetInterner};
use crate::reachability::{Reachability, ReportUnit};
use crate::state_view::StateView;
use crate::traffic::TrafficSet;
use palisade_api::{DiffReport, WorkloadRef};
use palisade_model::Family;
use std::collections::BTreeMap;
use std::rc::Rc;

/// The difference between the connections of two states.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConnectionDiff {
    /// Connections that only the new state allows, ordered like [`crate::connections`].
    pub opened: Vec<Connection>,
    /// Connections that only the old state allows.
    pub closed: Vec<Connection>,
    /// Workloads that only the new state has. Their connections are in `opened`.
    pub appeared: Vec<WorkloadRef>,
    /// Workloads that only the old state has. Their connections are in `closed`.
    pub vanished: Vec<WorkloadRef>,
}

impl ConnectionDiff {
    /// Whether there is no difference.
    pub fn is_empty(&self) -> bool {
        *self == ConnectionDiff::default()
    }

    /// The difference for output; `members`: with all members of groups.
    pub fn report(&self, members: bool) -> DiffReport {
        let reports = |list: &[Connection]| list.iter().map(|row| row.report(members)).collect();
        DiffReport {
            api_version: palisade_api::api_version(),
            opened: reports(&self.opened),
            closed: reports(&self.closed),
            appeared: self.appeared.clone(),
            vanished: self.vanished.clone(),
            hosts_opened: Vec::new(),
            hosts_closed: Vec::new(),
            forwarded_opened: Vec::new(),
            forwarded_closed: Vec::new(),
            lockouts: Vec::new(),
            record: None,
        }
    }
}

/// What a change from `old` to `new` opens and closes, as exact as [`crate::connections`].
///
/// Pods of one owner are listed separately if they differ in either state. The outside is every address
/// that is outside in both states: changes of an address that a workload gains or loses are listed
/// under that workload.
pub fn diff<'a>(old: impl Into<StateView<'a>>, new: impl Into<StateView<'a>>) -> ConnectionDiff {
    // A filter without names cannot name anything that does not exist.
    filtered_diff(old, new, &ConnectionFilter::default()).unwrap_or_default()
}

/// Those of [`diff`] that a filter selects.
///
/// # Errors
/// If a name in the filter does not exist.
pub fn filtered_diff<'a>(
    old: impl Into<StateView<'a>>,
    new: impl Into<StateView<'a>>,
    scope: &ConnectionFilter,
) -> Result<ConnectionDiff, ConnectionFilterError> {
    let sets = Rc::new(TrafficSetInterner::new());
    let (names, views) = NamedEnds::with_reachability([old.into(), new.into()], &sets);
    let change = StatePair::new(views);
    let views = [&change.views[0], &change.views[1]];
    let wanted = ResolvedFilter::resolve(scope, &views)?;
    let kinds = EquivalenceClasses::new(&views, &change.units, &sets);
    let rows = ConnectionRows::build(&kinds, &names, &|value| differs(value));
    let workload_addresses = Family::BOTH.map(|f| {
        views[0].workload_addresses[f as usize].union(&views[1].workload_addresses[f as usize])
    });
    let [opened, closed] = [true, false].map(|opened| {
        let render = |value: &LayerTraffic, pair: bool| render_change(value, pair, opened, &sets);
        let mut listed = rows.list_pairs(&workload_addresses, &render);
        listed.retain(|connection| wanted.selects(connection));
        listed
    });
    Ok(change.diff(opened, closed))
}

/// Like [`diff`], in as few rows as possible; see [`crate::grouped_connections`].
///
/// # Errors
/// If a name in the filter does not exist.
pub fn grouped_diff<'a>(
    old: impl Into<StateView<'a>>,
    new: impl Into<StateView<'a>>,
    scope: &ConnectionFilter,
) -> Result<ConnectionDiff, ConnectionFilterError> {
    let sets = Rc::new(TrafficSetInterner::new());
    let (names, views) = NamedEnds::with_reachability([old.into(), new.into()], &sets);
    let change = StatePair::new(views);
    let views = [&change.views[0], &change.views[1]];
    let wanted = ResolvedFilter::resolve(scope, &views)?;
    let kinds = EquivalenceClasses::new(&views, &change.units, &sets);
    let rows = ConnectionRows::build(&kinds, &names, &|value| differs(value));
    let [opened, closed] = [true, false].map(|opened| {
        let render = |value: &LayerTraffic, pair: bool| render_change(value, pair, opened, &sets);
        let render: &ValueRenderer<'_> = &render;
        rows.list_groups(&wanted, render)
    });
    Ok(change.diff(opened, closed))
}

/// The old and the new state.
struct StatePair {
    views: [Reachability; 2],
    units: [BTreeMap<WorkloadRef, ReportUnit>; 2],
}

impl StatePair {
    fn new(views: [Reachability; 2]) -> Self {
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

/// Whether the old and the new state allow different traffic.
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

/// The opened or closed traffic by family; `None` for a family that neither state has.
fn render_change(
    value: &LayerTraffic,
    is_pair: bool,
    opened: bool,
    sets: &TrafficSetInterner,
) -> Vec<(Option<Family>, Rc<TrafficSet>)> {
    let only = |family: usize| -> Option<TrafficSetId> {
        let [old, new] = [family, family + 2].map(|at| value.get(at).copied().flatten());
        let (listed, excluded) = if opened { (new, old) } else { (old, new) };
        listed.or(excluded)?;
        let [listed, excluded] =
            [listed, excluded].map(|set| set.unwrap_or(TrafficSetInterner::NONE));
        Some(sets.subtract(listed, excluded))
    };
    let [v4, v6] = [only(0), only(1)];
    if is_pair {
        merge_families([v4, v6], sets)
    } else {
        // An outside end has one family.
        merge_families([v4.or(v6), None], sets)
    }
}
