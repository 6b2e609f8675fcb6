//! What a change opens and closes.

use crate::connections::{Connection, joined, push_families, push_outside};
use crate::region::Region;
use crate::traffic::TrafficSet;
use crate::view::{Unit, View, Way};
use crate::workload::Workload;
use palisade_model::{Family, State};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
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
    let views = [View::new(old), View::new(new)];
    let apart = views[0].differing().or(views[1].differing());
    let units = [views[0].units(&apart), views[1].units(&apart)];
    let names: BTreeSet<&Workload> = units.iter().flat_map(BTreeMap::keys).collect();
    let sides = Sides {
        views: &views,
        units: &units,
        outside: Family::BOTH.map(|f| views[0].outside(f).and(&views[1].outside(f))),
    };
    let mut diff = Diff::default();
    for source in &names {
        for destination in names.iter().filter(|name| *name != source) {
            sides.pair(source, destination, &mut diff);
        }
        for way in [Way::Out, Way::In] {
            for family in Family::BOTH {
                sides.with_outside(source, family, way, &mut diff);
            }
        }
    }
    let only_in = |a: usize, b: usize| {
        let names = units[a].keys().filter(|name| !units[b].contains_key(*name));
        names.cloned().collect()
    };
    diff.vanished = only_in(0, 1);
    diff.appeared = only_in(1, 0);
    for list in [&mut diff.opened, &mut diff.closed] {
        list.sort_by(|a, b| (&a.src, &a.dst, a.family).cmp(&(&b.src, &b.dst, b.family)));
    }
    diff
}

struct Sides<'s, 'a> {
    views: &'s [View<'a>; 2],
    units: &'s [BTreeMap<Workload, Unit>; 2],
    /// What is outside in both, by family.
    outside: [Region; 2],
}

impl Sides<'_, '_> {
    fn pair(&self, source: &Workload, destination: &Workload, diff: &mut Diff) {
        let [before, after] = [0, 1].map(|side| {
            let units = &self.units[side];
            let ends = (units.get(source), units.get(destination));
            Family::BOTH.map(|family| match ends {
                (Some(from), Some(to)) if !from.same_pod(to) => {
                    self.views[side].between(family, from, to)
                }
                _ => None,
            })
        });
        let only = |here: &[Option<Rc<TrafficSet>>; 2], there: &[Option<Rc<TrafficSet>>; 2]| {
            [0, 1].map(|family| match (&here[family], &there[family]) {
                (Some(here), there) => Some(without(here, there.as_ref())),
                (None, Some(_)) => Some(Rc::default()),
                (None, None) => None,
            })
        };
        push_families(source, destination, only(&after, &before), &mut diff.opened);
        push_families(source, destination, only(&before, &after), &mut diff.closed);
    }

    fn with_outside(&self, name: &Workload, family: Family, way: Way, diff: &mut Diff) {
        let shared = &self.outside[family as usize];
        let [before, after] = [0, 1].map(|side| {
            let unit = self.units[side].get(name);
            let parts = unit.map(|u| self.views[side].with_outside(family, u, way));
            parts.unwrap_or_default()
        });
        let before = joined(family, covering(before, shared));
        let after = joined(family, covering(after, shared));
        let mut opened = Vec::new();
        let mut closed = Vec::new();
        for (old, old_region) in &before {
            for (new, new_region) in after.iter().filter(|(new, _)| *new != old) {
                let region = old_region.and(new_region).and(shared);
                if region.is_empty() {
                    continue;
                }
                opened.push((region.clone(), without(new, Some(old))));
                closed.push((region, without(old, Some(new))));
            }
        }
        for (parts, found) in [(opened, &mut diff.opened), (closed, &mut diff.closed)] {
            for (set, region) in joined(family, parts) {
                push_outside(name, way, &region, &set, found);
            }
        }
    }
}

/// These parts; where there are none, the whole with nothing allowed.
fn covering(parts: Vec<(Region, Rc<TrafficSet>)>, whole: &Region) -> Vec<(Region, Rc<TrafficSet>)> {
    if parts.is_empty() {
        vec![(whole.clone(), Rc::default())]
    } else {
        parts
    }
}

fn without(here: &Rc<TrafficSet>, there: Option<&Rc<TrafficSet>>) -> Rc<TrafficSet> {
    there.map_or_else(|| here.clone(), |there| Rc::new(here.without(there)))
}
