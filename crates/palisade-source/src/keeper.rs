//! What is in force, given what the files say now and what was in force before.
//!
//! One that no file defines any more goes, but only after a look at the whole tree that nothing
//! disturbed, and not while the file it came from, or one that names it, cannot be read whole. Which
//! version of a defined object is in force is for [`crate::choose`].
//!
//! The work follows the change: only objects of files that changed are decided anew, and those that
//! linger.

use crate::budget::{OverBudget, Spending};
use crate::choose::{Choice, Definition, choose};
use crate::host_network::HostNetwork;
use crate::memory::{InForce, Memory};
use crate::named::{Named, is_plain};
use crate::piece::{Id, Piece};
use crate::scan::{File, Tree, problem};
use crate::{Batch, Budget, Flaw, Kept, Report};
use palisade_dialects::{
    OF_INPUT, OF_OBJECT, Quota, Untold, count_ignored, defined_twice, more_definitions,
};
use palisade_manifest::Location;
use palisade_model::{Object, ObjectId, Update};
use palisade_sys::fault;
use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The objects of a file.
type Pieces = Arc<Vec<Piece>>;
/// Where an object is defined: the file, and which of its objects it is.
type Place = (Arc<Path>, usize);

/// Where an object is defined, in order. Nearly always in one place, and there are many objects.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Places {
    One(Place),
    Many(BTreeSet<Place>),
}

impl Places {
    fn add(&mut self, place: Place) {
        match self {
            Places::One(one) => *self = Places::Many([one.clone(), place].into()),
            Places::Many(many) => drop(many.insert(place)),
        }
    }

    /// Without a place; `None` if there is no other.
    fn without(self, place: &Place) -> Option<Self> {
        match self {
            Places::One(one) => (one != *place).then_some(Places::One(one)),
            Places::Many(mut many) => {
                many.remove(place);
                match many.len() {
                    0 | 1 => many.pop_first().map(Places::One),
                    _ => Some(Places::Many(many)),
                }
            }
        }
    }

    fn iter(&self) -> impl Iterator<Item = &Place> {
        let (one, many) = match self {
            Places::One(one) => (Some(one), None),
            Places::Many(many) => (None, Some(many)),
        };
        one.into_iter().chain(many.into_iter().flatten())
    }
}

/// Decides what is in force.
#[derive(Debug)]
pub(crate) struct Keeper {
    memory: Memory,
    files: BTreeMap<Arc<Path>, Pieces>,
    /// The files that there is something to say of: most are as they should be.
    notable: BTreeSet<Arc<Path>>,
    defined: BTreeMap<Id, Places>,
    /// Defined more than once.
    twice: BTreeSet<Id>,
    /// In force though no file defines it.
    lingering: BTreeSet<Id>,
    /// In force though the files do not say so, or not validly.
    kept: BTreeSet<Id>,
    /// Pods that ran to their end.
    completed: BTreeSet<Id>,
    host_network: HostNetwork,
    spending: Spending,
    started: bool,
}

impl Keeper {
    /// With what was in force when the last run ended.
    pub(crate) fn remembering(memory: Memory, budget: Budget) -> Self {
        Keeper {
            lingering: memory.all().map(|(id, _)| id.clone()).collect(),
            memory,
            files: BTreeMap::new(),
            notable: BTreeSet::new(),
            defined: BTreeMap::new(),
            twice: BTreeSet::new(),
            kept: BTreeSet::new(),
            completed: BTreeSet::new(),
            host_network: HostNetwork::default(),
            spending: Spending::new(budget),
            started: false,
        }
    }

    /// What is in force, to be saved.
    pub(crate) fn memory(&mut self) -> &mut Memory {
        &mut self.memory
    }

    /// Whether anything is in force that no file defines: only a look at the whole tree can tell
    /// that it is gone.
    pub(crate) fn lingers(&self) -> bool {
        !self.lingering.is_empty()
    }

