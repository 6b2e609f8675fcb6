//! Which objects of the tables that are held are objects of the tables that are wanted, whatever their
//! numbers: so that nothing has to be written wherever a numbering exists in which both are equal.
//!
//! Addresses, points and programs have no free numbers; those of identities, policy sets and classes are
//! free. So this looks for an isomorphism of the two tables that maps the former to themselves. It is
//! found wherever there is one:
//!
//! 1. **Fixed pairs first.** An identity that holds addresses can only be the one that holds the same
//!    addresses, and a policy set that has points the one that has the same points. A class that is the
//!    default of a paired set, or the entry of a paired set for a paired identity, can only be the one in
//!    the same position; and if no other unpaired class has an equal program, only that one. All these
//!    pairs are in *every* pairing that writes nothing, so none is lost by taking them.
//! 2. **The rest is coloured.** Left are sets without points, identities without addresses, and classes
//!    with equal programs that only those use. Each begins with the colour of its type (of a class: of its
//!    program), and colours are split by the colours in the same entries, on both sides by one numbering,
//!    until no colour splits. An isomorphism pairs equal colours only; so where a colour has more objects
//!    on one side than on the other, there is none.
//! 3. **Where every colour has one object on each side, equal colours are an isomorphism**, since equal
//!    colours have equal entries. Where a colour has more, one wanted object is paired with each held
//!    one in turn, and colours are split further; a contradiction is taken back. All pairs are tried, so
//!    an isomorphism that exists is found.
//! 4. **A connected part is completed and then never taken back.** If such a part is isomorphic to a part
//!    of the other side and the whole has an isomorphism, then it has one with this pair of parts too:
//!    exchange the two images. So parts do not multiply the attempts.
//!
//! Fixed pairs cost one pass over the tables. The search is bounded by [`SEARCH_LIMIT`], which only tables
//! that are constructed for it can reach. Beyond it, and where there is no isomorphism, the rest is paired
//! by content in order: then more may be written than necessary, and never anything wrong. Nothing here
//! decides what is written, or when.

mod coloring;

use crate::transition::TransitionIds;
use crate::{ClassId, IdentityId, Point, PolicySet, PolicySetId, Program, Tables};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;
use coloring::Coloring;

/// How many entries a search may look at before it ends without a result.
const SEARCH_LIMIT: u64 = 1 << 23;

/// Tables, with the content that their numbers stand for.
pub struct AlignmentSide<'a, M> {
    /// The tables.
    pub tables: &'a Tables,
    /// The addresses of each identity that a packet can have, the unknown identity apart.
    pub members: &'a BTreeMap<IdentityId, M>,
    /// Equal numbers, on both sides, for classes whose programs the dataplane writes alike, causes
    /// included. A class without a number equals no other.
    pub programs: &'a BTreeMap<ClassId, u32>,
}

/// Held objects by the wanted ones. Paired objects are equal under these very pairs: the programs of
/// classes, the addresses of identities, and the points, default and entries of sets, for identities that
/// hold addresses.
#[derive(Debug, Default)]
struct Alignment {
    identities: BTreeMap<IdentityId, IdentityId>,
    sets: BTreeMap<PolicySetId, PolicySetId>,
    classes: BTreeMap<ClassId, ClassId>,
}

/// The numbers of wanted objects among those of the held tables: held objects that are equal keep their
/// number, all others have unused ones. Allocates further unused numbers ([`TransitionIds`]).
#[derive(Debug, Default)]
pub struct Renumbering {
    /// Wanted identity → number.
    pub identities: BTreeMap<IdentityId, IdentityId>,
    /// Wanted policy set → number.
    pub sets: BTreeMap<PolicySetId, PolicySetId>,
    /// Wanted class → number.
    pub classes: BTreeMap<ClassId, ClassId>,
    /// The held classes that are wanted.
    pub kept_classes: BTreeSet<ClassId>,
    /// The lowest number above those of all identities.
    pub next_identity: IdentityId,
    /// The lowest number above those of all policy sets.
    pub next_set: PolicySetId,
    /// The lowest number above those of all classes.
    pub next_class: ClassId,
    programs: BTreeMap<Arc<Program>, ClassId>,
}

