//! Which elements of the tables that are held are those of the tables that are wanted, whatever their
//! numbers are: paired so that nothing has to be written wherever there is such a pairing.
//!
//! Addresses, points and programs are what they are; the numbers of identities, policy sets and classes
//! are free. So this looks for an isomorphism of the two tables that leaves the former alone. It is
//! found wherever there is one, because:
//!
//! 1. **What is fixed is paired first.** An identity that holds addresses can only be the one that holds
//!    the same addresses, and a policy set that has points the one that has the same. A class that is
//!    the default of a paired set, or stands where a paired set meets a paired identity, can only be the
//!    one in the same place; and if no other class that is left has an equal program, only that one. All
//!    these pairs are in *every* pairing that writes nothing, so none is lost by taking them.
//! 2. **The rest is coloured.** Left are sets without points, identities without addresses, and classes
//!    with equal programs that only those use. Each begins with the colour of its kind (of a class: of its
//!    program), and colours are split by what stands in the same rows, on both sides by one numbering,
//!    until nothing splits. An isomorphism pairs equal colours only; so where a colour has more
//!    elements on one side than on the other, there is none.
//! 3. **Where every colour has one element on each side, equal colours are an isomorphism**, since equal
//!    colours have equal rows. Where a colour has more, one wanted element is paired with each held
//!    one in turn, and colours are split on; what comes to a contradiction is taken back. All are tried,
//!    so an isomorphism that exists is found.
//! 4. **What hangs together is settled together and then never taken back.** If such a part is
//!    isomorphic to a part of the other side and the whole has an isomorphism, then it has one with this
//!    pair of parts too: exchange the two images. So parts do not multiply the tries.
//!
//! What is fixed costs one pass over the tables. The search is bounded by [`SEARCH_LIMIT`], which only tables
//! that are made to be hard can reach. Past it, and where there is no isomorphism, what is left is
//! paired by content in order: then more may be written than need be, and never anything wrong.

use crate::coloring::Coloring;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use palisade_tables::{ClassId, IdentityId, Point, PolicySetId, Tables};

/// How many entries a search may look at before it gives up.
const SEARCH_LIMIT: u64 = 1 << 23;

/// Tables, and what their numbers stand for.
pub(crate) struct AlignmentSide<'a, M> {
    pub(crate) tables: &'a Tables,
    /// The addresses of each identity that some packet can have. Nobody's are not asked for.
    pub(crate) members: &'a BTreeMap<IdentityId, M>,
    /// Equal numbers for classes of equal programs that count for the same rules, on both sides.
    /// What has no number here is like no other.
    pub(crate) programs: &'a BTreeMap<ClassId, u32>,
}

/// What is held for what is wanted. Whatever is paired is equal, under these very pairs: the programs
/// of classes, the addresses of identities, a set's points, default, and rows of identities that hold
/// addresses.
#[derive(Debug, Default)]
pub(crate) struct Alignment {
    pub(crate) identities: BTreeMap<IdentityId, IdentityId>,
    pub(crate) sets: BTreeMap<PolicySetId, PolicySetId>,
    pub(crate) classes: BTreeMap<ClassId, ClassId>,
}

/// Pairs what is wanted with what is held.
pub(crate) fn align<M: Ord>(
    held: &AlignmentSide<'_, M>,
    wanted: &AlignmentSide<'_, M>,
) -> Alignment {
    let mut builder = AlignmentBuilder {
        held,
        wanted,
        points: (points_by_set(held.tables), points_by_set(wanted.tables)),
        alignment: Alignment::default(),
        paired_classes: BTreeSet::new(),
    };
    builder.pair_identities();
    builder.pair_sets();
    builder.pair_classes_by_row();
    builder.pair_unique_classes();
    if !builder.pair_rest_by_colour() {
        builder.pair_rest_by_content();
    }
    builder.unpair_unequal_sets();
    builder.alignment
}