    /// How much policies may take of the kernel, as of the last look.
    pub(crate) fn budget(&self) -> Budget {
        self.spending.budget()
    }

    /// Takes in a look made at `now` (seconds since 1970), at everything or at these files `only`;
    /// says what changes. `undisturbed` is whether nothing happened in the tree before and during
    /// the look, so that what it did not find is gone.
    pub(crate) fn take(
        &mut self,
        tree: &Tree<Piece>,
        only: Option<&BTreeSet<PathBuf>>,
        undisturbed: bool,
        budget: Budget,
        now: u64,
    ) -> Batch {
        let mut changed = self.take_files(tree, only);
        self.host_network.update(&changed, |id| {
            let (file, index) = self.defined.get(id)?.iter().next()?;
            self.files.get(file)?.get(*index)
        });
        self.spend(&mut changed, budget);
        changed.extend(self.lingering.iter().cloned());
        let settled = undisturbed || fault::is_on("removed-before-settled");
        let look = Look {
            tree,
            sure: settled && tree.being_written.is_empty(),
            broken: Broken::default(),
            now,
        };
        let mut updates = Vec::new();
        for id in changed {
            self.decide(id, &look, &mut updates);
        }
        if !self.started {
            self.started = true;
            let all = self
                .memory
                .all()
                .flat_map(|(_, object)| object.objects.iter());
            updates = all.cloned().map(Update::Upsert).collect();
        }
        Batch {
            updates,
            in_sync: true,
            report: self.report(tree),
        }
    }

    /// Brings the index up to date; says which objects the changed files define or did define.
    fn take_files(&mut self, tree: &Tree<Piece>, only: Option<&BTreeSet<PathBuf>>) -> BTreeSet<Id> {
        let mut changed = BTreeSet::new();
        let is = |path: &Path| tree.files.get(path).map(|file| &file.objects);
        let differs =
            |(path, was): &(&Arc<Path>, &Pieces)| !is(path).is_some_and(|is| Arc::ptr_eq(is, was));
        let stale: Vec<Arc<Path>> = match only {
            None => self.files.iter().filter(differs).map(key).collect(),
            Some(only) => {
                let known = only
                    .iter()
                    .filter_map(|path| self.files.get_key_value(&**path));
                known.filter(differs).map(key).collect()
            }
        };
        for path in stale {
            let pieces = self.files.remove(&path).unwrap_or_default();
            self.notable.remove(&path);
            for (index, piece) in pieces.iter().enumerate() {
                let place = (Arc::clone(&path), index);
                let places = self.defined.remove(&piece.id);
                if let Some(places) = places.and_then(|places| places.without(&place)) {
                    self.defined.insert(piece.id.clone(), places);
                }
                changed.insert(piece.id.clone());
            }
        }
        let found: Vec<(&PathBuf, &File<Piece>)> = match only {
            None => tree.files.iter().collect(),
            Some(only) => {
                let found = only
                    .iter()
                    .filter_map(|path| tree.files.get_key_value(path));
                found.collect()
            }
        };
        for (path, file) in found {
            if self.files.contains_key(&**path) {
                continue;
            }
            let path: Arc<Path> = path.as_path().into();
            if is_notable(file) {
                self.notable.insert(Arc::clone(&path));
            }
            self.files
                .insert(Arc::clone(&path), Arc::clone(&file.objects));
            for (index, piece) in file.objects.iter().enumerate() {
                if piece.ignored.is_none() {
                    let place = (Arc::clone(&path), index);
                    match self.defined.get_mut(&piece.id) {
                        Some(places) => places.add(place),
                        None => {
                            let one = Places::One(place);
                            drop(self.defined.insert(piece.id.clone(), one));
                        }
                    }
                    changed.insert(piece.id.clone());
                }
            }
        }
        changed
    }

