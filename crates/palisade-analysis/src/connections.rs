//! Every connection that a state allows.

use crate::judge::{SetId, Sets};
use crate::kinds::{Block, Kinds, Value};
use crate::matrix::{INSIDE, OUTSIDE};
use crate::party::{Networks, Party};
use crate::region::Region;
use crate::rules::number;
use crate::traffic::TrafficSet;
use crate::view::View;
use crate::workload::Workload;
use palisade_model::{Family, State};
use serde::Serialize;
use serde::ser::Serializer;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// What one party may send another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Connection {
    /// Who opens it.
    pub src: Party,
    /// To whom.
    pub dst: Party,
    /// The family, where the two families differ. Networks have their own.
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

/// Which connections are wanted; all, by default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scope {
    /// Only from this workload or pod, as `namespace/name`.
    pub from: Option<String>,
    /// Only to this one.
    pub to: Option<String>,
    /// Only from or to workloads of this namespace.
    pub namespace: Option<String>,
}

/// Nothing goes by a name that a [`Scope`] asks for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScopeError {
    /// No workload.
    #[error("there is no pod or workload {0}")]
    NoWorkload(String),
    /// No workload in it.
    #[error("there is no workload in namespace {0}")]
    NoNamespace(String),
}

/// Addresses of one family, from the first to the last of each range.
type Ranges = Vec<(u128, u128)>;

/// Rows that stand for more pairs of kinds than this are not taken apart.
const PAIRS: usize = 16;

/// Every connection that a state allows between workloads and to and from the outside, exactly. Each
/// is one of a source, a destination and a family; ordered by these.
pub fn connections(state: &State) -> Vec<Connection> {
    let sets = Rc::new(Sets::new());
    let view = View::new(state, &sets);
    let views = [&view];
    let units = [view.units(&view.differing())];
    let kinds = Kinds::new(&views, &units, &sets);
    let rows = Rows::of(&kinds, &|value| allowed(value));
    let held = view.held.clone();
    rows.one_by_one(&held, &|value, pair| of_value(value, pair, &sets))
}

/// The same in as few rows as can be: workloads that no policy tells apart are one party, and so are
/// those that share more than a few rows.
///
/// # Errors
/// If nothing goes by a name of the scope.
pub fn grouped_connections(state: &State, scope: &Scope) -> Result<Vec<Connection>, ScopeError> {
    let sets = Rc::new(Sets::new());
    let view = View::new(state, &sets);
    let views = [&view];
    let units = [view.units(&view.differing())];
    let wanted = Wanted::of(scope, &views)?;
    let kinds = Kinds::new(&views, &units, &sets);
    let rows = Rows::of(&kinds, &|value| allowed(value));
    Ok(rows.grouped(&wanted, &|value, pair| of_value(value, pair, &sets)))
}

fn allowed(value: &Value) -> bool {
    value.iter().flatten().any(|set| *set != Sets::NONE)
}

/// What a value says of two parties: between workloads by family, with the outside in one.
fn of_value(value: &Value, is_pair: bool, sets: &Sets) -> Vec<(Option<Family>, Rc<TrafficSet>)> {
    match is_pair {
        true => by_family([value[0], value[1]], sets),
        false => {
            let set = value.iter().flatten().next();
            let set = set.filter(|set| **set != Sets::NONE);
            set.map(|set| (None, sets.get(*set))).into_iter().collect()
        }
    }
}

/// One row where the families that both ends have agree, otherwise one for each.
pub(crate) fn by_family(
    found: [Option<SetId>; 2],
    sets: &Sets,
) -> Vec<(Option<Family>, Rc<TrafficSet>)> {
    let rows = match found {
        [Some(v4), Some(v6)] if v4 == v6 => vec![(None, v4)],
        [Some(v4), Some(v6)] => vec![(Some(Family::V4), v4), (Some(Family::V6), v6)],
        [one, other] => one.or(other).map(|set| (None, set)).into_iter().collect(),
    };
    let rows = rows.into_iter().filter(|(_, set)| *set != Sets::NONE);
    rows.map(|(family, set)| (family, sets.get(set))).collect()
}

