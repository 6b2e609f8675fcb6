//! The search for an isomorphism of what is left when two tables are paired: colours, split by the
//! colours that stand in the same rows, and tries where they split no further.
//!
//! It promises that a pairing it returns is an isomorphism of what it was given, and that it returns one
//! where there is one, unless that takes more looks at entries than it was allowed. Why, says
//! [`crate::align`].

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use palisade_tables::{ClassId, IdentityId, SetId, Tables};

/// What is loose on one side.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Set(SetId),
    Identity(IdentityId),
    Class(ClassId),
}

/// What stands in a row: something paired, by the number of its pair, or something loose.
#[derive(Clone, Copy, Debug)]
enum End {
    Paired(u32),
    Loose(u32),
}

/// Where something loose stands: what kind of entry it is, and what else is in it.
type Entry = (u8, End, End);

const DEFAULT: u8 = 0;
const ROW: u8 = 1;

#[derive(Debug)]
struct Loose {
    kind: Kind,
    colour: u32,
    entries: Vec<Entry>,
}

/// One of the two tables.
#[derive(Debug, Default)]
struct Half {
    sets: BTreeMap<SetId, End>,
    identities: BTreeMap<IdentityId, End>,
    classes: BTreeMap<ClassId, End>,
    loose: Vec<Loose>,
}

/// What was found, by what is wanted.
#[derive(Debug, Default)]
pub(crate) struct Found {
    pub(crate) sets: Vec<(SetId, SetId)>,
    pub(crate) identities: Vec<(IdentityId, IdentityId)>,
    pub(crate) classes: Vec<(ClassId, ClassId)>,
}

const HELD: usize = 0;
const WANTED: usize = 1;

/// A side, and something loose on it.
type At = (usize, u32);

/// What something loose stands in, by colours; sorted.
type Sight = Vec<(u8, u32, u32)>;

/// What is loose on both sides, and its colours. A colour is on both sides equally often, or a
/// pairing that begins so leads nowhere.
#[derive(Debug)]
pub(crate) struct Coloring {
    effort: u64,
    next: u32,
    halves: [Half; 2],
    cells: BTreeMap<u32, [BTreeSet<u32>; 2]>,
    /// What got another colour, and which it had.
    trail: Vec<(At, u32)>,
    balanced: bool,
}

/// A wanted element, and the held ones that it may be.
struct Choice {
    wanted: u32,
    /// The held one that was tried last; they are tried in order.
    tried: Option<u32>,
    /// How long the trail was before.
    mark: usize,
    /// Where in its part it stands.
    place: usize,
}

macro_rules! kind {
    ($pair:ident, $loosen:ident, $field:ident, $id:ident, $kind:ident) => {
        /// Takes two as one and the same.
        pub(crate) fn $pair(&mut self, held: $id, wanted: $id) {
            let end = End::Paired(self.number());
            self.halves[HELD].$field.insert(held, end);
            self.halves[WANTED].$field.insert(wanted, end);
        }

        /// Takes these as of one colour: held, wanted.
        pub(crate) fn $loosen(&mut self, both: [impl IntoIterator<Item = $id>; 2]) {
            let colour = self.number();
            let mut cell = [BTreeSet::new(), BTreeSet::new()];
            for (side, ids) in both.into_iter().enumerate() {
                let half = &mut self.halves[side];
                for id in ids {
                    let at = u32::try_from(half.loose.len()).unwrap_or(u32::MAX);
                    half.$field.insert(id, End::Loose(at));
                    half.loose.push(Loose {
                        kind: Kind::$kind(id),
                        colour,
                        entries: Vec::new(),
                    });
                    cell[side].insert(at);
                }
            }
            self.cell(colour, cell);
        }
    };
}

impl Coloring {
    /// A search that looks at no more than so many entries.
    pub(crate) fn new(effort: u64) -> Self {
        Coloring {
            effort,
            next: 0,
            halves: Default::default(),
            cells: BTreeMap::new(),
            trail: Vec::new(),
            balanced: true,
        }
    }