    /// Notes what changed policies take, and adds those to the changed ones that may be in force now,
    /// or may no more.
    fn spend(&mut self, changed: &mut BTreeSet<Id>, budget: Budget) {
        if self.spending.allow(budget) {
            // Rare: every policy is held against the new budget.
            let is_policy = |id: &&Id| self.first(id).is_some_and(|piece| piece.cost.is_some());
            changed.extend(self.defined.keys().filter(is_policy).cloned());
        }
        for id in changed.iter() {
            let place = self.defined.get(id).and_then(|places| places.iter().next());
            let piece = place.and_then(|(file, index)| self.files.get(file)?.get(*index));
            let valid = piece.filter(|piece| !piece.rejected);
            self.spending.note(id, valid);
        }
        changed.extend(self.spending.share());
    }

    /// The first definition of an object.
    fn first(&self, id: &ObjectId) -> Option<&Piece> {
        let (file, index) = self.defined.get(id)?.iter().next()?;
        self.files.get(file)?.get(*index)
    }

    /// The policies that take more than they may, in order of their names.
    fn over_budget(&self) -> Vec<OverBudget> {
        let over = self.spending.refused().filter_map(|id| {
            let piece = self.first(id)?;
            let bound = self.spending.bound(id, piece)?;
            let cost = piece.cost.as_ref()?;
            Some(cost.over((&piece.id, &piece.location), bound, self.spending.budget()))
        });
        over.collect()
    }

