//! The search for an isomorphism of what is left when two tables are paired: colours, split by the
//! colours that stand in the same rows, and tries where they split no further.
//!
//! It promises that a pairing it returns is an isomorphism of what it was given, and that it returns one
//! where there is one, unless that takes more looks at entries than it was allowed. Why, says
//! [`crate::align`].

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use palisade_tables::{ClassId, IdentityId, PolicySetId, Tables};

/// What is loose on one side.
#[derive(Clone, Copy, Debug)]
enum VertexId {
    Set(PolicySetId),
    Identity(IdentityId),
    Class(ClassId),
}

/// What stands in a row: something paired, by the number of its pair, or something loose.
#[derive(Clone, Copy, Debug)]
enum VertexRef {
    Paired(u32),
    Unpaired(u32),
}

/// Where something loose stands: what kind of entry it is, and what else is in it.
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

/// What was found, by what is wanted.
#[derive(Debug, Default)]
pub(crate) struct Isomorphism {
    pub(crate) sets: Vec<(PolicySetId, PolicySetId)>,
    pub(crate) identities: Vec<(IdentityId, IdentityId)>,
    pub(crate) classes: Vec<(ClassId, ClassId)>,
}

const HELD: usize = 0;
const WANTED: usize = 1;

/// A side, and something loose on it.
type VertexIndex = (usize, u32);

/// What something loose stands in, by colours; sorted.
type RowColours = Vec<(u8, u32, u32)>;

/// What is loose on both sides, and its colours. A colour is on both sides equally often, or a
/// pairing that begins so leads nowhere.
#[derive(Debug)]
pub(crate) struct Coloring {
    budget: u64,
    next_colour: u32,
    sides: [GraphSide; 2],
    cells: BTreeMap<u32, [BTreeSet<u32>; 2]>,
    /// What got another colour, and which it had.
    trail: Vec<(VertexIndex, u32)>,
    balanced: bool,
}

/// A wanted element, and the held ones that it may be.
struct BranchPoint {
    wanted: u32,
    /// The held one that was tried last; they are tried in order.
    tried: Option<u32>,
    /// How long the trail was before.
    trail_length: usize,
    /// Where in its part it stands.
    position: usize,
}