    kind!(pair_sets, loosen_sets, sets, SetId, Set);
    kind!(
        pair_identities,
        loosen_identities,
        identities,
        IdentityId,
        Identity
    );
    kind!(pair_classes, loosen_classes, classes, ClassId, Class);

    fn number(&mut self) -> u32 {
        let number = self.next;
        self.next = number.wrapping_add(1);
        number
    }

    fn cell(&mut self, colour: u32, cell: [BTreeSet<u32>; 2]) {
        self.balanced &= cell[HELD].len() == cell[WANTED].len();
        if !cell.iter().all(BTreeSet::is_empty) {
            self.cells.insert(colour, cell);
        }
    }

    /// Notes in which entries of the tables (held, wanted) what is loose stands.
    pub(crate) fn rows(&mut self, both: [&Tables; 2]) {
        for (half, tables) in self.halves.iter_mut().zip(both) {
            for (set, of) in &tables.sets {
                let ends = half.sets.get(set).zip(half.classes.get(&of.default));
                if let Some((&set, &class)) = ends {
                    half.note(set, (DEFAULT, class, class));
                    half.note(class, (DEFAULT, set, set));
                }
            }
            for ((set, id), class) in &tables.classes {
                let ends = half.sets.get(set).zip(half.identities.get(id));
                let ends = ends.zip(half.classes.get(class));
                if let Some(((&set, &id), &class)) = ends {
                    half.note(set, (ROW, id, class));
                    half.note(id, (ROW, set, class));
                    half.note(class, (ROW, set, id));
                }
            }
        }
    }

    /// Pairs everything that is loose, or nothing.
    pub(crate) fn solve(mut self) -> Option<Found> {
        let all = [HELD, WANTED].map(|side| self.halves[side].loose.len());
        let all: BTreeSet<At> = [HELD, WANTED]
            .into_iter()
            .flat_map(|side| (0..all[side]).map(move |at| (side, at as u32)))
            .collect();
        if !self.balanced || !self.split(all) {
            return None;
        }
        for part in self.parts() {
            if !self.settle(&part) {
                return None;
            }
            self.trail.clear();
        }
        let mut found = Found::default();
        for wanted in &self.halves[WANTED].loose {
            let held = self.cells.get(&wanted.colour)?[HELD].first()?;
            let held = &self.halves[HELD].loose[*held as usize];
            match (wanted.kind, held.kind) {
                (Kind::Set(wanted), Kind::Set(held)) => found.sets.push((wanted, held)),
                (Kind::Identity(wanted), Kind::Identity(held)) => {
                    found.identities.push((wanted, held));
                }
                (Kind::Class(wanted), Kind::Class(held)) => found.classes.push((wanted, held)),
                _ => return None,
            }
        }
        Some(found)
    }

    fn colour(&self, (side, at): At) -> u32 {
        self.halves[side].loose[at as usize].colour
    }

    fn entries(&self, (side, at): At) -> &[Entry] {
        &self.halves[side].loose[at as usize].entries
    }