impl Renumbering {
    fn new(installed: &Tables, wanted: &Tables, alignment: Alignment) -> Renumbering {
        let identities = |tables: &Tables| -> BTreeSet<IdentityId> {
            let entries = tables.classes.keys().map(|(_, identity)| *identity);
            tables.addresses.values().copied().chain(entries).collect()
        };
        let above = |last: Option<u32>| last.unwrap_or(0).wrapping_add(1);
        let mut numbers = Renumbering {
            next_identity: IdentityId(above(identities(installed).last().map(|id| id.0))),
            next_set: PolicySetId(above(installed.sets.keys().last().map(|id| id.0))),
            next_class: ClassId(above(installed.programs.keys().last().map(|id| id.0))),
            ..Renumbering::default()
        };
        for (class, program) in &wanted.programs {
            let number = match alignment.classes.get(class) {
                Some(installed) => {
                    numbers.kept_classes.insert(*installed);
                    *installed
                }
                None => numbers.allocate_class(),
            };
            numbers.classes.insert(*class, number);
            numbers.programs.entry(program.clone()).or_insert(number);
        }
        for set in wanted.sets.keys() {
            let paired = alignment.sets.get(set).copied();
            let number = paired.unwrap_or_else(|| numbers.allocate_set());
            numbers.sets.insert(*set, number);
        }
        let unknown = IdentityId::UNKNOWN;
        numbers.identities.insert(unknown, unknown);
        for id in identities(wanted) {
            if id != unknown {
                let paired = alignment.identities.get(&id).copied();
                let number = paired.unwrap_or_else(|| numbers.allocate_identity());
                numbers.identities.insert(id, number);
            }
        }
        numbers
    }

    /// The wanted tables in these numbers. An entry that refers to an object that does not exist is left
    /// out.
    pub fn renumber(&self, wanted: &Tables) -> Tables {
        let identity = |id: &IdentityId| self.identities.get(id).copied();
        let set = |id: &PolicySetId| self.sets.get(id).copied();
        let class = |id: &ClassId| self.classes.get(id).copied();
        let addresses = wanted.addresses.iter();
        let points = wanted.points.iter();
        let sets = wanted.sets.iter();
        let classes = wanted.classes.iter();
        let programs = wanted.programs.iter();
        Tables {
            judgement: wanted.judgement.clone(),
            interfaces: wanted.interfaces.clone(),
            host_interfaces: wanted.host_interfaces.clone(),
            addresses: addresses
                .filter_map(|(prefix, id)| Some((prefix, identity(id)?)))
                .collect(),
            points: points
                .filter_map(|(point, id)| Some((point.clone(), set(id)?)))
                .collect(),
            sets: sets
                .filter_map(|(id, PolicySet { default })| {
                    let default = class(default)?;
                    Some((set(id)?, PolicySet { default }))
                })
                .collect(),
            classes: classes
                .filter_map(|((set_id, id), entry)| {
                    Some(((set(set_id)?, identity(id)?), class(entry)?))
                })
                .collect(),
            programs: programs
                .filter_map(|(id, program)| Some((class(id)?, program.clone())))
                .collect(),
            rules: wanted.rules.clone(),
        }
    }
}

impl TransitionIds for Renumbering {
    fn allocate_identity(&mut self) -> IdentityId {
        let id = self.next_identity;
        self.next_identity.0 = id.0.wrapping_add(1);
        id
    }

    fn allocate_set(&mut self) -> PolicySetId {
        let id = self.next_set;
        self.next_set.0 = id.0.wrapping_add(1);
        id
    }

    fn allocate_class(&mut self) -> ClassId {
        let id = self.next_class;
        self.next_class.0 = id.0.wrapping_add(1);
        id
    }

    fn find_class(&self, program: &Program) -> Option<ClassId> {
        self.programs.get(program).copied()
    }
}