/// Which workloads a scope asks for.
pub(crate) struct Wanted {
    from: Option<BTreeSet<Workload>>,
    to: Option<BTreeSet<Workload>>,
    namespace: Option<String>,
}

impl Wanted {
    pub(crate) fn of(scope: &Scope, views: &[&View]) -> Result<Self, ScopeError> {
        let named = |name: &Option<String>| {
            let Some(text) = name else { return Ok(None) };
            let (namespace, own) = text.split_once('/').unwrap_or(("default", text));
            let is = |w: &Workload| {
                w.namespace.as_deref().unwrap_or_default() == namespace && *w.name == *own
            };
            let mut found = BTreeSet::new();
            views.iter().for_each(|view| view.named(&is, &mut found));
            match found.is_empty() {
                true => Err(ScopeError::NoWorkload(text.clone())),
                false => Ok(Some(found)),
            }
        };
        let wanted = Wanted {
            from: named(&scope.from)?,
            to: named(&scope.to)?,
            namespace: scope.namespace.clone(),
        };
        if let Some(namespace) = &wanted.namespace {
            let mut found = BTreeSet::new();
            let is = |w: &Workload| w.namespace.as_deref() == Some(namespace);
            views.iter().for_each(|view| view.named(&is, &mut found));
            if found.is_empty() {
                return Err(ScopeError::NoNamespace(namespace.clone()));
            }
        }
        Ok(wanted)
    }

    fn all(&self) -> bool {
        self.from.is_none() && self.to.is_none() && self.namespace.is_none()
    }

    /// The wanted part of a row between these, in one or two rows. What is outside has no names.
    fn part(
        &self,
        from: Vec<Workload>,
        to: Vec<Workload>,
        ends: [bool; 2],
    ) -> Vec<[Vec<Workload>; 2]> {
        if self.all() {
            return vec![[from, to]];
        }
        let among = |list: Vec<Workload>, wanted: &Option<BTreeSet<Workload>>, outside: bool| {
            match wanted {
                None => Some(list),
                Some(_) if outside => None,
                Some(wanted) => {
                    let part: Vec<Workload> = list
                        .into_iter()
                        .filter(|w| wanted.contains(&pod_of(w)))
                        .collect();
                    (!part.is_empty()).then_some(part)
                }
            }
        };
        let from = among(from, &self.from, ends[0]);
        let to = among(to, &self.to, ends[1]);
        let (Some(from), Some(to)) = (from, to) else {
            return Vec::new();
        };
        let Some(namespace) = &self.namespace else {
            return vec![[from, to]];
        };
        let is_in = |w: &Workload| w.namespace.as_deref() == Some(namespace);
        let (inside, others): (Vec<_>, Vec<_>) = from.into_iter().partition(is_in);
        let mut parts = Vec::new();
        if !inside.is_empty() {
            parts.push([inside, to.clone()]);
        }
        let to: Vec<Workload> = to.into_iter().filter(is_in).collect();
        if !to.is_empty() && (!others.is_empty() || ends[0]) {
            parts.push([others, to]);
        }
        parts
    }
}

/// A workload, whichever of its addresses is meant.
fn pod_of(workload: &Workload) -> Workload {
    Workload {
        address: None,
        ..workload.clone()
    }
}

/// What a value says, between workloads or with the outside.
pub(crate) type Said<'s> = dyn Fn(&Value, bool) -> Vec<(Option<Family>, Rc<TrafficSet>)> + 's;

/// Everything that matters between kinds.
pub(crate) struct Rows<'k> {
    kinds: &'k Kinds<'k>,
    /// Sources that get one thing, with the workloads they get it from.
    between: BTreeMap<(Block, Value), Vec<u32>>,
    /// Parts of the outside that workloads reach, with those workloads.
    outward: BTreeMap<(Block, Value), Vec<u32>>,
    /// Parts of the outside that reach workloads.
    inward: BTreeMap<(Block, Value), Vec<u32>>,
}