    /// What else stands in the entries of something.
    fn neighbours(&self, (side, at): At) -> impl Iterator<Item = At> + '_ {
        let entries = self.entries((side, at)).iter();
        entries
            .flat_map(|(_, a, b)| [*a, *b])
            .filter_map(move |end| match end {
                End::Loose(at) => Some((side, at)),
                End::Paired(_) => None,
            })
    }

    fn is_open(&self, wanted: u32) -> bool {
        let cell = self.cells.get(&self.colour((WANTED, wanted)));
        cell.is_some_and(|[held, _]| held.len() > 1)
    }

    /// What is wanted and has not one pair yet, by what hangs together.
    fn parts(&self) -> Vec<Vec<u32>> {
        let mut seen: BTreeSet<u32> = BTreeSet::new();
        let mut parts = Vec::new();
        for start in 0..self.halves[WANTED].loose.len() as u32 {
            if !self.is_open(start) || !seen.insert(start) {
                continue;
            }
            let mut part = alloc::vec![start];
            let mut at = 0;
            while let Some(next) = part.get(at).copied() {
                for (_, other) in self.neighbours((WANTED, next)) {
                    if self.is_open(other) && seen.insert(other) {
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
    fn settle(&mut self, part: &[u32]) -> bool {
        let mut choices: Vec<Choice> = Vec::new();
        let mut place = 0;
        loop {
            let mut rest = part.iter().skip(place);
            let Some(ahead) = rest.position(|wanted| self.is_open(*wanted)) else {
                return true;
            };
            place += ahead;
            choices.push(Choice {
                wanted: part[place],
                tried: None,
                mark: self.trail.len(),
                place,
            });
            place = loop {
                let Some(choice) = choices.last_mut() else {
                    return false;
                };
                self.back_to(choice.mark);
                let Some(held) = self.after(choice.wanted, choice.tried) else {
                    choices.pop();
                    continue;
                };
                choice.tried = Some(held);
                if self.take(choice.wanted, held) {
                    break choice.place;
                }
                if self.effort == 0 {
                    return false;
                }
            };
        }
    }

    /// The held one of an element's colour that comes after another.
    fn after(&self, wanted: u32, tried: Option<u32>) -> Option<u32> {
        let [held, _] = self.cells.get(&self.colour((WANTED, wanted)))?;
        let from = tried.map_or(0, |tried| tried.saturating_add(1));
        held.range(from..).next().copied()
    }

    /// Takes two as one and the same, and splits colours by it.
    fn take(&mut self, wanted: u32, held: u32) -> bool {
        let colour = self.number();
        let both = [(HELD, held), (WANTED, wanted)];
        both.into_iter().for_each(|at| self.give(at, colour));
        let touched = both.into_iter().flat_map(|at| self.neighbours(at));
        let touched = touched.collect();
        self.split(touched)
    }

    /// Splits colours until nothing splits, beginning with what stands beside something that got
    /// another colour. Returns whether both sides still have each equally often.
    ///
    /// What is not looked at again sees what it saw; what is sees a colour that nobody had before.
    /// So these two are never equal, and nothing else of the colour need be looked at.
    fn split(&mut self, mut touched: BTreeSet<At>) -> bool {
        while !touched.is_empty() {
            let mut seen: BTreeMap<u32, BTreeMap<Sight, Vec<At>>> = BTreeMap::new();
            for at in touched {
                let cost = self.entries(at).len() as u64 + 1;
                self.effort = self.effort.saturating_sub(cost);
                let sight = self.sight(at);
                let of = seen.entry(self.colour(at)).or_default();
                of.entry(sight).or_default().push(at);
            }
            if self.effort == 0 {
                return false;
            }
            touched = BTreeSet::new();
            for (colour, groups) in seen {
                let mut groups: Vec<Vec<At>> = groups.into_values().collect();
                let looked: usize = groups.iter().map(Vec::len).sum();
                let [held, wanted] = &self.cells[&colour];
                // The largest group keeps the colour, unless it belongs to those not looked at.
                if looked == held.len() + wanted.len() {
                    groups.sort_by_key(Vec::len);
                    groups.pop();
                }
                for group in groups {
                    let new = self.number();
                    for at in group {
                        self.give(at, new);
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

    fn sight(&self, (side, at): At) -> Sight {
        let colour = |end: End| match end {
            End::Paired(pair) => pair,
            End::Loose(other) => self.colour((side, other)),
        };
        let entries = self.entries((side, at)).iter();
        let mut sight: Sight = entries
            .map(|(kind, a, b)| (*kind, colour(*a), colour(*b)))
            .collect();
        sight.sort_unstable();
        sight
    }

    fn give(&mut self, at: At, colour: u32) {
        self.trail.push((at, self.colour(at)));
        self.recolour(at, colour);
    }

    fn recolour(&mut self, (side, at): At, colour: u32) {
        let loose = &mut self.halves[side].loose[at as usize];
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
    fn back_to(&mut self, mark: usize) {
        while self.trail.len() > mark {
            if let Some((at, was)) = self.trail.pop() {
                self.recolour(at, was);
            }
        }
    }
}

impl Half {
    fn note(&mut self, of: End, entry: Entry) {
        if let End::Loose(at) = of {
            self.loose[at as usize].entries.push(entry);
        }
    }
}
