//! Lists the connections that a state allows, one by one or grouped.

use crate::connection_end::{ConnectionEnd, IpBlocks, NameAddresses};
use crate::equivalence::{ClassSelection, EquivalenceClasses, LayerTraffic};
use crate::named_ends::NamedEnds;
use crate::pair_evaluator::{TrafficSetId, TrafficSetInterner};
use crate::reachability::Reachability;
use crate::reachability_matrix::{INSIDE, OUTSIDE};
use crate::rules::to_u32;
use crate::state_view::StateView;
use crate::traffic::TrafficSet;
use palisade_api::{ConnectionReport, TrafficReport, WorkloadRef};
use palisade_model::{Family, NumberRange, RangeSet};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// The traffic that one end may send to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Connection {
    /// The source, which opens the connection.
    pub src: ConnectionEnd,
    /// The destination.
    pub dst: ConnectionEnd,
    /// The family, where the traffic of the two families differs. `None` for networks, which imply it.
    pub family: Option<Family>,
    /// The allowed traffic; never empty.
    pub connections: Rc<TrafficSet>,
}

impl Connection {
    /// The connection for output; `members`: with all members of groups.
    pub fn report(&self, members: bool) -> ConnectionReport {
        ConnectionReport {
            src: self.src.report(members),
            dst: self.dst.report(members),
            family: self.family.map(Into::into),
            connections: TrafficReport::from(&*self.connections),
            recorded: None,
        }
    }
}

/// Restricts which connections are listed; the default is all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConnectionFilter {
    /// Only from this workload or pod, as `namespace/name`.
    pub from: Option<String>,
    /// Only to this workload or pod.
    pub to: Option<String>,
    /// Only from or to workloads of this namespace.
    pub namespace: Option<String>,
}

/// A name in a [`ConnectionFilter`] does not exist.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConnectionFilterError {
    /// No pod or workload has the name.
    #[error("there is no pod or workload {0}")]
    NoWorkload(String),
    /// The namespace has no workload.
    #[error("there is no workload in namespace {0}")]
    NoNamespace(String),
}

/// Addresses of one family, from the first to the last of each range.
type AddressRanges = Vec<NumberRange<u128>>;

/// Addresses of both families.
type AddressSets = [RangeSet<u128>; 2];

/// Grouped rows of more pairs of equivalence classes than this are not expanded into pairs.
const MAX_EXPANDED_PAIRS: usize = 16;

/// Every connection that a state allows between workloads, and between workloads and the outside.
/// There is one for each source, destination and family, ordered by these.
pub fn connections<'a>(state: impl Into<StateView<'a>>) -> Vec<Connection> {
    // A filter without names cannot name anything that does not exist.
    filtered_connections(state, &ConnectionFilter::default()).unwrap_or_default()
}

/// Those of [`connections`] that a filter selects.
///
/// # Errors
/// If a name in the filter does not exist.
pub fn filtered_connections<'a>(
    state: impl Into<StateView<'a>>,
    scope: &ConnectionFilter,
) -> Result<Vec<Connection>, ConnectionFilterError> {
    let sets = Rc::new(TrafficSetInterner::new());
    let (names, [view]) = NamedEnds::with_reachability([state.into()], &sets);
    let views = [&view];
    let workload_groups = [view.units(&view.find_split_workloads())];
    let filter = ResolvedFilter::resolve(scope, &views)?;
    let equivalence = EquivalenceClasses::new(&views, &workload_groups, &sets);
    let rows = ConnectionRows::build(&equivalence, &names, &|value| allows_anything(value));
    let workload_addresses = view.workload_addresses.clone();
    let mut connections = rows.list_pairs(&workload_addresses, &|value, pair| {
        render_value(value, pair, &sets)
    });
    connections.retain(|connection| filter.selects(connection));
    Ok(connections)
}

