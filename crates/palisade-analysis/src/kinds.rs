//! Workloads that no policy tells apart, and the parts of the outside, as kinds; and which kinds get
//! the same.
//!
//! The work follows what differs. What most sources get is said once for each way they are treated,
//! and only sources that get something else are looked at one by one.

use crate::judge::{SetId, Sets};
use crate::matrix::{INSIDE, Matrix, OUTSIDE};
use crate::region::Region;
use crate::rules::number;
use crate::view::{Unit, View};
use crate::workload::Workload;
use palisade_model::Family;
use std::collections::BTreeMap;

/// What two kinds get in each layer in which both are.
pub(crate) type Value = Vec<Option<SetId>>;

/// Workloads that no policy tells apart, in any layer.
pub(crate) struct Kind {
    /// The class in each layer in which they are: by view, then by family.
    pub(crate) classes: Vec<Option<u32>>,
    /// Their names; none of what is outside.
    pub(crate) names: Vec<Workload>,
    /// The pod whose one address this is.
    pub(crate) part_of: Option<Workload>,
    /// What is outside: its family and addresses, some of which may be held.
    pub(crate) region: Option<(Family, Region)>,
}

impl Kind {
    fn zone(&self) -> usize {
        match self.region {
            None => INSIDE,
            Some(_) => OUTSIDE,
        }
    }
}

/// Kinds, told by what most of those that are treated alike would be: all of these but some, and
/// some others.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Block {
    /// Each a base with the kinds of it that are left out.
    but: Vec<(u32, Vec<u32>)>,
    also: Vec<u32>,
}

/// All kinds of one or two views.
pub(crate) struct Kinds<'v> {
    pub(crate) kinds: Vec<Kind>,
    layers: Vec<&'v Matrix>,
    sets: &'v Sets,
    /// Where a class of a layer occurs.
    places: Vec<BTreeMap<u32, Vec<u32>>>,
    /// Kinds that most others treat alike as sources, and as destinations, by zone.
    bases: [[Vec<Base>; 2]; 2],
    /// Of each base its kinds.
    of_base: Vec<Vec<u32>>,
}

/// What the kinds of a base send, or take, in each layer.
struct Base {
    id: u32,
    usual: Vec<Option<SetId>>,
}

/// As sources.
const SENDERS: usize = 0;
/// As destinations.
const TAKERS: usize = 1;

impl<'v> Kinds<'v> {
    /// The kinds of these views, whose units are alike in all of them.
    pub(crate) fn new(
        views: &'v [&'v View],
        units: &[BTreeMap<Workload, Unit>],
        sets: &'v Sets,
    ) -> Self {
        let layers: Vec<&Matrix> = views.iter().flat_map(|view| &view.matrices).collect();
        let mut kinds = of_workloads(&layers, units);
        for family in Family::BOTH {
            kinds.extend(of_outside(views, family));
        }
        let mut places = vec![BTreeMap::<u32, Vec<u32>>::new(); layers.len()];
        for (id, kind) in kinds.iter().enumerate() {
            for (class, places) in kind.classes.iter().zip(&mut places) {
                if let Some(class) = class {
                    places.entry(*class).or_default().push(number(id));
                }
            }
        }
        let mut all = Kinds {
            kinds,
            layers,
            sets,
            places,
            bases: Default::default(),
            of_base: Vec::new(),
        };
        all.find_bases();
        all
    }

    fn find_bases(&mut self) {
        for role in [SENDERS, TAKERS] {
            let mut known: BTreeMap<(usize, Value), Vec<u32>> = BTreeMap::new();
            for (id, kind) in self.kinds.iter().enumerate() {
                let usual = kind.classes.iter().zip(&self.layers).map(|(class, layer)| {
                    // Only what goes to or comes from workloads is ever asked for.
                    Some(match role {
                        SENDERS => layer.sends((*class)?, INSIDE),
                        _ => layer.takes((*class)?, INSIDE),
                    })
                });
                let key = (kind.zone(), usual.collect());
                known.entry(key).or_default().push(number(id));
            }
            for ((zone, usual), members) in known {
                let id = number(self.of_base.len());
                self.of_base.push(members);
                self.bases[role][zone].push(Base { id, usual });
            }
        }
    }

    /// What a source and a destination get.
    pub(crate) fn between(&self, source: u32, destination: u32) -> Value {
        let ends = [source, destination].map(|kind| &self.kinds[kind as usize].classes);
        let layers = self.layers.iter().enumerate();
        layers
            .map(|(at, layer)| Some(layer.allowed(ends[0][at]?, ends[1][at]?)))
            .collect()
    }

    /// For a workload as destination (`taking`) or as source the others of a zone, by what they get
    /// together; of that only what `matters`.
    pub(crate) fn others(
        &self,
        own: u32,
        taking: bool,
        zone: usize,
        matters: &dyn Fn(&Value) -> bool,
    ) -> BTreeMap<Value, Block> {
        let classes = &self.kinds[own as usize].classes;
        let mut unusual = Vec::new();
        for ((class, layer), places) in classes.iter().zip(&self.layers).zip(&self.places) {
            let Some(class) = class else { continue };
            let others = match taking {
                true => &layer.to[*class as usize],
                false => &layer.from[*class as usize],
            };
            let kinds = others.iter().filter_map(|(class, _)| places.get(class));
            unusual.extend(kinds.flatten().copied());
        }
        unusual.retain(|kind| self.kinds[*kind as usize].zone() == zone);
        unusual.sort_unstable();
        unusual.dedup();
        let mut found: BTreeMap<Value, Block> = BTreeMap::new();
        let role = if taking { SENDERS } else { TAKERS };
        for base in &self.bases[role][zone] {
            let layers = self.layers.iter().zip(classes).zip(&base.usual);
            let value: Value = layers
                .map(|((layer, class), other)| {
                    let own = match taking {
                        true => layer.takes((*class)?, zone),
                        false => layer.sends((*class)?, zone),
                    };
                    Some(self.sets.and(own, (*other)?))
                })
                .collect();
            if !matters(&value) {
                continue;
            }
            let members = &self.of_base[base.id as usize];
            let out = unusual
                .iter()
                .filter(|kind| members.binary_search(kind).is_ok());
            let out: Vec<u32> = out.copied().collect();
            if out.len() < members.len() {
                found.entry(value).or_default().but.push((base.id, out));
            }
        }
        for kind in unusual {
            let value = match taking {
                true => self.between(kind, own),
                false => self.between(own, kind),
            };
            if matters(&value) {
                found.entry(value).or_default().also.push(kind);
            }
        }
        found
    }

    /// The kinds of a block, ascending.
    pub(crate) fn of_block(&self, block: &Block) -> Vec<u32> {
        let mut all = block.also.clone();
        for (base, out) in &block.but {
            let members = self.of_base[*base as usize].iter();
            all.extend(members.filter(|kind| out.binary_search(kind).is_err()));
        }
        all.sort_unstable();
        all
    }
}

