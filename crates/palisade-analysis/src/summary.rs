//! Connections in few rows, for people.
//!
//! A listing is exact: where workloads hold addresses in the middle of a network, what is outside of
//! them takes many prefixes. A reader knows that the rows of those workloads speak of them, so here
//! the parts of the outside that are treated alike are one row, in as few networks as can be, and such
//! holes are closed.

use crate::connections::{Connection, Party};
use crate::networks::networks;
use crate::region::{Region, number};
use crate::traffic::TrafficSet;
use palisade_model::{Family, Prefix, State};
use palisade_oracle::Prepared;
use std::collections::BTreeMap;
use std::rc::Rc;

/// One row: who, to whom, what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Who connects: a workload, or `outside` with its networks.
    pub from: String,
    /// To whom, likewise.
    pub to: String,
    /// The family, where the two families differ.
    pub family: Option<Family>,
    /// What of it.
    pub connections: Rc<TrafficSet>,
}

/// The rows of a listing over these states (one, or both that a diff compares). Workloads first, then
/// the outside.
pub fn summary(list: &[Connection], states: &[&State]) -> Vec<Row> {
    let held = Family::BOTH.map(|family| held(family, states));
    let mut rows = Vec::new();
    let mut outward: BTreeMap<_, Vec<Prefix>> = BTreeMap::new();
    let mut inward: BTreeMap<_, Vec<Prefix>> = BTreeMap::new();
    for connection in list {
        let set = connection.connections.clone();
        match (&connection.src, &connection.dst) {
            (Party::Workload(from), Party::Outside(to)) => {
                outward.entry((from, set)).or_default().push(*to);
            }
            (Party::Outside(from), Party::Workload(to)) => {
                inward.entry((to, set)).or_default().push(*from);
            }
            (from, to) => rows.push(Row {
                from: from.to_string(),
                to: to.to_string(),
                family: connection.family,
                connections: set,
            }),
        }
    }
    let row = |from: String, to: String, connections| Row {
        from,
        to,
        family: None,
        connections,
    };
    let outward = outward.into_iter();
    rows.extend(outward.map(|((w, set), nets)| row(w.to_string(), outside(&nets, &held), set)));
    let inward = inward.into_iter();
    rows.extend(inward.map(|((w, set), nets)| row(outside(&nets, &held), w.to_string(), set)));
    rows
}

/// Every address that a workload holds in one of the states.
fn held(family: Family, states: &[&State]) -> Region {
    let mut ranges = Vec::new();
    for state in states {
        let prepared = Prepared::new(state);
        let workloads = prepared.claims().iter().filter(|(_, e)| !e.host);
        let addresses = workloads.map(|(address, _)| *address);
        let of_family = addresses.filter(|address| Family::of(*address) == family);
        ranges.extend(of_family.map(|address| (number(address), number(address))));
    }
    Region::of_ranges(family, ranges)
}

fn outside(nets: &[Prefix], held: &[Region; 2]) -> String {
    let mut shown = Vec::new();
    for (family, held) in Family::BOTH.into_iter().zip(held) {
        let of_family = nets.iter().filter(|net| net.family() == family);
        let region = Region::of_ranges(family, of_family.map(|net| net.bounds()).collect());
        shown.extend(networks(family, &region, held));
    }
    match shown.as_slice() {
        [v4, v6] if v4 == "0.0.0.0/0" && v6 == "::/0" => "outside".to_owned(),
        _ => format!("outside {}", shown.join(", ")),
    }
}
