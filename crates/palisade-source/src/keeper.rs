//! What is in force, given what the files say now and what was in force before.
//!
//! One that no file defines any more goes, but only after a look at the whole tree that nothing
//! disturbed, and not while the file it came from, or one that names it, cannot be read whole. Which
//! version of a defined object is in force is for [`crate::choose`].
//!
//! The work follows the change: only objects of files that changed are decided anew, and those that
//! linger.

use crate::choose::{Choice, Definition, choose};
use crate::host_network::HostNetwork;
use crate::memory::{InForce, Memory};
use crate::piece::{Id, Piece};
use crate::scan::{File, Tree, problem};
use crate::{Batch, Flaw, Kept, Report};
use palisade_manifest::Problem;
use palisade_model::{Object, ObjectId, Update};
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
    started: bool,
}

impl Keeper {
    /// With what was in force when the last run ended.
    pub(crate) fn remembering(memory: Memory) -> Self {
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

    /// Takes in a look made at `now` (seconds since 1970), at everything or at these files `only`;
    /// says what changes. `undisturbed` is whether nothing happened in the tree before and during
    /// the look, so that what it did not find is gone.
    pub(crate) fn take(
        &mut self,
        tree: &Tree<Piece>,
        only: Option<&BTreeSet<PathBuf>>,
        undisturbed: bool,
        now: u64,
    ) -> Batch {
        let mut changed = self.take_files(tree, only);
        self.host_network.update(&changed, |id| {
            let (file, index) = self.defined.get(id)?.iter().next()?;
            self.files.get(file)?.get(*index)
        });
        changed.extend(self.lingering.iter().cloned());
        let sure = undisturbed && tree.being_written.is_empty();
        let mut updates = Vec::new();
        for id in changed {
            self.decide(id, tree, sure, now, &mut updates);
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

    fn definitions(&self, id: &ObjectId) -> Vec<Definition<'_>> {
        let places = self.defined.get(id).into_iter().flat_map(Places::iter);
        places
            .filter_map(|(file, index)| {
                let piece = self.files.get(file)?.get(*index)?;
                Some(Definition { file, piece })
            })
            .collect()
    }

    fn decide(
        &mut self,
        id: Id,
        tree: &Tree<Piece>,
        sure: bool,
        now: u64,
        updates: &mut Vec<Update>,
    ) {
        let definitions = self.definitions(&id);
        let (count, lingers) = (definitions.len(), definitions.is_empty());
        let completed = definitions.iter().any(|of| of.piece.completed);
        let before = self.memory.get(&id);
        let choice = match before {
            Some(before) if lingers => linger(&id, before, tree, sure),
            before => choose(before, &definitions, now),
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
        let mut flaws: Vec<Flaw> = tree.problems.iter().cloned().map(Flaw::error).collect();
        let mut ignored = BTreeMap::new();
        let notable = self.notable.iter();
        for (path, file) in notable.filter_map(|path| tree.files.get_key_value(&**path)) {
            flaws.extend(file.problems.iter().cloned().map(Flaw::error));
            if file.empty && self.lingering_of(path).next().is_some() {
                let reason =
                    "it is empty now; what it held stays in force until the file is removed";
                flaws.push(Flaw::error(problem(path, reason.to_owned())));
            }
            for piece in file.objects.iter() {
                flaws.extend(piece.flaws.iter().cloned());
                if let Some(kind) = &piece.ignored {
                    *ignored.entry(kind.clone()).or_default() += 1;
                }
            }
        }
        for path in &tree.being_written {
            let reason = "it is open for writing: until it is closed it counts as it was before, and \
                          nothing that is missing elsewhere goes out of force";
            flaws.push(Flaw::warning(problem(path, reason.to_owned())));
        }
        flaws.extend(
            self.twice
                .iter()
                .flat_map(|id| self.defined_twice(id))
                .map(Flaw::error),
        );
        flaws.extend(self.host_network.doubts().cloned().map(Flaw::warning));
        Flaw::sort(&mut flaws);
        let kept = self
            .kept
            .iter()
            .filter_map(|id| Some(kept(id, self.memory.get(id)?)));
        let mut kept: Vec<Kept> = kept.collect();
        kept.sort_by(|a, b| a.object.cmp(&b.object));
        Report {
            files: tree.files.len(),
            objects: self.memory.len(),
            problems: flaws,
            kept,
            ignored,
            completed: self.completed.iter().map(|id| (**id).clone()).collect(),
        }
    }

    /// What lingers because of this file.
    fn lingering_of(&self, file: &Path) -> impl Iterator<Item = &Id> {
        let is_of = move |id: &&Id| self.memory.get(id).is_some_and(|o| *o.file == *file);
        self.lingering.iter().filter(is_of)
    }

    fn defined_twice(&self, id: &ObjectId) -> Vec<Problem> {
        let definitions = self.definitions(id);
        let Some((first, others)) = definitions.split_first() else {
            return Vec::new();
        };
        let first = &first.piece.location;
        let problem = |other: &Definition<'_>| Problem {
            location: other.piece.location.clone(),
            object: Some(id.to_string()),
            field: String::new(),
            reason: format!("{id} is defined twice: here and at {first}"),
        };
        others.iter().map(problem).collect()
    }
}

fn key<V>((path, _): (&Arc<Path>, V)) -> Arc<Path> {
    Arc::clone(path)
}

/// Whether there is something to say of a file.
fn is_notable(file: &File<Piece>) -> bool {
    let is_notable = |piece: &Piece| !piece.flaws.is_empty() || piece.ignored.is_some();
    file.empty || !file.problems.is_empty() || file.objects.iter().any(is_notable)
}

/// Whether an object that no file defines stays in force.
fn linger(id: &ObjectId, before: &InForce, tree: &Tree<Piece>, sure: bool) -> Option<Choice> {
    let own = tree.files.get(&*before.file);
    let file = if own.is_some_and(|file| file.incomplete || file.empty) {
        Some(Arc::clone(&before.file))
    } else {
        let mut files = tree.files.iter();
        let named = files.find(|(_, file)| file.may_hold(&id.name));
        named.map(|(path, _)| path.as_path().into())
    };
    if file.is_none() && tree.whole && sure {
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