fn of_workloads(layers: &[&Matrix], units: &[BTreeMap<Workload, Unit>]) -> Vec<Kind> {
    let mut names: Vec<&Workload> = units.iter().flat_map(BTreeMap::keys).collect();
    names.sort();
    names.dedup();
    let mut known: BTreeMap<(Vec<_>, Option<_>), Vec<Workload>> = BTreeMap::new();
    for name in names {
        let units: Vec<Option<&Unit>> = units.iter().map(|units| units.get(name)).collect();
        let of_families = units.iter().flat_map(|unit| match unit {
            Some(unit) => unit.classes,
            None => [None; 2],
        });
        let classes = of_families.zip(layers);
        let classes = classes.map(|(class, layer)| class.map(|class| layer.twins[class as usize]));
        let part_of = units
            .iter()
            .flatten()
            .find_map(|unit| unit.part_of.as_ref());
        let key = (classes.collect(), part_of);
        known.entry(key).or_default().push(name.clone());
    }
    let mut kinds: Vec<Kind> = known
        .into_iter()
        .map(|((classes, part_of), names)| Kind {
            classes,
            names,
            part_of: part_of.cloned(),
            region: None,
        })
        .collect();
    kinds.sort_by(|a, b| a.names.cmp(&b.names));
    kinds
}

/// What is outside in all views, in parts that are of one class in each.
fn of_outside(views: &[&View], family: Family) -> Vec<Kind> {
    let mut parts: BTreeMap<Vec<Option<u32>>, Vec<(u128, u128)>> = BTreeMap::new();
    let sorted = |view: &View| {
        let regions = view.outside[family as usize].iter();
        let ranges = regions.flat_map(|(region, class)| {
            let ranges = region.ranges().iter();
            ranges.map(|(first, last)| (*first, *last, *class))
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
        let mut free = Region::of_ranges(family, vec![(first, last)]);
        if views.len() > 1 {
            for held in views.iter().map(|view| &view.held[family as usize]) {
                free = free.without(&held.within(first, last));
            }
        }
        if free.is_empty() {
            continue;
        }
        let mut layers = vec![None; views.len() * 2];
        for (view, class) in classes.into_iter().enumerate() {
            let twin = views[view].matrices[family as usize].twins[class as usize];
            layers[view * 2 + family as usize] = Some(twin);
        }
        parts.entry(layers).or_default().push((first, last));
    }
    let parts = parts.into_iter().map(|(classes, ranges)| Kind {
        classes,
        names: Vec::new(),
        part_of: None,
        region: Some((family, Region::of_ranges(family, ranges))),
    });
    parts.collect()
}
