//! The search for an isomorphism of the unpaired objects of two tables: colours, split by the colours in
//! the same entries, and attempts where no colour splits further.
//!
//! A pairing that it returns is an isomorphism of its input. It returns one where there is one, unless that
//! takes more entries than the limit; [`super`] has the reasons.

use crate::{ClassId, IdentityId, PolicySetId, Tables};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

/// An unpaired object of one side.
#[derive(Clone, Copy, Debug)]
enum VertexId {
    Set(PolicySetId),
    Identity(IdentityId),
    Class(ClassId),
}

/// An object of an entry: a paired one, by the number of its pair, or an unpaired one.
#[derive(Clone, Copy, Debug)]
enum VertexRef {
    Paired(u32),
    Unpaired(u32),
}

/// An entry that contains an unpaired object: the type of entry, and the other objects in it.
type TableRow = (u8, VertexRef, VertexRef);

const DEFAULT: u8 = 0;
const ROW: u8 = 1;

#[derive(Debug)]
struct Vertex {
    id: VertexId,
    colour: u32,
    rows: Vec<TableRow>,
}

/// One of the two tables.
#[derive(Debug, Default)]
struct GraphSide {
    sets: BTreeMap<PolicySetId, VertexRef>,
    identities: BTreeMap<IdentityId, VertexRef>,
    classes: BTreeMap<ClassId, VertexRef>,
    vertices: Vec<Vertex>,
}

/// The pairs that were found: wanted, held.
#[derive(Debug, Default)]
pub(super) struct Isomorphism {
    pub(super) sets: Vec<(PolicySetId, PolicySetId)>,
    pub(super) identities: Vec<(IdentityId, IdentityId)>,
    pub(super) classes: Vec<(ClassId, ClassId)>,
}

const INSTALLED: usize = 0;
const WANTED: usize = 1;

/// A side, and an unpaired object of it.
type VertexIndex = (usize, u32);

/// The entries of an unpaired object, by colours; sorted.
type RowColours = Vec<(u8, u32, u32)>;

/// The unpaired objects of both sides, and their colours. A colour must be on both sides equally often,
/// or the attempt fails.
#[derive(Debug)]
pub(super) struct Coloring {
    budget: u64,
    next_colour: u32,
    sides: [GraphSide; 2],
    cells: BTreeMap<u32, [BTreeSet<u32>; 2]>,
    /// The objects that changed their colour, with the former colour.
    trail: Vec<(VertexIndex, u32)>,
    balanced: bool,
}

/// A wanted object, and the held ones that it may be paired with.
struct BranchPoint {
    wanted: u32,
    /// The held one that was tried last; they are tried in order.
    tried: Option<u32>,
    /// The length of the trail before.
    trail_length: usize,
    /// Its position in its part.
    position: usize,
}

macro_rules! pairing_methods {
    ($pair:ident, $add:ident, $field:ident, $id:ident, $kind:ident) => {
        /// Pairs two objects.
        pub(super) fn $pair(&mut self, installed: $id, wanted: $id) {
            let paired = VertexRef::Paired(self.allocate_colour());
            self.sides[INSTALLED].$field.insert(installed, paired);
            self.sides[WANTED].$field.insert(wanted, paired);
        }

        /// Adds objects of one colour: held, wanted.
        pub(super) fn $add(&mut self, both: [impl IntoIterator<Item = $id>; 2]) {
            let colour = self.allocate_colour();
            let mut cell = [BTreeSet::new(), BTreeSet::new()];
            for (index, ids) in both.into_iter().enumerate() {
                let side = &mut self.sides[index];
                for id in ids {
                    let at = u32::try_from(side.vertices.len()).unwrap_or(u32::MAX);
                    side.$field.insert(id, VertexRef::Unpaired(at));
                    side.vertices.push(Vertex {
                        id: VertexId::$kind(id),
                        colour,
                        rows: Vec::new(),
                    });
                    cell[index].insert(at);
                }
            }
            self.insert_cell(colour, cell);
        }
    };
}

impl Coloring {
    /// A search that looks at no more than this many entries.
    pub(super) fn new(effort: u64) -> Self {
        Coloring {
            budget: effort,
            next_colour: 0,
            sides: Default::default(),
            cells: BTreeMap::new(),
            trail: Vec::new(),
            balanced: true,
        }
    }

    pairing_methods!(pair_sets, add_unpaired_sets, sets, PolicySetId, Set);
    pairing_methods!(
        pair_identities,
        add_unpaired_identities,
        identities,
        IdentityId,
        Identity
    );
    pairing_methods!(pair_classes, add_unpaired_classes, classes, ClassId, Class);

    fn allocate_colour(&mut self) -> u32 {
        let number = self.next_colour;
        self.next_colour = number.wrapping_add(1);
        number
    }