/// Like [`connections`], in as few rows as possible: workloads that every policy treats alike are one
/// end, and so are workloads that share more than a few rows.
///
/// # Errors
/// If a name in the filter does not exist.
pub fn grouped_connections<'a>(
    state: impl Into<StateView<'a>>,
    scope: &ConnectionFilter,
) -> Result<Vec<Connection>, ConnectionFilterError> {
    let sets = Rc::new(TrafficSetInterner::new());
    let (names, [view]) = NamedEnds::with_reachability([state.into()], &sets);
    let views = [&view];
    let workload_groups = [view.units(&view.find_split_workloads())];
    let filter = ResolvedFilter::resolve(scope, &views)?;
    let equivalence = EquivalenceClasses::new(&views, &workload_groups, &sets);
    let rows = ConnectionRows::build(&equivalence, &names, &|value| allows_anything(value));
    Ok(rows.list_groups(&filter, &|value, pair| render_value(value, pair, &sets)))
}

fn allows_anything(value: &LayerTraffic) -> bool {
    value
        .iter()
        .flatten()
        .any(|set| *set != TrafficSetInterner::NONE)
}

/// The traffic between two ends: by family between workloads, without family to or from the outside.
fn render_value(
    value: &LayerTraffic,
    is_pair: bool,
    sets: &TrafficSetInterner,
) -> Vec<(Option<Family>, Rc<TrafficSet>)> {
    if is_pair {
        merge_families([value[0], value[1]], sets)
    } else {
        let set = value.iter().flatten().next();
        let set = set.filter(|set| **set != TrafficSetInterner::NONE);
        set.map(|set| (None, sets.get(*set))).into_iter().collect()
    }
}

/// One row if the traffic is equal in all families that both ends have, otherwise one for each family.
pub(crate) fn merge_families(
    found: [Option<TrafficSetId>; 2],
    sets: &TrafficSetInterner,
) -> Vec<(Option<Family>, Rc<TrafficSet>)> {
    let rows = match found {
        [Some(v4), Some(v6)] if v4 == v6 => vec![(None, v4)],
        [Some(v4), Some(v6)] => vec![(Some(Family::V4), v4), (Some(Family::V6), v6)],
        [one, other] => one.or(other).map(|set| (None, set)).into_iter().collect(),
    };
    let rows = rows
        .into_iter()
        .filter(|(_, set)| *set != TrafficSetInterner::NONE);
    rows.map(|(family, set)| (family, sets.get(set))).collect()
}

/// A filter with its names resolved to workloads.
pub(crate) struct ResolvedFilter {
    from: Option<BTreeSet<WorkloadRef>>,
    to: Option<BTreeSet<WorkloadRef>>,
    namespace: Option<String>,
}

impl ResolvedFilter {
    pub(crate) fn resolve(
        scope: &ConnectionFilter,
        views: &[&Reachability],
    ) -> Result<Self, ConnectionFilterError> {
        let named = |name: &Option<String>| {
            let Some(text) = name else { return Ok(None) };
            let (namespace, own) = text.split_once('/').unwrap_or(("default", text));
            let is_named = |w: &WorkloadRef| {
                w.namespace.as_deref().unwrap_or_default() == namespace && *w.name == *own
            };
            let mut found = BTreeSet::new();
            views
                .iter()
                .for_each(|view| view.collect_named(&is_named, &mut found));
            if found.is_empty() {
                Err(ConnectionFilterError::NoWorkload(text.clone()))
            } else {
                Ok(Some(found))
            }
        };
        let filter = ResolvedFilter {
            from: named(&scope.from)?,
            to: named(&scope.to)?,
            namespace: scope.namespace.clone(),
        };
        if let Some(namespace) = &filter.namespace {
            let mut found = BTreeSet::new();
            let is_in_namespace = |w: &WorkloadRef| w.namespace.as_deref() == Some(namespace);
            views
                .iter()
                .for_each(|view| view.collect_named(&is_in_namespace, &mut found));
            if found.is_empty() {
                return Err(ConnectionFilterError::NoNamespace(namespace.clone()));
            }
        }
        Ok(filter)
    }

    fn is_unrestricted(&self) -> bool {
        self.from.is_none() && self.to.is_none() && self.namespace.is_none()
    }