    fn definitions(&self, id: &ObjectId) -> Vec<Definition<'_>> {
        let places = self.defined.get(id).into_iter().flat_map(Places::iter);
        places
            .filter_map(|(file, index)| {
                let piece = self.files.get(file)?.get(*index)?;
                Some(Definition { file, piece })
            })
            .collect()
    }

    fn decide(&mut self, id: Id, look: &Look<'_>, updates: &mut Vec<Update>) {
        let definitions = self.definitions(&id);
        let (count, lingers) = (definitions.len(), definitions.is_empty());
        let completed = definitions.iter().any(|of| of.piece.completed);
        let before = self.memory.get(&id);
        let choice = match before {
            Some(before) if lingers => linger(&id, before, look),
            before => {
                let is_over = |piece: &Piece| self.spending.bound(&id, piece).is_some();
                choose(before, &definitions, is_over, look.now)
            }
        };
        let mark = |set: &mut BTreeSet<Id>, is: bool| match is {
            true => set.insert(id.clone()),
            false => set.remove(&id),
        };
        mark(&mut self.twice, count > 1);
        mark(&mut self.completed, completed);
        mark(&mut self.lingering, lingers && choice.is_some());
        mark(
            &mut self.kept,
            choice.as_ref().is_some_and(|choice| choice.kept),
        );
        let (was, is) = match choice {
            Some(choice) => {
                let is = Arc::clone(&choice.object.objects);
                let was = self.memory.put(&id, choice.object);
                (was, is)
            }
            None => (self.memory.remove(&id), Arc::default()),
        };
        let was = was.map(|was| was.objects).unwrap_or_default();
        if Arc::ptr_eq(&was, &is) || was == is {
            return;
        }
        if !self.started {
            self.memory.rewrite(&id);
        }
        tell(&was, &is, updates);
    }

    fn report(&self, tree: &Tree<Piece>) -> Report {
        let mut flaws = Flaws::default();
        for flaw in tree.problems.iter().cloned().map(Flaw::error) {
            flaws.add(flaw);
        }
        flaws.leave_out(true, tree.more_problems);
        let mut ignored = BTreeMap::new();
        let notable = self.notable.iter();
        for (path, file) in notable.filter_map(|path| tree.files.get_key_value(&**path)) {
            let mut last = problem(path, String::new()).location;
            let of_file = file.problems.iter().cloned().map(Flaw::error);
            let of_pieces = file.objects.iter().flat_map(|piece| &piece.flaws).cloned();
            for flaw in of_file.chain(of_pieces) {
                last = last.max(flaw.problem.location.clone());
                flaws.add(flaw);
            }
            if file.tells() {
                let more = file.untold.more(&last, None, "this file");
                more.into_iter()
                    .for_each(|more| flaws.add(Flaw::more(more)));
            } else {
                flaws.leave_out(true, file.untold.errors);
                flaws.leave_out(false, file.untold.warnings);
            }
            if file.empty && self.lingering_of(path).next().is_some() {
                let reason =
                    "it is empty now; what it held stays in force until the file is removed";
                flaws.add(Flaw::error(problem(path, reason.to_owned())));
            }
            for kind in file
                .objects
                .iter()
                .filter_map(|piece| piece.ignored.clone())
            {
                count_ignored(&mut ignored, kind);
            }
        }
        for path in &tree.being_written {
            let reason = "it is open for writing: until it is closed it counts as it was before, and \
                          nothing that is missing elsewhere goes out of force";
            flaws.add(Flaw::warning(problem(path, reason.to_owned())));
        }
        for id in &self.twice {
            self.tell_of_definitions(id, &mut flaws);
        }
        for doubt in self.host_network.doubts() {
            flaws.add(Flaw::warning(doubt.clone()));
        }
        let over_budget = self.over_budget();
        let follows =
            "what was valid last stays in force, and without it what it selects is isolated";
        for over in &over_budget {
            flaws.add(Flaw::error(over.problem(follows)));
        }
        let kept = self
            .kept
            .iter()
            .filter_map(|id| Some(kept(id, self.memory.get(id)?)));
        let mut kept: Vec<Kept> = kept.collect();
        kept.sort_by(|a, b| a.object.cmp(&b.object));
        Report {
            files: tree.files.len(),
            objects: self.memory.len(),
            problems: flaws.end(),
            kept,
            over_budget,
            ignored,
            completed: self.completed.iter().map(|id| (**id).clone()).collect(),
        }
    }

    /// What lingers because of this file.
    fn lingering_of(&self, file: &Path) -> impl Iterator<Item = &Id> {
        let is_of = move |id: &&Id| self.memory.get(id).is_some_and(|o| *o.file == *file);
        self.lingering.iter().filter(is_of)
    }

    fn tell_of_definitions(&self, id: &ObjectId, flaws: &mut Flaws) {
        let definitions = self.definitions(id);
        let Some((first, others)) = definitions.split_first() else {
            return;
        };
        let first = &first.piece.location;
        let (told, untold) = others.split_at(others.len().min(OF_OBJECT));
        for other in told {
            let problem = defined_twice(id, &other.piece.location, first);
            flaws.add(Flaw::error(problem));
        }
        let mut more = Untold::default();
        more.add(true, untold.len());
        for more in more_definitions(id, first, more) {
            flaws.add(Flaw::more(more));
        }
    }
}

/// A look at the tree, to decide by.
struct Look<'a> {
    tree: &'a Tree<Piece>,
    /// Whether what it did not find is gone.
    sure: bool,
    broken: Broken<'a>,
    /// When it was, in seconds since 1970.
    now: u64,
}

/// The files that may hold objects that could not be read, and the names in them: the first file of
/// each. Looked up only if something is missing.
#[derive(Default)]
struct Broken<'a> {
    files: OnceCell<Vec<(&'a Path, &'a File<Piece>)>>,
    names: OnceCell<BTreeMap<&'a [u8], &'a Path>>,
}

impl<'a> Broken<'a> {
    fn files(&self, tree: &'a Tree<Piece>) -> &[(&'a Path, &'a File<Piece>)] {
        self.files.get_or_init(|| {
            let files = tree.files.iter().map(|(path, file)| (&**path, file));
            files
                .filter(|(_, file)| file.broken_text().is_some())
                .collect()
        })
    }

