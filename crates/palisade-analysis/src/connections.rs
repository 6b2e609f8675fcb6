//! Every connection that a state allows.

use crate::region::Region;
use crate::traffic::TrafficSet;
use crate::view::{Unit, View, Way};
use crate::workload::Workload;
use palisade_model::{Family, Prefix, State};
use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};
use std::collections::BTreeMap;
use std::fmt;
use std::rc::Rc;

/// One end of a connection.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Party {
    /// A workload.
    Workload(Workload),
    /// Addresses that no workload holds.
    Outside(Prefix),
}

impl Serialize for Party {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Party::Workload(workload) => workload.serialize(serializer),
            Party::Outside(cidr) => {
                let mut map = serializer.serialize_map(Some(1))?;
                map.serialize_entry("cidr", cidr)?;
                map.end()
            }
        }
    }
}

impl fmt::Display for Party {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Party::Workload(workload) => workload.fmt(f),
            Party::Outside(cidr) => write!(f, "outside {cidr}"),
        }
    }
}

/// What one party may send another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Connection {
    /// Who opens it.
    pub src: Party,
    /// To whom.
    pub dst: Party,
    /// The family, where the two families differ. Prefixes have their own.
    #[serde(
        skip_serializing_if = "Option::is_none",
        serialize_with = "family_name"
    )]
    pub family: Option<Family>,
    /// What of it; never empty.
    pub connections: Rc<TrafficSet>,
}

fn family_name<S: Serializer>(family: &Option<Family>, serializer: S) -> Result<S::Ok, S::Error> {
    match family {
        Some(family) => serializer.collect_str(family),
        None => serializer.serialize_none(),
    }
}

/// Every connection that a state allows between workloads and to and from the outside, exactly,
/// ordered by source, destination, family.
pub fn connections(state: &State) -> Vec<Connection> {
    let view = View::new(state);
    let units = view.units(&view.differing());
    let mut found = Vec::new();
    for (source, from) in &units {
        for (destination, to) in &units {
            if source == destination || from.same_pod(to) {
                continue;
            }
            let sets = Family::BOTH.map(|family| view.between(family, from, to));
            push_families(source, destination, sets, &mut found);
        }
        for way in [Way::Out, Way::In] {
            outside(&view, source, from, way, &mut found);
        }
    }
    found.sort_by(|a, b| (&a.src, &a.dst, a.family).cmp(&(&b.src, &b.dst, b.family)));
    found
}

/// One connection where the families that both ends have agree, otherwise one for each.
pub(crate) fn push_families(
    source: &Workload,
    destination: &Workload,
    sets: [Option<Rc<TrafficSet>>; 2],
    found: &mut Vec<Connection>,
) {
    let mut push = |family, set: Rc<TrafficSet>| {
        if !set.is_empty() {
            found.push(Connection {
                src: Party::Workload(source.clone()),
                dst: Party::Workload(destination.clone()),
                family,
                connections: set,
            });
        }
    };
    match sets {
        [Some(v4), Some(v6)] if v4 == v6 => push(None, v4),
        [Some(v4), Some(v6)] => {
            push(Some(Family::V4), v4);
            push(Some(Family::V6), v6);
        }
        [one, other] => {
            if let Some(set) = one.or(other) {
                push(None, set);
            }
        }
    }
}

fn outside(view: &View<'_>, name: &Workload, unit: &Unit, way: Way, found: &mut Vec<Connection>) {
    for family in Family::BOTH {
        let parts = view.with_outside(family, unit, way);
        for (set, region) in joined(family, parts) {
            push_outside(name, way, &region, &set, found);
        }
    }
}

/// Joins the parts of the outside that agree.
pub(crate) fn joined<T: Ord>(
    family: Family,
    parts: impl IntoIterator<Item = (Region, T)>,
) -> BTreeMap<T, Region> {
    let mut ranges: BTreeMap<T, Vec<(u128, u128)>> = BTreeMap::new();
    for (region, what) in parts {
        ranges.entry(what).or_default().extend(region.ranges());
    }
    let joined = ranges.into_iter();
    joined
        .map(|(what, ranges)| (what, Region::of_ranges(family, ranges)))
        .collect()
}

pub(crate) fn push_outside(
    name: &Workload,
    way: Way,
    region: &Region,
    set: &Rc<TrafficSet>,
    found: &mut Vec<Connection>,
) {
    if set.is_empty() {
        return;
    }
    for prefix in region.prefixes() {
        let workload = Party::Workload(name.clone());
        let (src, dst) = match way {
            Way::Out => (workload, Party::Outside(prefix)),
            Way::In => (Party::Outside(prefix), workload),
        };
        found.push(Connection {
            src,
            dst,
            family: None,
            connections: set.clone(),
        });
    }
}