    /// Whether the filter selects a connection between single ends.
    pub(crate) fn selects(&self, connection: &Connection) -> bool {
        let is_among = |end: &ConnectionEnd, wanted: &Option<BTreeSet<WorkloadRef>>| {
            wanted.as_ref().is_none_or(|wanted| {
                let mut workloads = end.workloads().iter();
                workloads.any(|workload| wanted.contains(&without_address(workload)))
            })
        };
        let is_in_namespace = |end: &ConnectionEnd| {
            let mut workloads = end.workloads().iter();
            workloads.any(|workload| workload.namespace.as_deref() == self.namespace.as_deref())
        };
        is_among(&connection.src, &self.from)
            && is_among(&connection.dst, &self.to)
            && (self.namespace.is_none()
                || is_in_namespace(&connection.src)
                || is_in_namespace(&connection.dst))
    }

    /// The part of a row that the filter selects, as one or two rows. `ends` tells which end is outside
    /// (and therefore has no names).
    fn restrict_row(
        &self,
        from: Vec<WorkloadRef>,
        to: Vec<WorkloadRef>,
        ends: [bool; 2],
    ) -> Vec<[Vec<WorkloadRef>; 2]> {
        if self.is_unrestricted() {
            return vec![[from, to]];
        }
        let restrict =
            |list: Vec<WorkloadRef>, wanted: &Option<BTreeSet<WorkloadRef>>, outside: bool| {
                match wanted {
                    None => Some(list),
                    Some(_) if outside => None,
                    Some(wanted) => {
                        let part: Vec<WorkloadRef> = list
                            .into_iter()
                            .filter(|w| wanted.contains(&without_address(w)))
                            .collect();
                        (!part.is_empty()).then_some(part)
                    }
                }
            };
        let from = restrict(from, &self.from, ends[0]);
        let to = restrict(to, &self.to, ends[1]);
        let (Some(from), Some(to)) = (from, to) else {
            return Vec::new();
        };
        let Some(namespace) = &self.namespace else {
            return vec![[from, to]];
        };
        let is_in = |w: &WorkloadRef| w.namespace.as_deref() == Some(namespace);
        let (inside, others): (Vec<_>, Vec<_>) = from.into_iter().partition(is_in);
        let mut parts = Vec::new();
        if !inside.is_empty() {
            parts.push([inside, to.clone()]);
        }
        let to: Vec<WorkloadRef> = to.into_iter().filter(is_in).collect();
        if !to.is_empty() && (!others.is_empty() || ends[0]) {
            parts.push([others, to]);
        }
        parts
    }
}

/// The workload without the address that distinguishes one of its addresses.
fn without_address(workload: &WorkloadRef) -> WorkloadRef {
    WorkloadRef {
        address: None,
        ..workload.clone()
    }
}

/// Renders the traffic of a row; the flag tells whether both ends are workloads.
pub(crate) type ValueRenderer<'s> =
    dyn Fn(&LayerTraffic, bool) -> Vec<(Option<Family>, Rc<TrafficSet>)> + 's;

/// Blocks of the outside with the same traffic, with the workloads at its other end.
type OutsideRows = BTreeMap<(ClassSelection, LayerTraffic), Vec<u32>>;

/// An end of a row that is outside.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
enum OutsidePart {
    /// Addresses.
    Networks(AddressSets),
    /// The addresses of names, of one family where that of the other is not alike.
    Names(Vec<NameAddresses>, Option<Family>),
}

/// All relevant rows between equivalence classes.
pub(crate) struct ConnectionRows<'k> {
    equivalence: &'k EquivalenceClasses<'k>,
    names: &'k NamedEnds,
    /// Sources with the same traffic to the same destination workloads, with those workloads.
    workload_rows: BTreeMap<(ClassSelection, LayerTraffic), Vec<u32>>,
    /// Outside destinations with the same traffic, with the workloads that may send it.
    egress_rows: OutsideRows,
    /// Outside sources with the same traffic, with the workloads that may receive it.
    ingress_rows: OutsideRows,
}