macro_rules! pairing_methods {
    ($pair:ident, $add:ident, $field:ident, $id:ident, $kind:ident) => {
        /// Takes two as one and the same.
        pub(crate) fn $pair(&mut self, held: $id, wanted: $id) {
            let paired = VertexRef::Paired(self.allocate_colour());
            self.sides[HELD].$field.insert(held, paired);
            self.sides[WANTED].$field.insert(wanted, paired);
        }

        /// Takes these as of one colour: held, wanted.
        pub(crate) fn $add(&mut self, both: [impl IntoIterator<Item = $id>; 2]) {
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
    /// A search that looks at no more than so many entries.
    pub(crate) fn new(effort: u64) -> Self {
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
        self.balanced &= cell[HELD].len() == cell[WANTED].len();
        if !cell.iter().all(BTreeSet::is_empty) {
            self.cells.insert(colour, cell);
        }
    }

    /// Notes in which entries of the tables (held, wanted) what is loose stands.
    pub(crate) fn add_rows(&mut self, both: [&Tables; 2]) {
        for (half, tables) in self.sides.iter_mut().zip(both) {
            for (set, of) in &tables.sets {
                let ends = half.sets.get(set).zip(half.classes.get(&of.default));
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

    /// Pairs everything that is loose, or nothing.
    pub(crate) fn solve(mut self) -> Option<Isomorphism> {
        let all = [HELD, WANTED].map(|side| self.sides[side].vertices.len());
        let all: BTreeSet<VertexIndex> = [HELD, WANTED]
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
        let mut found = Isomorphism::default();
        for wanted in &self.sides[WANTED].vertices {
            let held = self.cells.get(&wanted.colour)?[HELD].first()?;
            let held = &self.sides[HELD].vertices[*held as usize];
            match (wanted.id, held.id) {
                (VertexId::Set(wanted), VertexId::Set(held)) => found.sets.push((wanted, held)),
                (VertexId::Identity(wanted), VertexId::Identity(held)) => {
                    found.identities.push((wanted, held));
                }
                (VertexId::Class(wanted), VertexId::Class(held)) => {
                    found.classes.push((wanted, held))
                }
                _ => return None,
            }
        }
        Some(found)
    }

    fn colour(&self, (side, at): VertexIndex) -> u32 {
        self.sides[side].vertices[at as usize].colour
    }

    fn entries(&self, (side, at): VertexIndex) -> &[TableRow] {
        &self.sides[side].vertices[at as usize].rows
    }

    /// What else stands in the entries of something.
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
        cell.is_some_and(|[held, _]| held.len() > 1)
    }

    /// What is wanted and has not one pair yet, by what hangs together.
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

    /// Tries until everything in a part has one pair. Returns whether that could be had.
    fn search_part(&mut self, part: &[u32]) -> bool {
        let mut choices: Vec<BranchPoint> = Vec::new();
        let mut place = 0;
        loop {
            let mut rest = part.iter().skip(place);
            let Some(ahead) = rest.position(|wanted| self.is_ambiguous(*wanted)) else {
                return true;
            };
            place += ahead;
            choices.push(BranchPoint {
                wanted: part[place],
                tried: None,
                trail_length: self.trail.len(),
                position: place,
            });
            place = loop {
                let Some(choice) = choices.last_mut() else {
                    return false;
                };
                self.backtrack(choice.trail_length);
                let Some(held) = self.next_candidate(choice.wanted, choice.tried) else {
                    choices.pop();
                    continue;
                };
                choice.tried = Some(held);
                if self.try_pair(choice.wanted, held) {
                    break choice.position;
                }
                if self.budget == 0 {
                    return false;
                }
            };
        }
    }

    /// The held one of an element's colour that comes after another.
    fn next_candidate(&self, wanted: u32, tried: Option<u32>) -> Option<u32> {
        let [held, _] = self.cells.get(&self.colour((WANTED, wanted)))?;
        let from = tried.map_or(0, |tried| tried.saturating_add(1));
        held.range(from..).next().copied()
    }

    /// Takes two as one and the same, and splits colours by it.
    fn try_pair(&mut self, wanted: u32, held: u32) -> bool {
        let colour = self.allocate_colour();
        let both = [(HELD, held), (WANTED, wanted)];
        both.into_iter().for_each(|at| self.set_colour(at, colour));
        let touched = both.into_iter().flat_map(|at| self.neighbours(at));
        let touched = touched.collect();
        self.refine(touched)
    }

    /// Splits colours until nothing splits, beginning with what stands beside something that got
    /// another colour. Returns whether both sides still have each equally often.
    ///
    /// What is not looked at again sees what it saw; what is sees a colour that nobody had before.
    /// So these two are never equal, and nothing else of the colour need be looked at.
    fn refine(&mut self, mut touched: BTreeSet<VertexIndex>) -> bool {
        while !touched.is_empty() {
            let mut seen: BTreeMap<u32, BTreeMap<RowColours, Vec<VertexIndex>>> = BTreeMap::new();
            for at in touched {
                let cost = self.entries(at).len() as u64 + 1;
                self.budget = self.budget.saturating_sub(cost);
                let sight = self.row_colours(at);
                let of = seen.entry(self.colour(at)).or_default();
                of.entry(sight).or_default().push(at);
            }
            if self.budget == 0 {
                return false;
            }
            touched = BTreeSet::new();
            for (colour, groups) in seen {
                let mut groups: Vec<Vec<VertexIndex>> = groups.into_values().collect();
                let looked: usize = groups.iter().map(Vec::len).sum();
                let [held, wanted] = &self.cells[&colour];
                // The largest group keeps the colour, unless it belongs to those not looked at.
                if looked == held.len() + wanted.len() {
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
        cell.is_none_or(|[held, wanted]| held.len() == wanted.len())
    }

    fn row_colours(&self, (side, at): VertexIndex) -> RowColours {
        let colour = |end: VertexRef| match end {
            VertexRef::Paired(pair) => pair,
            VertexRef::Unpaired(other) => self.colour((side, other)),
        };
        let entries = self.entries((side, at)).iter();
        let mut sight: RowColours = entries
            .map(|(kind, a, b)| (*kind, colour(*a), colour(*b)))
            .collect();
        sight.sort_unstable();
        sight
    }

    fn set_colour(&mut self, at: VertexIndex, colour: u32) {
        self.trail.push((at, self.colour(at)));
        self.recolour(at, colour);
    }

    fn recolour(&mut self, (side, at): VertexIndex, colour: u32) {
        let loose = &mut self.sides[side].vertices[at as usize];
        let was = core::mem::replace(&mut loose.colour, colour);
        if let Some(cell) = self.cells.get_mut(&was) {
            cell[side].remove(&at);
            if cell.iter().all(BTreeSet::is_empty) {
                self.cells.remove(&was);
            }
        }
        self.cells.entry(colour).or_default()[side].insert(at);
    }

    /// Takes back what got another colour since.
    fn backtrack(&mut self, mark: usize) {
        while self.trail.len() > mark {
            if let Some((at, was)) = self.trail.pop() {
                self.recolour(at, was);
            }
        }
    }
}

impl GraphSide {
    fn add_row(&mut self, of: VertexRef, entry: TableRow) {
        if let VertexRef::Unpaired(at) = of {
            self.vertices[at as usize].rows.push(entry);
        }
    }
}
