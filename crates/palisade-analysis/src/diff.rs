//! What a change opens and closes.

use crate::connections::{Connection, Rows, Said, Scope, ScopeError, Wanted, by_family};
use crate::judge::{SetId, Sets};
use crate::kinds::{Kinds, Value};
use crate::traffic::TrafficSet;
use crate::view::{Unit, View};
use crate::workload::Workload;
use palisade_model::{Family, State};
use serde::Serialize;
use std::collections::BTreeMap;
use std::rc::Rc;

/// What differs between two states.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Diff {
    /// What only the new state allows, ordered like connections.
    pub opened: Vec<Connection>,
    /// What only the old state allows.
    pub closed: Vec<Connection>,
    /// Workloads that only the new state has. What they may do is in `opened`.
    pub appeared: Vec<Workload>,
    /// Workloads that only the old state has. What they could do is in `closed`.
    pub vanished: Vec<Workload>,
}

impl Diff {
    /// Whether nothing differs.
    pub fn is_empty(&self) -> bool {
        *self == Diff::default()
    }
}

/// What a change from `old` to `new` opens and closes, as exactly as [`crate::connections`].
///
/// Pods are told apart if they differ in either state. The outside is every address that is outside
/// in both: what becomes of an address that a workload takes or leaves is said under that workload.
pub fn diff(old: &State, new: &State) -> Diff {
    let sets = Rc::new(Sets::new());
    let change = Change::new(old, new, &sets);
    let views = [&change.views[0], &change.views[1]];
    let kinds = Kinds::new(&views, &change.units, &sets);
    let rows = Rows::of(&kinds, &|value| differs(value));
    let held = Family::BOTH.map(|f| views[0].held[f as usize].or(&views[1].held[f as usize]));
    let [opened, closed] = [true, false].map(|opened| {
        let said = |value: &Value, pair: bool| said(value, pair, opened, &sets);
        rows.one_by_one(&held, &said)
    });
    change.diff(opened, closed)
}

/// The same in as few rows as can be; see [`crate::grouped_connections`].
///
/// # Errors
/// If nothing goes by a name of the scope.
pub fn grouped_diff(old: &State, new: &State, scope: &Scope) -> Result<Diff, ScopeError> {
    let sets = Rc::new(Sets::new());
    let change = Change::new(old, new, &sets);
    let views = [&change.views[0], &change.views[1]];
    let wanted = Wanted::of(scope, &views)?;
    let kinds = Kinds::new(&views, &change.units, &sets);
    let rows = Rows::of(&kinds, &|value| differs(value));
    let [opened, closed] = [true, false].map(|opened| {
        let said = |value: &Value, pair: bool| said(value, pair, opened, &sets);
        let said: &Said<'_> = &said;
        rows.grouped(&wanted, said)
    });
    Ok(change.diff(opened, closed))
}

/// Both sides of a change.
struct Change {
    views: [View; 2],
    units: [BTreeMap<Workload, Unit>; 2],
}

impl Change {
    fn new(old: &State, new: &State, sets: &Rc<Sets>) -> Self {
        let views = [View::new(old, sets), View::new(new, sets)];
        let apart = views[0].differing().or(views[1].differing());
        let units = [views[0].units(&apart), views[1].units(&apart)];
        Change { views, units }
    }

    fn diff(&self, opened: Vec<Connection>, closed: Vec<Connection>) -> Diff {
        let only_in = |a: usize, b: usize| {
            let names = self.units[a].keys();
            let names = names.filter(|name| !self.units[b].contains_key(*name));
            names.cloned().collect()
        };
        Diff {
            opened,
            closed,
            appeared: only_in(1, 0),
            vanished: only_in(0, 1),
        }
    }
}

/// Whether the old state and the new one allow other things.
fn differs(value: &Value) -> bool {
    let set = |at: usize| value.get(at).copied().flatten().unwrap_or(Sets::NONE);
    set(0) != set(2) || set(1) != set(3)
}

/// What is opened, or closed, by family; one that neither state has is none.
fn said(
    value: &Value,
    is_pair: bool,
    opened: bool,
    sets: &Sets,
) -> Vec<(Option<Family>, Rc<TrafficSet>)> {
    let only = |family: usize| -> Option<SetId> {
        let [old, new] = [family, family + 2].map(|at| value.get(at).copied().flatten());
        let (here, there) = if opened { (new, old) } else { (old, new) };
        here.or(there)?;
        let [here, there] = [here, there].map(|set| set.unwrap_or(Sets::NONE));
        Some(sets.without(here, there))
    };
    let found = [only(0), only(1)];
    match is_pair {
        true => by_family(found, sets),
        // What is outside is of one family.
        false => by_family([found[0].or(found[1]), None], sets),
    }
}