impl<'k> ConnectionRows<'k> {
    pub(crate) fn build(
        equivalence: &'k EquivalenceClasses<'k>,
        names: &'k NamedEnds,
        is_relevant: &dyn Fn(&LayerTraffic) -> bool,
    ) -> Self {
        let mut rows = ConnectionRows {
            equivalence,
            names,
            workload_rows: BTreeMap::new(),
            egress_rows: BTreeMap::new(),
            ingress_rows: BTreeMap::new(),
        };
        for (id, class) in equivalence.classes.iter().enumerate() {
            if class.region.is_some() {
                continue;
            }
            let id = to_u32(id);
            let lists = [
                (&mut rows.workload_rows, true, INSIDE),
                (&mut rows.egress_rows, false, OUTSIDE),
                (&mut rows.ingress_rows, true, OUTSIDE),
            ];
            for (list, taking, zone) in lists {
                for (value, block) in equivalence.peers_by_traffic(id, taking, zone, is_relevant) {
                    list.entry((block, value)).or_default().push(id);
                }
            }
        }
        rows
    }

    fn workloads(&self, class_ids: &[u32]) -> Vec<WorkloadRef> {
        let names = class_ids
            .iter()
            .flat_map(|class| &self.equivalence.classes[*class as usize].names);
        names.cloned().collect()
    }

    /// Whether both are the same pod, so that packets between them never leave it.
    fn is_same_pod(&self, a: u32, b: u32) -> bool {
        let [a, b] = [a, b].map(|class| self.equivalence.classes[class as usize].pod.as_ref());
        a.is_some() && a == b
    }

    fn block_address_sets(&self, block: &ClassSelection) -> AddressSets {
        let mut ranges = [Vec::new(), Vec::new()];
        for class in self.equivalence.expand(block) {
            if let Some((family, region)) = &self.equivalence.classes[class as usize].region {
                ranges[*family as usize].extend(region.ranges());
            }
        }
        ranges.map(RangeSet::from_iter)
    }

    /// One row for each pair of workloads, and for each pair of a workload and an outside prefix.
    pub(crate) fn list_pairs(
        &self,
        workload_addresses: &AddressSets,
        render: &ValueRenderer<'_>,
    ) -> Vec<Connection> {
        let mut found = Vec::new();
        for ((block, value), destinations) in &self.workload_rows {
            let rendered = render(value, true);
            for from in self.equivalence.expand(block) {
                for to in destinations
                    .iter()
                    .filter(|to| !self.is_same_pod(from, **to))
                {
                    let (from, to) = (self.workloads(&[from]), self.workloads(&[*to]));
                    for src in &from {
                        for dst in to.iter().filter(|dst| *dst != src) {
                            push_connections(
                                &rendered,
                                ConnectionEnd::Workload(src.clone()),
                                ConnectionEnd::Workload(dst.clone()),
                                &mut found,
                            );
                        }
                    }
                }
            }
        }
        self.list_outside_pairs(workload_addresses, render, &mut found);
        found.sort_by(|a, b| (&a.src, &a.dst, a.family).cmp(&(&b.src, &b.dst, b.family)));
        found
    }

    /// One row for each pair of a workload and an outside prefix or a name.
    fn list_outside_pairs(
        &self,
        workload_addresses: &AddressSets,
        render: &ValueRenderer<'_>,
        found: &mut Vec<Connection>,
    ) {
        let mut parts: BTreeMap<_, [AddressRanges; 2]> = BTreeMap::new();
        for (out, list) in [(true, &self.egress_rows), (false, &self.ingress_rows)] {
            for ((block, value), class_ids) in list {
                let regions = self.block_address_sets(block);
                for (_, set) in render(value, false) {
                    for class in class_ids {
                        for name in self.workloads(&[*class]) {
                            let key = (out, name, self.families(*class), set.clone());
                            let ranges = parts.entry(key).or_default();
                            for (ranges, region) in ranges.iter_mut().zip(&regions) {
                                ranges.extend(region.ranges());
                            }
                        }
                    }
                }
            }
        }
        for ((out, name, families, set), ranges) in parts {
            let mut regions = ranges.map(RangeSet::from_iter);
            let mut push = |outside: ConnectionEnd, family| {
                let ends = (ConnectionEnd::Workload(name.clone()), outside);
                let (src, dst) = if out { ends } else { (ends.1, ends.0) };
                push_connections(&[(family, set.clone())], src, dst, found);
            };
            for (name, of_name) in self.names.take_from(&mut regions) {
                let family = of_name.first().copied().filter(|_| of_name != families);
                push(ConnectionEnd::Names(Rc::new(vec![name])), family);
            }
            for (family, region) in Family::BOTH.into_iter().zip(regions) {
                let region = region.subtract(&workload_addresses[family as usize]);
                let ranges = region.ranges().iter();
                for prefix in ranges.flat_map(|range| range.prefixes(family)) {
                    push(ConnectionEnd::Outside(prefix), None);
                }
            }
        }
    }