/// Numbers the wanted objects: equal ones as the held objects, all others with unused numbers.
pub fn align<M: Ord>(
    installed: &AlignmentSide<'_, M>,
    wanted: &AlignmentSide<'_, M>,
) -> Renumbering {
    let mut builder = AlignmentBuilder {
        installed,
        wanted,
        points: (
            points_by_set(installed.tables),
            points_by_set(wanted.tables),
        ),
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
    Renumbering::new(installed.tables, wanted.tables, builder.alignment)
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
    /// Whether a packet can have the identity.
    fn is_reachable(&self, id: IdentityId) -> bool {
        id == IdentityId::UNKNOWN || self.members.contains_key(&id)
    }

    /// The identities that have entries and hold no address.
    fn addressless_identities(&self) -> BTreeSet<IdentityId> {
        let ids = self.tables.classes.keys().map(|(_, id)| *id);
        ids.filter(|id| !self.is_reachable(*id)).collect()
    }
}

struct AlignmentBuilder<'a, M> {
    installed: &'a AlignmentSide<'a, M>,
    wanted: &'a AlignmentSide<'a, M>,
    points: (PointsBySet<'a>, PointsBySet<'a>),
    alignment: Alignment,
    /// The held classes that are paired.
    paired_classes: BTreeSet<ClassId>,
}

