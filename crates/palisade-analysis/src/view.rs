//! A whole state seen as workloads, the outside, and what is allowed between them.

use crate::region::Region;
use crate::space::{Rules, Space};
use crate::traffic::TrafficSet;
use crate::workload::{Workload, groups};
use palisade_model::{Endpoint, Family, State};
use palisade_oracle::{End, Prepared};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::rc::Rc;

/// Which way a connection to the outside goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Out,
    In,
}

/// What is reported as one: its class in each family in which it exists.
#[derive(Clone, Debug)]
pub(crate) struct Unit {
    classes: [Option<usize>; 2],
    /// The pod, where only one of its addresses is meant.
    part_of: Option<Workload>,
}

impl Unit {
    /// All these together, which are alike.
    fn whole(members: &[Member]) -> Self {
        let class = |family: Family| {
            let mut points = members.iter().flat_map(|m| &m.points[family as usize]);
            points.next().map(|(_, class)| *class)
        };
        Unit {
            classes: Family::BOTH.map(class),
            part_of: None,
        }
    }

    pub(crate) fn class(&self, family: Family) -> Option<usize> {
        self.classes[family as usize]
    }

    /// Whether both are addresses of the same pod.
    pub(crate) fn same_pod(&self, other: &Unit) -> bool {
        self.part_of.is_some() && self.part_of == other.part_of
    }
}

/// An endpoint with the classes its addresses fall into.
struct Member {
    own_name: Workload,
    points: [Vec<(Option<IpAddr>, usize)>; 2],
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

pub(crate) struct View<'a> {
    spaces: [Space<'a>; 2],
    groups: BTreeMap<Workload, Vec<Member>>,
}

impl<'a> View<'a> {
    pub(crate) fn new(state: &'a State) -> Self {
        let prepared = Rc::new(Prepared::new(state));
        let rules = Rc::new(Rules::of(state));
        let workloads = prepared.claims().iter().filter(|(_, e)| !e.host);
        let held: Vec<IpAddr> = workloads.map(|(address, _)| *address).collect();
        let space = |family| Space::new(family, prepared.clone(), rules.clone(), &held);
        let mut view = View {
            spaces: Family::BOTH.map(space),
            groups: BTreeMap::new(),
        };
        for (name, endpoints) in groups(state) {
            let members = endpoints.into_iter().map(|e| view.member(&prepared, e));
            let members = members.collect();
            view.groups.insert(name, members);
        }
        view
    }

    fn member(&mut self, prepared: &Prepared<'a>, endpoint: &'a Endpoint) -> Member {
        let mut points = [Vec::new(), Vec::new()];
        for family in Family::BOTH {
            let space = &mut self.spaces[family as usize];
            let points = &mut points[family as usize];
            if endpoint.addresses.is_empty() {
                let class = space.add_workload(End::Endpoint(endpoint.id.clone()));
                points.push((None, class));
            }
            let own: BTreeSet<IpAddr> = endpoint.addresses.iter().copied().collect();
            let own = own.into_iter().filter(|a| Family::of(*a) == family);
            for address in own {
                let holder = prepared.claimant(address);
                if holder.is_some_and(|holder| holder.id == endpoint.id) {
                    let class = space.add_workload(End::Address(address));
                    points.push((Some(address), class));
                }
            }
        }
        Member {
            own_name: Workload::endpoint(endpoint),
            points,
        }
    }

    pub(crate) fn space(&self, family: Family) -> &Space<'a> {
        &self.spaces[family as usize]
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
            let points = members.iter().flat_map(|m| &m.points[family as usize]);
            let classes: BTreeSet<usize> = points.map(|(_, class)| *class).collect();
            let classes: Vec<usize> = classes.into_iter().collect();
            let mut pairs = classes.iter().enumerate();
            pairs.all(|(i, a)| {
                let mut rest = classes[i + 1..].iter();
                rest.all(|b| self.space(family).alike(*a, *b))
            })
        })
    }

    /// What is reported as one, where nothing in `apart` is.
    pub(crate) fn units(&self, apart: &Apart) -> BTreeMap<Workload, Unit> {
        let mut units = BTreeMap::new();
        for (name, members) in &self.groups {
            if !apart.owners.contains(name) {
                units.insert(name.clone(), Unit::whole(members));
                continue;
            }
            for member in members {
                if apart.pods.contains(&member.own_name) {
                    units.extend(member.units());
                } else {
                    let unit = Unit::whole(std::slice::from_ref(member));
                    units.insert(member.own_name.clone(), unit);
                }
            }
        }
        units
    }

    /// What is allowed between two units in a family; `None` where one of them does not exist there.
    pub(crate) fn between(&self, family: Family, from: &Unit, to: &Unit) -> Option<Rc<TrafficSet>> {
        let space = self.space(family);
        Some(space.allowed(from.class(family)?, to.class(family)?))
    }

    /// The outside in parts, each with what is allowed between a unit and it. Empty where the unit
    /// does not exist in the family.
    pub(crate) fn with_outside(
        &self,
        family: Family,
        unit: &Unit,
        way: Way,
    ) -> Vec<(Region, Rc<TrafficSet>)> {
        let space = self.space(family);
        let Some(class) = unit.class(family) else {
            return Vec::new();
        };
        let allowed = |outside: usize| match way {
            Way::Out => space.allowed(class, outside),
            Way::In => space.allowed(outside, class),
        };
        let parts = space.outside().iter();
        parts
            .map(|(region, outside)| (region.clone(), allowed(*outside)))
            .collect()
    }

    /// Every address of a family that no workload holds.
    pub(crate) fn outside(&self, family: Family) -> Region {
        let (first, last) = palisade_model::Prefix::all(family).bounds();
        Region::of_ranges(family, vec![(first, last)]).without(self.space(family).held())
    }
}
