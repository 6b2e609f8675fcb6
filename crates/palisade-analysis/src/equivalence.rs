//! Equivalence classes of workloads and of the outside over all layers (state and family), and the
//! traffic between them.
//!
//! The cost depends on the number of differences: the usual traffic is computed once for each treatment
//! group, and only classes with other traffic are evaluated individually.

use crate::pair_evaluator::{TrafficSetId, TrafficSetInterner};
use crate::reachability::{Reachability, ReportUnit};
use crate::reachability_matrix::{INSIDE, OUTSIDE, ReachabilityMatrix};
use crate::rules::to_u32;
use palisade_api::WorkloadRef;
use palisade_model::{Family, NumberRange, RangeSet};
use std::collections::BTreeMap;

/// The traffic between two equivalence classes by layer; `None` in a layer in which one does not exist.
pub(crate) type LayerTraffic = Vec<Option<TrafficSetId>>;

/// Workloads, or a part of the outside, that every policy treats alike in every layer.
pub(crate) struct EquivalenceClass {
    /// The end class in each layer in which it exists: by state, then by family.
    pub(crate) classes: Vec<Option<u32>>,
    /// The workloads; empty for the outside.
    pub(crate) names: Vec<WorkloadRef>,
    /// The pod, if the class is one of its addresses.
    pub(crate) pod: Option<WorkloadRef>,
    /// For the outside, the family and addresses, some of which workloads may hold.
    pub(crate) region: Option<(Family, RangeSet<u128>)>,
}

impl EquivalenceClass {
    fn zone(&self) -> usize {
        match self.region {
            None => INSIDE,
            Some(_) => OUTSIDE,
        }
    }
}

/// A set of equivalence classes: treatment groups with exceptions, and single classes.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ClassSelection {
    /// Treatment groups, each with the members that are left out.
    group_exceptions: Vec<(u32, Vec<u32>)>,
    extra: Vec<u32>,
}

/// All equivalence classes of one or two states.
pub(crate) struct EquivalenceClasses<'v> {
    pub(crate) classes: Vec<EquivalenceClass>,
    layers: Vec<&'v ReachabilityMatrix>,
    sets: &'v TrafficSetInterner,
    /// For each layer, the equivalence classes of an end class.
    occurrences: Vec<BTreeMap<u32, Vec<u32>>>,
    /// Groups of classes with the same usual traffic as sources, and as destinations, by zone.
    treatment_groups: [[Vec<TreatmentGroup>; 2]; 2],
    /// The equivalence classes of each treatment group.
    group_members: Vec<Vec<u32>>,
}

/// A treatment group with the traffic that its members usually send, or accept, in each layer.
struct TreatmentGroup {
    id: u32,
    usual: Vec<Option<TrafficSetId>>,
}

/// Index of the treatment groups of sources.
const SOURCES: usize = 0;
/// Index of the treatment groups of destinations.
const DESTINATIONS: usize = 1;