impl<M: Ord> AlignmentBuilder<'_, M> {
    fn pair_identities(&mut self) {
        let unknown = IdentityId::UNKNOWN;
        let installed = self.installed.members.iter();
        let installed = installed.filter(|(id, _)| **id != unknown);
        let installed: BTreeMap<&M, IdentityId> =
            installed.map(|(id, members)| (members, *id)).collect();
        self.alignment.identities.insert(unknown, unknown);
        for (id, members) in self.wanted.members {
            if let Some(same) = installed.get(members).filter(|_| *id != unknown) {
                self.alignment.identities.insert(*id, *same);
            }
        }
    }

    fn pair_sets(&mut self) {
        let (installed, wanted) = &self.points;
        for (set, points) in wanted {
            let first = points.first();
            let same = first.and_then(|point| self.installed.tables.points.get(*point));
            if let Some(same) = same.filter(|same| installed.get(same) == Some(points)) {
                self.alignment.sets.insert(*set, *same);
            }
        }
    }

    fn pair_class(&mut self, wanted: ClassId, installed: ClassId) {
        let program = self.wanted.programs.get(&wanted);
        let equal = program.is_some() && program == self.installed.programs.get(&installed);
        if equal
            && !self.alignment.classes.contains_key(&wanted)
            && self.paired_classes.insert(installed)
        {
            self.alignment.classes.insert(wanted, installed);
        }
    }

    fn pair_classes_by_row(&mut self) {
        let (installed, wanted) = (self.installed.tables, self.wanted.tables);
        let sets: Vec<(PolicySetId, PolicySetId)> =
            self.alignment.sets.iter().map(|(w, h)| (*w, *h)).collect();
        for (set, same) in sets {
            if let (Some(after), Some(before)) = (wanted.sets.get(&set), installed.sets.get(&same))
            {
                self.pair_class(after.default, before.default);
            }
        }
        for ((set, id), class) in &wanted.classes {
            let row = self
                .alignment
                .sets
                .get(set)
                .zip(self.alignment.identities.get(id));
            let row = row.map(|(set, id)| (*set, *id));
            if let Some(before) = row.and_then(|row| installed.classes.get(&row)) {
                self.pair_class(*class, *before);
            }
        }
    }

    /// The unpaired classes by program: held, wanted.
    fn unpaired_classes(&self) -> BTreeMap<u32, [Vec<ClassId>; 2]> {
        let mut out: BTreeMap<u32, [Vec<ClassId>; 2]> = BTreeMap::new();
        for (class, program) in self.installed.programs {
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
        for [installed, wanted] in self.unpaired_classes().into_values() {
            if let ([installed], [wanted]) = (installed.as_slice(), wanted.as_slice()) {
                self.pair_class(*wanted, *installed);
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
            left(self.installed.tables, &self.points.0),
            left(self.wanted.tables, &self.points.1),
        ]
    }

    /// Pairs all unpaired objects, if an isomorphism exists. Returns whether it does.
    fn pair_rest_by_colour(&mut self) -> bool {
        let sets = self.unpaired_sets();
        let identities = [
            self.installed.addressless_identities(),
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
        for (wanted, installed) in &self.alignment.sets {
            coloring.pair_sets(*installed, *wanted);
        }
        for (wanted, installed) in &self.alignment.identities {
            coloring.pair_identities(*installed, *wanted);
        }
        for (wanted, installed) in &self.alignment.classes {
            coloring.pair_classes(*installed, *wanted);
        }
        coloring.add_unpaired_sets(sets);
        coloring.add_unpaired_identities(identities);
        for classes in classes.into_values() {
            coloring.add_unpaired_classes(classes);
        }
        coloring.add_rows([self.installed.tables, self.wanted.tables]);
        let Some(solution) = coloring.solve() else {
            return false;
        };
        self.alignment.sets.extend(solution.sets);
        self.alignment.identities.extend(solution.identities);
        self.alignment.classes.extend(solution.classes);
        true
    }

    /// Pairs unpaired objects of equal content, in order.
    fn pair_rest_by_content(&mut self) {
        for [installed, wanted] in self.unpaired_classes().into_values() {
            for (installed, wanted) in installed.into_iter().zip(wanted) {
                self.pair_class(wanted, installed);
            }
        }
        let (installed, wanted) = (self.installed, self.wanted);
        let [old, new] = self.unpaired_sets();
        let mut rows = translated_rows(installed, Some, Some);
        let mut installed_sets: BTreeMap<
            (ClassId, BTreeMap<IdentityId, ClassId>),
            Vec<PolicySetId>,
        > = BTreeMap::new();
        for set in old {
            let rows = rows.remove(&set).flatten().unwrap_or_default();
            let default = installed.tables.sets[&set].default;
            installed_sets.entry((default, rows)).or_default().push(set);
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
            let installed_set = content.and_then(|content| installed_sets.get_mut(&content)?.pop());
            sets.extend(installed_set.map(|old| (set, old)));
        }
        self.alignment.sets.extend(sets);
        self.pair_addressless_identities();
    }

    /// Pairs identities without addresses that have equal rows.
    fn pair_addressless_identities(&mut self) {
        let mut installed_identities: BTreeMap<BTreeMap<PolicySetId, ClassId>, Vec<IdentityId>> =
            BTreeMap::new();
        let mut rows: BTreeMap<IdentityId, BTreeMap<PolicySetId, ClassId>> = BTreeMap::new();
        for ((set, id), class) in &self.installed.tables.classes {
            if !self.installed.is_reachable(*id) {
                rows.entry(*id).or_default().insert(*set, *class);
            }
        }
        for (id, rows) in rows {
            installed_identities.entry(rows).or_default().push(id);
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
            let installed_identity =
                rows.and_then(|rows| installed_identities.get_mut(&rows)?.pop());
            if let Some(installed_identity) = installed_identity {
                self.alignment.identities.insert(id, installed_identity);
            }
        }
    }

    /// Removes pairs of sets with different content.
    fn unpair_unequal_sets(&mut self) {
        let (installed, wanted) = (self.installed, self.wanted);
        let mut rows: BTreeMap<PolicySetId, usize> = BTreeMap::new();
        for (set, _) in installed
            .tables
            .classes
            .keys()
            .filter(|(_, id)| installed.is_reachable(*id))
        {
            *rows.entry(*set).or_default() += 1;
        }
        let Alignment {
            identities,
            sets,
            classes,
        } = &mut self.alignment;
        let same = |after: &ClassId, before: &ClassId| classes.get(after) == Some(before);
        let mut different: BTreeSet<PolicySetId> = BTreeSet::new();
        for ((set, id), class) in &wanted.tables.classes {
            let Some(installed_set) = sets.get(set).filter(|_| wanted.is_reachable(*id)) else {
                continue;
            };
            let row = identities.get(id).map(|id| (*installed_set, *id));
            let before = row.and_then(|row| installed.tables.classes.get(&row));
            match before.filter(|before| same(class, before)) {
                Some(_) => *rows.entry(*installed_set).or_default() -= 1,
                None => drop(different.insert(*set)),
            }
        }
        sets.retain(|set, installed_set| {
            let default =
                |side: &AlignmentSide<'_, M>, set| side.tables.sets.get(set).map(|s| s.default);
            let defaults = default(wanted, set).zip(default(installed, installed_set));
            let defaults = defaults.is_some_and(|(after, before)| same(&after, &before));
            let more = rows.get(installed_set).is_some_and(|left| *left > 0);
            defaults && !more && !different.contains(set)
        });
    }
}

/// The entries of each set for identities that a packet can have, renumbered; `None` for a set with an
/// entry that has no number.
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