    /// The families in which a class exists.
    fn families(&self, class: u32) -> Vec<Family> {
        let layers = &self.equivalence.classes[class as usize].classes;
        let exists = |family: &Family| {
            let mut layers = layers.iter().skip(*family as usize).step_by(2);
            layers.any(Option::is_some)
        };
        Family::BOTH.into_iter().filter(exists).collect()
    }

    /// As few rows as possible: first those between workloads, then those with the outside.
    pub(crate) fn list_groups(
        &self,
        filter: &ResolvedFilter,
        render: &ValueRenderer<'_>,
    ) -> Vec<Connection> {
        let order = |c: &Connection| (c.src.clone(), c.dst.clone(), c.family);
        let mut groups = self.list_workload_groups(filter, render);
        groups.sort_by_cached_key(order);
        let free = self.workload_only_addresses();
        let mut networks: BTreeMap<AddressSets, ConnectionEnd> = BTreeMap::new();
        for (is_egress, list) in [(true, &self.egress_rows), (false, &self.ingress_rows)] {
            let mut outside_rows = Vec::new();
            for ((part, set), kinds) in self.merge_families(list, render) {
                let (outside, family) = match part {
                    OutsidePart::Networks(regions) => {
                        let outside = networks.entry(regions.clone()).or_insert_with(|| {
                            ConnectionEnd::Networks(IpBlocks::from_address_sets(&regions, &free))
                        });
                        (outside.clone(), None)
                    }
                    OutsidePart::Names(names, family) => {
                        (ConnectionEnd::Names(Rc::new(names)), family)
                    }
                };
                let parts: Vec<Vec<u32>> = if kinds.len() <= MAX_EXPANDED_PAIRS {
                    kinds.iter().map(|kind| vec![*kind]).collect()
                } else {
                    vec![kinds]
                };
                for kinds in parts {
                    self.push_outside_row(
                        (family, set.clone()),
                        &kinds,
                        (is_egress, &outside),
                        filter,
                        &mut outside_rows,
                    );
                }
            }
            if is_egress {
                outside_rows.sort_by_cached_key(order);
            } else {
                outside_rows.sort_by_cached_key(|c| (c.dst.clone(), c.src.clone()));
            }
            groups.extend(outside_rows);
        }
        groups
    }

    /// The rows between workloads, in no order.
    fn list_workload_groups(
        &self,
        filter: &ResolvedFilter,
        render: &ValueRenderer<'_>,
    ) -> Vec<Connection> {
        let mut groups = Vec::new();
        for ((block, value), destinations) in &self.workload_rows {
            let rendered = render(value, true);
            let sources = self.equivalence.expand(block);
            let has_split_pods = |class_ids: &[u32]| {
                let mut class_ids = class_ids.iter();
                class_ids.any(|class| self.equivalence.classes[*class as usize].pod.is_some())
            };
            let few = sources.len() * destinations.len() <= MAX_EXPANDED_PAIRS;
            let has_split_pods_at_both_ends =
                has_split_pods(&sources) && has_split_pods(destinations);
            if !(few || has_split_pods_at_both_ends) {
                self.push_row(&rendered, &sources, destinations, filter, &mut groups);
                continue;
            }
            for from in &sources {
                for to in destinations
                    .iter()
                    .filter(|to| !self.is_same_pod(*from, **to))
                {
                    self.push_row(&rendered, &[*from], &[*to], filter, &mut groups);
                }
            }
        }
        groups
    }