    /// The first of them that gives something this name.
    fn naming(&self, name: &str, tree: &'a Tree<Piece>) -> Option<&'a Path> {
        if !is_plain(name.as_bytes()) {
            let mut files = self.files(tree).iter();
            return files
                .find(|(_, file)| file.may_hold(name))
                .map(|(path, _)| *path);
        }
        let names = self.names.get_or_init(|| {
            let mut names = BTreeMap::new();
            for (path, file) in self.files(tree) {
                let of_file = file.broken_text().into_iter().flat_map(Named::names);
                for name in of_file {
                    names.entry(name).or_insert(*path);
                }
            }
            names
        });
        names.get(name.as_bytes()).copied()
    }
}

/// What a report tells of, within its quota.
struct Flaws {
    flaws: Vec<Flaw>,
    quota: Quota,
    /// Where what is not told is counted.
    last: Option<Location>,
}

impl Default for Flaws {
    fn default() -> Self {
        Flaws {
            flaws: Vec::new(),
            quota: Quota::of(OF_INPUT),
            last: None,
        }
    }
}

impl Flaws {
    fn add(&mut self, flaw: Flaw) {
        if self.quota.has_room(flaw.error) {
            self.quota.admit(flaw.error);
            self.flaws.push(flaw);
        } else {
            self.last = Some(flaw.problem.location);
            self.quota.leave_out(flaw.error, flaw.more.max(1));
        }
    }

    fn leave_out(&mut self, is_error: bool, count: usize) {
        self.quota.leave_out(is_error, count);
    }

    fn end(mut self) -> Vec<Flaw> {
        Flaw::sort(&mut self.flaws);
        let last = self.flaws.last().map(|flaw| flaw.problem.location.clone());
        if let Some(at) = self.last.or(last) {
            let more = self.quota.untold().more(&at, None, "the whole input");
            self.flaws.extend(more.into_iter().map(Flaw::more));
        }
        self.flaws
    }
}

fn key<V>((path, _): (&Arc<Path>, V)) -> Arc<Path> {
    Arc::clone(path)
}

/// Whether there is something to say of a file.
fn is_notable(file: &File<Piece>) -> bool {
    let is_notable = |piece: &Piece| !piece.flaws.is_empty() || piece.ignored.is_some();
    file.empty
        || !file.untold.is_empty()
        || !file.problems.is_empty()
        || file.objects.iter().any(is_notable)
}

/// Whether an object that no file defines stays in force.
fn linger(id: &ObjectId, before: &InForce, look: &Look<'_>) -> Option<Choice> {
    let tree = look.tree;
    let own = tree.files.get(&*before.file);
    let incomplete = |file: &File<Piece>| file.incomplete && !fault::is_on("incomplete-file-drops");
    let empty = |file: &File<Piece>| file.empty && !fault::is_on("empty-file-drops");
    let file = if own.is_some_and(|file| incomplete(file) || empty(file)) {
        Some(Arc::clone(&before.file))
    } else {
        let named = || look.broken.naming(&id.name, tree).map(Arc::from);
        match fault::is_on("incomplete-file-drops") {
            true => None,
            false => named(),
        }
    };
    if file.is_none() && tree.whole && look.sure {
        return None;
    }
    let kept = file.is_some() || !tree.whole;
    Some(Choice {
        object: InForce {
            file: file.unwrap_or_else(|| Arc::clone(&before.file)),
            ..before.clone()
        },
        kept,
    })
}

/// The difference between two versions.
fn tell(was: &[Object], is: &[Object], updates: &mut Vec<Update>) {
    let gone = |object: &&Object| !is.iter().any(|now| now.key() == object.key());
    updates.extend(
        was.iter()
            .filter(gone)
            .map(|object| Update::Delete(object.key())),
    );
    let new = is.iter().filter(|object| !was.contains(object));
    updates.extend(new.cloned().map(Update::Upsert));
}

fn kept(id: &ObjectId, object: &InForce) -> Kept {
    let version = object.version.as_ref();
    Kept {
        object: id.to_string(),
        since: version.map(|version| version.since),
        hash: version.map(|version| version.hash.to_string()),
    }
}