    fn insert_cell(&mut self, colour: u32, cell: [BTreeSet<u32>; 2]) {
        self.balanced &= cell[INSTALLED].len() == cell[WANTED].len();
        if !cell.iter().all(BTreeSet::is_empty) {
            self.cells.insert(colour, cell);
        }
    }

    /// Adds the entries of the tables (held, wanted) that contain unpaired objects.
    pub(super) fn add_rows(&mut self, both: [&Tables; 2]) {
        for (half, tables) in self.sides.iter_mut().zip(both) {
            for (set, points_set) in &tables.sets {
                let ends = half
                    .sets
                    .get(set)
                    .zip(half.classes.get(&points_set.default));
                if let Some((&set, &class)) = ends {
                    half.add_row(set, (DEFAULT, class, class));
                    half.add_row(class, (DEFAULT, set, set));
                }
            }
            for ((set, id), class) in &tables.classes {
                let ends = half.sets.get(set).zip(half.identities.get(id));
                let ends = ends.zip(half.classes.get(class));
                if let Some(((&set, &id), &class)) = ends {
                    half.add_row(set, (ROW, id, class));
                    half.add_row(id, (ROW, set, class));
                    half.add_row(class, (ROW, set, id));
                }
            }
        }
    }

    /// Pairs all objects, or none.
    pub(super) fn solve(mut self) -> Option<Isomorphism> {
        let all = [INSTALLED, WANTED].map(|side| self.sides[side].vertices.len());
        let all: BTreeSet<VertexIndex> = [INSTALLED, WANTED]
            .into_iter()
            .flat_map(|side| (0..all[side]).map(move |at| (side, at as u32)))
            .collect();
        if !self.balanced || !self.refine(all) {
            return None;
        }
        for part in self.ambiguous_parts() {
            if !self.search_part(&part) {
                return None;
            }
            self.trail.clear();
        }
        let mut isomorphism = Isomorphism::default();
        for wanted in &self.sides[WANTED].vertices {
            let installed = self.cells.get(&wanted.colour)?[INSTALLED].first()?;
            let installed = &self.sides[INSTALLED].vertices[*installed as usize];
            match (wanted.id, installed.id) {
                (VertexId::Set(wanted), VertexId::Set(installed)) => {
                    isomorphism.sets.push((wanted, installed))
                }
                (VertexId::Identity(wanted), VertexId::Identity(installed)) => {
                    isomorphism.identities.push((wanted, installed));
                }
                (VertexId::Class(wanted), VertexId::Class(installed)) => {
                    isomorphism.classes.push((wanted, installed))
                }
                _ => return None,
            }
        }
        Some(isomorphism)
    }

    fn colour(&self, (side, at): VertexIndex) -> u32 {
        self.sides[side].vertices[at as usize].colour
    }

    fn entries(&self, (side, at): VertexIndex) -> &[TableRow] {
        &self.sides[side].vertices[at as usize].rows
    }