type PointsBySet<'a> = BTreeMap<PolicySetId, Vec<&'a Point>>;

fn points_by_set(tables: &Tables) -> PointsBySet<'_> {
    let mut out = PointsBySet::new();
    for (point, set) in &tables.points {
        out.entry(*set).or_default().push(point);
    }
    out
}

impl<M> AlignmentSide<'_, M> {
    /// Whether some packet can have the identity.
    fn is_reachable(&self, id: IdentityId) -> bool {
        id == IdentityId::UNKNOWN || self.members.contains_key(&id)
    }

    /// The identities that stand in rows and hold no address.
    fn addressless_identities(&self) -> BTreeSet<IdentityId> {
        let ids = self.tables.classes.keys().map(|(_, id)| *id);
        ids.filter(|id| !self.is_reachable(*id)).collect()
    }
}

struct AlignmentBuilder<'a, M> {
    held: &'a AlignmentSide<'a, M>,
    wanted: &'a AlignmentSide<'a, M>,
    points: (PointsBySet<'a>, PointsBySet<'a>),
    alignment: Alignment,
    /// The held classes that are paired.
    paired_classes: BTreeSet<ClassId>,
}

impl<M: Ord> AlignmentBuilder<'_, M> {
    fn pair_identities(&mut self) {
        let nobody = IdentityId::UNKNOWN;
        let held = self.held.members.iter();
        let held = held.filter(|(id, _)| **id != nobody);
        let held: BTreeMap<&M, IdentityId> = held.map(|(id, members)| (members, *id)).collect();
        self.alignment.identities.insert(nobody, nobody);
        for (id, members) in self.wanted.members {
            if let Some(same) = held.get(members).filter(|_| *id != nobody) {
                self.alignment.identities.insert(*id, *same);
            }
        }
    }

    fn pair_sets(&mut self) {
        let (held, wanted) = &self.points;
        for (set, points) in wanted {
            let first = points.first();
            let same = first.and_then(|point| self.held.tables.points.get(*point));
            if let Some(same) = same.filter(|same| held.get(same) == Some(points)) {
                self.alignment.sets.insert(*set, *same);
            }
        }
    }

    fn pair_class(&mut self, wanted: ClassId, held: ClassId) {
        let program = self.wanted.programs.get(&wanted);
        let equal = program.is_some() && program == self.held.programs.get(&held);
        if equal
            && !self.alignment.classes.contains_key(&wanted)
            && self.paired_classes.insert(held)
        {
            self.alignment.classes.insert(wanted, held);
        }
    }

    fn pair_classes_by_row(&mut self) {
        let (held, wanted) = (self.held.tables, self.wanted.tables);
        let sets: Vec<(PolicySetId, PolicySetId)> =
            self.alignment.sets.iter().map(|(w, h)| (*w, *h)).collect();
        for (set, same) in sets {
            if let (Some(is), Some(was)) = (wanted.sets.get(&set), held.sets.get(&same)) {
                self.pair_class(is.default, was.default);
            }
        }
        for ((set, id), class) in &wanted.classes {
            let place = self
                .alignment
                .sets
                .get(set)
                .zip(self.alignment.identities.get(id));
            let place = place.map(|(set, id)| (*set, *id));
            if let Some(was) = place.and_then(|place| held.classes.get(&place)) {
                self.pair_class(*class, *was);
            }
        }
    }

    /// The classes that are left, by program: held, wanted.
    fn unpaired_classes(&self) -> BTreeMap<u32, [Vec<ClassId>; 2]> {
        let mut out: BTreeMap<u32, [Vec<ClassId>; 2]> = BTreeMap::new();
        for (class, program) in self.held.programs {
            if !self.paired_classes.contains(class) {
                out.entry(*program).or_default()[0].push(*class);
            }
        }
        for (class, program) in self.wanted.programs {
            if !self.alignment.classes.contains_key(class) {
                out.entry(*program).or_default()[1].push(*class);
            }
        }
        out
    }

    fn pair_unique_classes(&mut self) {
        for [held, wanted] in self.unpaired_classes().into_values() {
            if let ([held], [wanted]) = (held.as_slice(), wanted.as_slice()) {
                self.pair_class(*wanted, *held);
            }
        }
    }

    /// The sets without points: held, wanted.
    fn unpaired_sets(&self) -> [Vec<PolicySetId>; 2] {
        let left = |tables: &Tables, points: &PointsBySet<'_>| {
            let sets = tables.sets.keys().copied();
            sets.filter(|set| !points.contains_key(set)).collect()
        };
        [
            left(self.held.tables, &self.points.0),
            left(self.wanted.tables, &self.points.1),
        ]
    }

    /// Pairs everything that is left. Returns whether that could be done.
    fn pair_rest_by_colour(&mut self) -> bool {
        let sets = self.unpaired_sets();
        let identities = [
            self.held.addressless_identities(),
            self.wanted.addressless_identities(),
        ];
        let classes = self.unpaired_classes();
        if sets.iter().all(Vec::is_empty)
            && identities.iter().all(BTreeSet::is_empty)
            && classes.is_empty()
        {
            return true;
        }
        let mut coloring = Coloring::new(SEARCH_LIMIT);
        for (wanted, held) in &self.alignment.sets {
            coloring.pair_sets(*held, *wanted);
        }
        for (wanted, held) in &self.alignment.identities {
            coloring.pair_identities(*held, *wanted);
        }
        for (wanted, held) in &self.alignment.classes {
            coloring.pair_classes(*held, *wanted);
        }
        coloring.add_unpaired_sets(sets);
        coloring.add_unpaired_identities(identities);
        for classes in classes.into_values() {
            coloring.add_unpaired_classes(classes);
        }
        coloring.add_rows([self.held.tables, self.wanted.tables]);
        let Some(found) = coloring.solve() else {
            return false;
        };
        self.alignment.sets.extend(found.sets);
        self.alignment.identities.extend(found.identities);
        self.alignment.classes.extend(found.classes);
        true
    }

    /// Pairs what is left of equal content, each with the first.
    fn pair_rest_by_content(&mut self) {
        for [held, wanted] in self.unpaired_classes().into_values() {
            for (held, wanted) in held.into_iter().zip(wanted) {
                self.pair_class(wanted, held);
            }
        }
        let (held, wanted) = (self.held, self.wanted);
        let [old, new] = self.unpaired_sets();
        let mut rows = translated_rows(held, Some, Some);
        let mut known: BTreeMap<(ClassId, BTreeMap<IdentityId, ClassId>), Vec<PolicySetId>> =
            BTreeMap::new();
        for set in old {
            let rows = rows.remove(&set).flatten().unwrap_or_default();
            let default = held.tables.sets[&set].default;
            known.entry((default, rows)).or_default().push(set);
        }
        let (identities, classes) = (&self.alignment.identities, &self.alignment.classes);
        let class = |class: ClassId| classes.get(&class).copied();
        let mut rows = translated_rows(wanted, |id| identities.get(&id).copied(), class);
        let mut sets = Vec::new();
        for set in new {
            let rows = match rows.remove(&set) {
                Some(rows) => rows,
                None => Some(BTreeMap::new()),
            };
            let content = class(wanted.tables.sets[&set].default).zip(rows);
            let found = content.and_then(|content| known.get_mut(&content)?.pop());
            sets.extend(found.map(|found| (set, found)));
        }
        self.alignment.sets.extend(sets);
        self.pair_addressless_identities();
    }

    /// Pairs identities without addresses that have equal rows.
    fn pair_addressless_identities(&mut self) {
        let mut known: BTreeMap<BTreeMap<PolicySetId, ClassId>, Vec<IdentityId>> = BTreeMap::new();
        let mut rows: BTreeMap<IdentityId, BTreeMap<PolicySetId, ClassId>> = BTreeMap::new();
        for ((set, id), class) in &self.held.tables.classes {
            if !self.held.is_reachable(*id) {
                rows.entry(*id).or_default().insert(*set, *class);
            }
        }
        for (id, rows) in rows {
            known.entry(rows).or_default().push(id);
        }
        let mut rows: BTreeMap<IdentityId, Option<BTreeMap<PolicySetId, ClassId>>> =
            BTreeMap::new();
        for ((set, id), class) in &self.wanted.tables.classes {
            if !self.wanted.is_reachable(*id) {
                let row = self
                    .alignment
                    .sets
                    .get(set)
                    .zip(self.alignment.classes.get(class));
                let rows = rows.entry(*id).or_insert_with(|| Some(BTreeMap::new()));
                match (rows.as_mut(), row) {
                    (Some(rows), Some((set, class))) => drop(rows.insert(*set, *class)),
                    _ => *rows = None,
                }
            }
        }
        for (id, rows) in rows {
            let found = rows.and_then(|rows| known.get_mut(&rows)?.pop());
            if let Some(found) = found {
                self.alignment.identities.insert(id, found);
            }
        }
    }

    /// Takes the pairs of sets back that say different things.
    fn unpair_unequal_sets(&mut self) {
        let (held, wanted) = (self.held, self.wanted);
        let mut rows: BTreeMap<PolicySetId, usize> = BTreeMap::new();
        for (set, _) in held
            .tables
            .classes
            .keys()
            .filter(|(_, id)| held.is_reachable(*id))
        {
            *rows.entry(*set).or_default() += 1;
        }
        let Alignment {
            identities,
            sets,
            classes,
        } = &mut self.alignment;
        let same = |is: &ClassId, was: &ClassId| classes.get(is) == Some(was);
        let mut different: BTreeSet<PolicySetId> = BTreeSet::new();
        for ((set, id), class) in &wanted.tables.classes {
            let Some(held_set) = sets.get(set).filter(|_| wanted.is_reachable(*id)) else {
                continue;
            };
            let place = identities.get(id).map(|id| (*held_set, *id));
            let was = place.and_then(|place| held.tables.classes.get(&place));
            match was.filter(|was| same(class, was)) {
                Some(_) => *rows.entry(*held_set).or_default() -= 1,
                None => drop(different.insert(*set)),
            }
        }
        sets.retain(|set, held_set| {
            let default =
                |side: &AlignmentSide<'_, M>, set| side.tables.sets.get(set).map(|s| s.default);
            let defaults = default(wanted, set).zip(default(held, held_set));
            let defaults = defaults.is_some_and(|(is, was)| same(&is, &was));
            let more = rows.get(held_set).is_some_and(|left| *left > 0);
            defaults && !more && !different.contains(set)
        });
    }
}

/// The rows of each set that some packet can meet, in other numbers; `None` for a set with a row
/// that has none.
fn translated_rows<M>(
    side: &AlignmentSide<'_, M>,
    id: impl Fn(IdentityId) -> Option<IdentityId>,
    class: impl Fn(ClassId) -> Option<ClassId>,
) -> BTreeMap<PolicySetId, Option<BTreeMap<IdentityId, ClassId>>> {
    let mut out: BTreeMap<PolicySetId, Option<BTreeMap<IdentityId, ClassId>>> = BTreeMap::new();
    for ((set, identity), row_class) in &side.tables.classes {
        if !side.is_reachable(*identity) {
            continue;
        }
        let rows = out.entry(*set).or_insert_with(|| Some(BTreeMap::new()));
        match (rows.as_mut(), id(*identity).zip(class(*row_class))) {
            (Some(rows), Some((id, class))) => drop(rows.insert(id, class)),
            _ => *rows = None,
        }
    }
    out
}