impl<'k> Rows<'k> {
    pub(crate) fn of(kinds: &'k Kinds<'k>, matters: &dyn Fn(&Value) -> bool) -> Self {
        let mut rows = Rows {
            kinds,
            between: BTreeMap::new(),
            outward: BTreeMap::new(),
            inward: BTreeMap::new(),
        };
        for (id, kind) in kinds.kinds.iter().enumerate() {
            if kind.region.is_some() {
                continue;
            }
            let id = number(id);
            let lists = [
                (&mut rows.between, true, INSIDE),
                (&mut rows.outward, false, OUTSIDE),
                (&mut rows.inward, true, OUTSIDE),
            ];
            for (list, taking, zone) in lists {
                for (value, block) in kinds.others(id, taking, zone, matters) {
                    list.entry((block, value)).or_default().push(id);
                }
            }
        }
        rows
    }

    fn names(&self, kinds: &[u32]) -> Vec<Workload> {
        let names = kinds
            .iter()
            .flat_map(|kind| &self.kinds.kinds[*kind as usize].names);
        names.cloned().collect()
    }

    /// Whether packets of one to the other never leave a pod.
    fn same_pod(&self, a: u32, b: u32) -> bool {
        let [a, b] = [a, b].map(|kind| self.kinds.kinds[kind as usize].part_of.as_ref());
        a.is_some() && a == b
    }

    fn regions(&self, block: &Block) -> [Region; 2] {
        let mut ranges = [Vec::new(), Vec::new()];
        for kind in self.kinds.of_block(block) {
            if let Some((family, region)) = &self.kinds.kinds[kind as usize].region {
                ranges[*family as usize].extend(region.ranges());
            }
        }
        let [v4, v6] = ranges;
        [
            Region::of_ranges(Family::V4, v4),
            Region::of_ranges(Family::V6, v6),
        ]
    }

    /// Every pair of workloads, and of a workload and a prefix outside, by itself.
    pub(crate) fn one_by_one(&self, held: &[Region; 2], said: &Said<'_>) -> Vec<Connection> {
        let mut found = Vec::new();
        for ((block, value), destinations) in &self.between {
            let said = said(value, true);
            for from in self.kinds.of_block(block) {
                for to in destinations.iter().filter(|to| !self.same_pod(from, **to)) {
                    let (from, to) = (self.names(&[from]), self.names(&[*to]));
                    for src in &from {
                        for dst in to.iter().filter(|dst| *dst != src) {
                            push(
                                &said,
                                Party::Workload(src.clone()),
                                Party::Workload(dst.clone()),
                                &mut found,
                            );
                        }
                    }
                }
            }
        }
        let mut parts: BTreeMap<_, [Ranges; 2]> = BTreeMap::new();
        for (out, list) in [(true, &self.outward), (false, &self.inward)] {
            for ((block, value), kinds) in list {
                let regions = self.regions(block);
                for (_, set) in said(value, false) {
                    for name in self.names(kinds) {
                        let ranges = parts.entry((out, name, set.clone())).or_default();
                        for (ranges, region) in ranges.iter_mut().zip(&regions) {
                            ranges.extend(region.ranges());
                        }
                    }
                }
            }
        }
        for ((out, name, set), ranges) in parts {
            for (family, ranges) in Family::BOTH.into_iter().zip(ranges) {
                let region = Region::of_ranges(family, ranges).without(&held[family as usize]);
                for prefix in region.prefixes() {
                    let ends = (Party::Workload(name.clone()), Party::Outside(prefix));
                    let (src, dst) = if out { ends } else { (ends.1, ends.0) };
                    push(&[(None, set.clone())], src, dst, &mut found);
                }
            }
        }
        found.sort_by(|a, b| (&a.src, &a.dst, a.family).cmp(&(&b.src, &b.dst, b.family)));
        found
    }