impl<'v> EquivalenceClasses<'v> {
    /// The equivalence classes of these states. `units` are the report units of each state.
    pub(crate) fn new(
        views: &'v [&'v Reachability],
        units: &[BTreeMap<WorkloadRef, ReportUnit>],
        sets: &'v TrafficSetInterner,
    ) -> Self {
        let layers: Vec<&ReachabilityMatrix> =
            views.iter().flat_map(|view| &view.matrices).collect();
        let mut kinds = workload_classes(&layers, units);
        for family in Family::BOTH {
            kinds.extend(outside_classes(views, family));
        }
        let mut places = vec![BTreeMap::<u32, Vec<u32>>::new(); layers.len()];
        for (id, kind) in kinds.iter().enumerate() {
            for (class, places) in kind.classes.iter().zip(&mut places) {
                if let Some(class) = class {
                    places.entry(*class).or_default().push(to_u32(id));
                }
            }
        }
        let mut all = EquivalenceClasses {
            classes: kinds,
            layers,
            sets,
            occurrences: places,
            treatment_groups: Default::default(),
            group_members: Vec::new(),
        };
        all.find_treatment_groups();
        all
    }

    fn find_treatment_groups(&mut self) {
        for role in [SOURCES, DESTINATIONS] {
            let mut ids_by_traffic: BTreeMap<(usize, LayerTraffic), Vec<u32>> = BTreeMap::new();
            for (id, kind) in self.classes.iter().enumerate() {
                let usual = kind.classes.iter().zip(&self.layers).map(|(class, layer)| {
                    // Only traffic to or from workloads is ever queried.
                    Some(match role {
                        SOURCES => layer.usual_egress((*class)?, INSIDE),
                        _ => layer.usual_ingress((*class)?, INSIDE),
                    })
                });
                let key = (kind.zone(), usual.collect());
                ids_by_traffic.entry(key).or_default().push(to_u32(id));
            }
            for ((zone, usual), members) in ids_by_traffic {
                let id = to_u32(self.group_members.len());
                self.group_members.push(members);
                self.treatment_groups[role][zone].push(TreatmentGroup { id, usual });
            }
        }
    }

    /// The traffic from a source to a destination.
    pub(crate) fn traffic_between(&self, source: u32, destination: u32) -> LayerTraffic {
        let ends = [source, destination].map(|kind| &self.classes[kind as usize].classes);
        let layers = self.layers.iter().enumerate();
        layers
            .map(|(at, layer)| Some(layer.allowed(ends[0][at]?, ends[1][at]?)))
            .collect()
    }

    /// The classes of a zone, by their traffic with a workload as destination (`is_destination`) or as
    /// source; only traffic that `is_relevant` accepts.
    pub(crate) fn peers_by_traffic(
        &self,
        own: u32,
        is_destination: bool,
        zone: usize,
        is_relevant: &dyn Fn(&LayerTraffic) -> bool,
    ) -> BTreeMap<LayerTraffic, ClassSelection> {
        let classes = &self.classes[own as usize].classes;
        let mut unusual = Vec::new();
        for ((class, layer), places) in classes.iter().zip(&self.layers).zip(&self.occurrences) {
            let Some(class) = class else { continue };
            let others = if is_destination {
                &layer.by_destination[*class as usize]
            } else {
                &layer.by_source[*class as usize]
            };
            let kinds = others.iter().filter_map(|(class, _)| places.get(class));
            unusual.extend(kinds.flatten().copied());
        }
        unusual.retain(|kind| self.classes[*kind as usize].zone() == zone);
        unusual.sort_unstable();
        unusual.dedup();
        let mut selections: BTreeMap<LayerTraffic, ClassSelection> = BTreeMap::new();
        let role = if is_destination {
            SOURCES
        } else {
            DESTINATIONS
        };
        for base in &self.treatment_groups[role][zone] {
            let layers = self.layers.iter().zip(classes).zip(&base.usual);
            let value: LayerTraffic = layers
                .map(|((layer, class), other)| {
                    let own = if is_destination {
                        layer.usual_ingress((*class)?, zone)
                    } else {
                        layer.usual_egress((*class)?, zone)
                    };
                    Some(self.sets.intersect(own, (*other)?))
                })
                .collect();
            if !is_relevant(&value) {
                continue;
            }
            let members = &self.group_members[base.id as usize];
            let out = unusual
                .iter()
                .filter(|kind| members.binary_search(kind).is_ok());
            let out: Vec<u32> = out.copied().collect();
            if out.len() < members.len() {
                selections
                    .entry(value)
                    .or_default()
                    .group_exceptions
                    .push((base.id, out));
            }
        }
        for kind in unusual {
            let value = if is_destination {
                self.traffic_between(kind, own)
            } else {
                self.traffic_between(own, kind)
            };
            if is_relevant(&value) {
                selections.entry(value).or_default().extra.push(kind);
            }
        }
        selections
    }

    /// The equivalence classes of a selection, ascending.
    pub(crate) fn expand(&self, block: &ClassSelection) -> Vec<u32> {
        let mut all = block.extra.clone();
        for (base, out) in &block.group_exceptions {
            let members = self.group_members[*base as usize].iter();
            all.extend(members.filter(|kind| out.binary_search(kind).is_err()));
        }
        all.sort_unstable();
        all
    }
}