    /// The unpaired objects in the entries of an object.
    fn neighbours(&self, (side, at): VertexIndex) -> impl Iterator<Item = VertexIndex> + '_ {
        let entries = self.entries((side, at)).iter();
        entries
            .flat_map(|(_, a, b)| [*a, *b])
            .filter_map(move |end| match end {
                VertexRef::Unpaired(at) => Some((side, at)),
                VertexRef::Paired(_) => None,
            })
    }

    fn is_ambiguous(&self, wanted: u32) -> bool {
        let cell = self.cells.get(&self.colour((WANTED, wanted)));
        cell.is_some_and(|[installed, _]| installed.len() > 1)
    }

    /// The wanted objects with more than one candidate, by connected part.
    fn ambiguous_parts(&self) -> Vec<Vec<u32>> {
        let mut seen: BTreeSet<u32> = BTreeSet::new();
        let mut parts = Vec::new();
        for start in 0..self.sides[WANTED].vertices.len() as u32 {
            if !self.is_ambiguous(start) || !seen.insert(start) {
                continue;
            }
            let mut part = alloc::vec![start];
            let mut at = 0;
            while let Some(next) = part.get(at).copied() {
                for (_, other) in self.neighbours((WANTED, next)) {
                    if self.is_ambiguous(other) && seen.insert(other) {
                        part.push(other);
                    }
                }
                at += 1;
            }
            parts.push(part);
        }
        parts
    }

    /// Tries pairs until each object of a part has one. Returns whether that is possible.
    fn search_part(&mut self, part: &[u32]) -> bool {
        let mut choices: Vec<BranchPoint> = Vec::new();
        let mut depth = 0;
        loop {
            let mut rest = part.iter().skip(depth);
            let Some(ahead) = rest.position(|wanted| self.is_ambiguous(*wanted)) else {
                return true;
            };
            depth += ahead;
            choices.push(BranchPoint {
                wanted: part[depth],
                tried: None,
                trail_length: self.trail.len(),
                position: depth,
            });
            depth = loop {
                let Some(choice) = choices.last_mut() else {
                    return false;
                };
                self.backtrack(choice.trail_length);
                let Some(installed) = self.next_candidate(choice.wanted, choice.tried) else {
                    choices.pop();
                    continue;
                };
                choice.tried = Some(installed);
                if self.try_pair(choice.wanted, installed) {
                    break choice.position;
                }
                if self.budget == 0 {
                    return false;
                }
            };
        }
    }

    /// The next held object of the colour of a wanted one.
    fn next_candidate(&self, wanted: u32, tried: Option<u32>) -> Option<u32> {
        let [installed, _] = self.cells.get(&self.colour((WANTED, wanted)))?;
        let from = tried.map_or(0, |tried| tried.saturating_add(1));
        installed.range(from..).next().copied()
    }

    /// Pairs two objects, and splits colours by the pair.
    fn try_pair(&mut self, wanted: u32, installed: u32) -> bool {
        let colour = self.allocate_colour();
        let both = [(INSTALLED, installed), (WANTED, wanted)];
        both.into_iter().for_each(|at| self.set_colour(at, colour));
        let touched = both.into_iter().flat_map(|at| self.neighbours(at));
        let touched = touched.collect();
        self.refine(touched)
    }

    /// Splits colours until none splits, beginning with the neighbours of objects that changed their
    /// colour. Returns whether both sides still have each colour equally often.
    ///
    /// An object that is not looked at has the same colours in its entries as before; one that is looked at
    /// has a new colour in an entry. So these two are never equal, and no other object of the colour need be
    /// looked at.
    fn refine(&mut self, mut touched: BTreeSet<VertexIndex>) -> bool {
        while !touched.is_empty() {
            let mut seen: BTreeMap<u32, BTreeMap<RowColours, Vec<VertexIndex>>> = BTreeMap::new();
            for at in touched {
                let cost = self.entries(at).len() as u64 + 1;
                self.budget = self.budget.saturating_sub(cost);
                let colours = self.row_colours(at);
                let by_colours = seen.entry(self.colour(at)).or_default();
                by_colours.entry(colours).or_default().push(at);
            }
            if self.budget == 0 {
                return false;
            }
            touched = BTreeSet::new();
            for (colour, groups) in seen {
                let mut groups: Vec<Vec<VertexIndex>> = groups.into_values().collect();
                let looked: usize = groups.iter().map(Vec::len).sum();
                let [installed, wanted] = &self.cells[&colour];
                // The largest group keeps the colour, unless it belongs to those not looked at.
                if looked == installed.len() + wanted.len() {
                    groups.sort_by_key(Vec::len);
                    groups.pop();
                }
                for group in groups {
                    let new = self.allocate_colour();
                    for at in group {
                        self.set_colour(at, new);
                        touched.extend(self.neighbours(at).collect::<Vec<_>>());
                    }
                    if !self.is_balanced(new) {
                        return false;
                    }
                }
                if !self.is_balanced(colour) {
                    return false;
                }
            }
        }
        true
    }

    fn is_balanced(&self, colour: u32) -> bool {
        let cell = self.cells.get(&colour);
        cell.is_none_or(|[installed, wanted]| installed.len() == wanted.len())
    }

    fn row_colours(&self, (side, at): VertexIndex) -> RowColours {
        let colour = |end: VertexRef| match end {
            VertexRef::Paired(pair) => pair,
            VertexRef::Unpaired(other) => self.colour((side, other)),
        };
        let entries = self.entries((side, at)).iter();
        let mut colours: RowColours = entries
            .map(|(kind, a, b)| (*kind, colour(*a), colour(*b)))
            .collect();
        colours.sort_unstable();
        colours
    }

    fn set_colour(&mut self, at: VertexIndex, colour: u32) {
        self.trail.push((at, self.colour(at)));
        self.recolour(at, colour);
    }

    fn recolour(&mut self, (side, at): VertexIndex, colour: u32) {
        let vertex = &mut self.sides[side].vertices[at as usize];
        let before = core::mem::replace(&mut vertex.colour, colour);
        if let Some(cell) = self.cells.get_mut(&before) {
            cell[side].remove(&at);
            if cell.iter().all(BTreeSet::is_empty) {
                self.cells.remove(&before);
            }
        }
        self.cells.entry(colour).or_default()[side].insert(at);
    }

    /// Restores the colours that were changed since.
    fn backtrack(&mut self, mark: usize) {
        while self.trail.len() > mark {
            if let Some((at, before)) = self.trail.pop() {
                self.recolour(at, before);
            }
        }
    }
}

impl GraphSide {
    fn add_row(&mut self, vertex: VertexRef, entry: TableRow) {
        if let VertexRef::Unpaired(at) = vertex {
            self.vertices[at as usize].rows.push(entry);
        }
    }
}