    /// In as few rows as can be, workloads first, then the outside.
    pub(crate) fn grouped(&self, wanted: &Wanted, said: &Said<'_>) -> Vec<Connection> {
        let mut found = Vec::new();
        for ((block, value), destinations) in &self.between {
            let said = said(value, true);
            let sources = self.kinds.of_block(block);
            let has_parts = |kinds: &[u32]| {
                let mut kinds = kinds.iter();
                kinds.any(|kind| self.kinds.kinds[*kind as usize].part_of.is_some())
            };
            let few = sources.len() * destinations.len() <= PAIRS;
            let parts = has_parts(&sources) && has_parts(destinations);
            if !(few || parts) {
                self.row(&said, &sources, destinations, wanted, &mut found);
                continue;
            }
            for from in &sources {
                for to in destinations.iter().filter(|to| !self.same_pod(*from, **to)) {
                    self.row(&said, &[*from], &[*to], wanted, &mut found);
                }
            }
        }
        let order = |c: &Connection| (c.src.clone(), c.dst.clone(), c.family);
        found.sort_by_cached_key(order);
        let free = self.free();
        let mut known: BTreeMap<[Region; 2], Party> = BTreeMap::new();
        for (out, list) in [(true, &self.outward), (false, &self.inward)] {
            // Both families together, where they get the same.
            let mut by_kind: BTreeMap<u32, BTreeMap<_, [Ranges; 2]>> = BTreeMap::new();
            for ((block, value), kinds) in list {
                let regions = self.regions(block);
                for (_, set) in said(value, false) {
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
            let mut rows: BTreeMap<([Region; 2], Rc<TrafficSet>), Vec<u32>> = BTreeMap::new();
            for (kind, of_kind) in by_kind {
                for (set, ranges) in of_kind {
                    let [v4, v6] = ranges;
                    let regions = [
                        Region::of_ranges(Family::V4, v4),
                        Region::of_ranges(Family::V6, v6),
                    ];
                    rows.entry((regions, set)).or_default().push(kind);
                }
            }
            let mut outside_rows = Vec::new();
            for ((regions, set), kinds) in rows {
                let outside = known
                    .entry(regions.clone())
                    .or_insert_with(|| Party::Networks(Networks::of(&regions, &free)));
                let parts: Vec<Vec<u32>> = match kinds.len() <= PAIRS {
                    true => kinds.iter().map(|kind| vec![*kind]).collect(),
                    false => vec![kinds],
                };
                for kinds in parts {
                    let ends = [self.names(&kinds), Vec::new()];
                    let [from, to] = if out {
                        ends
                    } else {
                        let [a, b] = ends;
                        [b, a]
                    };
                    for [from, to] in wanted.part(from, to, [!out, out]) {
                        let Some(party) = Party::of(if out { from } else { to }) else {
                            continue;
                        };
                        let (src, dst) = match out {
                            true => (party, outside.clone()),
                            false => (outside.clone(), party),
                        };
                        push(&[(None, set.clone())], src, dst, &mut outside_rows);
                    }
                }
            }
            match out {
                true => outside_rows.sort_by_cached_key(order),
                false => outside_rows.sort_by_cached_key(|c| (c.dst.clone(), c.src.clone())),
            }
            found.extend(outside_rows);
        }
        found
    }

    /// What is neither wanted nor unwanted of the outside: what only workloads hold.
    fn free(&self) -> [Region; 2] {
        Family::BOTH.map(|family| {
            let all = self
                .kinds
                .kinds
                .iter()
                .filter_map(|kind| kind.region.as_ref());
            let all = all.filter(|(of, _)| *of == family);
            let ranges = all
                .flat_map(|(_, region)| region.ranges().to_vec())
                .collect();
            let (first, last) = palisade_model::Prefix::all(family).bounds();
            Region::of_ranges(family, vec![(first, last)])
                .without(&Region::of_ranges(family, ranges))
        })
    }

    fn row(
        &self,
        said: &[(Option<Family>, Rc<TrafficSet>)],
        from: &[u32],
        to: &[u32],
        wanted: &Wanted,
        found: &mut Vec<Connection>,
    ) {
        for [from, to] in wanted.part(self.names(from), self.names(to), [false; 2]) {
            let alone = from.len() == 1 && from == to;
            let (Some(src), Some(dst)) = (Party::of(from), Party::of(to)) else {
                continue;
            };
            if !alone {
                push(said, src, dst, found);
            }
        }
    }
}

fn push(
    said: &[(Option<Family>, Rc<TrafficSet>)],
    src: Party,
    dst: Party,
    found: &mut Vec<Connection>,
) {
    for (family, set) in said {
        found.push(Connection {
            src: src.clone(),
            dst: dst.clone(),
            family: *family,
            connections: set.clone(),
        });
    }
}