    /// The rows of one direction with the outside, each with the classes at its other end. Both families are in one row
    /// where their traffic is equal.
    fn merge_families(
        &self,
        list: &OutsideRows,
        render: &ValueRenderer<'_>,
    ) -> BTreeMap<(OutsidePart, Rc<TrafficSet>), Vec<u32>> {
        let mut by_kind: BTreeMap<u32, BTreeMap<_, [AddressRanges; 2]>> = BTreeMap::new();
        for ((block, value), kinds) in list {
            let regions = self.block_address_sets(block);
            for (_, set) in render(value, false) {
                for kind in kinds {
                    let ranges = by_kind
                        .entry(*kind)
                        .or_default()
                        .entry(set.clone())
                        .or_default();
                    for (ranges, region) in ranges.iter_mut().zip(&regions) {
                        ranges.extend(region.ranges());
                    }
                }
            }
        }
        let mut rows: BTreeMap<(OutsidePart, Rc<TrafficSet>), Vec<u32>> = BTreeMap::new();
        for (kind, sets) in by_kind {
            let families = self.families(kind);
            for (set, ranges) in sets {
                let mut regions = ranges.map(RangeSet::from_iter);
                let mut names: BTreeMap<Option<Family>, Vec<NameAddresses>> = BTreeMap::new();
                for (name, of_name) in self.names.take_from(&mut regions) {
                    let family = of_name.first().copied().filter(|_| of_name != families);
                    names.entry(family).or_default().push(name);
                }
                let names = names
                    .into_iter()
                    .map(|(family, names)| OutsidePart::Names(names, family));
                let networks = regions.iter().any(|region| !region.is_empty());
                let networks = networks.then_some(OutsidePart::Networks(regions));
                for part in networks.into_iter().chain(names) {
                    rows.entry((part, set.clone())).or_default().push(kind);
                }
            }
        }
        rows
    }

    /// The row between classes and networks outside, as far as the filter lets it through.
    fn push_outside_row(
        &self,
        traffic: (Option<Family>, Rc<TrafficSet>),
        kinds: &[u32],
        (is_egress, outside): (bool, &ConnectionEnd),
        filter: &ResolvedFilter,
        rows: &mut Vec<Connection>,
    ) {
        let [from, to] = if is_egress {
            [self.workloads(kinds), Vec::new()]
        } else {
            [Vec::new(), self.workloads(kinds)]
        };
        for [from, to] in filter.restrict_row(from, to, [!is_egress, is_egress]) {
            let workloads = if is_egress { from } else { to };
            let Some(party) = ConnectionEnd::from_workloads(workloads) else {
                continue;
            };
            let (src, dst) = if is_egress {
                (party, outside.clone())
            } else {
                (outside.clone(), party)
            };
            push_connections(std::slice::from_ref(&traffic), src, dst, rows);
        }
    }

    /// The addresses that are not outside, because workloads hold them: an outside block may cover them.
    fn workload_only_addresses(&self) -> AddressSets {
        Family::BOTH.map(|family| {
            let all = self
                .equivalence
                .classes
                .iter()
                .filter_map(|class| class.region.as_ref());
            let all = all.filter(|(other, _)| *other == family);
            let outside = all.flat_map(|(_, region)| region.ranges().iter().copied());
            let everything = NumberRange::from(palisade_model::Prefix::all(family));
            RangeSet::from(everything).subtract(&outside.collect())
        })
    }

    fn push_row(
        &self,
        traffic: &[(Option<Family>, Rc<TrafficSet>)],
        from: &[u32],
        to: &[u32],
        filter: &ResolvedFilter,
        found: &mut Vec<Connection>,
    ) {
        for [from, to] in filter.restrict_row(self.workloads(from), self.workloads(to), [false; 2])
        {
            let alone = from.len() == 1 && from == to;
            let (Some(src), Some(dst)) = (
                ConnectionEnd::from_workloads(from),
                ConnectionEnd::from_workloads(to),
            ) else {
                continue;
            };
            if !alone {
                push_connections(traffic, src, dst, found);
            }
        }
    }
}

fn push_connections(
    traffic: &[(Option<Family>, Rc<TrafficSet>)],
    src: ConnectionEnd,
    dst: ConnectionEnd,
    found: &mut Vec<Connection>,
) {
    for (family, set) in traffic {
        found.push(Connection {
            src: src.clone(),
            dst: dst.clone(),
            family: *family,
            connections: set.clone(),
        });
    }
}