fn workload_classes(
    layers: &[&ReachabilityMatrix],
    units: &[BTreeMap<WorkloadRef, ReportUnit>],
) -> Vec<EquivalenceClass> {
    let mut names: Vec<&WorkloadRef> = units.iter().flat_map(BTreeMap::keys).collect();
    names.sort();
    names.dedup();
    let mut groups: BTreeMap<(Vec<_>, Option<_>), Vec<WorkloadRef>> = BTreeMap::new();
    for name in names {
        let units: Vec<Option<&ReportUnit>> = units.iter().map(|units| units.get(name)).collect();
        let of_families = units.iter().flat_map(|unit| match unit {
            Some(unit) => unit.classes,
            None => [None; 2],
        });
        let classes = of_families.zip(layers);
        let classes =
            classes.map(|(class, layer)| class.map(|class| layer.representatives[class as usize]));
        let part_of = units.iter().flatten().find_map(|unit| unit.pod.as_ref());
        let key = (classes.collect(), part_of);
        groups.entry(key).or_default().push(name.clone());
    }
    let mut kinds: Vec<EquivalenceClass> = groups
        .into_iter()
        .map(|((classes, part_of), names)| EquivalenceClass {
            classes,
            names,
            pod: part_of.cloned(),
            region: None,
        })
        .collect();
    kinds.sort_by(|a, b| a.names.cmp(&b.names));
    kinds
}

/// The addresses that are outside in all states, in parts that have one end class in each.
fn outside_classes(views: &[&Reachability], family: Family) -> Vec<EquivalenceClass> {
    let mut parts: BTreeMap<Vec<Option<u32>>, Vec<NumberRange<u128>>> = BTreeMap::new();
    let sorted = |view: &Reachability| {
        let regions = view.outside[family as usize].iter();
        let ranges = regions.flat_map(|(region, class)| {
            let ranges = region.ranges().iter();
            ranges.map(|range| (range.first, range.last, *class))
        });
        let mut ranges: Vec<(u128, u128, u32)> = ranges.collect();
        ranges.sort_unstable();
        ranges
    };
    let mut common: Vec<(u128, u128, Vec<u32>)> = vec![(0, u128::MAX, Vec::new())];
    for view in views {
        let ranges = sorted(view);
        let mut next = Vec::new();
        let mut at = 0;
        for (first, last, classes) in common {
            while ranges.get(at).is_some_and(|range| range.1 < first) {
                at += 1;
            }
            let inside = ranges[at..].iter().take_while(|range| range.0 <= last);
            for (from, to, class) in inside {
                let classes = classes.iter().chain([class]).copied().collect();
                next.push((first.max(*from), last.min(*to), classes));
            }
        }
        common = next;
    }
    for (first, last, classes) in common {
        let range = NumberRange { first, last };
        let mut free = RangeSet::from(range);
        if views.len() > 1 {
            for workload_addresses in views
                .iter()
                .map(|view| &view.workload_addresses[family as usize])
            {
                free = free.subtract(&workload_addresses.intersect_range(range));
            }
        }
        if free.is_empty() {
            continue;
        }
        let mut layers = vec![None; views.len() * 2];
        for (view, class) in classes.into_iter().enumerate() {
            let twin = views[view].matrices[family as usize].representatives[class as usize];
            layers[view * 2 + family as usize] = Some(twin);
        }
        parts.entry(layers).or_default().push(range);
    }
    let parts = parts.into_iter().map(|(classes, ranges)| EquivalenceClass {
        classes,
        names: Vec::new(),
        pod: None,
        region: Some((family, ranges.into_iter().collect())),
    });
    parts.collect()
}
