//! A whole state seen as workloads, the outside, and what is allowed between them.

use crate::ends::Ends;
use crate::judge::{Judge, Sets};
use crate::matrix::Matrix;
use crate::region::Region;
use crate::rules::{Rules, number};
use crate::workload::{Workload, groups};
use palisade_model::{Endpoint, Family, State};
use palisade_oracle::{End, Prepared};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::rc::Rc;

/// What is reported as one: its class in each family in which it exists.
#[derive(Clone, Debug)]
pub(crate) struct Unit {
    pub(crate) classes: [Option<u32>; 2],
    /// The pod, where only one of its addresses is meant.
    pub(crate) part_of: Option<Workload>,
}

/// An endpoint with the classes its addresses fall into.
struct Member {
    own_name: Workload,
    points: [Vec<(Option<IpAddr>, u32)>; 2],
}

/// All these together, which are alike.
fn whole(members: &[Member]) -> Unit {
    let class = |family: Family| {
        let mut points = members.iter().flat_map(|m| &m.points[family as usize]);
        points.next().map(|(_, class)| *class)
    };
    Unit {
        classes: Family::BOTH.map(class),
        part_of: None,
    }
}

impl Member {
    /// Each address apart.
    fn units(&self) -> impl Iterator<Item = (Workload, Unit)> + '_ {
        let points = Family::BOTH.into_iter().flat_map(|family| {
            let points = self.points[family as usize].iter();
            points.map(move |point| (family, *point))
        });
        points.map(|(family, (address, class))| {
            let name = Workload {
                address,
                ..self.own_name.clone()
            };
            let mut classes = [None, None];
            classes[family as usize] = Some(class);
            let part_of = Some(self.own_name.clone());
            (name, Unit { classes, part_of })
        })
    }
}

/// What is not reported as one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Apart {
    /// Owners whose pods differ.
    owners: BTreeSet<Workload>,
    /// Pods whose addresses of one family differ.
    pods: BTreeSet<Workload>,
}

impl Apart {
    /// What is apart in either.
    pub(crate) fn or(mut self, other: Apart) -> Apart {
        self.owners.extend(other.owners);
        self.pods.extend(other.pods);
        self
    }
}

/// A state, worked out.
pub(crate) struct View {
    /// What is allowed, by family.
    pub(crate) matrices: [Matrix; 2],
    /// What is outside, by family: regions that may have held addresses in them, with their classes.
    pub(crate) outside: [Vec<(Region, u32)>; 2],
    /// The addresses that workloads hold, by family.
    pub(crate) held: [Region; 2],
    groups: BTreeMap<Workload, Vec<Member>>,
}

impl View {
    pub(crate) fn new(state: &State, sets: &Rc<Sets>) -> Self {
        let prepared = Prepared::new(state);
        let rules = Rules::of(state, &prepared);
        let mut ends = Family::BOTH.map(|family| Ends::new(family, &prepared, &rules));
        let mut members = BTreeMap::new();
        for (name, endpoints) in groups(state) {
            let of_group = endpoints.into_iter();
            let of_group = of_group.map(|e| member(&mut ends, &prepared, &rules, e));
            members.insert(name, of_group.collect());
        }
        let matrices = Family::BOTH.map(|family| {
            let ends = &ends[family as usize];
            let judge = Judge {
                family,
                state,
                rules: &rules,
                classes: &ends.classes,
                sets,
                known: Default::default(),
            };
            Matrix::new(&judge, ends, Rc::clone(sets))
        });
        let [v4, v6] = ends;
        let outside = |ends: &Ends<'_>| {
            let outside = ends.outside.iter();
            let outside = outside.map(|(region, class)| (region.clone(), number(*class)));
            outside.collect()
        };
        View {
            outside: [outside(&v4), outside(&v6)],
            held: [v4.held, v6.held],
            matrices,
            groups: members,
        }
    }

    /// What cannot be reported as one.
    pub(crate) fn differing(&self) -> Apart {
        let mut apart = Apart::default();
        for (name, members) in &self.groups {
            if self.are_alike(members) {
                continue;
            }
            apart.owners.insert(name.clone());
            let pods = members
                .iter()
                .filter(|m| !self.are_alike(std::slice::from_ref(m)));
            apart.pods.extend(pods.map(|m| m.own_name.clone()));
        }
        apart
    }

    fn are_alike(&self, members: &[Member]) -> bool {
        Family::BOTH.into_iter().all(|family| {
            let twins = &self.matrices[family as usize].twins;
            let points = members.iter().flat_map(|m| &m.points[family as usize]);
            let mut twins = points.map(|(_, class)| twins[*class as usize]);
            let first = twins.next();
            twins.all(|twin| Some(twin) == first)
        })
    }

    /// What is reported as one, where nothing in `apart` is.
    pub(crate) fn units(&self, apart: &Apart) -> BTreeMap<Workload, Unit> {
        let mut units = BTreeMap::new();
        for (name, members) in &self.groups {
            if !apart.owners.contains(name) {
                units.insert(name.clone(), whole(members));
                continue;
            }
            for member in members {
                if apart.pods.contains(&member.own_name) {
                    units.extend(member.units());
                } else {
                    let unit = whole(std::slice::from_ref(member));
                    units.insert(member.own_name.clone(), unit);
                }
            }
        }
        units
    }

    /// The listed workloads that this name stands for: its own, or that of one of its pods.
    pub(crate) fn named(&self, wanted: &dyn Fn(&Workload) -> bool, found: &mut BTreeSet<Workload>) {
        for (name, members) in &self.groups {
            let pods = members.iter().map(|member| &member.own_name);
            let mut pods = pods.filter(|pod| wanted(pod)).peekable();
            if wanted(name) || pods.peek().is_some() {
                found.insert(name.clone());
                match wanted(name) {
                    true => found.extend(members.iter().map(|m| m.own_name.clone())),
                    false => found.extend(pods.cloned()),
                }
            }
        }
    }
}

fn member<'a>(
    ends: &mut [Ends<'a>; 2],
    prepared: &Prepared<'a>,
    rules: &Rules<'a>,
    endpoint: &'a Endpoint,
) -> Member {
    let mut points = [Vec::new(), Vec::new()];
    for family in Family::BOTH {
        let ends = &mut ends[family as usize];
        let points = &mut points[family as usize];
        if endpoint.addresses.is_empty() {
            let end = End::Endpoint(endpoint.id.clone());
            points.push((None, number(ends.class_of(end, prepared, rules))));
        }
        let own: BTreeSet<IpAddr> = endpoint.addresses.iter().copied().collect();
        let own = own.into_iter().filter(|a| Family::of(*a) == family);
        for address in own {
            let holder = prepared.claimant(address);
            if holder.is_some_and(|holder| holder.id == endpoint.id) {
                let end = End::Address(address);
                let class = ends.class_of(end, prepared, rules);
                points.push((Some(address), number(class)));
            }
        }
    }
    Member {
        own_name: Workload::endpoint(endpoint),
        points,
    }
}
